"""Words the weekly digest of the administrators, what `sadvise tune` advises, and the mails to users."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from advisor.domain.actions import ACTIONS
from advisor.domain.dataclass import dataclass
from advisor.domain.idle_gpus import IdleOfUser
from advisor.domain.lease import Ending
from advisor.domain.notice import Figure, Notice, NoticeKind
from advisor.domain.outcome import JobOutcome, SeenChange
from advisor.domain.standings import Standing
from advisor.domain.tune_verdict import Adoption, TuneVerdict
from advisor.domain.units import duration, gpu_time, plural
from advisor.domain.waiting_gangs import NO_GANGS, WeekOfGangs
from advisor.view.gang_words import week_lines
from advisor.view.impact_report import Impact
from advisor.view.standing_report import difference_words, standing_sentences
from advisor.view.terminal import instant
from advisor.view.wording import signed


def tune_words(verdict: TuneVerdict) -> str:
    """Return what is advised, how much it gains against the settings in force, and at whose price."""
    tried = f"tried on the last {plural(verdict.jobs, 'GPU job')}"
    if not verdict.preset:
        return f"{tried}, no preset lowers the mean JCT clearly; in force is {verdict.in_force}"
    if not verdict.is_better:
        return f"{tried}, no preset is better than {verdict.in_force}, which is in force"
    return (
        f"{tried}, preset {verdict.preset} ({verdict.setting}) would {change_words(verdict)}. To set: {verdict.lines}"
    )


def change_words(verdict: TuneVerdict) -> str:
    """Return what a setting gains against the one in force, and at whose price."""
    change = f"{signed(verdict.percent)} % ({signed(verdict.low)} to {signed(verdict.high)})"
    return (
        f"change the mean JCT by {change} against {verdict.in_force}, which is in force; "
        f"{verdict.worse} of {plural(verdict.users, 'user')} would be worse than under plain Slurm, "
        f"{verdict.beyond_chance} beyond chance, now {verdict.beyond_chance_now}"
    )


def adoption_words(adoption: Adoption) -> str:
    """Return which settings the daemon took up by itself, since when, in place of which, and why."""
    return (
        f'preset {adoption.preset} since {instant(adoption.since_time)}: guard.fairness = "{adoption.fairness}", '
        f'planning.priority_decades = {adoption.priority_decades:g}, in place of "{adoption.configured_fairness}" and '
        f"{adoption.configured_decades:g}; {adoption.why}; to undo: `sadvise revert --settings`"
    )


_NAMED: Final = ("gained", "gave")
_LABELS: Final[Mapping[str, str]] = {"no advice": "waits", "not known": "mind"}
_MOST_JOBS: Final = 20
_MOST_USERS: Final = 20
_ENDINGS: Final[Mapping[Ending, str]] = {
    Ending.TAKEN_BACK: "taken back later",
    Ending.REVERTED: "taken back on request",
    Ending.OVERRULED: "overruled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """What a digest says of a week.

    `opened` counts how often each breaker opened, `probation` are lines on models, `tuned` is what `sadvise tune`
    advised, `settings` which ones the daemon took up by itself, or why it dropped them, `failing_nodes` which nodes
    fail more often than chance makes, `idle` who held idle GPUs, most first, `gangs` which gangs starved, and where
    GPUs idled as small jobs were scattered.
    """

    cluster: str
    impact: Impact
    opened: Mapping[str, int]
    probation: tuple[str, ...] = ()
    tuned: TuneVerdict | None = None
    settings: str = ""
    failing_nodes: str = ""
    idle: tuple[IdleOfUser, ...] = ()
    gangs: WeekOfGangs = NO_GANGS


def digest_notice(week: Week) -> Notice:
    """Return the digest: the gain by the counterfactual, the changes, the breakers, and models on probation."""
    impact = week.impact
    labelled = list(standing_sentences(impact.counterfactual))
    days = f"{instant(impact.since)[:10]} to {instant(impact.until)[:10]}"
    lines = [
        f"Week from {days}: {plural(impact.ended, 'GPU job')} ended, {impact.changed} were changed.",
        "",
        *(f"  {_LABELS.get(label, label):<8} {text}" for label, text in labelled if label not in _NAMED),
        "",
        *_change_lines(impact),
        _breaker_line(week.opened),
        *(f"Run times set aside: {line}" for line in week.probation),
        *([f"Settings: {tune_words(week.tuned)}."] if week.tuned else []),
        *([f"In force: {week.settings}."] if week.settings else []),
        *(
            [f"Nodes: {week.failing_nodes}; `sadvise check` has the commands to drain them."]
            if week.failing_nodes
            else []
        ),
        *([_idle_line(week.idle)] if week.idle else []),
        *week_lines(week.gangs),
        "",
        "To do: `sadvise report --since 7d` shows all of it; `sadvise status` shows the daemon now.",
    ]
    named = [f"  {label:<8} {text}" for label, text in labelled if label in _NAMED]
    idle = [f"  user {of.user}: {plural(of.jobs, 'job')}, {gpu_time(of.gpu_hours)}" for of in week.idle[:_MOST_USERS]]
    starved = [f"  job {job_id}, user {user}" for job_id, user in week.gangs.starved[:_MOST_JOBS]]
    return Notice(
        kind=NoticeKind.DIGEST,
        time=impact.until,
        cluster=week.cluster,
        subject=f"week to {instant(impact.until)[:10]}: {_headline(impact)}",
        text="\n".join(lines),
        named_lines=(
            *(("", "Who gained and gave most:", *named) if named else ()),
            *(("", "Who held idle GPUs:", *idle) if idle else ()),
            *(("", "Whose gangs starved:", *starved) if starved else ()),
        ),
        figures=_figures(week),
    )


def user_notice(
    user: str, ended: Sequence[JobOutcome], standing: Standing | None, *, now: float, cluster: str
) -> Notice:
    """Return the mail to a user about changed jobs that ended, newest last, and how the user's waits compare."""
    shown = ended[-_MOST_JOBS:]
    lines = [f"sadvise, the scheduling advisor of this cluster, changed {plural(len(ended), 'job')} of yours:", ""]
    for outcome in shown:
        lines += [*_job_lines(outcome), ""]
    if len(ended) > len(shown):
        lines += [f"{plural(len(ended) - len(shown), 'earlier job')} not shown.", ""]
    lines += [_standing_line(standing), ""]
    lines.append("To keep sadvise away from a job, submit it with --comment='sadvise: off'.")
    return Notice(
        kind=NoticeKind.JOBS_CHANGED,
        time=now,
        cluster=cluster,
        user=user,
        subject=f"{plural(len(ended), 'job')} of yours changed by sadvise",
        text="\n".join(lines),
        figures={"jobs": len(ended)},
    )


