"""The page of results: every policy on the published traces."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import advisor
from advisor.domain.units import plural
from advisor.sim.comparison import PairedDifference, by_policy, compare, ends_of, mean_of
from advisor.sim.result import RunResult
from advisor.sim.runner import SimulationOptions
from advisor.sim.statistics import RelativeChange
from advisor.view.wording import change_in_words, shown, verdict
from tools.pages.experiment import SLOW, Experiment, Runner, Task, cells_of, published
from tools.pages.text import render, table
from tools.simulated_traces import LOAD_RATIO, Workload

METRICS: Final = ("mean_jct_s", "p99_jct_s", "mean_queueing_delay_s", "mean_bounded_slowdown")
METRIC: Final = METRICS[0]
VERDICTS: Final = ("lower", "higher", "no clear difference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A workload, whole or its first jobs, and the policies that run on it, the first being the one compared with."""

    workload: Workload
    policies: Sequence[str]
    is_whole: bool

    @property
    def name(self) -> str:
        """The name of its trace."""
        return self.workload.trace.name


def make(experiment: Experiment, runner: Runner, command: str, data: Path | None) -> str:
    """Simulate, and return the page."""
    parts = parts_of(published(experiment, data), experiment.policy_names, experiment.first_jobs)
    tasks = [
        Task(group=part.name, cell=cell)
        for part in parts
        for cell in cells_of(part.workload, part.policies, experiment.seeds)
    ]
    return page(parts, runner.results(tasks), experiment.seeds, command)


def parts_of(workloads: Sequence[Workload], policies: Sequence[str], first_jobs: int) -> list[Part]:
    """Let every policy run on whole traces; slow ones, with the first beside them, on the first jobs of long traces."""
    quick = [policy for policy in policies if policy not in SLOW or policy == policies[0]]
    slow = [policy for policy in policies if policy not in quick]
    parts = []
    for workload in workloads:
        count = len(workload.trace)
        if not slow or not 0 < first_jobs < count:
            parts.append(Part(workload=workload, policies=policies, is_whole=True))
            continue
        short = workload.first(first_jobs)
        short = replace(short, trace=replace(short.trace, name=f"{short.trace.name} (first {first_jobs})"))
        parts.append(Part(workload=workload, policies=quick, is_whole=True))
        parts.append(Part(workload=short, policies=[policies[0], *slow], is_whole=False))
    return parts


def page(parts: Sequence[Part], results: Mapping[str, Sequence[RunResult]], seeds: int, command: str) -> str:
    """Return the page of results."""
    differences = {
        name: {difference.policy: difference for difference in compare(own, seed=0, metrics=(METRIC,))}
        for name, own in results.items()
    }
    first = parts[0].policies[0]
    cut = sorted({policy for part in parts if not part.is_whole for policy in part.policies[1:]})
    head = render(
        "results",
        command=command,
        version=advisor.__version__,
        options=SimulationOptions(),
        seeds="seed 0" if seeds == 1 else f"seeds {', '.join(map(str, range(seeds)))}",
        first=first,
        sampled=", ".join(sorted({column for own in results.values() for result in own for column in result.sampled})),
        load_ratio=LOAD_RATIO,
        cut=render("results", "cut", policies="`, `".join(cut), first=first) if cut else "",
        record=table(("policy", "traces:", "change of mean JCT:", *VERDICTS), _record(parts, results, differences)),
    )
    sections = [_section(part, results[part.name], differences[part.name]) for part in parts]
    return "\n\n".join([head, *sections]) + "\n"


def _record(
    parts: Sequence[Part],
    results: Mapping[str, Sequence[RunResult]],
    differences: Mapping[str, Mapping[str, PairedDifference]],
) -> Iterator[Sequence[str]]:
    first = parts[0].policies[0]
    for policy in dict.fromkeys(policy for part in parts for policy in part.policies if policy != first):
        own = {name: by_name[policy] for name, by_name in differences.items() if policy in by_name}
        overall = over_all([result for name in own for result in results[name]], first, policy)
        names = (
            ", ".join(name for name, difference in own.items() if _read(difference) == word) or "none"
            for word in VERDICTS
        )
        yield policy, str(len(own)), change_in_words(overall), *names


def over_all(results: Sequence[RunResult], first: str, policy: str) -> RelativeChange:
    """Return the change of the mean JCT over all traces from the first policy to another one."""
    both = [result for result in results if result.summary.policy in {first, policy}]
    both.sort(key=lambda result: result.summary.policy != first)
    # Over one trace there is nothing beside it.
    return compare(both, seed=0, metrics=(METRIC,))[-1].change


def _read(difference: PairedDifference) -> str:
    """Return the verdict, where a change without an interval is not clear either."""
    word = verdict(difference.change)
    return word if word in VERDICTS else VERDICTS[-1]


def _section(part: Part, results: Sequence[RunResult], differences: Mapping[str, PairedDifference]) -> str:
    workload, jobs = part.workload, len(part.workload.trace)
    rows = []
    for policy, own in by_policy(results).items():
        difference = differences.get(policy)
        rows.append(
            [
                policy,
                *(shown(metric, mean_of(metric, own)) for metric in METRICS),
                f"{100 * ends_of(own).finished / (jobs * len(own)):.1f} %",
                *(["", ""] if difference is None else [change_in_words(difference.change), verdict(difference.change)]),
            ]
        )
    heads = ("mean JCT:", "p99 JCT:", "mean queueing delay:", "bounded slowdown:", "finished:", "change of mean JCT:")
    return render(
        "results",
        "section",
        name=part.name,
        jobs=jobs,
        nodes=plural(workload.nodes, "node"),
        cluster=workload.cluster_text(),
        load_ratio=workload.load_ratio,
        table=table(("policy", *heads, "reads as"), rows),
    )
