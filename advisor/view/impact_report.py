"""What the changes did: put together from the journal, as plain values, and in words."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Protocol

from advisor.domain.dataclass import dataclass
from advisor.domain.experiment import ExperimentSettings
from advisor.domain.lease import Lease
from advisor.domain.memory import Wait
from advisor.domain.outcome import SLOWDOWN_BOUND_S, Arm, JobOutcome
from advisor.domain.plan import LeverProposals
from advisor.domain.standings import WINDOW_S, Standings
from advisor.domain.units import duration, plural
from advisor.planning.objective import credits_of
from advisor.settings import Limits, PlanningSettings
from advisor.trial.accuracy import Accuracy, run_time_accuracy, start_accuracy
from advisor.trial.effect import Comparison, Conclusion, Effect, compared
from advisor.trial.tallies import LeverTally, PlacesGot, Share, lever_tallies, places_got
from advisor.view.standing_report import Counterfactual, standing_rows, standing_sentences, standings_document
from advisor.view.table_layout import TableForm
from advisor.view.terminal import console, instant, print_labelled, print_table

COLUMNS = ("section", "name", "figure", "value", "low", "high", "n")
FORECAST_SHARE = 0.8
_MOST_RULES = 3

_TALLIES = (
    "applied", "not_applied", "out", "renewed", "stayed", "taken_back", "reverted", "overruled", "unknown",
)  # fmt: skip
_LEVER_HEADER = (
    "lever", "applied", "failed", "out", "renewed", "stayed", "taken back", "reverted", "overruled", "unknown",
    "JCT promised",
)  # fmt: skip

_EFFECT_HEADER = ("metric", "figure of a day", "treated", "control", "what the treatment did")


class OutcomeJournal(Protocol):
    """What a journal remembers."""

    def outcomes(self, since: float) -> tuple[JobOutcome, ...]:
        """Return the outcomes of jobs that ended after an instant."""

    def open_outcomes(self) -> tuple[JobOutcome, ...]:
        """Return the outcomes of jobs whose end is still to come."""

    def leases(self) -> tuple[Lease, ...]:
        """Return the leases that are open."""

    def closed(self, job_ids: Collection[int], since: float | None = None) -> tuple[Lease, ...]:
        """Return leases that have ended."""

    def waits(self, since: float) -> tuple[Wait, ...]:
        """Return the waits that ended after an instant."""

    def proposals(self, since: float) -> tuple[LeverProposals, ...]:
        """Return for how many jobs each lever was proposed, refused and applied after an instant."""

    def standings(self, since: float) -> Standings:
        """Return the waits with and without advice over the stretches that ended after an instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """All that a report says; `comparison` is None without an experiment."""

    since: float
    until: float
    ended: int
    changed: int
    proposals: tuple[LeverProposals, ...]
    levers: tuple[LeverTally, ...]
    places: tuple[PlacesGot, ...]
    starts: Accuracy
    run_times: Accuracy
    comparison: Comparison | None
    counterfactual: Counterfactual
    limits: tuple[str, ...]


def impact_of(
    journal: OutcomeJournal,
    experiment: ExperimentSettings,
    *,
    since: float,
    now: float,
    planning: PlanningSettings,
    limits: Limits,
) -> Impact:
    """Put a report together from what a journal remembers; the experiment is judged whatever `since` says."""
    week = journal.standings(now - WINDOW_S)
    over = journal.outcomes(min(since, _first_of(experiment)) if experiment.by else since)
    still_open = journal.open_outcomes()
    lately = [outcome for outcome in over if (outcome.end_time or 0.0) > since]
    comparison = compared((*over, *still_open), experiment, now) if experiment.by else None
    outcomes = (*lately, *still_open)
    return Impact(
        since=since,
        until=now,
        ended=len(lately),
        changed=sum(any(change.applied_time >= since for change in outcome.changes) for outcome in outcomes),
        proposals=journal.proposals(since),
        levers=lever_tallies(outcomes, journal.closed((), since), since=since, now=now),
        places=places_got(
            journal.waits(since), (*journal.closed((), since), *journal.leases()), outcomes, since=since, now=now
        ),
        starts=start_accuracy(lately),
        run_times=run_time_accuracy(lately),
        comparison=comparison,
        counterfactual=Counterfactual(
            whole=journal.standings(since),
            week=week,
            now=now,
            credit_by_user=credits_of(week, planning, limits),
            max_credit=planning.max_credit,
        ),
        limits=tuple(_limits(comparison)),
    )


