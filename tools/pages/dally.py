"""The page of Dally: its targets, its ablations, and every corner with all policies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np

import advisor
from advisor.sim.cluster import parse_cluster
from advisor.sim.runner import SimulationOptions
from advisor.sim.study.cell import Cell
from advisor.sim.study.comparison import by_policy, compare, ends_of, mean_of
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import RelativeChange
from advisor.view.wording import LABELS, change_in_words, ends_in_words, shown
from tools.data import dally_workload as workload
from tools.pages.page_experiment import Experiment, PageTask, Runner
from tools.pages.page_text import render, table

UNLIMITED: Final = "unlimited GPUs"
METRIC: Final = "mean_jct_s"
OVERHEAD: Final = "communication_overhead_ratio"
# What the paper reports as its best changes, in percent, and against which policy.
TARGETS: Final[Mapping[str, float]] = {
    "makespan_s": -69.0,
    "mean_jct_s": -83.0,
    OVERHEAD: -98.0,
}
SYSTEMS: Final = ("dally", "dally+preempt")
BASELINES: Final = ("las", "gandiva")
ABLATIONS: Final = ("dally-nowait", "dally-consolidated", "dally-fixed")
# How much longer than the best ablation's the mean JCT can be.
TOLERANCE_PERCENT: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Corner:
    """An arrival (a load, None for all jobs at once) on a cluster of an oversubscription, None for unlimited GPUs."""

    load_ratio: float | None
    oversubscription: float | None

    @property
    def name(self) -> str:
        """The text that stands for it in tables."""
        return f"{workload.arrival_name(self.load_ratio)}, {self.oversubscription:g}:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """All results, one for each seed: by corner and policy, and of the unlimited cluster by load."""

    corners: Mapping[Corner, Mapping[str, Sequence[RunResult]]]
    unlimited: Mapping[float | None, Sequence[RunResult]]
    nic_gbps: float

    @property
    def policies(self) -> list[str]:
        """The policies, the one compared with the others first."""
        return list(next(iter(self.corners.values())))

    @property
    def seeds(self) -> int:
        """The number of runs behind each figure."""
        return len(next(iter(self.unlimited.values())))


def make(experiment: Experiment, runner: Runner, command: str, data: Path | None) -> str:  # noqa: ARG001 - draws its own
    """Simulate, and return the page."""
    return page(run_bench(experiment, runner), command)


def tasks_of(experiment: Experiment, policies: Sequence[str], *, unlimited: bool) -> Iterator[PageTask[Corner]]:
    """Yield the runs by corner, those of a seed and an arrival on one trace; `unlimited` adds those that never wait."""
    nic_gbps = experiment.nic
    clusters = {
        oversubscription: parse_cluster(workload.cluster_text(oversubscription, nic_gbps))
        for oversubscription in dict.fromkeys(experiment.oversubscription)
    }
    roomy = parse_cluster(workload.roomy_cluster_text(experiment.jobs, nic_gbps))
    for load_ratio, seed in product(dict.fromkeys(experiment.loads), range(experiment.seeds)):
        trace = workload.make_trace(seed, experiment.jobs, load_ratio)
        # Where nothing queues, any order gives the same.
        alone = Cell(trace=trace, cluster=roomy, policy="fifo", seed=seed, options=SimulationOptions())
        if unlimited:
            yield PageTask(group=Corner(load_ratio=load_ratio, oversubscription=None), cell=alone)
        for (oversubscription, cluster), policy in product(clusters.items(), policies):
            corner = Corner(load_ratio=load_ratio, oversubscription=oversubscription)
            yield PageTask(group=corner, cell=replace(alone, cluster=cluster, policy=policy))


def run_bench(experiment: Experiment, runner: Runner) -> Bench:
    """Run everything, and sort the results by corner and policy."""
    results = runner.results(list(tasks_of(experiment, experiment.policy_names, unlimited=True)))
    return Bench(
        corners={corner: by_name(own) for corner, own in results.items() if corner.oversubscription is not None},
        unlimited={
            corner.load_ratio: [replace(result, summary=replace(result.summary, policy=UNLIMITED)) for result in own]
            for corner, own in results.items()
            if corner.oversubscription is None
        },
        nic_gbps=experiment.nic,
    )


def by_name(results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """Return the results by policy, one for each seed."""
    return {policy: list(own.values()) for policy, own in by_policy(results).items()}


def page(bench: Bench, command: str) -> str:
    """Return the page; `command` is what makes it again."""
    text = render(
        "dally",
        command=command,
        version=advisor.__version__,
        bench=bench,
        first=bench.policies[0],
        unlimited=UNLIMITED,
        jobs=next(iter(bench.unlimited.values()))[0].summary.jobs,
        mean_gpus=sum(np.multiply(workload.DEMANDS, workload.DEMAND_SHARES)),
        w=workload,
        cluster=workload.cluster_text(1.0, bench.nic_gbps),
        demands=table(
            ("GPUs", *(f"{demand}:" for demand in workload.DEMANDS)),
            [["of the jobs", *(f"{100 * share:.0f} %" for share in workload.DEMAND_SHARES)]],
        ),
        targets=_targets(bench),
        ablations=_ablations(bench),
        changes=_changes(bench),
        overheads=table(("corner", *(f"{name}:" for name in (UNLIMITED, *bench.policies))), _overheads(bench)),
        left="\n\n".join(_left(bench)),
    )
    return text + "\n"


def change_of(before: Sequence[RunResult], after: Sequence[RunResult], metric: str) -> RelativeChange:
    """Return how a metric under the policy of `after` differs from that of `before`, over the same seeds."""
    (difference,) = compare([*before, *after], seed=0, metrics=(metric,))
    return difference.change


def best_of(names: Sequence[str], own: Mapping[str, Sequence[RunResult]]) -> str:
    """Return the policy with the lowest mean JCT."""
    return min(names, key=lambda name: mean_over_seeds("mean_jct_s", own[name]))


def mean_over_seeds(metric: str, results: Sequence[RunResult]) -> float:
    """Average a metric over the runs of one policy."""
    return mean_of(metric, {result.cell: result for result in results})


def _targets(bench: Bench) -> str:
    judged = [name for name in bench.policies if name in SYSTEMS]
    against = [name for name in bench.policies if name in BASELINES]
    if not against or not judged:
        return ""
    worst = max(corner.oversubscription or 0.0 for corner in bench.corners)
    corners = [corner for corner in bench.corners if corner.oversubscription == worst]
    reached = dict.fromkeys(TARGETS, 0)
    rows = []
    for corner, other in product(corners, against):
        own, unlimited = bench.corners[corner], bench.unlimited[corner.load_ratio]
        for name in (*judged, UNLIMITED):
            mine = own.get(name, unlimited)
            changes = {metric: change_of(own[other], mine, metric) for metric in TARGETS}
            is_reached = {
                metric: name != UNLIMITED and change.percent <= TARGETS[metric] for metric, change in changes.items()
            }
            for metric in TARGETS:
                reached[metric] += is_reached[metric]
            cells = (
                f"**{change_in_words(change)}**" if is_reached[metric] else change_in_words(change)
                for metric, change in changes.items()
            )
            rows.append(
                [workload.arrival_name(corner.load_ratio), other, name, *cells, _avoidable(own[other], mine, unlimited)]
            )
    heads = ("against", "policy", *(f"{LABELS[metric]}, target {target:.0f} %:" for metric, target in TARGETS.items()))
    return render(
        "dally",
        "targets",
        judged=" and ".join(f"`{name}`" for name in judged),
        unlimited=UNLIMITED,
        table=table((f"{worst:g}:1", *heads, "avoidable:"), rows),
        counts=", ".join(
            f"{LABELS[metric]} {count} of {len(corners) * len(against) * len(judged)}"
            for metric, count in reached.items()
        ),
    )


def _avoidable(before: Sequence[RunResult], after: Sequence[RunResult], least: Sequence[RunResult]) -> str:
    """Return the change of the mean overhead above the least, in percent."""
    floor, was, now = (mean_over_seeds(OVERHEAD, results) for results in (least, before, after))
    return f"{100 * ((now - floor) / (was - floor) - 1.0):+.1f} %" if was > floor else "nothing to avoid"


def _ablations(bench: Bench) -> str:
    first, *others = bench.policies
    ablations = [name for name in others if name in ABLATIONS]
    if not ablations:
        return ""
    changes = [change_of(own[best_of(ablations, own)], own[first], METRIC) for own in bench.corners.values()]
    return render(
        "dally",
        "ablations",
        first=first,
        tolerance=TOLERANCE_PERCENT,
        within=sum(change.percent <= TOLERANCE_PERCENT for change in changes),
        corners=len(changes),
    )


def _changes(bench: Bench) -> str:
    first, *others = bench.policies
    rows = []
    for corner, own in bench.corners.items():
        changes = {other: change_in_words(change_of(own[other], own[first], METRIC)) for other in others}
        if ablations := [name for name in others if name in ABLATIONS]:
            best = best_of(ablations, own)
            changes[best] = f"**{changes[best]}**"
        rows.append([corner.name, shown(METRIC, mean_over_seeds(METRIC, own[first])), *changes.values()])
    return table(("corner", f"{first}:", *(f"against {other}:" for other in others)), rows)


def _overheads(bench: Bench) -> Iterator[Sequence[str]]:
    for corner, own in bench.corners.items():
        of_each = (bench.unlimited[corner.load_ratio], *own.values())
        yield corner.name, *(shown(OVERHEAD, mean_over_seeds(OVERHEAD, results)) for results in of_each)


def _left(bench: Bench) -> Iterator[str]:
    """Yield a line for each corner and policy under which not all jobs finished."""
    for corner, own in bench.corners.items():
        for name, results in own.items():
            if ends := ends_in_words(ends_of(by_policy(results)[name]), seeds=bench.seeds):
                yield f"{corner.name}: under `{name}` not all jobs finished: {ends}."
