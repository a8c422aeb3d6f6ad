"""The networks of the policy for sites: a pointer to servers that looks at what a performance model says of each.

The policy begins as the rule `least_loss` and learns by how much its scores are to differ from those of the rule. That
is residual policy learning (Silver, Allen, Tenenbaum and Kaelbling, arXiv 1812.06298).

There is no graph encoder: without it the policy `marl` was as good (docs/marl.md), and this one decides faster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from advisor.features.observe.graph import Floats32
from advisor.features.observe.least_loss import SEEN_COLUMNS
from advisor.features.observe.pointer import CHOICE_COLUMNS, GANG_COLUMNS
from advisor.features.observe.report import REPORT_COLUMNS

HIDDEN: Final = 48
# What the action of the rule scores before anything is learnt, twice as much to wait; all others score 0.
RULE_SCORE: Final = 5.0
_IS_PLANNED, _OVERDUE = (SEEN_COLUMNS.index(name) for name in ("is_planned", "overdue"))


class SiteView(NamedTuple):
    """A batch of observations; the first axis of every tensor is the batch."""

    choice: Tensor  # (n, servers, len(CHOICE_COLUMNS))
    outlook: Tensor  # (n, servers, len(SEEN_COLUMNS))
    gang: Tensor  # (n, len(GANG_COLUMNS))
    own: Tensor  # (n, len(REPORT_COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLayout:
    """The number of servers that observations are filled up to, and how one is laid out as a row of numbers."""

    servers: int
    agents: int = 0

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the tensors of one observation, in the order of `SiteView`."""
        return {
            "choice": (self.servers, len(CHOICE_COLUMNS)),
            "outlook": (self.servers, len(SEEN_COLUMNS)),
            "gang": (len(GANG_COLUMNS),),
            "own": (len(REPORT_COLUMNS),),
        }

    @property
    def numbers(self) -> int:
        """The length of a row."""
        return sum(prod(shape) for shape in self.shapes.values())

    @property
    def actions(self) -> int:
        """Servers, and wait, which is the last."""
        return self.servers + 1

    def action(self, index: int, servers: int) -> int | None:  # noqa: ARG002  (as the layout of parts has it)
        """Return what an index means, as `PartedCluster.take` takes it."""
        return index if index < self.servers else None

    def index(self, action: int | None, servers: int) -> int:
        """Return the index of an action on a site of some servers; forwarding is none of them, and waits."""
        return self.servers if action is None or action >= servers else action

    def unpacked(self, rows: Tensor) -> SiteView:
        """Return the tensors of rows `(n, numbers)`."""
        first, tensors = 0, {}
        for name, shape in self.shapes.items():
            tensors[name] = rows[:, first : first + prod(shape)].reshape(len(rows), *shape)
            first += prod(shape)
        return SiteView(**tensors)

    def packed(self, out: Floats32, **tensors: Floats32) -> None:
        """Write the arrays of one observation into a row of zeros; arrays may be smaller than the layout."""
        first = 0
        for name, shape in self.shapes.items():
            view = out[first : first + prod(shape)].reshape(shape)
            view[tuple(slice(0, length) for length in tensors[name].shape)] = tensors[name]
            first += prod(shape)


def scores_of_rule(outlook: Tensor) -> tuple[Tensor, Tensor]:
    """Return what `least_loss` would score of the servers `(n, servers)`, and of waiting `(n, 1)`."""
    waits = (outlook[:, :1, _OVERDUE] < 0.0).to(outlook.dtype)
    return RULE_SCORE * outlook[:, :, _IS_PLANNED], 2.0 * RULE_SCORE * waits


class SiteActor(nn.Module):
    """Points to a server, or waits: the scores of the rule, and what is learnt on top of them."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        beside = len(GANG_COLUMNS) + len(REPORT_COLUMNS)
        self.of_choice = nn.Linear(len(CHOICE_COLUMNS) + len(SEEN_COLUMNS), HIDDEN)
        self.of_beside = nn.Linear(beside, HIDDEN, bias=False)
        self.inside = nn.Linear(HIDDEN, HIDDEN)
        self.of_best = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.score = nn.Linear(HIDDEN, 1)
        last = nn.Linear(HIDDEN, 1)
        self.wait = nn.Sequential(nn.Linear(HIDDEN + beside, HIDDEN), nn.ReLU(), last)
        # Nothing is learnt yet: the policy is the rule.
        for layer in (self.score, last):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, seen: SiteView) -> Tensor:
        """Return the logits of the actions `(n, servers + 1)`."""
        usable = (seen.choice[:, :, :1] > 0.0).to(seen.choice.dtype)
        beside = torch.cat([seen.gang, seen.own], dim=1)
        own = self.of_choice(torch.cat([seen.choice, seen.outlook], dim=2)) + self.of_beside(beside).unsqueeze(1)
        codes = torch.relu(own)
        best = (codes * usable).amax(dim=1)
        pointed = torch.relu(self.inside(codes) + self.of_best(best).unsqueeze(1))
        servers = self.score(pointed).squeeze(2)
        wait = self.wait(torch.cat([(pointed * usable).amax(dim=1), beside], dim=1))
        of_servers, of_wait = scores_of_rule(seen.outlook)
        return torch.cat([of_servers + servers, of_wait + wait], dim=1)


class SiteCritic(nn.Module):
    """The value of a decision."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        beside = len(GANG_COLUMNS) + len(REPORT_COLUMNS)
        self.of_choice = nn.Linear(len(CHOICE_COLUMNS) + len(SEEN_COLUMNS), HIDDEN)
        self.value = nn.Sequential(
            nn.Linear(2 * HIDDEN + beside, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, seen: SiteView) -> Tensor:
        """Return the values `(n,)`."""
        codes = torch.relu(self.of_choice(torch.cat([seen.choice, seen.outlook], dim=2)))
        pooled = [codes.mean(dim=1), codes.amax(dim=1), seen.gang, seen.own]
        value: Tensor = self.value(torch.cat(pooled, dim=1)).squeeze(1)
        return value
