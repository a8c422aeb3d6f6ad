"""The sentence of each reason, and what its expected saving rests on."""

import math

from advisor.domain.actions import Reason
from advisor.domain.facts import Facts
from advisor.domain.job import GpuRange
from advisor.domain.plan import Expected, Recommendation
from advisor.domain.releases import first_with
from advisor.domain.topology import LocalityTier
from advisor.domain.units import duration, gpu_time, plural
from advisor.domain.waits import LARGEST_CLASS, gang_class
from advisor.planning.beliefs import Basis
from advisor.planning.checkpoint_requeue import GangNeedsThePlace
from advisor.planning.compensation import DelayedByAdvice
from advisor.planning.exchange import Exchanged, TakesPlace
from advisor.planning.exploring import ExplorePlace
from advisor.planning.gang_nodes import PlaceForGang
from advisor.planning.lift import StartsNext
from advisor.planning.placement import PlaceWorthWaiting
from advisor.planning.running_sizes import GrowsForRestart, RestartsLarger
from advisor.planning.sizing import Resizing
from advisor.planning.soft_limit import RunsShorterThanLimit
from advisor.planning.timer_out import TimerOut
from advisor.planning.timers import Timer

_BASES = {
    Basis.FORECAST: "as forecast",
    Basis.FORECAST_OVER_NODES: "as forecast over nodes, by rule over leaves",
    Basis.RULE: "by rule",
    Basis.RULE_FOR_MORE_NODES: "by rule for more nodes than needed",
}


def sentence(change: Recommendation) -> str:
    """Return why a change is proposed."""
    match change.facts:
        case StartsNext() as facts:
            return _starts_next(facts, change.revert_after_s or 0.0)
        case Exchanged() as facts:
            return _exchanged(facts, change.revert_after_s or 0.0)
        case Resizing() as facts if facts.reason is Reason.SMALLER_STARTS_SOONER:
            return _smaller_starts_sooner(facts, change.expected)
        case Resizing() as facts:
            return _idle_gpus_to_grow(facts, change.expected)
        case PlaceWorthWaiting() | PlaceForGang() | ExplorePlace() as facts:
            return _place(facts)
        case RunsShorterThanLimit() as facts:
            return _runs_shorter_than_limit(facts)
        case GangNeedsThePlace() | RestartsLarger() | GrowsForRestart() as facts:
            return _stopped(facts)
        case DelayedByAdvice() as facts:
            return _delayed_by_advice(facts)
        case facts:
            raise _unworded(facts)


def assumption(change: Recommendation) -> str:
    """Return what the expected saving of a change rests on."""
    match change.facts:
        case StartsNext() as facts:
            by_rule = _run_time(facts.used_limit_ratio_low)
            return (
                f"{'run times as forecast' if facts.basis is Basis.FORECAST else by_rule}; GPUs of one type are "
                "interchangeable; a range that held what came of four of five lifts in simulations with backfill and "
                "later submissions; the delays of the jobs passed are subtracted; not counted: jobs without GPUs"
            )
        case Exchanged() as facts:
            by_rule = _run_time(facts.used_limit_ratio_low)
            return (
                f"{'run times as forecast' if facts.basis is Basis.FORECAST else by_rule}; GPUs are interchangeable; "
                "counted once for both jobs; not counted: jobs that backfill starts anyway, later submissions"
            )
        case Resizing() as facts:
            return f"{_scaling(facts.scaling_exponent)}; {_run_time(facts.used_limit_ratio_low)}"
        case PlaceWorthWaiting() as facts:
            there = f"{facts.inflation_there:.3g} on {place(facts.timer.nodes)}, {_BASES[facts.basis]}"
            first = "; first in line, it is judged by the lower ends of its forecasts" if facts.first_in_line else ""
            spread = f"its run time grows by a factor of {facts.inflation:.3g} spread out, and of {there}"
            return f"{spread}; the low end is that no such place comes free in time{first}"
        case RunsShorterThanLimit() as facts:
            return (
                "run times as forecast; the low end is that no such gap opens, the high end that there is one now; "
                f"{_slip(facts)}"
            )
        case PlaceForGang() | ExplorePlace() as facts:
            return _place_rests_on(facts)
        case GangNeedsThePlace() | RestartsLarger() | GrowsForRestart() as facts:
            return _stop_rests_on(facts)
        case DelayedByAdvice():
            return "the low end is that its GPUs are not released sooner, the high end that it makes up for the delay"
        case facts:
            raise _unworded(facts)


