"""The sentence of each reason, and what its expected saving rests on.

A reason takes about thirty words: the number, what changes by it, and what it costs. No text ends with a full stop,
since the line goes on after it. docs/sentences.md shows them with real values.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from advisor.domain.actions import Reason
from advisor.domain.memory import LARGEST_CLASS, gang_class
from advisor.domain.plan import Expected, Recommendation
from advisor.domain.releases import first_with
from advisor.domain.units import duration, gpu_time, plural, span
from advisor.planning.beliefs import Basis
from advisor.planning.compensation import DelayedByAdvice
from advisor.planning.exchange import Exchanged
from advisor.planning.lift import StartsNext
from advisor.planning.placement import PlaceForGang, PlaceWorthWaiting
from advisor.planning.sizing import Resizing
from advisor.planning.soft_limit import RunsShorterThanLimit
from advisor.planning.timers import Timer, TimerOut

_BASES = {
    Basis.FORECAST: "as forecast",
    Basis.FORECAST_OVER_NODES: "as forecast over nodes, by rule over leaves",
    Basis.RULE: "by rule",
    Basis.RULE_FOR_MORE_NODES: "by rule for more nodes than needed",
}


def sentence(change: Recommendation) -> str:
    """Return why a change is proposed."""
    return _SENTENCES[change.reason](change.facts, change)


def assumption(change: Recommendation) -> str:
    """Return what the expected saving of a change rests on."""
    return _ASSUMPTIONS[change.reason](change.facts)


def timer_sentence(timer: Timer) -> str:
    """Return how long a gang waits and what it gains, and how others fared that waited."""
    longer = span(timer.spread_cost_s_low, timer.spread_cost_s_high)
    wait = f"It waits up to {duration(timer.timer_s)} for {place(timer.nodes)}"
    return f"{wait}, as spread out it would run {longer} longer. {_seen(timer)}"


def timer_out_sentence(out: TimerOut) -> str:
    """Return what a timer that is out makes its job wait for, and how much of it is left."""
    left = f"{duration(out.left_s)} of the wait are left" if out.left_s > 0.0 else "The wait is over"
    if out.timer is not None:
        return f"{timer_sentence(out.timer)}. {left}"
    wait = f"It waits up to {duration(out.length_s)} for {place(out.nodes)}"
    return f"{wait}. The cost of staying spread out is not known now. {left}"


def place(nodes: int | None) -> str:
    """Return the place that a gang waits for: a number of nodes, None for one leaf switch."""
    if nodes is None:
        return "one leaf switch"
    return "one node" if nodes == 1 else f"{nodes} nodes"


def _starts_next(facts: StartsNext, _: Recommendation) -> str:
    others = "that job" if facts.jobs_passed == 1 else "each of those"
    ahead = facts.gpu_hours_ahead - facts.gpu_hours_ahead_after
    return (
        f"It needs {gpu_time(facts.gpu_hours)} and waits behind {plural(facts.jobs_passed, 'job')} with "
        f"{gpu_time(ahead)}. Moved ahead, it starts {_sooner(facts)}, {others} up to "
        f"{duration(facts.others_delayed_s_max)} later"
    )


def _sooner(facts: StartsNext) -> str:
    """Return by how much a job starts sooner: the mean, then the range."""
    return _shift(facts.sooner_s_low, facts.outlook.sooner_s_mean, facts.sooner_s_high)


def _shift(low_s: float, mean_s: float, high_s: float) -> str:
    """Return by how much a start is sooner, below 0 later: the mean, then the range, which can reach the other way."""
    way, other = ("sooner", "later") if mean_s >= 0.0 else ("later", "sooner")
    back_s, most_s = (-low_s, high_s) if mean_s >= 0.0 else (high_s, -low_s)
    back = f"{duration(back_s)} {other} to" if back_s > 0.0 else "up to"
    return f"{duration(abs(mean_s))} {way} on average ({back} {duration(most_s)} {way})"


def _exchanged(facts: Exchanged, change: Recommendation) -> str:
    shift = _shift(facts.sooner_s_low, facts.sooner_s_mean, facts.sooner_s_high)
    lease = duration(change.revert_after_s or 0.0)
    return (
        f"It needs {gpu_time(facts.gpu_hours)}, job {facts.other_job_id} of the same {facts.scope} "
        f"{gpu_time(facts.gpu_hours_of_other)}. They change places for up to {lease}: it starts {shift}"
    )


def _smaller_starts_sooner(facts: Resizing, change: Recommendation) -> str:
    expected = change.expected
    return (
        f"Its {facts.gpus} GPUs should come free in {duration(facts.expected_wait_s)}. With {facts.gpus_after} it "
        f"starts now, runs {facts.stretch:.1f} times as long, and ends {_saving(expected)} sooner. {_limit(facts)}"
    )


def _idle_gpus_to_grow(facts: Resizing, change: Recommendation) -> str:
    expected = change.expected
    return (
        f"No other pending job can use {plural(facts.gpus_after - facts.gpus, 'idle GPU')}. With {facts.gpus_after} "
        f"instead of {facts.gpus} GPUs it ends {_saving(expected)} sooner"
    )


def _place_worth_waiting(facts: PlaceWorthWaiting, _: Recommendation) -> str:
    timer = facts.timer
    otherwise = "it could start now only" if facts.tier_now is not None else "the next idle ones can be"
    return (
        f"Its {timer.gpus} GPUs fit {place(timer.nodes)}, but {otherwise} spread out. It waits up to "
        f"{duration(timer.timer_s)} for that, as spread out it would run "
        f"{span(timer.spread_cost_s_low, timer.spread_cost_s_high)} longer"
    )


def _runs_shorter_than_limit(facts: RunsShorterThanLimit, _: Recommendation) -> str:
    return (
        f"It asks for {duration(facts.time_limit_s)} and should run "
        f"{span(facts.run_time_s_low, facts.run_time_s_high)}. Planned with "
        f"{duration(facts.soft_limit_s)}, it can start in a shorter gap, instead of in up to "
        f"{duration(facts.expected_wait_s_max)}. Its limit stays"
    )


def _place_for_gang(facts: PlaceForGang, _: Recommendation) -> str:
    leaves = "under one leaf switch" if facts.leaves == 1 else f"under {facts.leaves} leaf switches"
    beside = "with no other gang" if not facts.neighbours else f"beside {plural(facts.neighbours, 'other gang')}"
    by = f"The policy {facts.by_policy}" if facts.by_policy else "Best fit with least interference"
    return (
        f"{facts.gpus} GPUs are idle on {facts.nodes} nodes {leaves}, {beside}. {by} chose them. After "
        f"{duration(facts.lease_s)}, or if they are taken, Slurm chooses again"
    )


def _delayed_by_advice(facts: DelayedByAdvice, _: Recommendation) -> str:
    return (
        f"As submitted it would have started {duration(facts.realised_delay_s)} ago, and it can still wait "
        f"{_more(facts.first_in_line_s)}. That is over half of the {duration(facts.bound_s)} allowed, so it goes ahead "
        f"of {plural(facts.jobs_passed, 'job')}"
    )


def _more(wait_s: float) -> str:
    return duration(wait_s) if math.isfinite(wait_s) else "for as long as others run"


def _saving(expected: Expected) -> str:
    return span(expected.saved_s_low, expected.saved_s_high)


def _declared(facts: Resizing) -> str:
    declared = facts.declared
    return "" if declared is None else f". Its user declared {declared.low} to {declared.high} GPUs"


def _limit(facts: Resizing) -> str:
    """Return what becomes of the time limit of a job that runs longer."""
    if facts.time_limit_after_s is None:
        return "It has no time limit"
    return f"Its time limit becomes {duration(facts.time_limit_after_s)}"


def _scaling(exponent: float | None) -> str:
    return "Speeds as forecast" if exponent is None else f"Speed grows with the GPU count to the power {exponent:g}"


def _basis(basis: Basis, used_limit_ratio_low: float) -> str:
    return _run_time(None if basis is Basis.FORECAST else used_limit_ratio_low)


def _run_time(used_limit_ratio_low: float | None) -> str:
    if used_limit_ratio_low is None:
        return "Run times as forecast"
    return f"Jobs are assumed to use {used_limit_ratio_low * 100:.0f} % of their time limits or more"


def _seen(timer: Timer) -> str:
    """Return how gangs of the same class fared that waited lately."""
    kind = _class_of(timer.gpus)
    if not timer.gangs_seen:
        setting = "leaf_timer_s" if timer.nodes is None else "node_timer_s"
        assumed = f"using the default, {duration(timer.assumed_wait_s)} on average (planning.{setting})"
        return f"No recent waits of gangs of {kind}: {assumed}"
    within = f"within {duration(timer.within_s)}"
    if timer.gangs_seen == 1:
        return f"The last gang of {kind} {f'got there {within}' if timer.gangs_got else 'did not get there'}"
    if not timer.gangs_got:
        return f"None of the last {timer.gangs_seen} gangs of {kind} got there"
    return f"Of the last {timer.gangs_seen} gangs of {kind}, {timer.gangs_got} got there {within}"


def _class_of(gpus: int) -> str:
    most = gang_class(gpus)
    if most == LARGEST_CLASS:
        return f"more than {most // 2} GPUs"
    return f"{most} GPUs" if most <= 2 else f"{most // 2 + 1} to {most} GPUs"


def _slip(facts: RunsShorterThanLimit) -> str:
    """Return what a soft limit may cost the jobs that are planned behind it."""
    slip = f"jobs planned behind it can start up to {duration(facts.others_delayed_s_max)} later"
    if facts.chance_others_delayed < 1.0:
        return f"1 in 10 such jobs runs longer, and {slip}"
    first = first_with(lambda traits: traits.soft_limits_outlast_start)
    return f"Once it runs, Slurm before {first} plans with its whole limit, so that {slip}"


def _lift_rests_on(facts: StartsNext) -> str:
    return (
        f"{_basis(facts.basis, facts.used_limit_ratio_low)}. In simulations 4 of 5 such changes stayed within this "
        "range. Delays of the jobs passed are subtracted. Jobs without GPUs are not counted"
    )


def _exchange_rests_on(facts: Exchanged) -> str:
    return (
        f"{_basis(facts.basis, facts.used_limit_ratio_low)}. The gain is counted once for both jobs. Backfill and "
        "later submissions are not counted"
    )


def _size_rests_on(facts: Resizing) -> str:
    return f"{_scaling(facts.scaling_exponent)}. {_run_time(facts.used_limit_ratio_low)}{_declared(facts)}"


def _wait_rests_on(facts: PlaceWorthWaiting) -> str:
    there = f"{facts.inflation_there - 1.0:.0%} on {place(facts.timer.nodes)}, {_BASES[facts.basis]}"
    first = ". As the first in line, it is judged by the lower ends of its forecasts" if facts.first_in_line else ""
    spread = f"Its run time grows by {facts.inflation - 1.0:.0%} spread out and by {there}"
    return f"{spread}. At worst no such place comes free. {_seen(facts.timer)}{first}"


def _soft_limit_rests_on(facts: RunsShorterThanLimit) -> str:
    return f"Run times as forecast. At best there is such a gap now, at worst none opens. {_slip(facts)}"


def _place_rests_on(_: PlaceForGang) -> str:
    return "What the place saves is not forecast. At worst others take the nodes first"


def _compensation_rests_on(_: DelayedByAdvice) -> str:
    return "At worst its GPUs are not released sooner. At best it makes up for the delay"


# A new reason is one more row of each.
_SENTENCES: Final[Mapping[Reason, Callable[[Any, Recommendation], str]]] = {
    Reason.SHORT_WORK_FIRST: _starts_next,
    Reason.TAKES_PLACE_OF_LARGER: _exchanged,
    Reason.GIVES_PLACE_TO_SMALLER: _exchanged,
    Reason.SMALLER_STARTS_SOONER: _smaller_starts_sooner,
    Reason.IDLE_GPUS_TO_GROW: _idle_gpus_to_grow,
    Reason.NODE_WORTH_WAITING: _place_worth_waiting,
    Reason.LEAF_WORTH_WAITING: _place_worth_waiting,
    Reason.PLACE_FOR_GANG: _place_for_gang,
    Reason.RUNS_SHORTER_THAN_LIMIT: _runs_shorter_than_limit,
    Reason.DELAYED_BY_ADVICE: _delayed_by_advice,
}
_ASSUMPTIONS: Final[Mapping[Reason, Callable[[Any], str]]] = {
    Reason.SHORT_WORK_FIRST: _lift_rests_on,
    Reason.TAKES_PLACE_OF_LARGER: _exchange_rests_on,
    Reason.GIVES_PLACE_TO_SMALLER: _exchange_rests_on,
    Reason.SMALLER_STARTS_SOONER: _size_rests_on,
    Reason.IDLE_GPUS_TO_GROW: _size_rests_on,
    Reason.NODE_WORTH_WAITING: _wait_rests_on,
    Reason.LEAF_WORTH_WAITING: _wait_rests_on,
    Reason.PLACE_FOR_GANG: _place_rests_on,
    Reason.RUNS_SHORTER_THAN_LIMIT: _soft_limit_rests_on,
    Reason.DELAYED_BY_ADVICE: _compensation_rests_on,
}