def without_names(impact: Impact) -> Impact:
    """Return a report that names no account and no user."""
    shown = impact.counterfactual
    comparison = None if impact.comparison is None else replace(impact.comparison, worst=())
    week = replace(shown.week, by_user={}, by_account={})
    return replace(impact, comparison=comparison, counterfactual=replace(shown, week=week, credit_by_user={}))


def document(impact: Impact) -> dict[str, object]:
    """Return a report as published."""
    comparison = impact.comparison
    return {
        "jobs": {"ended": impact.ended, "changed": impact.changed},
        "proposals": impact.proposals,
        "levers": [_lever(tally) for tally in impact.levers],
        "places": [{"tier": place.tier.name.lower(), **_plain(place.got)} for place in impact.places],
        "forecasts": {"start": _accuracy(impact.starts), "run_time": _accuracy(impact.run_times)},
        "counterfactual": standings_document(impact.counterfactual),
        "experiment": None
        if comparison is None
        else {
            "settings": comparison.settings.registration(),
            "verdict": str(comparison.primary.verdict),
            "blocks_planned": comparison.blocks_planned,
            "blocks_over": comparison.blocks_over,
            "assigned_under_other_settings": comparison.other_settings,
            "arms": comparison.arms,
            "effects": comparison.effects,
            "accounts_compared": comparison.groups,
            "accounts_that_lost_most": [
                {"account": group.account, "is_clear": group.is_clear, **asdict(group.effect)}
                for group in comparison.worst
            ],
        },
        "cannot_tell": list(impact.limits),
    }


def rows(impact: Impact) -> Iterator[list[str]]:
    """Yield a report as the fields of `COLUMNS`, one figure a row, empty where there is no number."""
    for made in impact.proposals:
        yield from _proposal_rows(made)
    for tally in impact.levers:
        for kind in _TALLIES:
            yield _row("lever", str(tally.lever), kind, getattr(tally, kind))
        yield _row("lever", str(tally.lever), "promised_saving_s", None, tally.saved_s_low, tally.saved_s_high)
        yield _share_row("lever", str(tally.lever), "in_time", tally.in_time)
        yield _share_row("lever", str(tally.lever), "in_time_by_forecast", tally.in_time_by_forecast)
    for place in impact.places:
        yield _share_row("place", place.tier.name.lower(), "got", place.got)
    for name, accuracy in (("start", impact.starts), ("run_time", impact.run_times)):
        yield _share_row("forecast", name, "held", _held(accuracy))
        yield _row("forecast", name, "error_factor", accuracy.error_factor, None, None, accuracy.jobs)
    for section, name, figure, *numbers in standing_rows(impact.counterfactual):
        yield _row(section, name, figure, *numbers)
    if impact.comparison is not None:
        of_all = [("experiment", effect.metric, effect) for effect in impact.comparison.effects]
        of_accounts = [("account", group.account, group.effect) for group in impact.comparison.worst]
        for section, name, effect in (*of_all, *of_accounts):
            figure = f"{effect.figure}_change_percent"
            yield _row(section, name, figure, effect.percent, effect.low, effect.high, effect.blocks)


def print_report(impact: Impact, missing: Mapping[str, str]) -> None:
    """Print a report for people; `missing` maps levers that the site lacks to why, as far as that is known."""
    out = console()
    kept = f"{plural(impact.ended, 'GPU job')} ended, {impact.changed} were changed"
    out.print(f"from {instant(impact.since)} to {instant(impact.until)}: {kept}")
    out.print()
    if impact.levers:
        print_table(
            _LEVER_HEADER,
            [_lever_fields(tally) for tally in impact.levers],
            right=range(1, 11),
            form=TableForm(whole=_LEVER_HEADER),
        )
        out.print()
    for label, text in _sentences(impact, missing):
        print_labelled(label, text, width=12)
    out.print()
    for label, text in standing_sentences(impact.counterfactual):
        print_labelled(label, text, width=12)
    if impact.comparison is not None:
        out.print()
        for label, text in _of_experiment(impact.comparison):
            print_labelled(label, text, width=12)
        out.print()
        print_table(
            _EFFECT_HEADER, list(_effect_fields(impact.comparison)), right=(2, 3), form=TableForm(folded=_EFFECT_HEADER)
        )
    out.print()
    for text in impact.limits:
        print_labelled("not known", text, width=12)


