"""The page of what delay timers bring within Slurm: plain Slurm beside Slurm with the advisor's timers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

import advisor
from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster
from advisor.sim.runner import SimulationOptions, known_policy
from advisor.sim.study.comparison import (
    GroupDifference,
    by_policy,
    compare,
    compare_groups,
    ends_of,
)
from advisor.sim.study.metrics import Grouping, by_gpus, by_user
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import CellName, RelativeChange, paired_difference
from advisor.sim.traces.trace import Trace
from advisor.view.wording import LABELS, change_in_words, ends_in_words, shown, verdict
from tools.data.simulated_traces import Workload
from tools.pages.page_experiment import Experiment, PageTask, Runner, cells_of, first_of
from tools.pages.page_text import render, table
from tools.pages.results import VERDICTS

METRICS: Final = ("mean_jct_s", "p99_queueing_delay_s", "communication_overhead_ratio")
# A group that loses more than this is named.
LOSS_PERCENT: Final = 5.0
SEED: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCorner:
    """The results on clusters of one oversubscription: those of plain Slurm first, and the traces by name."""

    oversubscription: float
    results: Sequence[RunResult]
    traces: Mapping[str, Trace]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfTrace:
    """Says how a group of jobs of one trace fared."""

    trace: str
    difference: GroupDifference


def make(experiment: Experiment, runner: Runner, command: str, data: Path | None) -> str:
    """Simulate, and return the page."""
    if len(experiment.policy_names) != 2:
        raise SimulationError(f"--policies {','.join(experiment.policies)}: give two, the first being plain Slurm")
    tasks = tasks_of(experiment, first_of(experiment, data))
    results = runner.results(tasks)
    traces = {task.cell.trace.name: task.cell.trace for task in tasks}
    corners = [
        SlurmCorner(oversubscription=oversubscription, results=own, traces=traces)
        for oversubscription, own in results.items()
    ]
    return page(corners, experiment, command)


def tasks_of(experiment: Experiment, workloads: Sequence[Workload]) -> list[PageTask[float]]:
    """Return the runs by oversubscription, those of plain Slurm first, all of a workload on the same drawn trace."""
    cells = [cell for workload in workloads for cell in cells_of(workload, experiment.policy_names, experiment)]
    cells.sort(key=lambda cell: experiment.policy_names.index(cell.policy))
    return [
        PageTask(
            group=oversubscription,
            cell=replace(cell, cluster=_cluster_of(cell.cluster, oversubscription, experiment.max_switch_wait_s)),
        )
        for oversubscription in experiment.oversubscription
        for cell in cells
    ]


def _cluster_of(cluster: Cluster, oversubscription: float, max_switch_wait_s: float | None) -> Cluster:
    """Return a cluster with leaf uplinks of an oversubscription, on which timers can last as long as given."""
    return replace(
        cluster,
        network=replace(cluster.network, oversubscription=oversubscription),
        slurm=replace(cluster.slurm, max_switch_wait_s=max_switch_wait_s or cluster.slurm.max_switch_wait_s),
    )


def by_size(corner: SlurmCorner) -> dict[str, RelativeChange]:
    """Return the change of the mean JCT of each size class, over traces."""
    groupings = {name: by_gpus(trace) for name, trace in corner.traces.items()}
    names = dict.fromkeys(name for grouping in groupings.values() for name in grouping.names)
    before, after = by_policy(corner.results).values()
    changes = {}
    for name in sorted(names, key=lambda size: int(size.split("-")[0])):
        a, b = (_jcts_of(name, groupings, results) for results in (before, after))
        changes[name] = paired_difference(a, b, seed=SEED)
    return changes


def _jcts_of(
    name: str, groupings: Mapping[str, Grouping], results: Mapping[CellName, RunResult]
) -> dict[CellName, NDArray[np.float64]]:
    """Return the JCTs of a group's jobs by cell, `(n_jobs,)`, where it has any."""
    return {
        cell: result.jct_s[groupings[cell.trace].group_of_job == groupings[cell.trace].names.index(name)]
        for cell, result in results.items()
        if name in groupings[cell.trace].names
    }


