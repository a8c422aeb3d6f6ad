"""Defines the record of one round of the daemon, for the log, the metrics and the journal."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from advisor.apply.step import Reconciled, Step
from advisor.domain.dataclass import dataclass
from advisor.domain.idle_gpus import IdleLook
from advisor.domain.lease import LeaseState
from advisor.domain.load import ControllerLoad
from advisor.domain.mode import Mode
from advisor.domain.probation import OrderLook
from advisor.domain.waiting_gangs import GangLook
from advisor.guard.breakers import OpenBreaker
from advisor.trial.accuracy import Accuracy

# The forecast quantities.
Forecasted = Literal["start", "run_time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round; `step` is None if it was skipped or failed, and `fault` is the reason in one line.

    `returned` is what was reverted in a round without a step.

    `mode` is the farthest mode now; `held_to` maps each cause that keeps it below the configured one (a pause, a
    breaker, a journal that failed) to its reason in plain words. `rpcs` counts the requests of this process to
    slurmctld by kind since it started. `overdue` counts the changes that were due before the end of the round and are
    still in effect. `strays` are pending jobs whose nice carries our mark without a lease, and `unknown_lifts` those of
    them whose nice no user can set. `accuracy` is that of the forecasts of "start" and "run_time"; `on_probation` maps
    the run-time models that the plan set aside to why, and `order` is the last look at how such a model orders jobs.
    `breakers` are the open ones. `failing_nodes` says which nodes fail more often than chance makes, "" for none.
    `idle` is the last look at idle GPUs, `gangs` that at pending gangs. `settings` says which ones the daemon took up
    by itself. `interval_s` is how long after the start of this round the next one starts.
    """

    started_time: float
    duration_s: float
    cpu_s: float
    mode: Mode
    interval_s: float
    step: Step | None = None
    returned: Reconciled = field(default_factory=Reconciled)
    fault: str = ""
    held_to: Mapping[str, str] = field(default_factory=dict)
    load: ControllerLoad | None = None
    rpcs: Mapping[str, int] = field(default_factory=dict)
    open_leases: Mapping[LeaseState, int] = field(default_factory=dict)
    overdue: int = 0
    strays: tuple[int, ...] = ()
    unknown_lifts: tuple[int, ...] = ()
    accuracy: Mapping[Forecasted, Accuracy] = field(default_factory=dict)
    on_probation: Mapping[str, str] = field(default_factory=dict)
    order: OrderLook | None = None
    breakers: tuple[OpenBreaker, ...] = ()
    failing_nodes: str = ""
    idle: IdleLook | None = None
    gangs: GangLook | None = None
    settings: str = ""

    @property
    def reconciled(self) -> Reconciled:
        """The changes that were reverted, overruled or postponed."""
        return self.returned if self.step is None else self.step.reconciled

    @property
    def summary(self) -> str:
        """The round in one line, for `systemctl status`."""
        held = f" (held by {', '.join(self.held_to)})" if self.held_to else ""
        if self.step is None:
            return f"{self.mode}{held}: {self.fault or 'nothing was read'}"
        proposed = len(self.step.record.recommendations)
        out = sum(self.open_leases.values())
        return (
            f"{self.mode}{held}: {proposed} recommended, {len(self.step.applied)} sent, "
            f"{len(self.step.reconciled.taken_back)} taken back, {out} out"
        )