def _unworded(facts: Facts) -> TypeError:
    return TypeError(f"{type(facts).__name__} has no sentence")


def timer_sentence(timer: Timer) -> str:
    """Return how long a gang waits, why that long, and what for."""
    low, high = duration(timer.spread_cost_s_low), duration(timer.spread_cost_s_high)
    return (
        f"waits up to {duration(timer.timer_s)} for {place(timer.nodes)}: {_seen(timer)}; staying spread would cost "
        f"{low if low == high else f'{low} to {high}'} of run time"
    )


def timer_out_sentence(out: TimerOut) -> str:
    """Return what a timer that is out makes its job wait for, and how much of it is left."""
    left = f"{duration(out.left_s)} of it left" if out.left_s > 0.0 else "which is over"
    if out.timer is not None:
        return f"{timer_sentence(out.timer)} ({left})"
    wait = f"waits up to {duration(out.length_s)} for {place(out.nodes)}"
    return f"{wait}; the cost of staying spread is not known now ({left})"


def place(nodes: int | None) -> str:
    """Return the place that a gang waits for: a number of nodes, None for one leaf switch."""
    if nodes is None:
        return "one leaf switch"
    return "one node" if nodes == 1 else f"{nodes} nodes"


def _starts_next(facts: StartsNext, lease_s: float) -> str:
    passed = "the job passed" if facts.jobs_passed == 1 else "each job passed"
    return (
        f"is expected to use {gpu_time(facts.gpu_hours)} and is behind {plural(facts.jobs_passed, 'job')} that "
        f"should start later, with {gpu_time(facts.gpu_hours_ahead - facts.gpu_hours_ahead_after)}; lifted, it "
        f"most likely starts {_sooner(facts)} than without advice, and {passed} waits up to "
        f"{duration(facts.others_delayed_s_max)} longer; it is put back after {duration(lease_s)} if it still waits"
    )


def _sooner(facts: StartsNext) -> str:
    later = f"between {duration(-facts.sooner_s_low)} later and" if facts.sooner_s_low < 0.0 else "up to"
    return f"{later} {duration(facts.sooner_s_high)} sooner"


def _exchanged(facts: Exchanged, lease_s: float) -> str:
    rises = isinstance(facts, TakesPlace)
    does = "takes the place of" if rises else "gives its place to"
    end = f"is put back after {duration(lease_s)} if it still waits" if rises else "gives its place once"
    return (
        f"is expected to use {gpu_time(facts.gpu_hours)} and {does} job {facts.other_job_id} of the same "
        f"{facts.scope}, with {gpu_time(facts.gpu_hours_of_other)} and {plural(facts.jobs_between, 'job')} between "
        f"them; it starts {duration(facts.moved_s_low)} to {duration(facts.moved_s_high)} "
        f"{'sooner' if rises else 'later'}, {'' if rises else f'gets its own place back in {duration(lease_s)}, '}"
        f"{end}; no job of another {facts.scope} is passed"
    )


def _smaller_starts_sooner(facts: Resizing, expected: Expected) -> str:
    return (
        f"{facts.gpus} GPUs are expected to come free in {duration(facts.expected_wait_s)}; with {facts.gpus_after} "
        f"({_declared(facts)}) it can start now and ends {_saving(expected)} sooner, although it runs "
        f"{facts.stretch:.1f} times as long; {_limit(facts)}"
    )


def _idle_gpus_to_grow(facts: Resizing, expected: Expected) -> str:
    return (
        f"no other pending job can use {plural(facts.gpus_after - facts.gpus, 'idle GPU')}; with {facts.gpus_after} "
        f"instead of {facts.gpus} ({_declared(facts)}) it ends {_saving(expected)} sooner"
    )


def _place(facts: PlaceWorthWaiting | PlaceForGang | ExplorePlace) -> str:
    match facts:
        case PlaceWorthWaiting():
            return _place_worth_waiting(facts)
        case PlaceForGang():
            return _place_for_gang(facts)
        case ExplorePlace():
            return _explore_place(facts)


