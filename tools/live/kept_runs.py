"""The clusters of several runs, run by run, and the sections of a report on them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from advisor.sim.run_outcome import Run
from advisor.sim.study.comparison import Groupings, Results, by_policy, parted, traces_of
from advisor.sim.study.metrics import Grouping
from advisor.sim.study.result import result_of
from advisor.sim.study.statistics import CellName
from advisor.sim.traces.trace import Trace
from advisor.view.wording import signed
from tools.live.kept import Kept, stretched

METRICS: Final = (
    "mean_jct_s",
    "p99_jct_s",
    "makespan_s",
    "mean_queueing_delay_s",
    "p99_queueing_delay_s",
    "max_queueing_delay_s",
    "communication_overhead_ratio",
)
Table = tuple[Sequence[str], Sequence[Sequence[str]]]
# What a section shows, as JSON has it: null stands for a number that is none.
Values = Sequence[Mapping[str, Any]]
# Those of all sections, by name.
Report = Mapping[str, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """A part of the report; a table is its heads and its rows."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()


class Runs:
    """The clusters of all runs, run by run, the one that others are compared with first."""

    def __init__(self, arms: Sequence[Kept]) -> None:
        """Take the clusters."""
        # The plain ones first, also where only some runs have a second one.
        self.arms = sorted(arms, key=lambda arm: (arm.policy != "none", arm.name))
        # In the time of the trace, under the names of the clusters.
        self.runs = [replace(stretched(arm.run, arm.site.speedup), policy=arm.name) for arm in self.arms]
        self.results = [result_of(run) for run in self.runs]
        self.by_arm: Mapping[str, Results] = by_policy(self.results)
        self.first = next(iter(self.by_arm))

    @property
    def scopes(self) -> list[str | None]:
        """The traces and, with several of them, None for all."""
        traces = traces_of(self.results)
        return [*traces, *([None] if len(traces) > 1 else [])]

    def on(self, name: str, trace: str | None) -> Results:
        """Return the results of a cluster, of all runs or of those of a trace."""
        return {cell: result for cell, result in self.by_arm[name].items() if trace in (None, cell.trace)}

    @property
    def others(self) -> list[str]:
        """The clusters that are compared."""
        return [name for name in self.by_arm if name != self.first]

    def kept(self, name: str) -> dict[CellName, Kept]:
        """Return a cluster by run."""
        return {CellName(arm.run.trace.name, arm.run.seed): arm for arm in self.arms if arm.name == name}

    def of(self, name: str) -> dict[CellName, Run]:
        """Return the jobs of a cluster by run, in the time of the trace."""
        return {CellName(run.trace.name, run.seed): run for run in self.runs if run.policy == name}

    def jobs(self, trace: str | None = None) -> Trace:
        """Return the jobs of all runs, or of those of a trace, one run after the other."""
        traces = [run.trace for cell, run in self.of(self.first).items() if trace in (None, cell.trace)]
        return replace(traces[0], jobs=np.concatenate([part.jobs for part in traces]))

    def grouped(self, grouping: Grouping) -> Groupings:
        """Return a grouping of all jobs by run."""
        return parted(grouping, self.by_arm[self.first])

    @cached_property
    def plain_again(self) -> str | None:
        """The second plain cluster, None if there is none."""
        plain = [name for name in self.others if any(arm.policy == "none" for arm in self.kept(name).values())]
        return plain[0] if plain and next(iter(self.kept(self.first).values())).policy == "none" else None


def in_words(change: float | None, low: float | None, high: float | None, unit: str = "%") -> str:
    """Return a change with its interval: `-9.1 % (-12.0 to -6.3)`."""
    if change is None:
        return "not comparable"
    middle = f"{signed(change)} {unit}"
    return middle if low is None or high is None else f"{middle} ({signed(low)} to {signed(high)})"


def plain_values(value: Any) -> Any:
    """Return a value as JSON has it, null for what is no number."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {name: plain_values(one) for name, one in value.items()}
        case list() | tuple():
            return [plain_values(one) for one in value]
        case _:
            return value
