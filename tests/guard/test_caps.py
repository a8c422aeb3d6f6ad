"""Which changes of a cycle are accepted where not all can be."""

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease
from advisor.domain.plan import Plan, Recommendation
from advisor.guard.caps import CAPS
from advisor.guard.circumstances import circumstances
from advisor.guard.rules import judge
from advisor.settings import Limits
from tests.builders import HOUR_S, TAKEN_AT, make_job, make_snapshot
from tests.guard.proposals import PLAIN, lent, nice, timer

BOB = make_job(2, gpus=4, user="bob", account="other")


def judged(
    *changes: Recommendation, jobs: list[Job], limits: Limits, leases: list[Lease] | None = None
) -> list[str | None]:
    """Judge changes to a queue."""
    snapshot = make_snapshot(jobs)
    around = circumstances(snapshot, limits, leases=leases or [])
    return [verdict.refused_by for verdict in judge(Plan(recommendations=changes), snapshot, around)]


def test_every_cap_has_a_case() -> None:
    assert set(CAPS) == {
        "no_change_outstanding",
        "changes_within_cap",
        "user_within_cap",
        "account_within_cap",
        "fair_to_user",
        "fair_to_account",
    }


def test_of_two_changes_to_one_job_the_one_that_saves_more_is_accepted() -> None:
    verdicts = judged(timer(saved_s=1.0), timer(saved_s=2.0), jobs=[PLAIN], limits=Limits())

    assert verdicts == ["no_change_outstanding", None]


def test_changes_that_save_most_are_accepted_and_verdicts_keep_the_order_of_the_plan() -> None:
    changes = [timer(1, saved_s=5.0), timer(2, saved_s=9.0), timer(3, saved_s=7.0)]

    verdicts = judged(*changes, jobs=[PLAIN, BOB, make_job(3)], limits=Limits(max_changes=2))

    assert verdicts == ["changes_within_cap", None, None]


def test_among_changes_that_save_the_same_the_lower_job_id_is_accepted() -> None:
    verdicts = judged(timer(2), timer(1), jobs=[PLAIN, BOB], limits=Limits(max_changes=1))

    assert verdicts == ["changes_within_cap", None]


def test_jobs_of_one_user_take_no_more_than_their_share_of_a_cycle() -> None:
    jobs = [make_job(job_id) for job_id in (1, 2, 3)] + [replace(BOB, job_id=4)]
    changes = [timer(job.job_id, saved_s=100.0 - job.job_id) for job in jobs]

    verdicts = judged(*changes, jobs=jobs, limits=Limits(max_changes=3, max_changes_per_user=2))

    assert verdicts == [None, None, "user_within_cap", None]


def test_lifts_are_not_counted_by_user_and_account() -> None:
    jobs = [make_job(job_id) for job_id in range(1, 6)]
    changes = [*(nice(job.job_id, after=-7) for job in jobs[:3]), *(timer(job.job_id) for job in jobs[3:])]

    verdicts = judged(*changes, jobs=jobs, limits=Limits(max_changes_per_user=1, max_changes_per_account=1))

    assert verdicts == [None, None, None, None, "user_within_cap"]


def test_jobs_of_one_account_take_no_more_than_their_share_of_a_cycle() -> None:
    jobs = [make_job(job_id, user=f"user{job_id}") for job_id in (1, 2, 3)] + [replace(BOB, job_id=4)]
    changes = [timer(job.job_id) for job in jobs]

    verdicts = judged(*changes, jobs=jobs, limits=Limits(max_changes_per_account=2))

    assert verdicts == [None, None, "account_within_cap", None]


def test_users_and_accounts_that_slurm_does_not_tell_are_not_counted_together() -> None:
    jobs = [make_job(job_id, user="", account="") for job_id in (1, 2)]
    limits = Limits(max_changes_per_user=1, max_changes_per_account=1, max_user_delay_s=1.0, max_account_delay_s=1.0)

    assert judged(timer(1), timer(2), jobs=jobs, limits=limits) == [None, None]