def _place_worth_waiting(facts: PlaceWorthWaiting) -> str:
    otherwise = "it could start now only" if facts.tier_now is not None else "the next idle GPUs can be"
    timer = facts.timer
    return f"{timer.gpus} GPUs fit {place(timer.nodes)}, but {otherwise} spread out; {timer_sentence(timer)}"


def _runs_shorter_than_limit(facts: RunsShorterThanLimit) -> str:
    return (
        f"asks for {duration(facts.time_limit_s)} and is forecast to run {duration(facts.run_time_s_low)} to "
        f"{duration(facts.run_time_s_high)}; planned with {duration(facts.soft_limit_s)} it can start in a gap that is "
        f"too short for its limit, instead of in up to {duration(facts.expected_wait_s_max)}; the limit stays"
    )


def _place_for_gang(facts: PlaceForGang) -> str:
    leaves = "under one leaf switch" if facts.leaves == 1 else f"under {facts.leaves} leaf switches"
    beside = (
        "with no other gang on them" if not facts.neighbours else f"beside {plural(facts.neighbours, 'other gang')}"
    )
    by = f"chosen by the policy {facts.by_policy}" if facts.by_policy else "chosen by best fit with least interference"
    return (
        f"{facts.gpus} GPUs are idle on {facts.nodes} nodes {leaves}, {beside}, {by}; if it has not started on them "
        f"within {duration(facts.lease_s)}, or they are taken, Slurm chooses again"
    )


def _place_rests_on(facts: PlaceForGang | ExplorePlace) -> str:
    if isinstance(facts, ExplorePlace):
        return (
            "about one in twenty such jobs can lose more, if the model of the site is right; nothing is saved by it now"
        )
    return "what the place saves is not forecast; the delay is that others take the nodes before it starts"


def _explore_place(facts: ExplorePlace) -> str:
    seen = f"was seen {plural(facts.seen, 'time')}" if facts.seen else "was never seen"
    beside = f" and {plural(facts.affected, 'other gang')} beside it" if facts.affected else ""
    by = f"the policy {facts.by_policy}" if facts.by_policy else "best fit with least interference"
    return (
        f"{facts.gpus} GPUs are idle on {facts.nodes} nodes that are tried to learn from them: a gang of its model on "
        f"such nodes {seen}; it{beside} can lose up to {facts.slowed_ratio_max:.1%} of speed, of "
        f"{facts.bound_ratio:.0%} allowed, and {facts.used_ratio:.0%} of the GPU-time for tries is used up with it; "
        f"{by} would have chosen {facts.instead_of}; if it has not started on them within {duration(facts.lease_s)}, "
        "or they are taken, Slurm chooses again"
    )


def _stopped(facts: GangNeedsThePlace | RestartsLarger | GrowsForRestart) -> str:
    match facts:
        case GangNeedsThePlace():
            return _gang_needs_the_place(facts)
        case RestartsLarger():
            return _restarts_larger(facts)
        case GrowsForRestart():
            return _grows_for_restart(facts)


def _stop_rests_on(facts: GangNeedsThePlace | RestartsLarger | GrowsForRestart) -> str:
    match facts:
        case GangNeedsThePlace():
            return "run times as forecast, half a checkpoint interval is lost, and a place for it comes free then"
        case RestartsLarger():
            return (
                f"run times as forecast, {_scaling(facts.scaling_exponent)}, and half a checkpoint interval is lost; "
                "the low end is that others take the idle GPUs while Slurm holds it, and it restarts at its own size"
            )
        case GrowsForRestart():
            return "counted with the stop of the job"


def _gang_needs_the_place(facts: GangNeedsThePlace) -> str:
    place = f"node {facts.place}" if facts.tier is LocalityTier.NODE else f"leaf switch {facts.place}"
    return (
        f"job {facts.gang_job_id}, first in line with {facts.gang_gpus} GPUs, would end {duration(facts.gain_s)} "
        f"sooner on {place}, for which {plural(facts.victims, 'job')} would be stopped; that costs them "
        f"{duration(facts.cost_s)}: work since a checkpoint, the restart, and the wait of {duration(facts.run_s)} "
        "while it runs"
    )