def _sentences(impact: Impact, missing: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from _proposed(impact.proposals, missing)
    if not impact.levers:
        yield "levers", "nothing was changed"
    for tally in impact.levers:
        if tally.in_time.n:
            yield str(tally.lever), f"started within the promised delay of the change itself: {_said(tally.in_time)}"
        if tally.in_time_by_forecast.n:
            of_forecast = "started within it of the forecast made before the change, 9 in 10 being expected"
            yield str(tally.lever), f"{of_forecast}: {_said(tally.in_time_by_forecast)}"
    for place in impact.places:
        yield "places", f"gangs that waited for one {place.tier.name.lower()} and got it: {_said(place.got)}"
    for name, accuracy in (("starts", impact.starts), ("run times", impact.run_times)):
        if accuracy.jobs:
            share, off = _held(accuracy), f"half were off by a factor of {accuracy.error_factor:.3g} or more"
            yield "forecasts", f"{name} within their 80 % interval: {_said(share)}{_drift(share)}"
            yield "forecasts", f"{name} against their median: {off}"
        else:
            yield "forecasts", f"{name}: none has come true or failed yet"


def _proposed(proposals: Sequence[LeverProposals], missing: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Say how often each lever was proposed, what refused it, and which were not proposed at all."""
    for made in proposals:
        if made.proposed:
            by_count = sorted(made.refused.items(), key=lambda item: (-item[1], item[0]))
            refused = "".join(f"; {rule} refused it for {count}" for rule, count in by_count[:_MOST_RULES])
            yield "proposed", f"{made.lever} for {plural(made.proposed, 'job')}, applied to {made.applied}{refused}"
    for made in proposals:
        if not made.proposed:
            why = missing.get(made.lever, "no round called for it, or this site lacks it (`sadvise check`)")
            yield "asleep", f"{made.lever}, proposed for no job, because {why}"


def _of_experiment(comparison: Comparison) -> Iterator[tuple[str, str]]:
    settings, primary = comparison.settings, comparison.primary
    over = f"{comparison.blocks_over} of {plural(comparison.blocks_planned, 'block')} are over"
    yield "experiment", f"{settings.name}, by {settings.by}, {settings.start} to {settings.end}: {over}"
    yield (
        "verdict",
        f"by the {_figure(primary)} of the {_metric(primary.metric)}, as chosen: {_verdict(primary, settings)}",
    )
    for arm, count in comparison.arms.items():
        parts = [
            f"{count.without_figure} have no figure" if count.without_figure else "",
            _crossing(arm, count.crossed, count.jobs),
        ]
        if arm is Arm.CONTROL and count.changed:
            parts.append(f"{count.changed} were changed although in control, as they waited on")
        yield str(arm), "; ".join([plural(count.jobs, "job"), *filter(None, parts)])
    for group in comparison.worst:
        sure = "clear for all accounts together" if group.is_clear else "may be chance"
        change = f"{_higher(group.effect)}, {plural(group.effect.blocks, 'block')}"
        yield "lost most", f"account {group.account}: {change}; {sure} among {comparison.groups}"
    if comparison.other_settings:
        left_out = f"the settings were changed since {plural(comparison.other_settings, 'job')} got a side under others"
        yield "changed", f"{left_out}; left out, and what was registered first is no longer what is judged"


def _effect_fields(comparison: Comparison) -> Iterator[list[str]]:
    for effect in comparison.effects:
        # What is typical is a ratio alone.
        of_one = math.isnan(effect.treated + effect.control) or effect.figure == "typical"
        sides = ["", ""] if of_one else [_value(effect, effect.treated), _value(effect, effect.control)]
        yield [_metric(effect.metric), _figure(effect), *sides, _verdict(effect, comparison.settings)]


def _verdict(effect: Effect, settings: ExperimentSettings) -> str:
    match effect.verdict:
        case Conclusion.TOO_LITTLE if effect.blocks < settings.min_blocks:
            return f"too little data, {plural(effect.blocks, 'block')} of the {settings.min_blocks} asked for"
        case Conclusion.TOO_LITTLE:
            return f"too little data, {plural(effect.blocks, 'block')} bound no interval"
        case Conclusion.UNCLEAR:
            return f"no clear difference, {_signed(effect.low)} to {_signed(effect.high)}"
        case Conclusion.HELPED:
            return f"helped by {_plainly(-effect.percent)} %, {_plainly(-effect.high)} to {_plainly(-effect.low)} %"
        case Conclusion.WORSE:
            return f"made it worse by {_plainly(effect.percent)} %, {_plainly(effect.low)} to {_plainly(effect.high)} %"


def _higher(effect: Effect) -> str:
    return f"{_metric(effect.metric)} {_signed(effect.percent)}, {_signed(effect.low)} to {_signed(effect.high)}"


def _limits(comparison: Comparison | None) -> Iterator[str]:
    """Say what the figures cannot tell."""
    yield "what one change saved: the queue without it alone was not seen; promised savings are what planning expected"
    yield "jobs that started and ended between two looks at the queue, and ends while the daemon was down"
    yield "forecasts of jobs that have not come that far: those that did are the shorter ones"
    if comparison is None:
        yield "whether it helped, measured and not estimated: that takes an experiment, see [experiment]"
        return
    yield "more than the days that were compared: other seasons and other users may differ"
    if comparison.settings.by == "day":
        yield "what the backlog of one day does to the next: a treated day that empties the queue helps the control day"
    else:
        yield "what else changed as the experiment began: no lot was drawn, and it counts as an effect"


def _first_of(experiment: ExperimentSettings) -> float:
    """Return from when on jobs tell of an experiment; by partition, as long before it as it lasts."""
    length_s = experiment.end_time - experiment.start_time if experiment.by == "partition" else 0.0
    return experiment.start_time - length_s


def _lever(tally: LeverTally) -> dict[str, object]:
    return {
        "lever": str(tally.lever),
        **{kind: getattr(tally, kind) for kind in _TALLIES},
        "jobs": tally.jobs,
        "promised_saving_s": [tally.saved_s_low, tally.saved_s_high],
        "in_time": _plain(tally.in_time),
        "in_time_by_forecast": _plain(tally.in_time_by_forecast),
    }


def _proposal_rows(made: LeverProposals) -> Iterator[list[str]]:
    yield _row("proposals", str(made.lever), "proposed", made.proposed)
    for rule, count in sorted(made.refused.items()):
        yield _row("proposals", str(made.lever), f"refused_by_{rule}", count)
    yield _row("proposals", str(made.lever), "applied", made.applied)


def _lever_fields(tally: LeverTally) -> list[str]:
    counts = [str(getattr(tally, kind)) for kind in _TALLIES]
    return [str(tally.lever), *counts, f"{duration(tally.saved_s_low)} to {duration(tally.saved_s_high)}"]


def _plain(share: Share) -> dict[str, float | int]:
    return {"count": share.count, "n": share.n, "share": share.ratio, "low": share.low, "high": share.high}


def _accuracy(accuracy: Accuracy) -> dict[str, float | int]:
    return {**_plain(_held(accuracy)), "error_factor": accuracy.error_factor}


def _held(accuracy: Accuracy) -> Share:
    """Return how many intervals held what came."""
    return Share(count=round(accuracy.coverage_ratio * accuracy.jobs) if accuracy.jobs else 0, n=accuracy.jobs)


def _row(section: str, name: str, figure: str, *numbers: float | None) -> list[str]:
    """Return a row; the numbers are value, low, high and n, as far as there are any."""
    padded: Iterable[float | None] = (*numbers, None, None, None, None)[:4]
    return [
        section,
        name,
        figure,
        *("" if value is None or not math.isfinite(value) else f"{value:g}" for value in padded),
    ]


def _share_row(section: str, name: str, figure: str, share: Share) -> list[str]:
    return _row(section, name, figure, share.ratio, share.low, share.high, share.n)


def _said(share: Share) -> str:
    return f"{share.count} of {share.n} ({share.ratio:.0%}, {share.low:.0%} to {share.high:.0%})"


def _drift(share: Share) -> str:
    if share.low <= FORECAST_SHARE <= share.high:
        return ""
    return ": the intervals are too narrow" if share.high < FORECAST_SHARE else ": the intervals are too wide"


def _metric(name: str) -> str:
    if name == "bounded_slowdown":
        return f"slowdown bounded at {duration(SLOWDOWN_BOUND_S)}"
    return "JCT" if name == "jct" else name.replace("_", " ")


def _figure(effect: Effect) -> str:
    return {"mean": "mean", "p95": "95th percentile"}.get(effect.figure, "typical day")


def _value(effect: Effect, value: float) -> str:
    return f"{value:.2f}" if effect.metric == "bounded_slowdown" else duration(value)


def _signed(percent: float) -> str:
    return "unknown" if math.isnan(percent) else f"{'-' if percent < 0 else '+'}{_plainly(abs(percent))} %"


def _plainly(percent: float) -> str:
    return f"{percent:.1f}" if abs(percent) < 10 else f"{percent:.0f}"


def _crossing(arm: Arm, crossed: int, jobs: int) -> str:
    return f"{crossed} ({crossed / jobs:.0%}) still waited as the day was over that made them {arm}" if crossed else ""
