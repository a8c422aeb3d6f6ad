"""Defines the load of slurmctld."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerLoad:
    """The load of slurmctld as `sdiag` prints it; None for values that it does not print."""

    server_threads: int | None = None
    agent_queue: int | None = None
    database_queue: int | None = None
    cycle_s: float | None = None  # the last pass of the main scheduler
    backfill_cycle_s: float | None = None