def _restarts_larger(facts: RestartsLarger) -> str:
    return (
        f"no pending job can use {plural(facts.gpus_after - facts.gpus, 'idle GPU')}; restarted from a checkpoint with "
        f"{facts.gpus_after} GPUs instead of {facts.gpus} ({_range(facts.declared)}) it runs {duration(facts.saved_s)} "
        f"less of the {duration(facts.remaining_s)} that are left, which costs {duration(facts.cost_s)}: work since a "
        "checkpoint, the restart, and the time for which Slurm holds a requeued job"
    )


def _grows_for_restart(facts: GrowsForRestart) -> str:
    fewer = "" if facts.gpus_after == facts.gpus_meant else f", as the {facts.gpus_meant} meant for it are not idle now"
    return (
        f"it was stopped to restart with more GPUs: {facts.gpus_after} instead of {facts.gpus}{fewer}; if it has not "
        f"started {duration(facts.lease_s)} from now, it gets its own size back"
    )


def _delayed_by_advice(facts: DelayedByAdvice) -> str:
    return (
        f"as submitted it would have started {duration(facts.realised_delay_s)} ago, and even as the first in line it "
        f"can wait {_more(facts.first_in_line_s)}, together more than half of the bound of {duration(facts.bound_s)}; "
        f"so it goes ahead of {plural(facts.jobs_passed, 'job')}"
    )


def _more(wait_s: float) -> str:
    return f"{duration(wait_s)} more by time limits" if math.isfinite(wait_s) else "for as long as others run"


def _saving(expected: Expected) -> str:
    return f"{duration(expected.saved_s_low)} to {duration(expected.saved_s_high)}"


def _declared(facts: Resizing) -> str:
    return _range(facts.declared)


def _range(declared: GpuRange | None) -> str:
    return "" if declared is None else f"{declared.low}-{declared.high} GPUs declared"


def _limit(facts: Resizing) -> str:
    """Return what becomes of the time limit of a job that runs longer."""
    if facts.time_limit_after_s is None:
        return "it has no time limit"
    return f"its time limit rises from {duration(facts.time_limit_s)} to {duration(facts.time_limit_after_s)}"


def _scaling(exponent: float | None) -> str:
    return "speeds as forecast" if exponent is None else f"speed grows with the GPU count to the power {exponent:g}"


def _run_time(used_limit_ratio_low: float | None) -> str:
    if used_limit_ratio_low is None:
        return "run times as forecast"
    return f"jobs use {used_limit_ratio_low * 100:.0f} % of their time limits or more"


def _seen(timer: Timer) -> str:
    """Return how gangs of the same class fared that waited lately."""
    kind = _class_of(timer.gpus)
    if not timer.gangs_seen:
        setting = "leaf_timer_s" if timer.nodes is None else "node_timer_s"
        assumed = f"planning.{setting} assumes {duration(timer.assumed_wait_s)} on average"
        return f"no gang of {kind} has waited recently; {assumed}"
    within = f"within {duration(timer.within_s)}"
    if timer.gangs_seen == 1:
        return f"the last gang of {kind} {f'got there {within}' if timer.gangs_got else 'did not get there'}"
    if not timer.gangs_got:
        return f"none of the last {timer.gangs_seen} gangs of {kind} got there"
    return f"{timer.gangs_got} of the last {timer.gangs_seen} gangs of {kind} got there {within}"


def _class_of(gpus: int) -> str:
    most = gang_class(gpus)
    if most == LARGEST_CLASS:
        return f"more than {most // 2} GPUs"
    return f"{most} GPUs" if most <= 2 else f"{most // 2 + 1} to {most} GPUs"


def _slip(facts: RunsShorterThanLimit) -> str:
    """Return what a soft limit may cost the jobs that are planned behind it."""
    slip = duration(facts.others_delayed_s_max)
    if facts.chance_others_delayed < 1.0:
        return (
            "one in ten such jobs runs longer, Slurm then plans half of what its limit leaves, and jobs planned behind "
            f"it can start up to {slip} later"
        )
    first = first_with(lambda traits: traits.soft_limits_outlast_start)
    return (
        f"once it runs, Slurm before {first} plans with its whole limit again, so that jobs planned behind it can "
        f"start up to {slip} later however long it runs"
    )
