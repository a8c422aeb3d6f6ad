"""What is learnt from a journal: the same options as were served, the returns it identifies, and no more."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Lever
from advisor.domain.forecast import Interval
from advisor.domain.lease import Ending
from advisor.domain.outcome import JobOutcome, SeenChange, SeenForecast
from advisor.errors import ModelError
from advisor.features.policy import Policy
from advisor.journal import SqliteJournal
from advisor.trial.evidence import capped, contradiction
from tests.builders import TAKEN_AT
from tests.planning.test_policies import Scripted, queue
from tools.train.experience import Observation, read_experience, return_of

START, END = TAKEN_AT + 600.0, TAKEN_AT + 4200.0


def exactly(value: float) -> Interval:
    """An interval of one value."""
    return Interval(low=value, median=value, high=value)


CHANGE = SeenChange(lever=Lever.GPU_COUNT, applied_time=TAKEN_AT, saved_s_low=1000.0, saved_s_high=3000.0)
FORECAST = SeenForecast(made_time=TAKEN_AT, start_time=exactly(START), run_time_s=exactly(4600.0))


def ended(job_id: int = 1, **facts: Any) -> JobOutcome:
    """A job that was changed and ended 1,000 s before the forecast: half of what was promised."""
    given: dict[str, Any] = {
        "submit_time": next(job.submit_time for job in queue().jobs if job.job_id == job_id),
        "start_time": START,
        "last_start_time": START,
        "last_seen_time": END - 30.0,
        "end_time": END,
        "changes": (CHANGE,),
        "changed_forecast": FORECAST,
        **facts,
    }
    return JobOutcome(job_id=job_id, **given)


def journal_of(folder: Path, policy: Policy, outcomes: list[JobOutcome]) -> tuple[SqliteJournal, CycleRecord]:
    """A journal of one cycle of a policy, and of one of the rules."""
    journal = SqliteJournal(folder / "journal.sqlite")
    cycle = Cycle(policy=policy)
    record = cycle.judge(queue())
    journal.record(record, cycle)
    journal.record(Cycle().judge(replace(queue(), taken_at=TAKEN_AT + 60.0)), Cycle())
    journal.keep_outcomes(outcomes)
    return journal, record


def test_options_are_made_again_as_they_were_served(tmp_path: Path) -> None:
    policy = Scripted(1.0)
    journal, record = journal_of(tmp_path, policy, [])
    columns = tuple(policy.asked[0].columns)

    with journal:
        found = read_experience(journal, "scripted", columns)

    assert record.judged and found.cycles == 1
    assert len(found.observations) == len(policy.asked) == len(record.decisions)
    for seen, asked in zip(found.observations, policy.asked, strict=True):
        assert seen.options.dtype == np.float32
        assert seen.options.tobytes() == asked.features().tobytes()
    assert found.left_out == {"cycles of the rules or another policy": 1}


def test_choice_has_the_return_of_its_job(tmp_path: Path) -> None:
    policy = Scripted(1.0)
    journal, record = journal_of(tmp_path, policy, [ended(1), ended(2)])
    columns = tuple(policy.asked[0].columns)

    with journal:
        found = read_experience(journal, "scripted", columns)

    (sample, *_) = found.samples
    assert {change.job_id for change in record.recommendations} >= {sample.job_id}
    job = record.snapshot.jobs_by_id[sample.job_id or 0]
    assert (sample.user, sample.account) == (job.user, job.account)
    assert sample.value == pytest.approx(0.5)
    assert sample.chosen == record.decisions[0].chosen


def test_other_columns_and_other_plans_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = journal_of(tmp_path, Scripted(1.0), [ended()])

    with journal:
        others = read_experience(journal, "scripted", ("some", "other"))
        monkeypatch.setattr("tools.train.experience.outcome_of", lambda _: b"another plan")
        planned = read_experience(journal, "scripted", ("some", "other"))

    assert others.observations == planned.observations == []
    assert others.left_out["cycles with options of other columns"] == 1
    assert planned.left_out["cycles that are planned otherwise now"] == 1


@pytest.mark.parametrize(
    ("facts", "value"),
    [
        ({}, 0.5),
        ({"end_time": TAKEN_AT + 5300.0, "last_seen_time": TAKEN_AT + 5280.0}, -0.05),
        ({"end_time": START + 1.0, "last_seen_time": START}, 1.0),
        ({"end_time": TAKEN_AT + 1e9, "last_seen_time": TAKEN_AT + 1e9}, -1.0),
        ({"changed_forecast": None}, None),
        ({"changed_forecast": replace(FORECAST, start_time=None)}, None),
        ({"changed_forecast": replace(FORECAST, run_time_s=None)}, None),
        ({"changed_forecast": replace(FORECAST, made_time=TAKEN_AT - 60.0)}, None),
        ({"changed_forecast": replace(FORECAST, run_time_s=exactly(math.inf))}, None),
        ({"requeues": 1}, None),
        ({"last_seen_time": None}, None),
        ({"start_time": None}, None),
        ({"start_time": TAKEN_AT - 1.0}, None),
    ],
    ids=[
        "half of the promise", "later than forecast", "far sooner", "far later", "no forecast", "no start",
        "no run time", "forecast of another change", "endless forecast", "requeued", "end not observed",
        "start not observed", "started before",
    ],
)  # fmt: skip
def test_return_is_what_came_of_the_promise_and_clipped(facts: dict[str, Any], value: float | None) -> None:
    found = return_of(ended(**facts), CHANGE)

    assert found == (None if value is None else pytest.approx(value))


def test_small_promise_is_no_large_return() -> None:
    little = replace(CHANGE, saved_s_low=0.0, saved_s_high=1e-9)

    assert return_of(ended(end_time=TAKEN_AT + 5197.0, last_seen_time=TAKEN_AT + 5190.0), little) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({}, None),
        ({"end_time": START - 1.0}, "ended before it"),
        ({"start_time": TAKEN_AT - 1e9}, "started before it was submitted"),
        ({"last_start_time": START - 5.0}, "started last before it started"),
        ({"submit_time": -5.0}, "has a time that is none"),
        ({"end_time": math.inf}, "has a time that is none"),
        ({"start_time": math.nan}, "has a time that is none"),
        ({"requeues": -1}, "has a negative count"),
        ({"time_limit_s": 60.0}, None),
        ({"time_limit_s": 60.0, "end_time": START + 4000.0}, "ran longer than its limit"),
    ],
)
def test_outcome_that_contradicts_itself_is_told(facts: dict[str, Any], fault: str | None) -> None:
    found = contradiction(ended(**facts))

    assert (found or "").startswith(fault or "") and (found is None) is (fault is None)


def test_contradicting_outcome_and_reverted_change_teach_nothing(tmp_path: Path) -> None:
    policy = Scripted(1.0)
    reverted = replace(CHANGE, ending=Ending.TAKEN_BACK)
    journal, _ = journal_of(tmp_path, policy, [ended(1, end_time=START - 1.0), ended(2, changes=(reverted,))])

    with journal:
        found = read_experience(journal, "scripted", tuple(policy.asked[0].columns))

    assert found.samples == []
    assert any(reason.startswith("choices whose outcome ended before it") for reason in found.left_out)


def sample(user: str, account: str = "lab", value: float = 0.0) -> Observation:
    """A choice of a user."""
    options = np.zeros((2, 1), dtype=np.float32)
    return Observation(
        options=options, chosen=0, best_score=1.0, digest="", job_id=1, user=user, account=account, value=value
    )


def shares(samples: list[Observation], holder: str) -> dict[str, float]:
    """The share of the samples of each holder."""
    counts = Counter(getattr(one, holder) for one in samples)
    return {name: count / len(samples) for name, count in counts.items()}


def test_no_user_and_no_account_has_more_than_its_share() -> None:
    samples = [sample("greedy", "big") for _ in range(9000)]
    samples += [sample(f"user{number % 25}", f"lab{number % 6}") for number in range(1000)]

    kept = capped(samples, seed=1, user_share=0.1, account_share=0.3)

    assert max(shares(kept, "user").values()) <= 0.1
    assert max(shares(kept, "account").values()) <= 0.3
    # Those below their share keep all of theirs.
    assert len(kept) > 1000
    assert sum(one.user != "greedy" for one in kept) == 1000
    assert kept == capped(samples, seed=1, user_share=0.1, account_share=0.3)


def test_account_of_many_users_has_no_more_than_its_share() -> None:
    samples = [sample(f"sock{number}", "puppets") for number in range(500)]
    samples += [sample(f"user{number % 40}", f"lab{number % 5}") for number in range(400)]

    kept = capped(samples, seed=1)

    assert max(shares(kept, "account").values()) <= 0.3
    assert max(shares(kept, "user").values()) <= 0.1


@pytest.mark.parametrize(("users", "accounts"), [(5, 5), (20, 2)])
def test_too_few_users_or_accounts_are_refused(users: int, accounts: int) -> None:
    samples = [sample(f"user{number % users}", f"lab{number % accounts}") for number in range(400)]

    with pytest.raises(ModelError, match=r"400 samples of (5 users|2 accounts) are too few"):
        capped(samples, seed=1)
