"""Defines the load of slurmctld, and how much more it is asked."""

from collections.abc import Mapping
from dataclasses import field

from advisor.domain.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerLoad:
    """The load of slurmctld as `sdiag` prints it; None for values that it does not print.

    `request_times_s` maps each kind of request, as sdiag names it, to the mean time that slurmctld took for one.
    """

    server_threads: int | None = None
    agent_queue: int | None = None
    database_queue: int | None = None
    cycle_s: float | None = None  # the last pass of the main scheduler
    backfill_cycle_s: float | None = None
    request_times_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How many more changes can be sent now, and in plain words why not more; None if there is room for all."""

    changes: int
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """The limit of slurmctld on the requests of one user: how many it holds, and how many it adds every second."""

    size: int
    per_s: float