def _headline(impact: Impact) -> str:
    total = impact.counterfactual.whole.total
    if total is None or not total.jobs:
        return f"{plural(impact.changed, 'job')} changed, gain not known"
    mean_s = total.difference_s.median / total.jobs
    if not total.is_known:
        return "no clear difference in waits"
    return f"jobs waited {duration(abs(mean_s))} {'less' if mean_s < 0 else 'longer'} in the mean"


def _change_lines(impact: Impact) -> Iterator[str]:
    if not impact.levers:
        yield "Changes: none."
    for tally in impact.levers:
        counts = (
            (tally.applied, "made"),
            (tally.taken_back, "taken back when due"),
            (tally.reverted, "reverted by people"),
            (tally.overruled, "overruled"),
            (tally.not_applied, "without effect"),
        )
        yield f"Changes of {tally.lever}: {', '.join(f'{count} {word}' for count, word in counts if count)}."


def _breaker_line(opened: Mapping[str, int]) -> str:
    if not opened:
        return "Circuit breakers: none opened."
    return f"Circuit breakers opened: {', '.join(f'{name} ({count}x)' for name, count in sorted(opened.items()))}."


def _idle_line(idle: Sequence[IdleOfUser]) -> str:
    jobs, users = sum(each.jobs for each in idle), plural(len(idle), "user")
    hours = gpu_time(sum(each.gpu_hours for each in idle))
    return f"Idle GPUs: {hours} held by {plural(jobs, 'running job')} of {users}; `sadvise idle` lists those of now."


def _figures(week: Week) -> dict[str, Figure]:
    impact, total = week.impact, week.impact.counterfactual.whole.total
    figures: dict[str, Figure] = {
        "since": impact.since,
        "until": impact.until,
        "jobs_ended": impact.ended,
        "jobs_changed": impact.changed,
        "changes": sum(tally.applied for tally in impact.levers),
        "reverted": sum(tally.reverted for tally in impact.levers),
        "overruled": sum(tally.overruled for tally in impact.levers),
        "breakers_opened": sum(week.opened.values()),
    }
    if total is not None and total.jobs:
        for end in ("low", "median", "high"):
            figures[f"wait_difference_s_{end}"] = getattr(total.difference_s, end) / total.jobs
        figures["jobs_compared"] = total.jobs
    return figures


def _job_lines(outcome: JobOutcome) -> Iterator[str]:
    waited = outcome.queueing_delay_s
    started = "" if outcome.start_time is None else f", started {instant(outcome.start_time)}"
    wait = "" if waited is None else f" after a wait of {duration(waited)}"
    yield f"Job {outcome.job_id}{started}{wait}:"
    for change in outcome.changes:
        yield f"  {_change_words(change)}"
    if (line := _forecast_line(outcome)) is not None:
        yield f"  {line}"


def _change_words(change: SeenChange) -> str:
    what = ACTIONS[change.lever].changes
    ending = "" if change.ending is None else _ENDINGS.get(change.ending, "")
    expected = ""
    if change.saved_s_high is not None and change.saved_s_low is not None:
        gain = f"{duration(max(0.0, change.saved_s_low))} to {duration(max(0.0, change.saved_s_high))}"
        expected = f", expected to save {gain} over all jobs that it helps"
    delay = f", at a delay of up to {duration(change.added_delay_s)} of this job" if change.added_delay_s else ""
    return f"{instant(change.applied_time)}: {what}{expected}{delay}{f'; {ending}' if ending else ''}"


def _forecast_line(outcome: JobOutcome) -> str | None:
    """Return the start that was forecast before the first change beside the real one."""
    before = outcome.changed_forecast
    if before is None or before.start_time is None or outcome.start_time is None:
        return None
    low, median, high = (instant(moment) for moment in (before.start_time.low, before.start_time.median,
                                                        before.start_time.high))  # fmt: skip
    sooner_s = before.start_time.median - outcome.start_time
    beside = f"{duration(abs(sooner_s))} {'sooner' if sooner_s >= 0 else 'later'} than its middle"
    return f"before the change a start at {median} was forecast (80 %: {low} to {high}); it started {beside}"


def _standing_line(standing: Standing | None) -> str:
    if standing is None or not standing.jobs:
        return "How your jobs would have waited without sadvise is not known for this week."
    difference, sure = standing.difference_s, "" if standing.is_known else " This can be chance."
    jobs, side = plural(standing.jobs, "job"), "less" if difference.median < 0 else "longer"
    waited = f"waited {duration(abs(difference.median))} {side} in all than on plain Slurm"
    interval = f"difference with its 80 % interval: {difference_words(difference)}"
    return f"Your {jobs} of the last 7 days {waited}, estimated by a model of Slurm; {interval}.{sure}"