def test_nobodys_jobs_are_delayed_beyond_the_bound_of_a_user() -> None:
    jobs = [PLAIN, make_job(3), BOB]
    limits = Limits(max_user_delay_s=2 * HOUR_S)
    back = lent(make_job(50), ending=Ending.TAKEN_BACK, ended_ago_s=0.0)
    before = [replace(back, would_start_time=TAKEN_AT - HOUR_S)]
    changes = [timer(1, delay_s=HOUR_S), timer(2, delay_s=HOUR_S), timer(3, delay_s=1.0), timer(3, delay_s=0.0)]

    verdicts = judged(*changes, jobs=jobs, limits=limits, leases=before)

    assert verdicts == [None, None, "fair_to_user", None]


def test_no_accounts_jobs_are_delayed_beyond_the_bound_of_an_account() -> None:
    jobs = [PLAIN, make_job(3, user="eve"), BOB]
    limits = Limits(max_account_delay_s=2 * HOUR_S)
    before = [lent(make_job(50, user="carol"), delay_s=HOUR_S)]
    changes = [timer(1, delay_s=HOUR_S), timer(2, delay_s=HOUR_S), timer(3, delay_s=1.0)]

    assert judged(*changes, jobs=jobs, limits=limits, leases=before) == [None, None, "fair_to_account"]


LIMITS = Limits(
    max_changes=6,
    max_changes_per_user=2,
    max_changes_per_account=3,
    max_user_delay_s=2 * HOUR_S,
    max_account_delay_s=3 * HOUR_S,
)


@st.composite
def proposals(draw: st.DrawFn) -> tuple[list[Job], list[Recommendation]]:
    """Draw jobs of a few users and accounts with one change proposed for each."""
    users, accounts = st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["x", "y", "z"])
    jobs = [make_job(job_id, user=draw(users), account=draw(accounts)) for job_id in range(1, draw(st.integers(2, 14)))]
    delays, savings = st.sampled_from([0.0, 600.0, HOUR_S]), st.sampled_from([0.0, 50.0, 5000.0])
    return jobs, [timer(job.job_id, delay_s=draw(delays), saved_s=draw(savings)) for job in jobs]


@given(proposals(), st.booleans())
def test_no_cap_is_exceeded(drawn: tuple[list[Job], list[Recommendation]], charged: bool) -> None:
    jobs, changes = drawn
    before = [lent(make_job(99, user="a", account="x"), delay_s=HOUR_S)] if charged else []

    verdicts = judged(*changes, jobs=jobs, limits=LIMITS, leases=before)

    by_user, by_account = Counter[str](), Counter[str]()
    delay_s = Counter[str]({"a": HOUR_S, "x": HOUR_S}) if charged else Counter[str]()
    for job, change, refused_by in zip(jobs, changes, verdicts, strict=True):
        if refused_by is None:
            by_user[job.user] += 1
            by_account[job.account] += 1
            delay_s[job.user] += int(change.expected.added_delay_max_s)
            delay_s[job.account] += int(change.expected.added_delay_max_s)
    assert sum(by_user.values()) <= LIMITS.max_changes
    assert max(by_user.values(), default=0) <= LIMITS.max_changes_per_user
    assert max(by_account.values(), default=0) <= LIMITS.max_changes_per_account
    assert all(delay_s[user] <= LIMITS.max_user_delay_s for user in "abcd")
    assert all(delay_s[account] <= LIMITS.max_account_delay_s for account in "xyz")


@given(proposals(), st.randoms(use_true_random=False))
def test_what_is_accepted_does_not_depend_on_the_order_of_the_plan(
    drawn: tuple[list[Job], list[Recommendation]], chance: random.Random
) -> None:
    jobs, changes = drawn
    shuffled = list(changes)
    chance.shuffle(shuffled)

    first, second = judged(*changes, jobs=jobs, limits=LIMITS), judged(*shuffled, jobs=jobs, limits=LIMITS)

    by_job = {change.job_id: refused_by for change, refused_by in zip(shuffled, second, strict=True)}
    assert by_job == {change.job_id: refused_by for change, refused_by in zip(changes, first, strict=True)}


@given(proposals())
def test_whoever_is_refused_for_the_cap_of_all_would_save_no_more_than_those_accepted(
    drawn: tuple[list[Job], list[Recommendation]],
) -> None:
    jobs, changes = drawn

    verdicts = judged(*changes, jobs=jobs, limits=LIMITS)

    saved = list(zip((change.expected.saved_s_low for change in changes), verdicts, strict=True))
    capped = [saved_s for saved_s, refused_by in saved if refused_by == "changes_within_cap"]
    assert all(saved_s <= least for saved_s in capped for least, refused_by in saved if refused_by is None)
