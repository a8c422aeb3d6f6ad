"""`sadvise explain JOBID`: why a job is not starting."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import Cluster, ConfigFile, Demo, JournalFile, Json, SnapshotFile, Source, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from advisor.cycle import CycleRecord
    from advisor.domain.diagnosis import PriorityFactors
    from advisor.domain.forecast import ForecastBasis
    from advisor.domain.job import Job
    from advisor.domain.lease import Lease
    from advisor.planning.timer_out import TimerOut
    from advisor.view.explanations import Explanation, Obstacle


def explain(
    job: Annotated[str, typer.Argument(metavar="JOBID", help="The job: 123, 123_4, 123_[1-9] or 123+1.")],
    snapshot: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Cluster = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
    journal: JournalFile = None,
    json: Json = False,
) -> None:
    """Explain why a pending job is not starting, with the evidence and what would change it.

    Names the fields that could not be read. Also shows the user's hints, the recommendations for the job, and the
    changes of sadvise that it holds: what for, and when they are reverted.

    For a job that asks for GPUs: what its forecasts rest on, and what its user can add to get better ones.

    For a job that waits for GPUs: its place in line now and in the site's own order, its size and what that rests on,
    the lifted jobs before it, when it would have started without advice, and what its user gained or gave in the last
    week.
    """
    from advisor.cli.filters import job_name
    from advisor.errors import ConfigError
    from advisor.planning.case import Case
    from advisor.planning.causes import diagnose
    from advisor.planning.timer_out import timers_out
    from advisor.planning.turn import turn_of
    from advisor.view.documents import meta, timer
    from advisor.view.explanations import explanation
    from advisor.view.lease_report import change_sentence, changes_of
    from advisor.view.terminal import instant, print_json, print_labelled
    from advisor.view.turns import turn_document, turn_sentences
    from advisor.watch.reading import Reading

    name = job_name(job)
    reading = Reading(snapshot=snapshot, demo=demo, source=source, cluster=cluster, timeout_s=timeout, config=config)
    settings = reading.load_config()
    opened = reading.open(settings)
    seen = opened.snapshot()
    planned = reading.plan(settings, journal, seen, forecaster := reading.forecaster(settings))
    record = planned.record
    target = next((candidate for candidate in seen.jobs if name.names(candidate)), None)
    if target is None:
        raise ConfigError(
            f"job {job} is not in the queue of {seen.config.cluster or 'this cluster'}: it has ended, never was, or "
            "is hidden from you (PrivateData)"
        )
    factors = None if snapshot is not None or demo else _factors(target, cluster, reading.timeout_of(settings))
    diagnosis = diagnose(seen, target.job_id, factors=factors)
    explained = explanation(replace(diagnosis, job=_with_own_nice(target, planned.memory.leases)))
    changes = changes_of(target.job_id, planned.memory.leases, planned.purposes)
    case = Case(
        snapshot=seen,
        settings=settings.planning,
        limits=settings.guard,
        forecasts=record.forecasts.counted,
        memory=planned.memory,
    )
    turn = turn_of(case, target) if target.is_pending else None
    out = timers_out(seen, target.job_id, settings.planning, settings.guard, record.forecasts.counted, planned.memory)
    notes = [planned.note] if planned.note else []
    bases = () if forecaster is None or not target.gang.wants_gpus else forecaster.bases(target, seen)
    if json:
        document = {
            **_document(explained, record, target, bases),
            "changes": changes,
            "turn": None if turn is None else turn_document(turn, target.user),
            "timers": [timer(timer_out) for timer_out in out],
            "notes": notes,
        }
        print_json({"meta": meta(seen, "sadvise.explain/1", opened.name), "diagnosis": document})
    else:
        turn_lines = () if turn is None else tuple(turn_sentences(turn, target.user))
        _print(explained, record, target, bases, turn_lines, cluster, opened.name)
        for change in changes:
            print_labelled("changed", f"since {instant(change['applied_time'])}: {change_sentence(change)}")
        _print_timers(out, notes)


def _with_own_nice(job: "Job", leases: "Iterable[Lease]") -> "Job":
    """Return a job with the nice that its user gave it, to which the user can do something."""
    from advisor.domain.actions import SetNice

    own = (lease.undo for lease in leases if lease.job_id == job.job_id and lease.is_in_effect)
    return replace(job, nice=next((undo.after for undo in own if isinstance(undo, SetNice)), job.nice))


def _factors(job: "Job", cluster: str | None, timeout_s: float) -> "PriorityFactors | None":
    """Read the parts of a pending job's priority from sprio; None if it prints none."""
    from advisor.backends.priorities import read_priority_factors

    if not job.is_pending:
        return None
    return read_priority_factors([job.job_id], cluster=cluster, timeout_s=timeout_s).get(job.job_id)


