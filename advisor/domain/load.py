"""How busy slurmctld is, by its own account."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerLoad:
    """What `sdiag` tells of the present strain; None where it does not tell."""

    server_threads: int | None = None
    agent_queue: int | None = None
    database_queue: int | None = None
    cycle_s: float | None = None  # the last pass of the main scheduler
    backfill_cycle_s: float | None = None
