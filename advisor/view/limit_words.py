"""Words the effect of shorter time limits on the waits of users: a table, a sentence and a mail."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from advisor.domain.notice import Notice, NoticeKind
from advisor.domain.units import duration, plural
from advisor.sim.study.limit_advice import LimitAdvice, NoAdvice, WaitChange
from advisor.sim.traces.trace import Trace
from advisor.view.gate_words import slurm_time
from advisor.view.standing_report import signed_duration

HEADER: Final = ("user", "jobs", "used", "asked", "ask", "own wait (95 %)", "others (95 %)", "ran longer")


def advice_row(advice: LimitAdvice, trace: Trace) -> list[str]:
    """Return the fields of an advice, in the order of `HEADER`."""
    suggestion = advice.suggestion
    return [
        trace.users[suggestion.user],
        str(suggestion.jobs),
        _percent(suggestion.used_ratio),
        duration(suggestion.asked_s),
        slurm_time(suggestion.limit_s),
        _change(advice.own),
        _change(advice.others),
        f"{suggestion.killed.count} of {suggestion.killed.n}",
    ]


def advice_sentence(advice: LimitAdvice) -> str:
    """Return the time limit that a user could ask, and how much sooner their jobs would have started."""
    suggestion, own = advice.suggestion, advice.own
    used = f"Your jobs use {_percent(suggestion.used_ratio)} of the time they ask ({plural(suggestion.jobs, 'job')})."
    ask = f"ask {duration(suggestion.limit_s)} (--time={slurm_time(suggestion.limit_s)})"
    return f"{used} {_gain(ask, own)} {_killed(advice)}"


def limit_notice(advice: LimitAdvice, trace: Trace, *, now: float, cluster: str) -> Notice:
    """Return the mail to a user about a time limit."""
    suggestion = advice.suggestion
    return Notice(
        kind=NoticeKind.TIME_LIMIT,
        time=now,
        cluster=cluster,
        user=trace.users[suggestion.user],
        subject=f"your jobs could start sooner with a time limit of {duration(suggestion.limit_s)}",
        text=f"{advice_sentence(advice)}\n\n"
        "It comes from a replay of the past jobs of this cluster: the limit from your earlier jobs, the waits and the "
        "jobs that ran longer from your later ones. It is no promise. Nothing was changed on your jobs.",
        figures={
            "limit_s": suggestion.limit_s,
            "used_ratio": suggestion.used_ratio,
            "wait_change_s": advice.own.mean_s,
        },
    )


def advice_document(advice: LimitAdvice, trace: Trace) -> dict[str, object]:
    """Return an advice as published."""
    suggestion = advice.suggestion
    return {
        "user": trace.users[suggestion.user],
        "jobs": suggestion.jobs,
        "used_ratio": suggestion.used_ratio,
        "asked_s": suggestion.asked_s,
        "limit_s": suggestion.limit_s,
        "later_jobs": suggestion.killed.n,
        "later_jobs_that_ran_longer": suggestion.killed.count,
        "helps": advice.helps,
        "own_wait": _values(advice.own),
        "others_wait": _values(advice.others),
    }


def refusal_document(refusal: NoAdvice, trace: Trace) -> dict[str, object]:
    """Return why a user gets no suggestion, as published."""
    return {"user": trace.users[refusal.user], "jobs": refusal.jobs, "reason": refusal.reason}


def _gain(ask: str, own: WaitChange) -> str:
    if not own.jobs or math.isnan(own.low_s):
        return f"If you {ask}, it is not known whether they start sooner: too few of them waited."
    interval = f"95 %: {signed_duration(own.low_s)} to {signed_duration(own.high_s)}"
    if not own.is_clear:
        return f"If you {ask}, there is no clear difference in when they start ({interval})."
    side = "sooner" if own.mean_s < 0.0 else "later"
    least, mean, most = (duration(size) for size in sorted(map(abs, (own.low_s, own.mean_s, own.high_s))))
    return (
        f"{ask[:1].upper()}{ask[1:]} and they would have started {mean} {side} in the mean (95 %: {least} to {most})."
    )


def _killed(advice: LimitAdvice) -> str:
    killed = advice.suggestion.killed
    if not killed.count:
        return f"None of {plural(killed.n, 'later job')} ran longer than that."
    verb = "was" if killed.count == 1 else "were"
    return (
        f"{killed.count} of {plural(killed.n, 'later job')} ran longer than that and would have been ended by it: ask "
        f"more where you know that, as {verb} assumed here."
    )


def _change(change: WaitChange) -> str:
    if not change.jobs:
        return "none"
    if math.isnan(change.low_s):
        return signed_duration(change.mean_s)
    return f"{signed_duration(change.mean_s)} ({signed_duration(change.low_s)} to {signed_duration(change.high_s)})"


def _percent(ratio: float) -> str:
    return f"{100.0 * ratio:.2g} %"


def _values(change: WaitChange) -> Mapping[str, object]:
    return {**asdict(change), "is_clear": change.is_clear}
