"""The page of what pins, delay timers and sizes gain alone and beside lifts, where the network is slow."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

import advisor
from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, parse_cluster
from advisor.sim.runner import SimulationOptions, known_policy
from advisor.sim.study.cell import Cell, drawn
from advisor.sim.study.comparison import by_policy, ends_of
from advisor.sim.study.result import RunResult
from advisor.sim.traces.sampling import REQUESTS
from advisor.sim.traces.trace import Trace
from advisor.view.wording import change_in_words
from tools.data.dally_workload import arrival_name, cluster_text, make_trace
from tools.pages.page_experiment import Experiment, PageTask, Runner, first_of
from tools.pages.page_text import render, table
from tools.pages.results import over_all

# Time limits are drawn for jobs on one node. Jobs of the drawn workload run several times as long where the network is
# slow, and their users would ask for that: none of them is to be killed for where Slurm puts it.
LIMITS_RATIO: Final = 10.0

# Policies that differ by one lever or two: what that adds.
ADDED_TO: Final = {
    "pin": "slurm",
    "slurm+dally": "slurm",
    "slurm+sizes": "slurm",
    "lift-pin": "lift",
    "lift+dally": "lift-oracle",
    "lift+sizes": "lift-oracle",
    "rules": "lift",
}

# The oversubscription and the name of a workload.
Group = tuple[float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The results by oversubscription and workload."""

    results: Mapping[Group, Sequence[RunResult]]
    experiment: Experiment

    @property
    def first(self) -> str:
        """The policy that the others are compared with."""
        return self.experiment.policy_names[0]

    def corners(self) -> Iterator[tuple[float, Mapping[str, Sequence[RunResult]]]]:
        """Yield the oversubscriptions with the results by workload."""
        for oversubscription in self.experiment.oversubscription:
            own = {name: results for (ratio, name), results in self.results.items() if ratio == oversubscription}
            yield oversubscription, own


def make(experiment: Experiment, runner: Runner, command: str, data: Path | None) -> str:
    """Simulate, and return the page."""
    if len(experiment.policy_names) < 2:
        raise SimulationError(f"--policies {','.join(experiment.policies)}: give two or more, the first plain Slurm")
    results = runner.results(tasks_of(experiment, data))
    return page(Page(results=results, experiment=experiment), command)


def tasks_of(experiment: Experiment, data: Path | None) -> list[PageTask[Group]]:
    """Return the runs; all policies run the same drawn trace of a seed."""
    published = first_of(experiment, data) if experiment.traces else []
    requests = REQUESTS[experiment.requests]
    tasks: list[PageTask[Group]] = []
    for oversubscription in experiment.oversubscription:
        for load in experiment.loads:
            cluster = parse_cluster(cluster_text(oversubscription, experiment.nic))
            for seed in range(experiment.seeds):
                trace = _with_roomy_limits(drawn(make_trace(seed, experiment.jobs, load), cluster, seed, requests))
                tasks += _of_seed(experiment, oversubscription, trace, cluster, seed)
        for workload in published:
            cluster = workload.cluster()
            cluster = replace(cluster, network=replace(cluster.network, oversubscription=oversubscription))
            for seed in range(experiment.seeds):
                trace = drawn(workload.trace, cluster, seed, requests)
                tasks += _of_seed(experiment, oversubscription, trace, cluster, seed)
    return tasks


def _with_roomy_limits(trace: Trace) -> Trace:
    jobs = trace.jobs.copy()
    jobs["time_limit_s"] *= LIMITS_RATIO
    return replace(trace, jobs=jobs)


def _of_seed(
    experiment: Experiment, oversubscription: float, trace: Trace, cluster: Cluster, seed: int
) -> Iterator[PageTask[Group]]:
    wait_s = experiment.max_switch_wait_s or cluster.slurm.max_switch_wait_s
    roomy = replace(cluster, slurm=replace(cluster.slurm, max_switch_wait_s=wait_s))
    for policy in experiment.policy_names:
        cell = Cell(trace=trace, cluster=roomy, policy=policy, seed=seed, options=SimulationOptions())
        yield PageTask(group=(oversubscription, trace.name), cell=cell)


def page(content: Page, command: str) -> str:
    """Return the page."""
    experiment = content.experiment
    head = render(
        "holds",
        command=command,
        version=advisor.__version__,
        options=SimulationOptions(),
        seeds="seed 0" if experiment.seeds == 1 else f"seeds {', '.join(map(str, range(experiment.seeds)))}",
        first=content.first,
        max_switch_wait_s=experiment.max_switch_wait_s or 0.0,
        loads=", ".join(arrival_name(load) for load in experiment.loads) or "none",
        jobs=experiment.jobs,
        requests=experiment.requests,
        cut=experiment.cut or "all",
        limits_ratio=LIMITS_RATIO,
        policies="\n".join(f"- `{name}`: {known_policy(name).summary}" for name in experiment.policy_names),
    )
    sections = [_corner(content, oversubscription, own) for oversubscription, own in content.corners()]
    return "\n\n".join([head, *sections]) + "\n"


def _corner(content: Page, oversubscription: float, by_name: Mapping[str, Sequence[RunResult]]) -> str:
    names = content.experiment.policy_names
    pairs = [(policy, base) for policy, base in ADDED_TO.items() if policy in names and base in names]
    heads = ("all:", *(f"{name}:" for name in by_name))
    record = (
        [f"`{policy}`", *_changes(by_name, content.first, policy), *_ends_and_changes(by_name, policy)]
        for policy in names[1:]
    )
    added = ([f"`{policy}`", f"`{base}`", *_changes(by_name, base, policy)] for policy, base in pairs)
    asleep = [f"`{policy}`" for policy, base in pairs if _is_as(by_name, base, policy)]
    return render(
        "holds",
        "corner",
        oversubscription=oversubscription,
        record=table(("policy", *heads, "changes per job:", "finished, at least:"), record),
        added=table(("policy", "against", *heads), added),
        asleep=f"Asleep, every job as without it: {', '.join(asleep)}." if asleep else "",
    )


def _changes(by_name: Mapping[str, Sequence[RunResult]], first: str, policy: str) -> list[str]:
    """Return the change of the mean JCT from one policy to another: over all workloads, and on each."""
    everything = [result for results in by_name.values() for result in results]
    return [change_in_words(over_all(results, first, policy)) for results in (everything, *by_name.values())]


def _ends_and_changes(by_name: Mapping[str, Sequence[RunResult]], policy: str) -> list[str]:
    """Return the range of changes per job over workloads, and the least share of jobs that finished on one."""
    rates, shares = [], []
    for results in by_name.values():
        own = by_policy(results)[policy]
        jobs = sum(result.summary.jobs for result in own.values())
        rates.append(sum(result.summary.changes for result in own.values()) / jobs)
        shares.append(100 * ends_of(own).finished / jobs)
    return [f"{min(rates):.2f} to {max(rates):.2f}", f"{min(shares):.1f} %"]


def _is_as(by_name: Mapping[str, Sequence[RunResult]], first: str, policy: str) -> bool:
    """Return whether every job took as long under both."""
    return all(
        np.array_equal(own[first][cell].jct_s, own[policy][cell].jct_s, equal_nan=True)
        for own in map(by_policy, by_name.values())
        for cell in own[first]
    )
