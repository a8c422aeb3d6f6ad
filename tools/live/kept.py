"""Keeps what came of a run, per cluster a file of arrays and one of facts; reads it again, run by run."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster
from advisor.sim.run_outcome import OUTCOME_DTYPE, Run
from advisor.sim.study.comparison import Groupings, Results, by_policy, parted, traces_of
from advisor.sim.study.metrics import Grouping
from advisor.sim.study.result import result_of
from advisor.sim.study.statistics import CellName
from advisor.sim.traces.trace import Trace
from advisor.view.wording import signed
from tools.live.arm import LiveArm
from tools.live.compressed_site import CompressedSite, PlannedArm
from tools.live.window import Cut
from tools.stage.sdiag import Cycles
from tools.stage.watch import leases_of, touched

_NAMES: Final = (
    "users", "accounts", "qos", "gpu_types", "models", "partitions", "dependencies", "job_names", "features",
    "required_nodes", "excluded_nodes", "reservations", "sampled",
)  # fmt: skip
# What a cluster without a daemon is called.
PLAIN: Final = "plain"
JOURNAL: Final = "journal.sqlite"
_CLUSTER: Final = TypeAdapter(Cluster)
_STOP: Final = re.compile(r'event="nothing is applied" by=(\S+)')
_TIMES: Final = ("start_time", "end_time", "held_gpu_s", "exposed_gpu_s", "lost_gpu_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One cluster of a run: `run` in compressed time, and `job_ids` `(n_jobs,)` in Slurm.

    `name` says what ran on it, as `arm` planned it, `stem` is that of its files. `cluster` is its model, in compressed
    time as well.
    """

    name: str
    arm: PlannedArm
    folder: Path
    stem: str
    site: CompressedSite
    cut: Cut
    version: str
    cluster: Cluster
    run: Run
    job_ids: NDArray[np.int64]
    zero_time: float
    priorities_time: float
    cycles: Cycles | None
    faults: tuple[str, ...]

    @property
    def journal(self) -> Path | None:
        """The journal of the daemon, None where there was none."""
        return self._file(JOURNAL)

    @property
    def config(self) -> Path | None:
        """The configuration of the daemon, None where there was none."""
        return self._file("sadvise.toml")

    @property
    def is_plain(self) -> bool:
        """Whether it has no daemon and Slurm as all clusters have it."""
        return self.arm.policy == "none" and not self.arm.options

    @property
    def cell(self) -> CellName:
        """The trace and the seed."""
        return CellName(self.run.trace.name, self.run.seed)

    @property
    def stops(self) -> tuple[str, ...]:
        """The breakers that kept the daemon from making changes, in the order of its log."""
        log = self._file("log")
        return () if log is None else tuple(_STOP.findall(log.read_text(encoding="utf-8", errors="replace")))

    def _file(self, name: str) -> Path | None:
        path = self.folder / self.stem / name
        return path if path.exists() else None


def keep(
    folder: Path,
    arm: LiveArm,
    policy: str,
    *,
    site: CompressedSite,
    cut: Cut,
    seed: int,
    wall_s: float,
    priorities_time: float,
) -> None:
    """Write what came of the jobs of a cluster."""
    run = arm.execution.run(policy, seed, wall_s=wall_s, changes=0)
    job_ids = [arm.seen[row].job_id if row in arm.seen else 0 for row in range(len(run.trace))]
    np.savez_compressed(
        folder / f"{arm.name}.npz",
        jobs=run.trace.jobs,
        outcomes=run.outcomes,
        segments=run.segments,
        job_ids=np.array(job_ids, np.int64),
    )
    facts = {
        "policy": policy,
        "seed": seed,
        "trace": run.trace.name,
        "names": {name: getattr(run.trace, name) for name in _NAMES},
        "site": asdict(site),
        "cut": asdict(cut),
        "version": arm.live.version,
        "cluster": _CLUSTER.dump_python(arm.execution.cluster, mode="json"),
        "cluster_gpus": run.cluster_gpus,
        "wall_s": wall_s,
        "zero_time": arm.zero_time,
        "priorities_time": priorities_time,
        "cycles": None if arm.cycles is None else asdict(arm.cycles),
        "faults": arm.faults,
    }
    (folder / f"{arm.name}.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def read_kept(folder: Path) -> list[Kept]:
    """Read the clusters of a run, those without a daemon first; raises `SimulationError` if there are none."""
    kept = sorted(map(_read, folder.glob("*.json")), key=lambda kept: (not kept.is_plain, kept.stem))
    if not kept:
        raise SimulationError(f"{folder}: holds no kept run: give a folder that tools.live.twins has written")
    return list(_named(kept))


def _named(arms: Iterable[Kept]) -> Iterator[Kept]:
    """Name clusters by their labels, else by policy and options; what is there twice is numbered."""
    times = Counter[str]()
    for kept in arms:
        arm = kept.arm
        name = arm.label or " ".join([PLAIN if arm.policy == "none" else arm.policy, *arm.options])
        times[name] += 1
        yield replace(kept, name=name if times[name] == 1 else f"{name} {times[name]}")


def _read(path: Path) -> Kept:
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {name: tuple(values) for name, values in facts["names"].items()}
    with np.load(path.with_suffix(".npz")) as arrays:
        job_ids = arrays["job_ids"]
        trace = Trace(name=facts["trace"], jobs=arrays["jobs"], seed=facts["seed"], **names)
        run = Run(
            trace=trace,
            policy=facts["policy"],
            seed=facts["seed"],
            cluster_gpus=facts["cluster_gpus"],
            outcomes=arrays["outcomes"].astype(OUTCOME_DTYPE),
            segments=arrays["segments"],
            wall_s=facts["wall_s"],
            peak_rss_mib=0.0,
            changes=sum(lease.job_id in job_ids for lease in touched(leases_of(path.with_suffix("") / JOURNAL))),
        )
    return Kept(
        name=path.stem,
        arm=PlannedArm.of(facts["policy"]),
        folder=path.parent,
        stem=path.stem,
        site=CompressedSite(**facts["site"]),
        cut=Cut(**facts["cut"]),
        version=facts["version"],
        cluster=_CLUSTER.validate_json(json.dumps(facts["cluster"])),
        run=run,
        job_ids=job_ids,
        zero_time=facts["zero_time"],
        priorities_time=facts.get("priorities_time", facts["zero_time"]),
        cycles=None if facts["cycles"] is None else Cycles(**facts["cycles"]),
        faults=tuple(facts["faults"]),
    )


def stretched(run: Run, speedup: float) -> Run:
    """Return a run in the time of its trace."""
    trace = replace(run.trace, jobs=run.trace.jobs.copy())
    for name in ("submit_time", "run_time_s", "time_limit_s", "checkpoint_interval_s"):
        trace.jobs[name] *= speedup
    outcomes, segments = run.outcomes.copy(), run.segments.copy()
    for name in _TIMES:
        outcomes[name] *= speedup
    for name in ("start_time", "end_time"):
        segments[name] *= speedup
    return replace(run, trace=trace, outcomes=outcomes, segments=segments)


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
        self.arms = sorted(arms, key=lambda arm: (not arm.is_plain, arm.name))
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
        plain = [name for name in self.others if any(arm.is_plain for arm in self.kept(name).values())]
        return plain[0] if plain and next(iter(self.kept(self.first).values())).is_plain else None


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
