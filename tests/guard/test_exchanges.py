"""Two jobs that change places: both halves or none, within one user or account, into each other's places."""

from dataclasses import replace

import pytest

from advisor.domain.actions import SetNice
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.plan import Plan, Recommendation
from advisor.guard.circumstances import circumstances
from advisor.guard.exchange_rules import EXCHANGE_RULES
from advisor.guard.rules import judge
from advisor.settings import Fairness, Limits
from tests.builders import HOUR_S, TAKEN_AT, make_hints, make_job, make_recommendation, make_snapshot

LONG = make_job(1, gpus=4, priority=5000)
SHORT = make_job(2, gpus=1, priority=3000)
USER = Limits(fairness="user")
UP = SetNice(job_id=2, before=0, after=-2007, exchanged_with=1)
DOWN = SetNice(job_id=1, before=0, after=2007, exchanged_with=2)


def judged(
    *actions: SetNice, jobs: tuple[Job, ...] = (LONG, SHORT), limits: Limits = USER, leases: tuple[Lease, ...] = ()
) -> list[str | None]:
    """The rule by which each change is refused."""
    changes: tuple[Recommendation, ...] = tuple(make_recommendation(action) for action in actions)
    snapshot = make_snapshot(jobs)
    context = circumstances(snapshot, limits, leases=leases)
    return [change.refused_by for change in judge(Plan(recommendations=changes), snapshot, context)]


def test_two_jobs_of_a_user_change_places() -> None:
    assert judged(UP, DOWN) == [None, None]
    # They do not count as changes to jobs of their user, as lifts do not.
    assert judged(UP, DOWN, limits=replace(USER, max_changes_per_user=0, max_changes_per_account=0)) == [None, None]


def test_every_rule_about_exchanges_has_a_case() -> None:
    assert set(EXCHANGE_RULES) == {"exchange_whole", "exchange_within_group", "places_exchanged"}


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
    assert set(judged(*halves, jobs=(LONG, SHORT, make_job(3)))) == {"exchange_whole"}


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

    assert judged(UP, DOWN, jobs=(LONG, other), limits=Limits(fairness=fairness)) == [refused, refused]


def test_jobs_of_an_unknown_user_are_of_no_group() -> None:
    nameless = tuple(replace(job, user="") for job in (LONG, SHORT))

    assert judged(UP, DOWN, jobs=nameless) == ["exchange_within_group"] * 2


@pytest.mark.parametrize(("after", "refused"), [(2009, None), (2010, "places_exchanged"), (1, "places_exchanged")])
def test_each_gets_the_place_of_the_other_up_to_the_mark(after: int, refused: str | None) -> None:
    assert judged(UP, replace(DOWN, after=after)) == [refused, refused]


def test_without_a_priority_no_place_is_known() -> None:
    assert judged(UP, DOWN, jobs=(replace(LONG, priority=None), SHORT)) == ["places_exchanged"] * 2


def test_where_one_half_is_refused_the_other_is_too() -> None:
    out = replace(LONG, hints=make_hints(opted_out=True))

    assert judged(UP, DOWN, jobs=(out, SHORT)) == ["all_or_none", "not_opted_out"]
    assert judged(UP, DOWN, limits=replace(USER, max_changes=1)) in (
        ["changes_within_cap", "all_or_none"],
        ["all_or_none", "changes_within_cap"],
    )


def test_a_place_is_given_once() -> None:
    gave = replace(intended(replace(DOWN, exchanged_with=9), TAKEN_AT - 40 * HOUR_S), state=LeaseState.OUT)
    back, unsent = (gave.ended(ending, TAKEN_AT - 20 * HOUR_S) for ending in (Ending.TAKEN_BACK, Ending.NOT_APPLIED))

    assert judged(UP, DOWN, leases=(back,)) == ["all_or_none", "place_given_once"]
    assert judged(UP, DOWN, leases=(unsent,)) == [None, None]


def test_no_job_is_put_back_without_an_exchange() -> None:
    assert judged(replace(DOWN, exchanged_with=None)) == ["lifts_only"]
