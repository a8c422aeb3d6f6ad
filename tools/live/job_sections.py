"""Writes of the runs, their metrics, and the sizes of jobs that gained and gave, for the report on live runs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from advisor.domain.units import duration, plural
from advisor.sim.study.comparison import Results, change_of, compare_groups, ends_of, mean_of, traces_of
from advisor.sim.study.metrics import by_gpus
from advisor.sim.study.statistics import CellName, mean_over_cells
from advisor.view.wording import LABELS, ends_in_words, shown
from tools.live.kept import METRICS, Kept, ReportSection, Runs, Table, Values, in_words

_FINISHED: Final = "finished"
_POINTS: Final = "points"
_NO_CHANGE: Final = {"change": None, "low": None, "high": None}


def runs_values(runs: Runs) -> Values:
    """Return what was run, and what went wrong, run by run."""
    by_cell: dict[CellName, list[Kept]] = {}
    for arm in runs.arms:
        by_cell.setdefault(arm.cell, []).append(arm)
    traces = traces_of(runs.results)
    by_cell = {cell: by_cell[cell] for cell in sorted(by_cell, key=lambda cell: (traces.index(cell.trace), cell.seed))}
    return [
        {
            **cell._asdict(),
            "version": arms[0].version,
            "gpus": arms[0].run.cluster_gpus,
            "nodes": arms[0].site.nodes,
            "jobs": len(arms[0].run.trace),
            "speedup": arms[0].site.speedup,
            "wall_s": arms[0].run.wall_s,
            "clusters": [arm.name for arm in arms],
            "changes": [None if arm.config is None else arm.run.changes for arm in arms],
            "faults": [fault for arm in arms for fault in [*arm.faults, *_stops(arm)]],
        }
        for cell, arms in by_cell.items()
    ]


def _stops(arm: Kept) -> Iterator[str]:
    for breaker, times in Counter(arm.stops).items():
        yield f"{arm.name}: stopped by {breaker}" + (f" {times} times" if times > 1 else "")


def runs_section(values: Values) -> ReportSection:
    """Say what was run."""
    heads = ("trace", "seed:", "Slurm", "GPUs:", "jobs:", "took", "clusters", "changes", "faults and stops")
    rows = [
        (
            run["trace"],
            str(run["seed"]),
            run["version"],
            str(run["gpus"]),
            str(run["jobs"]),
            duration(run["wall_s"]),
            ", ".join(run["clusters"]),
            ", ".join("none" if changes is None else str(changes) for changes in run["changes"]),
            "; ".join(run["faults"]) or "none",
        )
        for run in values
    ]
    speedups = ", ".join(f"{speedup:g}" for speedup in sorted({run["speedup"] for run in values}))
    text = f"Times are those of the trace: one second on the live clusters is {speedups} s."
    return ReportSection(title="Runs", text=[text], tables=[(heads, rows)])


def metrics_values(runs: Runs, seed: int) -> Values:
    """Compare the metrics of the clusters, for each trace and for all."""
    return [
        {"trace": trace, "cluster": name, "runs": len(own), **value}
        for trace in runs.scopes
        for name in runs.by_arm
        if (own := runs.on(name, trace))
        for value in _of_cluster(runs.on(runs.first, trace), own, name == runs.first, seed)
    ]


def _of_cluster(first: Results, own: Results, is_first: bool, seed: int) -> Iterator[dict[str, Any]]:
    for metric in METRICS:
        change = _NO_CHANGE if is_first else _change(first, own, metric, seed)
        yield {"metric": metric, "value": mean_of(metric, own), **change}
    finished = sum(result.summary.finished for result in own.values())
    yield {"metric": _FINISHED, "value": finished, **_NO_CHANGE, "others": ends_in_words(ends_of(own))}


def _change(first: Results, own: Results, metric: str, seed: int) -> dict[str, Any]:
    """Return a change in percent, or that of a ratio in points."""
    if _unit(metric) == _POINTS:
        values = (first, own)
        before, after = (
            {cell: 100.0 * float(getattr(one.summary, metric)) for cell, one in results.items()} for results in values
        )
        points = mean_over_cells({cell: after[cell] - before[cell] for cell in after.keys() & before.keys()}, seed=seed)
        return {"change": points.mean, "low": points.low, "high": points.high}
    change = change_of(first, own, metric, seed)
    return {"change": change.percent, "low": change.low, "high": change.high}


def _unit(metric: str) -> str:
    return _POINTS if metric.endswith("_ratio") else "%"


def metrics_section(values: Values) -> ReportSection:
    """Show the metrics of each trace, and the changes over all."""
    first = values[0]["cluster"]
    traces = list(dict.fromkeys(one["trace"] for one in values))
    text = [
        f"Changes are against {first}, those of ratios in points.",
        "The 95 % intervals are over blocks of the jobs of a single run, or over runs: seeds of a trace, then traces.",
    ]
    if f"{first} 2" in {one["cluster"] for one in values}:
        text.append(f"{first} 2 is plain as well: its changes are the noise of the method.")
    return ReportSection(title="Metrics", text=text, tables=[_metrics_table(values, trace) for trace in traces])


def _metrics_table(values: Values, trace: str | None) -> Table:
    own = {(one["cluster"], one["metric"]): one for one in values if one["trace"] == trace}
    names = list(dict.fromkeys(name for name, _ in own))
    runs = {name: own[name, METRICS[0]]["runs"] for name in names}
    rows = [(LABELS[metric], *(_metric(own[name, metric], runs[names[0]]) for name in names)) for metric in METRICS]
    finished = [own[name, _FINISHED] for name in names]
    rows.append((LABELS[_FINISHED], *(str(one["value"]) for one in finished)))
    rows.append(("did not finish", *(one["others"] or "none" for one in finished)))
    heads = [name if runs[name] == runs[names[0]] else f"{name}, {plural(runs[name], 'run')}" for name in names]
    return (f"{trace or 'all traces'}, {plural(runs[names[0]], 'run')}", *heads), rows


def _metric(one: Mapping[str, Any], runs: int) -> str:
    """Return the value and its change; means over different runs or traces cannot be compared."""
    change = "" if one["change"] is None else in_words(one["change"], one["low"], one["high"], _unit(one["metric"]))
    if one["trace"] is None or one["runs"] != runs:
        return change
    value = shown(one["metric"], one["value"])
    return f"{value}, {change}" if change else value


def sizes_values(runs: Runs, seed: int) -> Values:
    """Compare the mean JCT of the jobs of each size."""
    groupings, first = runs.grouped(by_gpus(runs.jobs())), runs.by_arm[runs.first]
    return [
        {
            "cluster": name,
            "against": runs.first,
            **{key: value for key, value in asdict(group).items() if key != "change"},
            "change": group.change.percent,
            "low": group.change.low,
            "high": group.change.high,
        }
        for name, own in runs.by_arm.items()
        if name != runs.first
        for group in compare_groups(
            {cell: first[cell] for cell in own}, own, {cell: groupings[cell] for cell in own}, seed=seed
        )
    ]


def sizes_section(values: Values) -> ReportSection:
    """Show the changes of the mean JCT by size."""
    by_size: dict[str, dict[str, Mapping[str, Any]]] = {}
    for one in values:
        by_size.setdefault(one["group"], {})[one["cluster"]] = one
    names = list(dict.fromkeys(one["cluster"] for one in values))
    rows = [(size, *(_size(own[name]) if name in own else "none" for name in names)) for size, own in by_size.items()]
    text = [f"The mean JCT against {values[0]['against']}, over jobs that finished on both."] if values else []
    return ReportSection(
        title="By the GPUs that jobs ask for", text=text, tables=[(("GPUs", *(f"{name}:" for name in names)), rows)]
    )


def _size(one: Mapping[str, Any]) -> str:
    if one["after_s"] is None:
        return "none"
    return f"{plural(one['jobs'], 'job')}, {in_words(one['change'], one['low'], one['high'])}"
