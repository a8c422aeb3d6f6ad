"""Judges whether runs on live clusters reach what was aimed for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from advisor.view.wording import signed
from tools.live.advice_sections import BUSIER_TARGET, FIDELITY_TARGET, MAIN_MEAN, REQUEST_MEAN, REQUESTS_TIME
from tools.live.kept import Report, ReportSection, Values, in_words
from tools.live.savings import TARGET

MET, MISSED, OPEN = "met", "missed", "open"
# By how much the mean JCT should fall under a preset, in percent; under the others it should only fall.
GAINS: Final = {"trade": 20.0}
# How many more of 100 users may be worse off than chance makes.
CHANCE_POINTS: Final = 5.0
_FIDELITY_METRICS: Final = ("mean_jct_s", "makespan_s")

Verdict = tuple[str, str]


def advised(report: Report) -> list[str]:
    """Return the clusters that are not plain."""
    plain = plain_clusters(report)
    return list(dict.fromkeys(one["cluster"] for one in report["metrics"] if one["cluster"] not in plain))


def plain_clusters(report: Report) -> tuple[str, str]:
    """Return the cluster that others are compared with, and what a second one like it is called."""
    first: str = report["metrics"][0]["cluster"]
    return first, f"{first} 2"


def overall(values: Values, cluster: str) -> list[Mapping[str, Any]]:
    """Return the values of a cluster over all traces, or over the one there is."""
    scopes = {one["trace"] for one in values}
    wanted = None if None in scopes else next(iter(scopes), None)
    return [one for one in values if one["cluster"] == cluster and one["trace"] == wanted]


def metric_of(report: Report, cluster: str, metric: str) -> Mapping[str, Any] | None:
    """Return the value of a metric over all traces; None if the cluster was not run."""
    return next((one for one in overall(report["metrics"], cluster) if one["metric"] == metric), None)


def targets_values(report: Report) -> Values:
    """Hold each advised cluster against the targets."""
    return [
        {"target": target, "cluster": cluster, "figure": figure, "verdict": verdict}
        for cluster in advised(report)
        for target, (figure, verdict) in _verdicts(report, cluster)
    ]


def targets_section(values: Values) -> ReportSection:
    """Show which targets are met."""
    by_target: dict[str, dict[str, str]] = {}
    for one in values:
        by_target.setdefault(one["target"], {})[one["cluster"]] = f"{one['verdict']}: {one['figure']}"
    clusters = list(dict.fromkeys(one["cluster"] for one in values))
    rows = [(target, *(own.get(cluster, "") for cluster in clusters)) for target, own in by_target.items()]
    text = [f"Over all traces. A change without an interval leaves a target {OPEN}."]
    return ReportSection(title="Targets", text=text, tables=[(("target", *clusters), rows)])


def _verdicts(report: Report, cluster: str) -> Iterator[tuple[str, Verdict]]:
    wanted = ", ".join(f"{gain:g} % under {preset}" for preset, gain in GAINS.items())
    yield f"mean JCT lower, {wanted}, interval clear of 0", _gain(report, cluster)
    yield "99th percentile of queueing delay not higher", _not_higher(report, cluster)
    yield from _of_users(report, cluster)
    yield from _of_slurmctld(report, cluster)
    yield from _of_fidelity(report, cluster)
    yield from _of_promises(report, cluster)


def _gain(report: Report, cluster: str) -> Verdict:
    change = metric_of(report, cluster, "mean_jct_s") or {}
    figure = in_words(change["change"], change["low"], change["high"])
    if change["high"] is None:
        return figure, OPEN
    return figure, _verdict(change["change"] <= -GAINS.get(cluster, 0.0) and change["high"] < 0.0)


def _not_higher(report: Report, cluster: str) -> Verdict:
    change = metric_of(report, cluster, "p99_queueing_delay_s") or {}
    figure = in_words(change["change"], change["low"], change["high"])
    return figure, OPEN if change["high"] is None else _verdict(change["change"] <= 0.0)


def _of_users(report: Report, cluster: str) -> Iterator[tuple[str, Verdict]]:
    for one in overall(report["users"], cluster):
        worse, verdict = f"{one['worse']} of {one['users']}", OPEN
        if one["chance_runs"]:
            beyond = 100.0 * (one["worse"] / one["users"] - one["chance_worse"] / one["chance_users"])
            worse += f", by chance {one['chance_worse']} of {one['chance_users']}"
            verdict = _verdict(beyond <= CHANCE_POINTS)
        target = f"users worse by more than 5 % and 5 min: at most {CHANCE_POINTS:g} points beyond chance"
        yield target, (worse, verdict)
        jobs = f"{one['beyond_bound']} of {one['jobs']}"
        yield "no job beyond its bound", (jobs, _verdict(one["beyond_bound"] == 0))


def _of_slurmctld(report: Report, cluster: str) -> Iterator[tuple[str, Verdict]]:
    by_cluster = {one["cluster"]: one for one in report["slurmctld"]}
    if cluster not in by_cluster or not all(by_cluster[cluster]["before"].values()):
        return
    longer = _busier(by_cluster[cluster])
    figure = f"{signed(longer[0])} %, {signed(longer[1])} %, all requests together {signed(longer[2])} %"
    again = by_cluster.get(plain_clusters(report)[1])
    if again is not None and all(again["before"].values()):
        figure += ", by chance " + ", ".join(f"{signed(percent)} %" for percent in _busier(again))
    target = f"slurmctld's mean pass and mean request longer by at most {BUSIER_TARGET:g} %"
    yield target, (figure, _verdict(max(longer[:2]) <= BUSIER_TARGET))


def _busier(one: Mapping[str, Any]) -> list[float]:
    return [
        100.0 * (one["figures"][figure] / one["before"][figure] - 1.0)
        for figure in (MAIN_MEAN, REQUEST_MEAN, REQUESTS_TIME)
    ]


def _of_fidelity(report: Report, cluster: str) -> Iterator[tuple[str, Verdict]]:
    plain, advised = (_agreements(report, name) for name in (plain_clusters(report)[0], cluster))
    if not plain or not advised:
        return
    figure = f"{_percents(advised)}, plain {_percents(plain)}"
    verdict = _verdict(all(abs(one["percent"]) <= FIDELITY_TARGET for one in [*plain, *advised]))
    yield f"simulator within {FIDELITY_TARGET:g} % on mean JCT and makespan", (figure, verdict)


def _agreements(report: Report, cluster: str) -> list[Mapping[str, Any]]:
    """Return how close the simulated policy comes that is most like that of a cluster, the last one."""
    own = [one for one in report.get("fidelity", ()) if one["arm"] == cluster and one["metric"] in _FIDELITY_METRICS]
    last = [one for one in own if one["policy"] == own[-1]["policy"]]
    return last if all(one["percent"] is not None for one in last) else []


def _percents(agreements: Sequence[Mapping[str, Any]]) -> str:
    percents = " and ".join(f"{signed(one['percent'])} %" for one in agreements)
    return f"{percents} (`{agreements[0]['policy']}`)"


def _of_promises(report: Report, cluster: str) -> Iterator[tuple[str, Verdict]]:
    low, high = TARGET
    for one in report["changes"]:
        if one["cluster"] == cluster and one["lever"] == "all":
            share = one["held"] / one["jobs"]
            figure = f"{100 * share:.0f} % of {one['jobs']}"
            target = f"promised intervals that held what came, {100 * low:.0f} to {100 * high:.0f} %"
            yield target, (figure, _verdict(low <= share <= high))


def _verdict(is_met: bool) -> str:
    return MET if is_met else MISSED
