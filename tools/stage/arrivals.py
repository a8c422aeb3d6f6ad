"""Holds the requests that arrive on live clusters of a100 nodes, and draws the time from one to the next."""

import random
from dataclasses import dataclass
from typing import Final

from advisor.domain.actions import NodeRange

# System users that every Debian has.
USERS: Final = ("root", "games", "mail", "news")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """Asks for GPUs over all nodes, in options of sbatch, on any number of nodes in a range."""

    name: str
    options: tuple[str, ...]
    gpus: int
    nodes: NodeRange


def on_one_node(name: str, gpus: int) -> GpuRequest:
    """Return a request for GPUs of one node."""
    options = ("-N1", f"--gres=gpu:a100:{gpus}", "-n1")
    return GpuRequest(name=name, options=options, gpus=gpus, nodes=NodeRange(low=1, high=1))


def on_some_nodes(name: str, gpus: int, most: int) -> GpuRequest:
    """Return a request for GPUs of one to several nodes: only such gangs can be held to fewer nodes."""
    options = (f"-N1-{most}", f"--gpus=a100:{gpus}", f"-n{most}")
    return GpuRequest(name=name, options=options, gpus=gpus, nodes=NodeRange(low=1, high=most))


SMALL: Final = on_one_node("small", 2)
WHOLE: Final = on_one_node("long", 8)
PAIR: Final = on_some_nodes("pair", 4, 2)
RANGE: Final = on_some_nodes("range", 8, 4)
SPREAD: Final = GpuRequest(
    name="spread",
    options=("-N2", "--gpus-per-node=a100:8", "--ntasks-per-node=1"),
    gpus=16,
    nodes=NodeRange(low=2, high=2),
)


def gap_s(chance: random.Random, work_s: float, gpus: int, load: float) -> float:
    """Draw the seconds until more jobs arrive, after some with this work in GPU seconds, at a load of all GPUs."""
    # The work of a job over all GPUs is the mean interval at full load; a shorter one makes a queue.
    return chance.expovariate(1.0) * work_s / gpus / load
