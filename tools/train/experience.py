"""Reads from a journal what a learned policy can learn from: its choices in recorded cycles, and what came of them.

The options of a decision are made again by planning the recorded cycle again with the recorded choices. A cycle whose
plan comes out otherwise, as under another release, is left out.

The journal identifies one thing of a choice: how much sooner or later its job ended than was forecast, right before the
change, for the job as submitted. It does not hold what the job would have done without the change, what the change cost
or gained other jobs, or what would have come of the options that were not chosen, or of stopping. So only the choices
for a job that was changed in that cycle, ran once as changed and ended have a return:

    return = (forecast end as submitted - end) / saving that the plan promised, between -1 and 1

What was forecast comes from the models of the site, not from its users; when a job ended, and how many jobs there are,
users can influence. Therefore no user has more than a share of the samples, and outcomes that contradict themselves do
not count.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.domain.lease import Ending
from advisor.domain.outcome import JobOutcome, SeenChange
from advisor.features.policy import Options, RecordedPolicy, ScoredDecision, Scores
from advisor.journal import SqliteJournal
from advisor.journal.cycle_record import Recorded, outcome_of
from advisor.replay.deviations import AsRecorded, AsTried, cycle_of
from advisor.trial.evidence import contradiction

# Returns beyond are clipped: a job that ends days early teaches no more than one whose promise was kept.
MOST_RETURN: Final = 1.0
# A plan that promises less is taken to promise this much, in seconds.
LEAST_PROMISE_S: Final = 60.0
# The change took effect on the job that ran.
_TOOK_EFFECT: Final = frozenset({None, Ending.NO_LONGER_PENDING})
Rows = NDArray[np.float32]  # (n_options, n_columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One decision of a recorded cycle; `chosen` is None where the policy stopped, `job_id` that of the option chosen.

    `value` is the return, None where the journal does not identify one; `user` and `account` are those of the job.
    """

    options: Rows
    chosen: int | None
    best_score: float
    digest: str
    job_id: int | None = None
    user: str = ""
    account: str = ""
    value: float | None = None


@dataclass(slots=True)
class Experience:
    """The decisions of a journal, and by reason how many cycles or outcomes were left out."""

    observations: list[Observation] = field(default_factory=list)
    cycles: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def samples(self) -> list[Observation]:
        """The choices that have a return."""
        return [one for one in self.observations if one.value is not None and one.chosen is not None]


def read_experience(
    journal: SqliteJournal,
    policy: str,
    columns: tuple[str, ...],
    *,
    lever: Lever = Lever.GPU_COUNT,
    progress: Callable[[int], None] = lambda _: None,
) -> Experience:
    """Return the decisions of a policy in the recorded cycles of a journal; raises `JournalError`.

    Cycles in which the rules decided, or the policy scored other columns, are left out. `progress` is called with the
    number of cycles read.
    """
    ends = _by_job(journal.outcomes(0.0))
    found = Experience()
    for number, recorded in enumerate(journal.recorded_cycles(journal.recorded_ids(-1)), start=1):
        progress(number)
        if recorded.policy != policy or not recorded.decisions:
            found.left_out["cycles of the rules or another policy"] += 1
            continue
        decided = _decided_again(recorded)
        if decided is None:
            found.left_out["cycles that are planned otherwise now"] += 1
        elif any(tuple(options.columns) != columns for options in decided.asked):
            found.left_out["cycles with options of other columns"] += 1
        else:
            found.cycles += 1
            found.observations += _observations(recorded, decided, lever, ends, found.left_out)
    return found


class _Asked(RecordedPolicy):
    """A recorded policy that keeps the options it is asked about."""

    def __init__(self, decisions: Sequence[ScoredDecision]) -> None:
        super().__init__(decisions)
        self.asked: list[Options] = []

    def act(self, options: Options) -> Scores:
        """Return the next scores; raises `ModelError` where the recorded policy failed."""
        answer = super().act(options)
        self.asked.append(options)
        return answer


def _decided_again(recorded: Recorded) -> _Asked | None:
    """Plan a cycle again with its recorded choices; None if another plan comes of it."""
    asked = _Asked(recorded.decisions)
    cycle = replace(
        cycle_of(recorded), forecaster=AsRecorded(recorded.forecasts), trial=AsTried(recorded.trial), policy=asked
    )
    again = cycle.judge(recorded.snapshot, recorded.memory)
    is_same = outcome_of(again) == recorded.outcome and len(asked.asked) == len(recorded.decisions)
    return asked if is_same else None


def _observations(
    recorded: Recorded,
    decided: _Asked,
    lever: Lever,
    ends: Mapping[tuple[int, float], JobOutcome],
    left_out: Counter[str],
) -> Iterator[Observation]:
    jobs = recorded.snapshot.jobs_by_id
    for decision, options in zip(recorded.decisions, decided.asked, strict=True):
        seen = Observation(
            options=options.features(),
            chosen=decision.chosen,
            best_score=max(decision.scores),
            digest=recorded.policy_digest,
        )
        if decision.chosen is None:
            yield seen
            continue
        job = jobs[int(options.job_id[decision.chosen])]
        outcome = ends.get((job.job_id, job.submit_time))
        value = None
        if outcome is not None:
            change = _change_in(outcome, lever, recorded.snapshot.taken_at)
            fault = contradiction(outcome)
            if change is not None and fault is None:
                value = return_of(outcome, change)
            elif change is not None:
                left_out[f"choices whose outcome {fault}"] += 1
        yield replace(seen, job_id=job.job_id, user=job.user, account=job.account, value=value)


def _by_job(outcomes: Sequence[JobOutcome]) -> dict[tuple[int, float], JobOutcome]:
    return {(outcome.job_id, outcome.submit_time): outcome for outcome in outcomes}


def _change_in(outcome: JobOutcome, lever: Lever, taken_at: float) -> SeenChange | None:
    """Return the change of a job that a cycle made and that was in effect when it ran."""
    return next(
        (
            change
            for change in outcome.changes
            if change.lever is lever
            and change.applied_time == taken_at
            and change.ending in _TOOK_EFFECT
            and change.overruled_time is None
        ),
        None,
    )


def return_of(outcome: JobOutcome, change: SeenChange) -> float | None:
    """Return what came of a change over what was promised, between -1 and 1; None where the journal does not say."""
    forecast = outcome.changed_forecast
    if (
        forecast is None
        or forecast.made_time != change.applied_time
        or forecast.start_time is None
        or forecast.run_time_s is None
        or change.saved_s_low is None
        or change.saved_s_high is None
        or outcome.start_time is None
        or outcome.end_time is None
        or not outcome.end_is_known
        or outcome.requeues
        or outcome.start_time < change.applied_time
    ):
        return None
    saved_s = forecast.start_time.median + forecast.run_time_s.median - outcome.end_time
    promised_s = max((change.saved_s_low + change.saved_s_high) / 2.0, LEAST_PROMISE_S)
    value = saved_s / promised_s
    return max(-MOST_RETURN, min(MOST_RETURN, value)) if math.isfinite(value) else None
