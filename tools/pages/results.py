"""The page of results: every policy on the published traces."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import advisor
from advisor.sim.runner import SimulationOptions
from advisor.sim.study.comparison import PairedDifference, by_policy, compare, mean_of
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import LEAST_UNITS, CellName, RelativeChange
from advisor.sim.study.user_losses import ALLOWED_RATIO, ALLOWED_S, LEAST_JOBS, tally_users
from advisor.stats import mean_interval
from advisor.view.wording import LABELS, change_in_words, shown, verdict
from tools.data.simulated_traces import LOAD_RATIO, Workload
from tools.pages.page_experiment import SLOW, Experiment, PageTask, Runner, cells_of, published
from tools.pages.page_text import render, table

METRIC: Final = "mean_jct_s"
REQUESTS_MADE: Final = {
    "usual": "Node counts, limits, checkpoints and arrays have the shares of public job scripts: 5 % of the gangs "
    "leave their node count open.",
    "open": "Requests are drawn with more freedom than people make them (`--requests open`): about half of the gangs "
    "leave their node count open.",
}
VERDICTS: Final = ("lower", "higher", "no clear difference", "no change")
UNCLEAR: Final = VERDICTS[2]
TUNED: Final = "slurm, tuned"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePart:
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
        PageTask(group=part.name, cell=cell)
        for part in parts
        for cell in cells_of(part.workload, part.policies, experiment)
    ]
    users = {CellName(task.cell.trace.name, task.cell.seed): task.cell.trace.jobs["user"] for task in tasks}
    return page(parts, runner.results(tasks), experiment, command, user_by_cell=users)


def parts_of(workloads: Sequence[Workload], policies: Sequence[str], first_jobs: int) -> list[TracePart]:
    """Let every policy run on whole traces; slow ones, with the first beside them, on the first jobs of long traces."""
    quick = [policy for policy in policies if policy not in SLOW or policy == policies[0]]
    slow = [policy for policy in policies if policy not in quick]
    parts = []
    for workload in workloads:
        count = len(workload.trace)
        if not slow or not 0 < first_jobs < count:
            parts.append(TracePart(workload=workload, policies=policies, is_whole=True))
            continue
        short = workload.first(first_jobs)
        short = replace(short, trace=replace(short.trace, name=f"{short.trace.name} (first {first_jobs})"))
        parts.append(TracePart(workload=workload, policies=quick, is_whole=True))
        parts.append(TracePart(workload=short, policies=[policies[0], *slow], is_whole=False))
    return parts


def page(
    parts: Sequence[TracePart],
    results: Mapping[str, Sequence[RunResult]],
    experiment: Experiment,
    command: str,
    *,
    user_by_cell: Mapping[CellName, NDArray[Any]] | None = None,
) -> str:
    """Return the page of results; the users of `user_by_cell` are compared where metrics are, over all traces."""
    seeds, metrics = experiment.seeds, experiment.over_all
    tuned = [name for name in experiment.tuned if name in parts[0].policies]
    if len(tuned) > 1:
        parts = [replace(part, policies=[part.policies[0], TUNED, *part.policies[1:]]) for part in parts]
        results = {name: with_tuned(own, tuned) for name, own in results.items()}
    differences = {
        name: {difference.policy: difference for difference in compare(own, seed=0, metrics=(METRIC,))}
        for name, own in results.items()
    }
    first = parts[0].policies[0]
    cut = sorted({policy for part in parts if not part.is_whole for policy in part.policies[1:]})
    text = render(
        "results",
        command=command,
        version=advisor.__version__,
        options=SimulationOptions(),
        seeds="seed 0" if seeds == 1 else f"seeds {', '.join(map(str, range(seeds)))}",
        first=first,
        sampled=", ".join(sorted({column for own in results.values() for result in own for column in result.sampled})),
        load_ratio=LOAD_RATIO,
        requests=REQUESTS_MADE[experiment.requests],
        cut=render("results", "cut", policies="`, `".join(cut), first=first) if cut else "",
        record=table(
            ("policy", "traces:", "change of mean JCT:", *(f"{word}:" for word in VERDICTS), "finished, at least:"),
            _record(parts, results, differences),
        ),
        tuned=render("results", "tuned", name=TUNED, policies="`, `".join(tuned)) if len(tuned) > 1 else "",
        beyond=_beyond(parts, results, metrics, user_by_cell or {}) if metrics else "",
        traces=table(
            ("trace", "jobs:", "nodes:", "load:", f"mean JCT, {first}:"),
            ([*_traits(part), shown(METRIC, mean_of(METRIC, by_policy(results[part.name])[first]))] for part in parts),
        ),
        changes=table(("policy", *(f"{part.name}:" for part in parts)), _changes(parts, differences)),
    )
    return text + "\n"


def with_tuned(results: Sequence[RunResult], tuned: Sequence[str]) -> list[RunResult]:
    """Add the policy of `tuned` with the lowest mean JCT on this trace once more, as one that was chosen."""
    by_name = by_policy(results)
    best = min((by_name[name] for name in tuned), key=lambda own: mean_of(METRIC, own))
    return [*results, *(replace(own, summary=replace(own.summary, policy=TUNED)) for own in best.values())]


def _record(
    parts: Sequence[TracePart],
    results: Mapping[str, Sequence[RunResult]],
    differences: Mapping[str, Mapping[str, PairedDifference]],
) -> Iterator[Sequence[str]]:
    first = parts[0].policies[0]
    for policy in _others(parts):
        own = {name: by_name[policy] for name, by_name in differences.items() if policy in by_name}
        overall = over_all([result for name in own for result in results[name]], first, policy)
        read = [_read(difference) for difference in own.values()]
        least = min(np.mean([_finished(run) for run in by_policy(results[name])[policy].values()]) for name in own)
        yield (
            policy, str(len(own)), change_in_words(overall), *(str(read.count(word)) for word in VERDICTS),
            f"{100 * least:.1f} %",
        )  # fmt: skip


def _others(parts: Sequence[TracePart]) -> list[str]:
    """Return the policies but the first, each once."""
    return list(dict.fromkeys(policy for part in parts for policy in part.policies if policy != parts[0].policies[0]))


def _traits(part: TracePart) -> list[str]:
    workload = part.workload
    return [part.name, f"{len(workload.trace):,}", str(workload.nodes), f"{workload.load_ratio:.2f}"]


def _changes(
    parts: Sequence[TracePart], differences: Mapping[str, Mapping[str, PairedDifference]]
) -> Iterator[Sequence[str]]:
    """Yield the change of each policy on each trace in percent, in bold where it is clear."""
    for policy in _others(parts):
        own = [differences[part.name].get(policy) for part in parts]
        yield policy, *("" if difference is None else _percent(difference.change) for difference in own)


def _percent(change: RelativeChange) -> str:
    text = change_in_words(change).partition(" %")[0]
    return f"**{text}**" if change.is_clear else text


def _beyond(
    parts: Sequence[TracePart],
    results: Mapping[str, Sequence[RunResult]],
    metrics: Sequence[str],
    user_by_cell: Mapping[CellName, NDArray[Any]],
) -> str:
    """Return the part on what changes beside the mean JCT, over all traces."""
    return render(
        "results",
        "beyond",
        least=LEAST_JOBS,
        percent=100.0 * ALLOWED_RATIO,
        allowed=ALLOWED_S,
        table=_over_all_rows(parts, results, metrics, user_by_cell),
    )


def _over_all_rows(
    parts: Sequence[TracePart],
    results: Mapping[str, Sequence[RunResult]],
    metrics: Sequence[str],
    user_by_cell: Mapping[CellName, NDArray[Any]],
) -> str:
    """Return the table of what changes over all traces: metrics, jobs that finish, and users."""
    first, has_tuned = parts[0].policies[0], TUNED in parts[0].policies
    rows = []
    for policy in _others(parts):
        own = [result for part in parts if policy in part.policies for result in results[part.name]]
        before, after = (by_policy(own)[name] for name in (first, policy))
        finished = {cell: _finished(after[cell]) - _finished(before[cell]) for cell in after}
        tallies = {
            cell: tally_users(before[cell].jct_s, after[cell].jct_s, user_by_cell[cell])
            for cell in after
            if cell in user_by_cell
        }
        worse, better = (
            {cell: getattr(tally, way) / tally.users for cell, tally in tallies.items() if tally.users}
            for way in ("worse", "better")
        )
        changes = [change_in_words(over_all(own, first, policy, metric)) for metric in metrics]
        if has_tuned:
            changes.insert(0, "" if policy == TUNED else change_in_words(over_all(own, TUNED, policy)))
        rows.append([policy, *changes, _points(finished), _share(worse), _share(better)])
    heads = [f"{LABELS[metric]}:" for metric in metrics]
    if has_tuned:
        heads.insert(0, f"mean JCT against {TUNED}:")
    return table(("policy", *heads, "finished, points:", "users worse:", "users better:"), rows)


def _finished(result: RunResult) -> float:
    return result.ends.finished / result.summary.jobs


def _points(values: Mapping[CellName, float]) -> str:
    return _with_interval(values, "{:+.2f}")


def _share(values: Mapping[CellName, float]) -> str:
    return _with_interval(values, "{:.1f} %")


def _with_interval(values: Mapping[CellName, float], shape: str) -> str:
    """Return the mean in percent over the means of traces, with Student's 95 % interval over traces."""
    by_trace: dict[str, list[float]] = {}
    for cell, value in values.items():
        by_trace.setdefault(cell.trace, []).append(100.0 * value)
    means = np.array([np.mean(seeds) for seeds in by_trace.values()])
    if not len(means):
        return "none"
    mean, *ends = mean_interval(means)
    if len(means) < LEAST_UNITS:
        return shape.format(mean)
    low, high = map(shape.removesuffix(" %").format, ends)
    return f"{shape.format(mean)} ({low} to {high})"


def over_all(results: Sequence[RunResult], first: str, policy: str, metric: str = METRIC) -> RelativeChange:
    """Return the change of a metric over all traces from the first policy to another one."""
    both = [result for result in results if result.summary.policy in {first, policy}]
    both.sort(key=lambda result: result.summary.policy != first)
    # Over one trace there is nothing beside it.
    return compare(both, seed=0, metrics=(metric,))[-1].change


def _read(difference: PairedDifference) -> str:
    """Return the verdict, where a change without an interval is not clear either."""
    word = verdict(difference.change)
    return word if word in VERDICTS else UNCLEAR
