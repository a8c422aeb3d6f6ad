"""Says of one job what `explain` says, from a view that was read already: no command of Slurm is run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.planning.case import Case
from advisor.planning.causes import diagnose
from advisor.planning.timer_out import timers_out
from advisor.planning.turn import turn_of
from advisor.view.explanations import Explanation, explanation
from advisor.view.forecast_report import lines as forecast_lines
from advisor.view.sentences import timer_out_sentence
from advisor.view.terminal import instant
from advisor.view.turns import advice_sentences, place_sentences

if TYPE_CHECKING:
    from advisor.config import Config
    from advisor.domain.job import Job
    from advisor.watch.reading import Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStory:
    """Why a job waits, with remedies, and labelled sentences on its turn, its forecasts and its timers."""

    why: Explanation
    sentences: tuple[tuple[str, str], ...]


def job_story(planned: "Planned", job: "Job", config: "Config") -> JobStory:
    """Return what is known of a job of a planned cycle."""
    snapshot = planned.record.snapshot
    return JobStory(
        why=explanation(diagnose(snapshot, job.job_id)),
        sentences=tuple(_sentences(planned, job, config)),
    )


def _sentences(planned: "Planned", job: "Job", config: "Config") -> Iterator[tuple[str, str]]:
    record = planned.record
    snapshot, forecasts = record.snapshot, record.forecasts.counted
    case = Case(
        snapshot=snapshot,
        settings=config.planning,
        limits=config.guard,
        forecasts=forecasts,
        memory=planned.memory,
    )
    turn = turn_of(case, job) if job.is_pending else None
    if turn is not None:
        yield from place_sentences(turn)
        yield from advice_sentences(turn, job.user)
    yield from forecast_lines(record, job)
    for timer in timers_out(snapshot, job.job_id, config.planning, config.guard, forecasts, planned.memory):
        yield "timer", f"since {instant(timer.began_time)}: {timer_out_sentence(timer)}"
    if (rule := record.left_alone.get(job.job_id)) is not None:
        yield "advice", f"left alone by rule {rule} (docs/reasons.md)"
