"""Which changes of a cycle are accepted where not all can be."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.actions import SetNice
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.plan import Plan, Recommendation
from advisor.guard.circumstances import circumstances, delays_left_s
from advisor.guard.rules import judge
from advisor.settings import Fairness, Limits
from tests.builders import HOUR_S, TAKEN_AT, make_hints, make_job, make_recommendation, make_snapshot
from tests.guard.proposals import PLAIN, lent, nice, timer

BOB = make_job(2, gpus=4, user="bob", account="other")


def judged(
    *changes: Recommendation, jobs: list[Job], limits: Limits, leases: list[Lease] | None = None
) -> list[str | None]:
    """Judge changes to a queue."""
    snapshot = make_snapshot(jobs)
    around = circumstances(snapshot, limits, leases=leases or [])
    return [verdict.refused_by for verdict in judge(Plan(recommendations=changes), snapshot, around)]


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


def of_users(*users: str, account: str = "") -> list[Job]:
    return [make_job(number, gpus=1, user=user, account=account) for number, user in enumerate(users, 1)]


def test_what_is_refused_takes_no_room_from_the_next() -> None:
    jobs = of_users("ann", "bob", "cy")
    changes = [
        timer(1, delay_s=300.0, saved_s=9.0),
        timer(2, delay_s=0.0, saved_s=8.0),
        timer(3, delay_s=0.0, saved_s=7.0),
    ]

    refused = judged(*changes, jobs=jobs, limits=Limits(max_user_delay_s=200.0, max_changes=2))

    assert refused == ["fair_to_user", None, None]


def test_caps_bind_also_after_a_change_that_breaks_a_rule() -> None:
    changes = [nice(1, after=99, saved_s=9.0), *(timer(number, saved_s=8.0 - number) for number in (2, 3, 4))]

    refused = judged(*changes, jobs=of_users("ann", "bob", "cy", "dan"), limits=Limits(max_changes=2))

    assert refused == ["lifts_only", None, None, "changes_within_cap"]


def test_change_that_helps_is_accepted_however_much_is_booked() -> None:
    jobs = of_users("ann", account="lab")
    limits = Limits(max_user_delay_s=0.0, max_account_delay_s=0.0)
    booked = lent(replace(jobs[0], job_id=9))

    assert judged(timer(1, delay_s=0.0), jobs=jobs, limits=limits, leases=[booked]) == [None]
    assert judged(timer(1, delay_s=1.0), jobs=jobs, limits=limits) == ["fair_to_user"]


def test_change_that_delays_nobody_leaves_all_of_the_delay_to_the_next() -> None:
    jobs = of_users("ann", "ann", account="lab")
    changes = [timer(1, delay_s=0.0, saved_s=9.0), timer(2, delay_s=100.0, saved_s=8.0)]

    refused = judged(*changes, jobs=jobs, limits=Limits(max_user_delay_s=100.0, max_account_delay_s=100.0))

    assert refused == [None, None]


def test_delay_left_is_the_least_of_job_user_and_account() -> None:
    jobs = [make_job(1, gpus=1, user="ann", account="lab"), make_job(2, gpus=1, user="bob", account="lab")]
    jobs.append(make_job(3, gpus=1, user="", account=""))
    snapshot = make_snapshot(jobs)
    limits = Limits(max_added_delay_s=1000.0, max_user_delay_s=1500.0, max_account_delay_s=1800.0)
    leases = [lent(jobs[0], delay_s=300.0), lent(replace(jobs[0], job_id=9), delay_s=600.0)]

    left = delays_left_s(snapshot, circumstances(snapshot, limits, leases=leases))

    # Job 1: 700 of its own, 600 of its user, 900 of its account; job 2: 900 of the account.
    assert left == {1: 600.0, 2: 900.0}


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


LONG = make_job(1, gpus=4, priority=5000)
SHORT = make_job(2, gpus=1, priority=3000)
USER = Limits(fairness="user")
UP = SetNice(job_id=2, before=0, after=-2007, exchanged_with=1)
DOWN = SetNice(job_id=1, before=0, after=2007, exchanged_with=2)


def judged_pair(
    *actions: SetNice, jobs: tuple[Job, ...] = (LONG, SHORT), limits: Limits = USER, leases: tuple[Lease, ...] = ()
) -> list[str | None]:
    """The rule by which each change is refused."""
    changes: tuple[Recommendation, ...] = tuple(make_recommendation(action) for action in actions)
    snapshot = make_snapshot(jobs)
    context = circumstances(snapshot, limits, leases=leases)
    return [change.refused_by for change in judge(Plan(recommendations=changes), snapshot, context)]


def test_two_jobs_of_a_user_change_places() -> None:
    assert judged_pair(UP, DOWN) == [None, None]
    # They do not count as changes to jobs of their user, as lifts do not.
    assert judged_pair(UP, DOWN, limits=replace(USER, max_changes_per_user=0, max_changes_per_account=0)) == [
        None,
        None,
    ]


@pytest.mark.parametrize(
    "halves",
    [
        (UP,),
        (DOWN,),
        (UP, replace(DOWN, job_id=1, exchanged_with=2, after=-7)),
        (UP, replace(DOWN, exchanged_with=3)),
    ],
    ids=["lift alone", "step back alone", "two lifts", "another partner"],
)
def test_half_an_exchange_is_none(halves: tuple[SetNice, ...]) -> None:
    assert set(judged_pair(*halves, jobs=(LONG, SHORT, make_job(3)))) == {"exchange_whole"}


@pytest.mark.parametrize(
    ("fairness", "user", "account", "refused"),
    [
        ("user", "alice", "other", None),
        ("user", "bob", "lab", "exchange_within_group"),
        ("account", "bob", "lab", None),
        ("account", "alice", "other", "exchange_within_group"),
        ("trade", "alice", "lab", "exchange_within_group"),
        ("site", "alice", "lab", "exchange_within_group"),
    ],
)
def test_the_fairness_names_the_group(fairness: Fairness, user: str, account: str, refused: str | None) -> None:
    other = replace(SHORT, user=user, account=account)

    assert judged_pair(UP, DOWN, jobs=(LONG, other), limits=Limits(fairness=fairness)) == [refused, refused]


def test_jobs_of_an_unknown_user_are_of_no_group() -> None:
    nameless = tuple(replace(job, user="") for job in (LONG, SHORT))

    assert judged_pair(UP, DOWN, jobs=nameless) == ["exchange_within_group"] * 2


@pytest.mark.parametrize(("after", "refused"), [(2009, None), (2010, "places_exchanged"), (1, "places_exchanged")])
def test_each_gets_the_place_of_the_other_up_to_the_mark(after: int, refused: str | None) -> None:
    assert judged_pair(UP, replace(DOWN, after=after)) == [refused, refused]


def test_without_a_priority_no_place_is_known() -> None:
    assert judged_pair(UP, DOWN, jobs=(replace(LONG, priority=None), SHORT)) == ["places_exchanged"] * 2


def test_where_one_half_is_refused_the_other_is_too() -> None:
    out = replace(LONG, hints=make_hints(opted_out=True))

    assert judged_pair(UP, DOWN, jobs=(out, SHORT)) == ["all_or_none", "not_opted_out"]
    assert judged_pair(UP, DOWN, limits=replace(USER, max_changes=1)) in (
        ["changes_within_cap", "all_or_none"],
        ["all_or_none", "changes_within_cap"],
    )


def test_a_place_is_given_once() -> None:
    gave = replace(intended(replace(DOWN, exchanged_with=9), TAKEN_AT - 40 * HOUR_S), state=LeaseState.OUT)
    back, unsent = (gave.ended(ending, TAKEN_AT - 20 * HOUR_S) for ending in (Ending.TAKEN_BACK, Ending.NOT_APPLIED))

    assert judged_pair(UP, DOWN, leases=(back,)) == ["all_or_none", "place_given_once"]
    assert judged_pair(UP, DOWN, leases=(unsent,)) == [None, None]


def test_no_job_is_put_back_without_an_exchange() -> None:
    assert judged_pair(replace(DOWN, exchanged_with=None)) == ["lifts_only"]
