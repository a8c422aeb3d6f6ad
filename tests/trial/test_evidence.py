"""What one user can teach: outcomes that contradict themselves, and shares of users and accounts."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from advisor.domain.outcome import JobOutcome
from advisor.errors import ModelError
from advisor.trial.evidence import capped, contradiction
from tests.builders import TAKEN_AT

START, END = TAKEN_AT + 600.0, TAKEN_AT + 4200.0


def ended(**facts: Any) -> JobOutcome:
    """A job that ran for an hour."""
    given: dict[str, Any] = {
        "submit_time": TAKEN_AT - 3600.0,
        "start_time": START,
        "last_start_time": START,
        "last_seen_time": END - 30.0,
        "end_time": END,
        **facts,
    }
    return JobOutcome(job_id=1, **given)


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


@dataclass(frozen=True)
class Taught:
    """A sample that a job of a user gave."""

    user: str
    account: str


def shares(samples: list[Taught], holder: str) -> dict[str, float]:
    """The share of the samples of each holder."""
    counts = Counter(getattr(one, holder) for one in samples)
    return {name: count / len(samples) for name, count in counts.items()}


def test_no_user_and_no_account_has_more_than_its_share() -> None:
    samples = [Taught("greedy", "big") for _ in range(9000)]
    samples += [Taught(f"user{number % 25}", f"lab{number % 6}") for number in range(1000)]

    kept = capped(samples, seed=1, user_share=0.1, account_share=0.3)

    assert max(shares(kept, "user").values()) <= 0.1
    assert max(shares(kept, "account").values()) <= 0.3
    # Those below their share keep all of theirs.
    assert len(kept) > 1000
    assert sum(one.user != "greedy" for one in kept) == 1000
    assert kept == capped(samples, seed=1, user_share=0.1, account_share=0.3)


def test_account_of_many_users_has_no_more_than_its_share() -> None:
    samples = [Taught(f"sock{number}", "puppets") for number in range(500)]
    samples += [Taught(f"user{number % 40}", f"lab{number % 5}") for number in range(400)]

    kept = capped(samples, seed=1)

    assert max(shares(kept, "account").values()) <= 0.3
    assert max(shares(kept, "user").values()) <= 0.1


@pytest.mark.parametrize(("users", "accounts"), [(5, 5), (20, 2)])
def test_too_few_users_or_accounts_are_refused(users: int, accounts: int) -> None:
    samples = [Taught(f"user{number % users}", f"lab{number % accounts}") for number in range(400)]

    with pytest.raises(ModelError, match=r"400 samples of (5 users|2 accounts) are too few"):
        capped(samples, seed=1)
