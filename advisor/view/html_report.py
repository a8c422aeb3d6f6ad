"""A report on simulated runs: one HTML page that needs nothing but itself, and whose bytes follow from its input."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor import __version__
from advisor.domain.dataclass import dataclass
from advisor.domain.units import duration, plural
from advisor.errors import SimulationError
from advisor.sim.study.comparison import (
    COMPARED,
    GroupDifference,
    Groupings,
    PairedDifference,
    PairedTally,
    Results,
    by_policy,
    compare,
    compare_groups,
    ends_of,
    heaviest,
    mean_of,
    parted,
    tally_groups,
    tally_jobs,
    traces_of,
)
from advisor.sim.study.metrics import SLOWDOWN_BOUND_S, Grouping, by_gpus, by_user
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import RelativeChange
from advisor.sim.traces.trace import Trace
from advisor.view.charts import (
    Axis,
    Figure,
    Hover,
    Limit,
    Line,
    Unit,
    count_axis,
    distribution,
    line_chart,
    percent_axis,
)
from advisor.view.markup import Table, TableCell, page
from advisor.view.wording import (
    JCT_EXPLAINED,
    LABELS,
    JctOutcome,
    Tone,
    basis,
    best_first,
    change_in_words,
    ends_in_words,
    figures_in_words,
    lead,
    outcome_in_words,
    shown,
    tone_of,
    verdict,
)

USERS_SHOWN = 20
_METRICS = (*COMPARED, "finished", "preemptions", "resizes", "changes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the runs of a report come from.

    `traces` and `clusters` are by the name of the trace; `settings` says what differs from the defaults. With
    `jobs_by_seed`, every seed has jobs of its own, which follow each other in the trace in the order of the results.
    """

    command: str
    traces: Mapping[str, Trace]
    clusters: Mapping[str, str]
    settings: tuple[str, ...] = ()
    jobs_by_seed: bool = False

    def groupings(self, grouping: Grouping, results: Results) -> Groupings:
        """Return a grouping of the jobs of a trace by cell."""
        return parted(grouping, results) if self.jobs_by_seed else dict.fromkeys(results, grouping)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gains:
    """Who gains and who loses under a policy: in words, by jobs and by users, and as tables."""

    title: str
    by_job: str
    by_user: str
    tables: Sequence[Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """The results on one trace."""

    trace: str
    metrics: Table
    changes: Sequence[tuple[Table, str]]
    ends: Sequence[str]
    charts: Sequence[Figure]
    gains: Sequence[_Gains]


def check_writable(path: Path) -> None:
    """Raise `SimulationError` if a report cannot be written, so that the user learns it before a long run."""
    existed = path.exists()
    try:
        path.open("ab").close()
    except OSError as err:
        raise _unwritable(path, err) from err
    if not existed:
        path.unlink()


def write_report(results: Sequence[RunResult], path: Path, *, origin: Origin, seed: int) -> None:
    """Write the report; `seed` is that of the bootstrap. Equal results give equal bytes: no clock, no wall time."""
    write_page(report_page(results, origin=origin, seed=seed), path)


def write_page(text: str, path: Path) -> None:
    """Write a page; raises `SimulationError` if it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as err:
        raise _unwritable(path, err) from err


def report_page(results: Sequence[RunResult], *, origin: Origin, seed: int) -> str:
    """Return the report as HTML."""
    policies, traces = by_policy(results), traces_of(results)
    differences = compare(results, seed=seed)
    outcomes = best_first(_outcomes(policies, differences, origin))
    return page(
        "simulated.html",
        title=f"{', '.join(policies)} on {', '.join(traces)}",
        subtitle=_subtitle(results, origin),
        opening=lead(outcomes, traces=len(traces)) if outcomes else figures_in_words(*next(iter(policies.items()))),
        tone=tone_of(outcomes[0].change) if outcomes else "",
        explained=JCT_EXPLAINED,
        others=[outcome_in_words(outcome) for outcome in outcomes[1:]],
        overall=_changes([difference for difference in differences if difference.trace is None and len(traces) > 1]),
        sections=[
            _section(
                f"t{index}",
                [result for result in results if result.summary.trace == trace],
                [difference for difference in differences if difference.trace == trace],
                origin,
                seed,
            )
            for index, trace in enumerate(traces)
        ],
        slowdown_bound_s=SLOWDOWN_BOUND_S,
        named=_facts(results, origin, seed),
    )


def _subtitle(results: Sequence[RunResult], origin: Origin) -> str:
    """Return the size of what was simulated."""
    parts = [f"{plural(len(origin.traces[name]), 'job')} on {origin.clusters[name]}" for name in traces_of(results)]
    seeds = len({result.summary.seed for result in results})
    return "; ".join(parts) + (f", {plural(seeds, 'seed')}" if seeds > 1 else "")


def _outcomes(
    policies: Mapping[str, Results], differences: Sequence[PairedDifference], origin: Origin
) -> list[JctOutcome]:
    """Compare each policy with the first one over all traces."""
    first, *others = policies
    traces = list(dict.fromkeys(cell.trace for cell in policies[first]))
    scope = None if len(traces) > 1 else traces[0]
    changes = {one.policy: one.change for one in differences if one.trace == scope and one.metric == "mean_jct_s"}
    return [
        JctOutcome(
            policy=other,
            against=first,
            change=changes[other],
            jobs=tally_jobs(policies[first], policies[other]),
            users=_tally_users(policies[first], policies[other], traces, origin),
        )
        for other in others
    ]


def _tally_users(before: Results, after: Results, traces: Sequence[str], origin: Origin) -> PairedTally | None:
    """Count the users of all traces by whether the mean JCT of their jobs is lower or higher; None without names."""
    tallies = []
    for trace in (origin.traces[name] for name in traces):
        of_trace = {cell: result for cell, result in before.items() if cell.trace == trace.name}
        if not names_users(trace, of_trace):
            return None
        tallies.append(tally_groups(of_trace, after, origin.groupings(by_user(trace), of_trace)))
    return PairedTally(
        lower=sum(tally.lower for tally in tallies),
        higher=sum(tally.higher for tally in tallies),
        same=sum(tally.same for tally in tallies),
    )


def names_users(trace: Trace, results: Results) -> bool:
    """Return whether users are in the trace, and not drawn for its runs."""
    is_drawn = any("user" in result.sampled for result in results.values()) and "user" not in trace.sampled
    return not is_drawn and len(by_user(trace).names) > 1


def _facts(results: Sequence[RunResult], origin: Origin, seed: int) -> list[tuple[str, str]]:
    """Return what the figures rest on, by name."""
    seeds = sorted({result.summary.seed for result in results})
    facts = [
        ("Command", origin.command),
        ("sadvise", __version__),
        ("Seeds", f"{', '.join(map(str, seeds))}; intervals are drawn with seed {seed}"),
    ]
    for name in traces_of(results):
        trace = origin.traces[name]
        of_trace = [result for result in results if result.summary.trace == name]
        sampled = sorted({column for result in of_trace for column in result.sampled}.difference(trace.sampled))
        facts += [
            (f"Trace {name}", f"{plural(len(trace), 'job')}. {trace.note}".rstrip()),
            ("Cluster", origin.clusters[name]),
            ("Drawn at random when the trace was made", ", ".join(trace.sampled) or "nothing"),
            ("Drawn at random for the runs, not in the trace", ", ".join(sampled) or "nothing"),
        ]
    return [*facts, ("Settings that differ from the defaults", ", ".join(origin.settings) or "none")]


def _section(
    ident: str, results: Sequence[RunResult], differences: Sequence[PairedDifference], origin: Origin, seed: int
) -> _Section:
    """Return the results on one trace."""
    policies, name = by_policy(results), results[0].summary.trace
    ends = {policy: ends_in_words(ends_of(of_policy), seeds=len(of_policy)) for policy, of_policy in policies.items()}
    return _Section(
        trace=name,
        metrics=_metrics(policies),
        changes=_changes(differences),
        ends=[f"{policy}: {text}." for policy, text in ends.items() if text],
        charts=_charts(ident, policies),
        gains=_gains(policies, origin, origin.traces[name], seed),
    )


def _metrics(policies: Mapping[str, Results]) -> Table:
    seeds = max(len(results) for results in policies.values())
    return Table(
        caption="Metrics" if seeds == 1 else f"Metrics, means over {seeds} seeds",
        header=["metric", *policies],
        rows=[
            [LABELS[metric], *(shown(metric, mean_of(metric, results)) for results in policies.values())]
            for metric in _METRICS
        ],
    )


def _changes(differences: Sequence[PairedDifference]) -> list[tuple[Table, str]]:
    """Return a table of changes for each policy, and what its intervals were drawn from."""
    changes = []
    for policy in dict.fromkeys(difference.policy for difference in differences):
        own = [difference for difference in differences if difference.policy == policy]
        table = Table(
            caption=f"{policy} against {own[0].against}, change with 95 % interval",
            header=["metric", "change", "reads as"],
            rows=[[LABELS[one.metric], change_in_words(one.change), _read(one.change, one.metric)] for one in own],
            text_columns=[2],
        )
        changes.append((table, _bases(own)))
    return changes


def _bases(differences: Sequence[PairedDifference]) -> str:
    """Return what the intervals were drawn from; the metrics that differ from the first one are named."""
    metrics: dict[str, list[str]] = {}
    for difference in differences:
        if not math.isnan(difference.change.low):
            metrics.setdefault(basis(difference.change), []).append(LABELS[difference.metric])
    sentences = [
        f"For {' and '.join(labels)}: {text}." if place else f"Intervals from {text}."
        for place, (text, labels) in enumerate(metrics.items())
    ]
    return " ".join(sentences)


def _read(change: RelativeChange, metric: str = "mean_jct_s") -> TableCell:
    """Return how a change reads, in the colour of the better or the worse where lower is better."""
    return TableCell(verdict(change), tone=Tone.UNCLEAR if metric == "gpu_allocated_ratio" else tone_of(change))


def _charts(ident: str, policies: Mapping[str, Results]) -> list[Figure]:
    jct = {name: [result.jct_s for result in results.values()] for name, results in policies.items()}
    delay = {name: [result.queueing_delay_s for result in results.values()] for name, results in policies.items()}
    label = "queueing delay (below 1 s shown as 1 s)"
    return [
        _distributions(f"{ident}-jct", "Distribution of JCT", "JCT", jct),
        _distributions(f"{ident}-delay", "Distribution of queueing delay", label, delay),
        _gpus_chart(f"{ident}-gpus", policies),
    ]


def _distributions(
    ident: str, title: str, label: str, values_by_policy: Mapping[str, Sequence[NDArray[np.float64]]]
) -> Figure:
    lines = []
    for name, values_of_seeds in values_by_policy.items():
        values = np.concatenate(values_of_seeds)
        lines.append(distribution(name, values[~np.isnan(values)]))
    middle = ", ".join(f"{line.name} {duration(float(np.median(line.x)))}" for line in lines)
    return line_chart(
        ident=ident,
        title=title,
        description=f"Share of jobs at or below each duration. Half of the jobs are at or below: {middle}.",
        x_axis=Axis(label=label, unit=Unit.DURATION, is_log=True),
        y_axis=percent_axis("share of jobs"),
        lines=lines,
        hover=Hover.Y,
    )


def _gpus_chart(ident: str, policies: Mapping[str, Results]) -> Figure:
    """Draw the first seed's GPUs over time: a mean over seeds would smooth away what it should show."""
    first = {name: next(iter(results.values())) for name, results in policies.items()}
    start = min(result.curve.start_time for result in first.values())
    lines = []
    for name, result in first.items():
        curve = result.curve
        edges = curve.start_time - start + curve.step_s * np.arange(len(curve.gpus) + 1, dtype=np.float64)
        lines.append(Line(name=name, x=edges, y=np.array(curve.gpus), is_step=True))
    in_cluster = max(result.cluster_gpus for result in first.values())
    seeds = sorted({result.summary.seed for result in first.values()})
    return line_chart(
        ident=ident,
        title="GPUs allocated over time",
        description=f"GPUs that jobs held, averaged over stretches of time, under seed {seeds[0]}. "
        f"The dotted line marks the {in_cluster} GPUs of the cluster.",
        x_axis=Axis(
            label="time since the first submit",
            unit=Unit.DURATION,
            low=0.0,
            high=max(float(line.x[-1]) for line in lines),
        ),
        y_axis=count_axis("GPUs"),
        lines=lines,
        limit=Limit(name=f"{in_cluster} GPUs of the cluster", value=in_cluster),
    )


def _gains(policies: Mapping[str, Results], origin: Origin, trace: Trace, seed: int) -> list[_Gains]:
    """Return who gains and who loses against the first policy, under each other one."""
    first, *others = policies
    users, gpu_s = by_user(trace), trace.jobs["gpus"] * trace.jobs["run_time_s"]
    sizes, all_users, shown_users = (
        origin.groupings(grouping, policies[first])
        for grouping in (by_gpus(trace), users, heaviest(users, gpu_s, USERS_SHOWN, "all others"))
    )
    gains = []
    for other in others:
        before, after, names = policies[first], policies[other], f"{other} against {first}"
        tables = [
            _groups(f"{names} by GPUs asked for", "GPUs", first, other, compare_groups(before, after, sizes, seed=seed))
        ]
        by_users = "The trace does not tell its users apart, so that there is no table of them."
        if names_users(trace, before):
            by_users = (
                f"By user, by the mean JCT of their jobs: {_tally('user', tally_groups(before, after, all_users))}."
            )
            caption = f"{names} by user, the {USERS_SHOWN} with the most GPU time first"
            groups = compare_groups(before, after, shown_users, seed=seed)
            tables.append(_groups(caption, "user", first, other, groups))
        gains.append(
            _Gains(
                title=f"Who gains and who loses: {names}",
                by_job=f"By job: {_tally('job', tally_jobs(before, after))}.",
                by_user=by_users,
                tables=tables,
            )
        )
    return gains


def _groups(caption: str, kind: str, first: str, other: str, groups: Sequence[GroupDifference]) -> Table:
    return Table(
        caption=caption,
        header=[kind, "jobs", f"mean JCT, {first}", f"mean JCT, {other}", "change", "reads as"],
        rows=[
            [
                group.group or "(no name)",
                TableCell(str(group.jobs), group.jobs),
                TableCell(shown("mean_jct_s", group.before_s), group.before_s),
                TableCell(shown("mean_jct_s", group.after_s), group.after_s),
                TableCell(change_in_words(group.change), group.change.percent),
                _read(group.change),
            ]
            for group in groups
        ],
        is_sortable=True,
        text_columns=[5],
    )


def _tally(noun: str, tally: PairedTally) -> str:
    return (
        f"lower JCT for {plural(tally.lower, noun)}, higher for {plural(tally.higher, noun)}, "
        f"within a second for {plural(tally.same, noun)}"
    )


def _unwritable(path: Path, err: OSError) -> SimulationError:
    return SimulationError(f"{path}: the report cannot be written: {err.strerror}: choose another --report")
