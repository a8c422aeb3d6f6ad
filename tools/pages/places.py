"""The page of what nodes for gangs add to lifts on Slurm's backfill, on traces whose models communicate much."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

import advisor
from advisor.sim.profiles import NEUTRAL, exposed_s, load_profiles
from advisor.sim.runner import SimulationOptions
from advisor.sim.study.cell import Cell, drawn
from advisor.sim.study.comparison import by_policy, compare, mean_of
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import CellName
from advisor.sim.study.user_losses import ALLOWED_RATIO, ALLOWED_S, LEAST_JOBS
from advisor.view.wording import change_in_words, shown
from tools.pages.experiment import Experiment, Runner, Task, first_of
from tools.pages.results import METRIC, Part, over_all_rows
from tools.pages.text import render, table
from tools.simulated_traces import GPUS_PER_NODE, Workload

Users = Mapping[CellName, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceGroup:
    """Runs that are compared with each other: an oversubscription and a trace."""

    oversubscription: float
    trace: str


def make(experiment: Experiment, runner: Runner, command: str, data: Path | None) -> str:
    """Simulate, and return the page."""
    workloads = first_of(experiment, data)
    tasks = list(tasks_of(experiment, workloads))
    users = {CellName(task.cell.trace.name, task.cell.seed): task.cell.trace.jobs["user"] for task in tasks}
    return page(experiment, workloads, runner.results(tasks), users, command)


def heavy_models(experiment: Experiment) -> tuple[str, ...]:
    """Return the models that wait for the network on two nodes for the least share of their computing time."""
    profiles = load_profiles()
    return tuple(
        name
        for name, profile in zip(profiles.names, profiles.rows, strict=True)
        if name != NEUTRAL
        and exposed_s(profile, 2 * GPUS_PER_NODE, 2, experiment.nic) >= experiment.least_exposed_ratio
    )


def tasks_of(experiment: Experiment, workloads: Sequence[Workload]) -> Iterator[Task[PlaceGroup]]:
    """Yield the runs, all of a workload and a seed on the same drawn trace."""
    models = heavy_models(experiment)
    for workload in workloads:
        for seed in range(experiment.seeds):
            cluster = workload.cluster(experiment.leaf_nodes)
            trace = drawn(workload.trace, cluster, seed, models=models)
            for oversubscription in experiment.oversubscription:
                group = PlaceGroup(oversubscription=oversubscription, trace=trace.name)
                network = replace(cluster.network, oversubscription=oversubscription, nic_gbps=experiment.nic)
                for policy in experiment.policy_names:
                    cell = Cell(
                        trace=trace,
                        cluster=replace(cluster, network=network),
                        policy=policy,
                        seed=seed,
                        options=SimulationOptions(),
                    )
                    yield Task(group=group, cell=cell)


def page(
    experiment: Experiment,
    workloads: Sequence[Workload],
    results: Mapping[PlaceGroup, Sequence[RunResult]],
    users: Users,
    command: str,
) -> str:
    """Return the page."""
    head = render(
        "places",
        command=command,
        version=advisor.__version__,
        first=experiment.policy_names[0],
        seeds="seed 0" if experiment.seeds == 1 else f"seeds 0 to {experiment.seeds - 1}",
        options=SimulationOptions(),
        leaf_nodes=experiment.leaf_nodes,
        nic=experiment.nic,
        least_exposed_ratio=experiment.least_exposed_ratio,
        models=", ".join(heavy_models(experiment)),
        least=LEAST_JOBS,
        percent=100.0 * ALLOWED_RATIO,
        allowed=ALLOWED_S,
    )
    sections = []
    for oversubscription in experiment.oversubscription:
        own = {group.trace: runs for group, runs in results.items() if group.oversubscription == oversubscription}
        sections.append(_section(experiment, oversubscription, workloads, own, users))
    return "\n\n".join([head, *sections]) + "\n"


def _section(
    experiment: Experiment,
    oversubscription: float,
    workloads: Sequence[Workload],
    results: Mapping[str, Sequence[RunResult]],
    users: Users,
) -> str:
    policies = experiment.policy_names
    parts = [Part(workload=workload, policies=policies, is_whole=True) for workload in workloads]
    rows = []
    for part in parts:
        own = results[part.name]
        changes = {difference.policy: difference.change for difference in compare(own, seed=0, metrics=(METRIC,))}
        mean = shown(METRIC, mean_of(METRIC, by_policy(own)[policies[0]]))
        rows.append([part.name, f"{len(part.workload.trace):,}", mean, *map(change_in_words, changes.values())])
    return render(
        "places",
        "section",
        oversubscription=oversubscription,
        first=policies[0],
        overall=over_all_rows(parts, results, experiment.over_all, users),
        traces=table(("trace", "jobs:", f"{policies[0]}:", *(f"{name}:" for name in policies[1:])), rows),
    )