def _document(
    explained: "Explanation", record: "CycleRecord", job: "Job", bases: "Iterable[ForecastBasis]"
) -> dict[str, object]:
    from advisor.view.forecast_report import document

    return {
        **asdict(explained),
        "forecast": {**document(record.forecasts, job.job_id), "bases": [asdict(basis) for basis in bases]},
        "hints": asdict(job.hints),
        "left_alone_by": record.left_alone.get(job.job_id),
        "advice": [str(change.kind) for change in record.recommendations if change.job_id == job.job_id],
    }


def _print(
    explained: "Explanation",
    record: "CycleRecord",
    job: "Job",
    bases: "Iterable[ForecastBasis]",
    turn_lines: "Iterable[tuple[str, str]]",
    cluster: str | None,
    source: str,
) -> None:
    from rich.text import Text

    from advisor.text import escaped
    from advisor.view.forecast_report import lines as forecast_lines
    from advisor.view.terminal import console, print_labelled, title

    out = console()
    out.print(Text(escaped(title(record.snapshot, source)), style="bold"), soft_wrap=True)
    state = f"job {job.job_id} {job.name}, user {job.user}, {job.state}, Slurm says {job.reason or '-'}"
    out.print(Text(escaped(state)), soft_wrap=True)
    out.print()
    _print_finding(explained.first, "because")
    for finding in explained.further:
        _print_finding(finding, "also")
    if explained.disagreement is not None:
        print_labelled("note", explained.disagreement)
    for text in explained.unread:
        print_labelled("unread", text)
    if job.hints.unknown:
        print_labelled("hints", f"not understood in --comment: {' '.join(job.hints.unknown)}")
    for label, text in (*turn_lines, *forecast_lines(record, job, bases)):
        print_labelled(label, text)
    _print_advice(record, job, cluster)


def _print_advice(record: "CycleRecord", job: "Job", cluster: str | None) -> None:
    from rich.text import Text

    from advisor.planning.plan_trial import is_tried
    from advisor.view.documents import recommendation, shell
    from advisor.view.sentences import sentence
    from advisor.view.terminal import console, print_labelled

    advice = [change for change in record.recommendations if change.job_id == job.job_id]
    for change in advice:
        if_it_gains = "; sent only if all jobs gain in simulations, as `sadvise recommend` says"
        print_labelled("advice", f"{change.kind}: {sentence(change)}{if_it_gains if is_tried(change) else ''}")
        console().print(Text(f"        {shell(recommendation(change, cluster)['command'])}"), soft_wrap=True)
    if (rule := record.left_alone.get(job.job_id)) is not None:
        print_labelled("advice", f"{'no other' if advice else 'none'}: left alone by rule {rule} (docs/reasons.md)")


def _print_timers(timers: "Iterable[TimerOut]", notes: "Iterable[str]") -> None:
    from advisor.view.sentences import timer_out_sentence
    from advisor.view.terminal import instant, print_labelled

    for timer in timers:
        print_labelled("timer", f"since {instant(timer.began_time)}: {timer_out_sentence(timer)}")
    for note in notes:
        print_labelled("note", note)


def _print_finding(finding: "Obstacle", label: str) -> None:
    from advisor.view.terminal import instant, print_labelled

    print_labelled(label, f"{finding.text} ({finding.cause})")
    if finding.evidence:
        spelled = {
            name: instant(value) if name.endswith("_time") and isinstance(value, float) else value
            for name, value in finding.evidence.items()
        }
        print_labelled("", ", ".join(f"{name} {value}" for name, value in spelled.items()))
    for remedy in finding.remedies:
        print_labelled("change", remedy)
