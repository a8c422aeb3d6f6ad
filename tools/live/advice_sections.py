"""Writes of the promises of changes, of slurmctld, and of the simulator, for the report on live runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from advisor.domain.units import duration
from advisor.sim.study.statistics import CellName
from advisor.trial.tallies import Share
from advisor.view.wording import LABELS, shown, signed
from tools.live.kept import Kept, ReportSection, Runs, Values
from tools.live.replayed import MODELLED, agreements, replayed
from tools.live.savings import TARGET, Saving, promises_of, savings
from tools.stage.sdiag import Cycles, together

# In percent: by how much slurmctld can be busier, and by how much the simulator can be off.
BUSIER_TARGET: Final = 5.0
FIDELITY_TARGET: Final = 5.0
MAIN_MEAN: Final = "mean time of one, us"
BACKFILL_MEAN: Final = "mean time of one of backfill, us"
REQUEST_MEAN: Final = "mean time of a request, us"
REQUESTS_TIME: Final = "time of all requests, s"
_SHOWN_REQUESTS: Final = 12


def savings_values(runs: Runs, *, again: bool = False) -> Values:
    """Return what changes promised and what came of it; with `again` what this version would have promised."""
    values = []
    for name in runs.others:
        found = [saving for cell, arm in runs.kept(name).items() for saving in _savings_of(runs, cell, arm, again)]
        for lever in [None, *dict.fromkeys(saving.lever for saving in found)] if found else []:
            own = [saving for saving in found if lever in (None, saving.lever)]
            values.append({"against": runs.first, **_savings_values(name, str(lever or "all"), own)})
    return values


def savings_section(values: Values) -> ReportSection:
    """Show what changes promised and what came of it."""
    if not values:
        return ReportSection(title="What changes did", text=["No change was applied."])
    first = values[0]["against"]
    heads = (
        "cluster", "lever", "jobs:", "promised, mean", "came, mean", "interval held it", "below it:", "above it:",
        "held or missed within the noise:",
    )  # fmt: skip
    text = [
        f"Each applied change against the same job on {first}: its start if it was reordered, else its end.",
        "A job counts once for each lever, with its first promise.",
        f"The target for 80 % intervals is {100 * TARGET[0]:.0f} to {100 * TARGET[1]:.0f} %.",
        "A miss is within the noise if it is smaller than what four of five jobs differ by between the plain clusters.",
    ]
    return ReportSection(title="What changes did", text=text, tables=[(heads, list(map(_savings_row, values)))])


def _savings_of(runs: Runs, cell: CellName, arm: Kept, again: bool) -> Iterator[Saving]:
    if arm.journal is None:
        return
    plain, second = runs.of(runs.first)[cell], runs.plain_again
    yield from savings(
        promises_of(arm.journal, again=again),
        plain,
        runs.of(arm.name)[cell],
        runs.of(second).get(cell) if second else None,
        arm.job_ids,
        arm.site.speedup,
    )


def _savings_values(name: str, lever: str, found: Sequence[Saving]) -> dict[str, Any]:
    held = Share(count=sum(saving.is_held for saving in found), n=len(found))
    return {
        "cluster": name,
        "lever": lever,
        "jobs": len(found),
        "promised_low_s": float(np.mean([saving.low_s for saving in found])),
        "promised_high_s": float(np.mean([saving.high_s for saving in found])),
        "came_s": float(np.mean([saving.came_s for saving in found])),
        "held": held.count,
        "held_low": held.low,
        "held_high": held.high,
        "below": sum(saving.came_s < saving.low_s for saving in found),
        "above": sum(saving.came_s > saving.high_s for saving in found),
        "held_or_noise": sum(saving.is_held_or_noise for saving in found),
    }


def _savings_row(value: Mapping[str, Any]) -> tuple[str, ...]:
    jobs = value["jobs"]
    return (
        value["cluster"],
        value["lever"],
        str(jobs),
        f"{duration(value['promised_low_s'])} to {duration(value['promised_high_s'])}",
        duration(value["came_s"]),
        f"{100 * value['held'] / jobs:.0f} % ({100 * value['held_low']:.0f} to {100 * value['held_high']:.0f})",
        str(value["below"]),
        str(value["above"]),
        f"{100 * value['held_or_noise'] / jobs:.0f} %",
    )


def slurmctld_values(runs: Runs) -> Values:
    """Return what slurmctld spent its time on, beside the first cluster in the same runs."""
    values = []
    for name in runs.by_arm:
        first, own = runs.kept(runs.first), runs.kept(name)
        cycles, before = _cycles(own.values()), _cycles(first[cell] for cell in own)
        values.append({"cluster": name, **asdict(cycles), "figures": _figures(cycles), "before": _figures(before)})
    return values


def _cycles(arms: Iterable[Kept]) -> Cycles:
    return together([arm.cycles for arm in arms if arm.cycles is not None])


def slurmctld_section(values: Values) -> ReportSection:
    """Show what slurmctld spent its time on."""
    first = values[0]
    rows = [
        (
            figure,
            *(_against(one["figures"][figure], one["before"][figure], is_first=one is first) for one in values),
        )
        for figure in first["figures"]
    ]
    types = sorted(
        {kind for one in values for kind in one["requests"]},
        key=lambda kind: (-max(one["request_s_by_type"].get(kind, 0.0) for one in values), kind),
    )
    type_rows = [
        (
            kind,
            *(f"{one['requests'].get(kind, 0)}, {one['request_s_by_type'].get(kind, 0.0):.2f} s" for one in values),
        )
        for kind in types[:_SHOWN_REQUESTS]
    ]
    text = [
        "From sdiag, over all runs; times are real ones. All hold the requests of the experiment itself.",
        f"Changes are against {first['cluster']} in the same runs.",
        f"The target is a mean pass and a mean request within {BUSIER_TARGET:g} % of {first['cluster']}.",
    ]
    names = [one["cluster"] for one in values]
    return ReportSection(
        title="slurmctld",
        text=text,
        tables=[(("", *names), rows), (("requests and their time", *names), type_rows)],
    )


def _figures(cycles: Cycles) -> dict[str, float]:
    count = sum(cycles.requests.values())
    return {
        "passes of the main scheduler": float(cycles.main_passes),
        MAIN_MEAN: 1e6 * cycles.main_mean_s,
        "passes of backfill": float(cycles.backfill_passes),
        BACKFILL_MEAN: 1e6 * cycles.backfill_mean_s,
        "requests": float(count),
        REQUEST_MEAN: 1e6 * cycles.request_s / max(1, count),
        REQUESTS_TIME: cycles.request_s,
    }


def _against(value: float, first: float, *, is_first: bool) -> str:
    text = f"{value:,.0f}" if value >= 100.0 or value.is_integer() else f"{value:.2f}"
    return text if is_first or not first else f"{text}, {signed(100.0 * (value / first - 1.0))} %"


def fidelity_values(runs: Runs, store: Path | None) -> Values:
    """Return how close the simulator comes, with the same jobs on the model of the same cluster."""
    return [asdict(one) for one in agreements(replayed(runs.arms, store=store))]


def fidelity_section(values: Values) -> ReportSection:
    """Show how close the simulator comes."""
    by_policy: dict[tuple[str, str], dict[str, str]] = {}
    for one in values:
        by_policy.setdefault((one["arm"], one["policy"]), {})[one["metric"]] = _agreement(one)
    heads = ("cluster", "simulator", *(LABELS[metric] for metric in MODELLED))
    rows = [(*names, *(of_metric[metric] for metric in MODELLED)) for names, of_metric in by_policy.items()]
    text = [
        "The same jobs on the model of the live cluster, read from its own snapshot, with its daemon's settings.",
        "Live and simulated, means over runs, and simulated against live: the mean over runs, and the farthest run.",
        f"The target is {FIDELITY_TARGET:g} % on mean JCT and makespan.",
    ]
    return ReportSection(title="Simulator against live", text=text, tables=[(heads, rows)])


def _agreement(one: Mapping[str, Any]) -> str:
    if one["percent"] is None:
        return "not comparable"
    values = " and ".join(shown(one["metric"], one[of]) for of in ("live", "simulated"))
    worst = f" ({signed(one['worst_percent'])})" if one["runs"] > 1 else ""
    return f"{values}, {signed(one['percent'])} %{worst}"
