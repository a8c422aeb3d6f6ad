"""A report on simulated runs: one HTML page that needs nothing but itself, and whose bytes follow from its input."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from advisor import __version__
from advisor.domain.units import duration, plural
from advisor.errors import SimulationError
from advisor.sim.comparison import (
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
from advisor.sim.metrics import SLOWDOWN_BOUND_S, Grouping, by_gpus, by_user
from advisor.sim.result import RunResult
from advisor.sim.trace import Trace
from advisor.view.charts import (
    Hover,
    Limit,
    Line,
    count_axis,
    distribution,
    duration_axis,
    elapsed_axis,
    line_chart,
    percent_axis,
)
from advisor.view.markup import Cell, Child, Number, element, page, table
from advisor.view.wording import LABELS, basis, change_in_words, ends_in_words, shown, verdict

USERS_SHOWN = 20
_METRICS = (*COMPARED, "finished", "preemptions", "resizes", "changes")
_NOTES = (
    "JCT is end minus submit, over the jobs that finished; jobs killed by their time limit are counted apart.",
    "Queueing delay is first start minus submit, over the jobs that ended.",
    f"Bounded slowdown is JCT over run time, which counts as {SLOWDOWN_BOUND_S:.0f} s at least; it is 1 at least.",
    "GPUs allocated is GPU time held over GPU time there was; GPUs that jobs share count once for each job.",
    "Communication overhead is exposed communication time over GPU time held.",
    "A change is of the mean over the jobs that finished under both policies; below 0 is lower.",
    "Intervals are 95 % intervals of a paired bootstrap. Jobs submitted together are drawn together.",
    "On a cluster near saturation and on short traces the intervals are still too narrow.",
    "Every row stands for itself: of twenty rows without any effect, one will show one.",
)


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
    policies, traces = list(by_policy(results)), traces_of(results)
    differences = compare(results, seed=seed)
    title = f"{', '.join(policies)} on {', '.join(traces)}"
    body: list[Child] = [element("h1", title), _facts(results, origin, seed)]
    if len(traces) > 1:
        overall = [difference for difference in differences if difference.trace is None]
        body += [element("h2", "Over all traces"), *_changes(overall)]
    for index, trace in enumerate(traces):
        of_trace = [result for result in results if result.summary.trace == trace]
        of_differences = [difference for difference in differences if difference.trace == trace]
        body += _trace_section(f"t{index}", of_trace, of_differences, origin, seed)
    return page(f"sadvise: {title}", *body, *_notes())


def _facts(results: Sequence[RunResult], origin: Origin, seed: int) -> Element:
    seeds = sorted({result.summary.seed for result in results})
    facts: list[tuple[str, Child]] = [
        ("Command", element("code", origin.command)),
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
    facts.append(("Settings that differ from the defaults", ", ".join(origin.settings) or "none"))
    return element("dl", *(part for name, fact in facts for part in (element("dt", name), element("dd", fact))))


def _trace_section(
    ident: str, results: Sequence[RunResult], differences: Sequence[PairedDifference], origin: Origin, seed: int
) -> list[Child]:
    policies, name = by_policy(results), results[0].summary.trace
    return [
        element("h2", name),
        _metrics(policies),
        *_ends(policies),
        *_changes(differences),
        *_charts(ident, policies),
        *_gains(policies, origin, origin.traces[name], seed),
    ]


def _metrics(policies: Mapping[str, Results]) -> Element:
    seeds = max(len(results) for results in policies.values())
    caption = "Metrics" if seeds == 1 else f"Metrics, means over {seeds} seeds"
    rows: list[list[Child]] = [
        [LABELS[metric], *(shown(metric, mean_of(metric, results)) for results in policies.values())]
        for metric in _METRICS
    ]
    return table(caption, ["", *policies], rows)


def _ends(policies: Mapping[str, Results]) -> list[Child]:
    ends = {policy: ends_in_words(ends_of(results), seeds=len(results)) for policy, results in policies.items()}
    return [element("p", f"{policy}: {text}.") for policy, text in ends.items() if text]


def _changes(differences: Sequence[PairedDifference]) -> list[Child]:
    """Return one table of changes for each policy."""
    tables: list[Child] = []
    for policy in dict.fromkeys(difference.policy for difference in differences):
        own = [difference for difference in differences if difference.policy == policy]
        rows: list[list[Child]] = [
            [
                LABELS[difference.metric],
                change_in_words(difference.change),
                verdict(difference.change),
                basis(difference.change),
            ]
            for difference in own
        ]
        caption = f"{policy} against {own[0].against}, change with 95 % interval"
        tables.append(table(caption, ["", "change", "reads as", "interval from"], rows))
    return tables


def _charts(ident: str, policies: Mapping[str, Results]) -> list[Child]:
    jct = {name: [result.jct_s for result in results.values()] for name, results in policies.items()}
    delay = {name: [result.queueing_delay_s for result in results.values()] for name, results in policies.items()}
    label = "queueing delay (below 1 s shown as 1 s)"
    return [
        element(
            "div",
            _distributions(f"{ident}-jct", "Distribution of JCT", "JCT", jct),
            _distributions(f"{ident}-delay", "Distribution of queueing delay", label, delay),
            _gpus_chart(f"{ident}-gpus", policies),
            class_="charts",
        )
    ]


def _distributions(
    ident: str, title: str, label: str, values_by_policy: Mapping[str, Sequence[NDArray[np.float64]]]
) -> Element:
    lines = []
    for name, values_of_seeds in values_by_policy.items():
        values = np.concatenate(values_of_seeds)
        lines.append(distribution(name, values[~np.isnan(values)]))
    middle = ", ".join(f"{line.name} {duration(float(np.median(line.x)))}" for line in lines)
    return line_chart(
        ident=ident,
        title=title,
        description=f"Share of jobs at or below each duration. Half of the jobs are at or below: {middle}.",
        x_axis=duration_axis(label),
        y_axis=percent_axis("share of jobs"),
        lines=lines,
        hover=Hover.Y,
    )


def _gpus_chart(ident: str, policies: Mapping[str, Results]) -> Element:
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
        x_axis=elapsed_axis("time since the first submit", max(float(line.x[-1]) for line in lines)),
        y_axis=count_axis("GPUs"),
        lines=lines,
        limit=Limit(name=f"{in_cluster} GPUs of the cluster", value=in_cluster),
    )


def _gains(policies: Mapping[str, Results], origin: Origin, trace: Trace, seed: int) -> list[Child]:
    """Say who gains and who loses against the first policy."""
    if len(policies) == 1:
        return []
    first, *others = policies
    users, gpu_s = by_user(trace), trace.jobs["gpus"] * trace.jobs["run_time_s"]
    sizes, all_users, shown_users = (
        origin.groupings(grouping, policies[first])
        for grouping in (by_gpus(trace), users, heaviest(users, gpu_s, USERS_SHOWN, "all others"))
    )
    is_drawn = any("user" in result.sampled for result in policies[first].values()) and "user" not in trace.sampled
    parts: list[Child] = [element("h3", "Who gains, who loses")]
    for other in others:
        before, after = policies[first], policies[other]
        parts += [
            element("p", f"{other} against {first}: {_tally('job', tally_jobs(before, after))}."),
            _groups(
                f"{other} against {first} by GPUs asked for",
                "GPUs",
                first,
                other,
                compare_groups(before, after, sizes, seed=seed),
            ),
        ]
        if is_drawn or len(users.names) == 1:
            parts.append(element("p", "The trace does not tell its users apart, so that there is no table of them."))
            continue
        parts += [
            element("p", f"By the mean JCT of their jobs: {_tally('user', tally_groups(before, after, all_users))}."),
            _groups(
                f"{other} against {first} by user, the {USERS_SHOWN} with the most GPU time first",
                "user",
                first,
                other,
                compare_groups(before, after, shown_users, seed=seed),
            ),
        ]
    return parts


def _groups(caption: str, kind: str, first: str, other: str, groups: Sequence[GroupDifference]) -> Element:
    rows: list[list[Cell]] = [
        [
            group.group or "(no name)",
            Number(str(group.jobs), group.jobs),
            Number(shown("mean_jct_s", group.before_s), group.before_s),
            Number(shown("mean_jct_s", group.after_s), group.after_s),
            Number(change_in_words(group.change), group.change.percent),
            verdict(group.change),
        ]
        for group in groups
    ]
    return table(
        caption,
        [kind, "jobs", f"mean JCT, {first}", f"mean JCT, {other}", "change of mean JCT", "reads as"],
        rows,
        is_sortable=True,
        text_columns=[5],
    )


def _tally(noun: str, tally: PairedTally) -> str:
    return (
        f"lower JCT for {plural(tally.lower, noun)}, higher for {plural(tally.higher, noun)}, "
        f"within a second for {plural(tally.same, noun)}"
    )


def _notes() -> list[Child]:
    return [element("h2", "Notes"), element("ul", *(element("li", note) for note in _NOTES))]


def _unwritable(path: Path, err: OSError) -> SimulationError:
    return SimulationError(f"{path}: the report cannot be written: {err.strerror}: choose another --report")