def of_users(corner: SlurmCorner) -> list[OfTrace]:
    """Compare the users of each trace."""
    return [
        OfTrace(trace=name, difference=difference)
        for name, trace in corner.traces.items()
        for difference in _of_trace(trace, [result for result in corner.results if result.summary.trace == name])
    ]


def _of_trace(trace: Trace, results: Sequence[RunResult]) -> list[GroupDifference]:
    before, after = by_policy(results).values()
    return compare_groups(before, after, dict.fromkeys(before, by_user(trace)), seed=SEED)


def page(corners: Sequence[SlurmCorner], experiment: Experiment, command: str) -> str:
    """Return the page."""
    slurm, policy = by_policy(corners[0].results)
    head = render(
        "dally_slurm",
        command=command,
        version=advisor.__version__,
        policy=policy,
        slurm=slurm,
        summary=known_policy(policy).summary,
        max_switch_wait_s=experiment.max_switch_wait_s or 0.0,
        cut=experiment.cut,
        options=SimulationOptions(),
    )
    return "\n\n".join([head, *map(_section, corners)]) + "\n"


def _section(corner: SlurmCorner) -> str:
    differences = compare(corner.results, seed=SEED, metrics=METRICS)
    policies = by_policy(corner.results)
    overall = []
    for metric in METRICS:
        own = [difference for difference in differences if difference.metric == metric]
        # Over one trace there is nothing beside it.
        read = [verdict(difference.change) for difference in own if difference.trace is not None]
        # One figure for a trace has no interval.
        counts = [str(read.count(word)) if metric != METRICS[-1] else "" for word in VERDICTS]
        overall.append([LABELS[metric], change_in_words(own[-1].change), *counts])
    groupings = [by_gpus(trace) for trace in corner.traces.values()]
    sizes = (
        [
            size,
            f"{change.pairs:,}",
            str(sum(size in grouping.names for grouping in groupings)),
            change_in_words(change),
            verdict(change),
        ]
        for size, change in by_size(corner).items()
    )
    left = (f"under `{name}` {ends_in_words(ends_of(own)) or 'all did'}" for name, own in policies.items())
    return render(
        "dally_slurm",
        "section",
        oversubscription=corner.oversubscription,
        overall=table(("over all traces", "change:", *(f"{word}:" for word in VERDICTS)), overall),
        left=", ".join(left),
        sizes=table(("GPUs", "jobs:", "traces:", "change of mean JCT:", "reads as"), sizes),
        users=_users(corner),
    )


def _users(corner: SlurmCorner) -> str:
    users = of_users(corner)
    judged = [user for user in users if verdict(user.difference.change) in VERDICTS]
    losers = [user for user in judged if user.difference.change.percent > LOSS_PERCENT]
    clear = [user for user in losers if user.difference.change.is_clear]
    winners = [user for user in judged if user.difference.change.percent < -LOSS_PERCENT]
    rows = (
        [
            user.trace,
            user.difference.group,
            f"{user.difference.jobs:,}",
            *(shown("mean_jct_s", value) for value in (user.difference.before_s, user.difference.after_s)),
            change_in_words(user.difference.change),
        ]
        for user in sorted(clear, key=lambda user: -user.difference.change.percent)
    )
    return render(
        "dally_slurm",
        "users",
        users=len(users),
        judged=len(judged),
        winners=len(winners),
        loss=LOSS_PERCENT,
        clear_winners=sum(user.difference.change.is_clear for user in winners),
        losers=len(losers),
        clear_losers=len(clear),
        by_chance=0.025 * len(judged),
        table=table(("trace", "user", "jobs:", "before:", "after:", "change of mean JCT:"), rows) if clear else "",
    )
