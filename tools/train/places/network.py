"""The networks of agents: a graph encoder in two levels, a pointer to servers, and a critic that sees all parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from advisor.features.observe.graph import LEAF_COLUMNS, SERVER_COLUMNS, SLOT_COLUMNS, Floats32
from advisor.features.observe.pointer import CHOICE_COLUMNS, GANG_COLUMNS
from advisor.features.observe.report import REPORT_COLUMNS

# What a part of a batch is filled up with: no leaf.
NO_LEAF: Final = -1.0
CODE: Final = 16
HIDDEN: Final = 32


class Seen(NamedTuple):
    """A batch of observations; the first axis of every tensor is the batch."""

    slots: Tensor  # (n, servers, slots, len(SLOT_COLUMNS))
    servers: Tensor  # (n, servers, len(SERVER_COLUMNS))
    leaf: Tensor  # (n, servers): the leaf of each server, -1 where there is no server
    leaves: Tensor  # (n, leaves, len(LEAF_COLUMNS))
    choice: Tensor  # (n, servers, len(CHOICE_COLUMNS))
    gang: Tensor  # (n, len(GANG_COLUMNS))
    own: Tensor  # (n, len(REPORT_COLUMNS))
    others: Tensor  # (n, agents, len(REPORT_COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The sizes that observations are filled up to, and how one is laid out as a row of numbers."""

    servers: int
    leaves: int
    agents: int
    slots: int = 8

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the tensors of one observation, in the order of `Seen`."""
        return {
            "slots": (self.servers, self.slots, len(SLOT_COLUMNS)),
            "servers": (self.servers, len(SERVER_COLUMNS)),
            "leaf": (self.servers,),
            "leaves": (self.leaves, len(LEAF_COLUMNS)),
            "choice": (self.servers, len(CHOICE_COLUMNS)),
            "gang": (len(GANG_COLUMNS),),
            "own": (len(REPORT_COLUMNS),),
            "others": (self.agents, len(REPORT_COLUMNS)),
        }

    @property
    def numbers(self) -> int:
        """The length of a row."""
        return sum(prod(shape) for shape in self.shapes.values())

    @property
    def actions(self) -> int:
        """Servers, agents to forward to, and wait, which is the last."""
        return self.servers + self.agents + 1

    def action(self, index: int, servers: int) -> int | None:
        """Return what an index means to a part of some servers, as `PartedCluster.take` takes it."""
        if index < self.servers:
            return index
        return None if index == self.actions - 1 else index - self.servers + servers

    def index(self, action: int | None, servers: int) -> int:
        """Return the index of an action in a part of some servers."""
        if action is None:
            return self.actions - 1
        return action if action < servers else action - servers + self.servers

    def unpacked(self, rows: Tensor) -> Seen:
        """Return the tensors of rows `(n, numbers)`."""
        first, tensors = 0, {}
        for name, shape in self.shapes.items():
            tensors[name] = rows[:, first : first + prod(shape)].reshape(len(rows), *shape)
            first += prod(shape)
        return Seen(**tensors)

    def packed(self, out: Floats32, **tensors: Floats32) -> None:
        """Write the arrays of one observation into a row of zeros; arrays may be smaller than the layout."""
        first = 0
        for name, shape in self.shapes.items():
            size = prod(shape)
            view = out[first : first + size].reshape(shape)
            if name == "leaf":
                view[:] = NO_LEAF
            array = tensors[name]
            view[tuple(slice(0, length) for length in array.shape)] = array
            first += size


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of the network that are in use; a part that is left out is an ablation."""

    graph: bool = True  # messages between servers and leaves
    hierarchy: bool = True  # what is inside servers
    interference: bool = True  # what gangs add to each other

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names of all parts."""
        return tuple(field.name for field in fields(Parts))

    @classmethod
    def without(cls, left_out: Sequence[str]) -> "Parts":
        """Return all parts but some."""
        return cls(**{name: name not in left_out for name in cls.names()})


class Encoder(nn.Module):
    """Codes of servers `(n, servers, HIDDEN)`: GPUs to servers, servers to leaves, leaves to the spine, and back."""

    def __init__(self, parts: Parts, rounds: int = 2) -> None:
        """Make layers for some rounds of messages."""
        super().__init__()
        self.parts = parts
        self.slot = nn.Linear(len(SLOT_COLUMNS), CODE)
        self.inside = nn.Linear(CODE, CODE)
        self.server = nn.Linear(len(SERVER_COLUMNS) + CODE, HIDDEN)
        self.up = nn.ModuleList([nn.Linear(len(LEAF_COLUMNS) + HIDDEN, HIDDEN) for _ in range(rounds)])
        self.spine = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(rounds)])
        self.down = nn.ModuleList([nn.Linear(2 * HIDDEN, HIDDEN) for _ in range(rounds)])

    def forward(self, slots: Tensor, servers: Tensor, member: Tensor, leaves: Tensor) -> Tensor:
        """Return the codes of the servers; `member` `(n, leaves, servers)` is 1 where a leaf has a server, else 0."""
        inside = torch.relu(self.inside(torch.relu(self.slot(slots)).sum(dim=2) * 0.125))
        if not self.parts.hierarchy:
            inside = torch.zeros_like(inside)
        codes = torch.relu(self.server(torch.cat([servers, inside], dim=2)))
        count = member.sum(dim=2, keepdim=True)
        mean = member / count.clamp(min=1.0)
        is_leaf = (count > 0.0).to(codes.dtype)
        over = is_leaf / is_leaf.sum(dim=1, keepdim=True).clamp(min=1.0)
        back = member.transpose(1, 2)
        for up, spine, down in zip(self.up, self.spine, self.down, strict=True):
            of_leaf = torch.relu(up(torch.cat([leaves, torch.bmm(mean, codes)], dim=2)))
            of_leaf = of_leaf + torch.relu(spine((of_leaf * over).sum(dim=1, keepdim=True)))
            if not self.parts.graph:
                of_leaf = torch.zeros_like(of_leaf)
            codes = codes + torch.relu(down(torch.cat([codes, torch.bmm(back, of_leaf)], dim=2)))
        return codes


def member_of(seen: Seen) -> Tensor:
    """Return which servers each leaf has, `(n, leaves, servers)`."""
    numbers = torch.arange(seen.leaves.shape[1], dtype=seen.leaf.dtype)
    return (seen.leaf.unsqueeze(1) == numbers.reshape(1, -1, 1)).to(seen.servers.dtype)


class Actor(nn.Module):
    """The logits of an agent's actions: each server as the next, each agent to forward to, and wait."""

    def __init__(self, parts: Parts) -> None:
        """Make the layers."""
        super().__init__()
        self.parts = parts
        self.encoder = Encoder(parts)
        self.of_code = nn.Linear(HIDDEN, HIDDEN)
        self.of_choice = nn.Linear(len(CHOICE_COLUMNS), HIDDEN, bias=False)
        self.of_gang = nn.Linear(len(GANG_COLUMNS), HIDDEN, bias=False)
        self.point = nn.Linear(HIDDEN, HIDDEN)
        self.score = nn.Linear(HIDDEN, 1)
        self.wait = nn.Sequential(
            nn.Linear(HIDDEN + len(GANG_COLUMNS) + len(REPORT_COLUMNS), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )
        self.pass_on = nn.Sequential(
            nn.Linear(len(GANG_COLUMNS) + 2 * len(REPORT_COLUMNS), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )

    def forward(self, seen: Seen) -> Tensor:
        """Return the logits `(n, servers + agents + 1)`."""
        codes = self.encoder(seen.slots, seen.servers, member_of(seen), seen.leaves)
        return self.decide(codes, seen.choice, seen.gang, seen.own, seen.others)

    def decide(self, codes: Tensor, choice: Tensor, gang: Tensor, own: Tensor, others: Tensor) -> Tensor:
        """Return the logits from the codes of the servers; servers without any usable GPU cannot be the best."""
        usable = (choice[:, :, :1] > 0.0).to(codes.dtype)
        joined = torch.relu(self.of_code(codes) + self.of_choice(choice) + self.of_gang(gang).unsqueeze(1))
        pointed = torch.relu(self.point(joined))
        servers = self.score(pointed).squeeze(2)
        best = (pointed * usable).amax(dim=1)
        wait = self.wait(torch.cat([best, gang, own], dim=1))
        beside = torch.cat([gang, own], dim=1).unsqueeze(1) + 0.0 * others[:, :, :1]
        forwards = self.pass_on(torch.cat([beside, others], dim=2)).squeeze(2)
        return torch.cat([servers, forwards, wait], dim=1)


class Critic(nn.Module):
    """The value of an agent's decision from its own part and from the present reports of all parts."""

    def __init__(self, parts: Parts) -> None:
        """Make the layers."""
        super().__init__()
        self.encoder = Encoder(parts)
        width = 2 * HIDDEN + len(GANG_COLUMNS) + 2 * len(REPORT_COLUMNS)
        self.value = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, seen: Seen) -> Tensor:
        """Return the values `(n,)`."""
        codes = self.encoder(seen.slots, seen.servers, member_of(seen), seen.leaves)
        is_there = (seen.leaf >= 0.0).unsqueeze(2).to(codes.dtype)
        mean = (codes * is_there).sum(dim=1) / is_there.sum(dim=1).clamp(min=1.0)
        # An agent that does not exist reports zeros; the size of a part is never 0.
        is_agent = (seen.others[:, :, -2:-1] != 0.0).to(codes.dtype)
        everyone = (seen.others * is_agent).sum(dim=1) / is_agent.sum(dim=1).clamp(min=1.0)
        pooled = [mean, (codes * is_there).amax(dim=1), seen.gang, seen.own, everyone]
        value: Tensor = self.value(torch.cat(pooled, dim=1)).squeeze(1)
        return value
