"""Runs every setting that `sadvise tune` tries on the same perturbed copies of a trace, and measures the frontier."""

from collections.abc import Sequence
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.tune_verdict import Preset
from advisor.sim.cluster import Cluster
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.cell import Cell, PerturbedTrace, RunCells, drawn, perturbed
from advisor.sim.study.frontier import CopiedRuns, Point, TuneOutcome, best_lift, marked, point_of
from advisor.sim.study.tried_settings import (
    PLAIN,
    SlurmChange,
    TriedSetting,
    joined_settings,
    lift_settings,
    pin_settings,
    plain_setting,
    slurm_changes,
    slurm_settings,
)
from advisor.sim.traces.sampling import REQUESTS
from advisor.sim.traces.trace import Trace

_LIFTED: Final = (Preset.GENTLE, Preset.TRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What is tried on which copies of a trace; `left_out` says why parameters of slurm.conf are not varied."""

    trace: Trace
    copies: tuple[PerturbedTrace, ...]
    plain: TriedSetting
    lifts: tuple[TriedSetting, ...]
    changes: tuple[SlurmChange, ...]
    left_out: tuple[str, ...]
    seed: int

    @classmethod
    def of(
        cls,
        trace: Trace,
        cluster: Cluster,
        options: SimulationOptions,
        *,
        repeats: int,
        seed: int,
        requests: str = "usual",
        varies_slurm: bool = True,
        with_ceilings: bool = True,
    ) -> "Exploration":
        """Plan what to try; the facts that the trace lacks are drawn with the seed, once for all copies.

        `requests` names how. Without ceilings only what a site can set is tried.
        """
        whole = drawn(trace, cluster, seed, REQUESTS[requests])
        changes, left_out = slurm_changes(whole, cluster) if varies_slurm else ([], [])
        plain = plain_setting(cluster, options)
        _, without_pins = pin_settings(plain, whole)
        return cls(
            trace=whole,
            copies=tuple(perturbed(whole, repeat, seed) for repeat in range(repeats)),
            plain=plain,
            lifts=tuple(lift_settings(cluster, options, with_ceilings=with_ceilings)),
            changes=tuple(changes),
            left_out=(*without_pins, *left_out),
            seed=seed,
        )

    @property
    def pins(self) -> list[TriedSetting]:
        """Plain Slurm with open gangs on the fewest nodes; none where the trace has no such gang."""
        return pin_settings(self.plain, self.trace)[0]

    @property
    def runs(self) -> int:
        """The number of runs in all."""
        # As many settings come of one lift as of another.
        bases = [*self.pins, *([self.lifts[0]] * len(_LIFTED))]
        joined = sum(len(joined_settings(base, self.trace, self.changes)) for base in bases)
        return len(self.copies) * (1 + len(self.pins) + len(self.lifts) + len(self.changes) + joined)

    def outcome(self, run_cells: RunCells, in_force: str = PLAIN) -> TuneOutcome:
        """Run everything; `in_force` names the setting by which the site runs now.

        Pins, lifts and the parameters of slurm.conf run one at a time; then reservations with pins, and both with the
        best lift of each preset.
        """
        settings = [self.plain, *self.pins, *self.lifts, *slurm_settings(self.plain, self.changes)]
        runs = self._copied_runs(settings, run_cells, 0)
        points = self._points(settings, runs, runs[0])
        bases = [*self.pins, *(best_lift(points, preset).setting for preset in _LIFTED)]
        joined = [setting for base in bases for setting in joined_settings(base, self.trace, self.changes)]
        of_joined = self._copied_runs(joined, run_cells, len(self.copies) * len(settings)) if joined else []
        points = [*points, *self._points(joined, of_joined, runs[0])]
        points = marked(points)
        now = next(point for point in points if point.setting.name == in_force)
        return TuneOutcome(points=tuple(points), seed=self.seed, in_force=now)

    def _copied_runs(self, settings: Sequence[TriedSetting], run_cells: RunCells, done: int) -> list[CopiedRuns]:
        cells = [self._cell(setting, copy) for setting in settings for copy in self.copies]
        results = run_cells(cells, done)
        size = len(self.copies)
        return [CopiedRuns.of(results[start : start + size], self.copies) for start in range(0, len(results), size)]

    def _cell(self, setting: TriedSetting, copy: PerturbedTrace) -> Cell:
        return Cell(
            trace=copy.trace, cluster=setting.cluster, policy=setting.policy, seed=self.seed, options=setting.options
        )

    def _points(self, settings: Sequence[TriedSetting], runs: Sequence[CopiedRuns], plain: CopiedRuns) -> list[Point]:
        late_s = self.plain.options.limits.max_added_delay_s
        return [
            point_of(setting, own, plain, self.trace.jobs["user"], late_s=late_s, seed=self.seed)
            for setting, own in zip(settings, runs, strict=True)
        ]
