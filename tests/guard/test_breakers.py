"""What makes the daemon stop changing jobs by itself, and when it goes on."""

import json
from dataclasses import asdict, fields, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.load import ControllerLoad
from advisor.guard.breakers import ALL_CLOSED, BREAKERS, LONGEST_STEP_S, BreakerState, Vitals, judged, votes_of
from advisor.settings import BreakerSettings
from tests.builders import DAY_S, TAKEN_AT, make_job
from tests.guard.proposals import lent

SETTINGS = BreakerSettings()
CALM = ControllerLoad(server_threads=3, agent_queue=0, database_queue=0, cycle_s=0.1, backfill_cycle_s=2.0)
WELL = Vitals(
    now=TAKEN_AT,
    load=CALM,
    reads_failed=0,
    error_ratio=0.0,
    requests=100,
    leases=(),
)


def reverted(count: int) -> tuple[Lease, ...]:
    """Changes to so many jobs that people took back just now."""
    return tuple(lent(make_job(job_id), ending=Ending.REVERTED) for job_id in range(1, count + 1))


AILING = {
    "controller_threads": [replace(WELL, load=replace(CALM, server_threads=65))],
    "controller_cycle": [
        replace(WELL, load=replace(CALM, cycle_s=5.1)),
        replace(WELL, load=replace(CALM, backfill_cycle_s=301.0)),
    ],
    "controller_queue": [
        replace(WELL, load=replace(CALM, agent_queue=1001)),
        replace(WELL, load=replace(CALM, database_queue=10_001)),
    ],
    "slurm_errors": [replace(WELL, reads_failed=3), replace(WELL, error_ratio=0.21)],
    "people_object": [replace(WELL, leases=reverted(4))],
}
AT_BOUND = replace(
    WELL,
    load=ControllerLoad(
        server_threads=64, agent_queue=1000, database_queue=10_000, cycle_s=5.0, backfill_cycle_s=300.0
    ),
    reads_failed=2,
    error_ratio=0.2,
    leases=reverted(3),
)


def names(state: BreakerState) -> list[str]:
    """Name the open breakers."""
    return [each.name for each in state.open]


def after(state: BreakerState, *looks: tuple[float, Vitals]) -> BreakerState:
    """Look again and again, each so long after `TAKEN_AT`."""
    for at_s, health in looks:
        state = judged(state, replace(health, now=TAKEN_AT + at_s), SETTINGS)
    return state


def test_every_breaker_has_a_case() -> None:
    assert set(AILING) == set(BREAKERS)


@pytest.mark.parametrize(("name", "health"), [(name, each) for name, cases in AILING.items() for each in cases])
def test_figure_beyond_its_bound_opens_its_breaker_alone(name: str, health: Vitals) -> None:
    state = judged(ALL_CLOSED, health, SETTINGS)

    assert names(state) == [name]
    assert state.open


@pytest.mark.parametrize("health", [WELL, AT_BOUND], ids=["well", "at every bound"])
def test_figures_within_their_bounds_open_nothing(health: Vitals) -> None:
    assert judged(ALL_CLOSED, health, SETTINGS) == ALL_CLOSED
    assert not ALL_CLOSED.open


def test_what_is_not_known_opens_nothing_and_is_named() -> None:
    nothing = judged(ALL_CLOSED, Vitals(now=TAKEN_AT), SETTINGS)
    no_threads = judged(ALL_CLOSED, replace(WELL, load=replace(CALM, server_threads=None)), SETTINGS)

    assert (nothing.open, nothing.unknown) == ((), tuple(BREAKERS))
    assert (no_threads.open, no_threads.unknown) == ((), ("controller_threads",))


def test_sentence_names_figure_bound_key_and_what_it_waits_for() -> None:
    ill = AILING["controller_threads"][0]
    open_, resting = after(ALL_CLOSED, (0.0, ill)), after(ALL_CLOSED, (0.0, ill), (60.0, WELL), (120.0, WELL))
    blind = after(ALL_CLOSED, (0.0, ill), (60.0, replace(WELL, load=None)))
    cause = "slurmctld has 65 threads busy (breakers.max_server_threads = 64)"

    assert open_.sentences(SETTINGS) == {"controller_threads": f"{cause}; it stays open while that lasts"}
    assert resting.sentences(SETTINGS)["controller_threads"] == (
        f"{cause}; that has passed, and it closes after another 1740 s without it"
    )
    assert blind.sentences(SETTINGS)["controller_threads"] == (f"{cause}; it stays open, as too little is known now")


def test_two_faults_of_one_breaker_are_both_named_and_both_have_to_go() -> None:
    both = replace(WELL, load=replace(CALM, cycle_s=9.0, backfill_cycle_s=900.0))
    half_blind = replace(WELL, load=replace(CALM, backfill_cycle_s=None))

    state = after(ALL_CLOSED, (0.0, both))
    later = after(state, *((600.0 * step, half_blind) for step in range(1, 20)))

    assert state.open[0].keys == ("max_cycle_s", "max_backfill_cycle_s")
    assert " and Slurm's backfill took 900 s (" in state.open[0].cause
    assert names(later) == list(later.unknown) == ["controller_cycle"]


def test_fault_that_is_out_of_sight_is_not_forgotten_for_another() -> None:
    first = replace(WELL, load=replace(CALM, cycle_s=9.0))
    other = replace(WELL, load=replace(CALM, cycle_s=None, backfill_cycle_s=900.0))

    state = after(ALL_CLOSED, (0.0, first), (60.0, other))

    assert state.open[0].keys == ("max_backfill_cycle_s", "max_cycle_s")


def test_breaker_closes_once_its_cause_has_been_gone_for_long_enough() -> None:
    ill = AILING["slurm_errors"][0]
    rest = [(60.0 * minute, WELL) for minute in range(1, 31)]

    almost = after(ALL_CLOSED, (0.0, ill), *rest)
    closed = after(almost, (31 * 60.0, WELL))

    assert names(almost) == ["slurm_errors"]
    assert almost.open[0].opened_time == TAKEN_AT
    assert closed == ALL_CLOSED


def test_cause_that_comes_back_begins_the_rest_anew() -> None:
    ill = AILING["slurm_errors"][0]
    rest = [(60.0 * minute, WELL) for minute in range(1, 31)]

    state = after(ALL_CLOSED, (0.0, ill), *rest, (1860.0, ill), (1920.0, WELL), (1980.0, WELL))

    assert [(each.opened_time, each.rested_s) for each in state.open] == [(TAKEN_AT, 60.0)]


def test_neither_a_night_without_us_nor_a_clock_that_jumps_closes_a_breaker() -> None:
    ill = AILING["slurm_errors"][0]

    ahead = after(ALL_CLOSED, (0.0, ill), (60.0, WELL), (60.0 + 30 * DAY_S, WELL))
    back = after(ALL_CLOSED, (0.0, ill), (60.0, WELL), (60.0 - DAY_S, WELL))

    assert ahead.open[0].rested_s == LONGEST_STEP_S
    assert back.open[0].rested_s == 0.0


def test_state_survives_a_restart() -> None:
    state = after(ALL_CLOSED, (0.0, AILING["people_object"][0]), (60.0, WELL), (90.0, replace(WELL, load=None)))

    stored = json.dumps(asdict(state))

    assert TypeAdapter(BreakerState).validate_json(stored) == state


def overruled(job_id: int, user: str, ago_s: float = 60.0) -> Lease:
    """A change that somebody overruled in Slurm."""
    lease = lent(make_job(job_id, user=user))
    return replace(lease, state=LeaseState.HANDS_OFF, overruled_time=TAKEN_AT - ago_s)


def test_objections_are_counted_by_job_within_the_window() -> None:
    twice = [overruled(1, "alice"), lent(make_job(1), ending=Ending.REVERTED)]
    requeued = overruled(2, "bob").ended(Ending.OVERRULED, TAKEN_AT)
    old = [overruled(3, "carol", ago_s=DAY_S), lent(make_job(4), ending=Ending.REVERTED, ended_ago_s=DAY_S)]
    returning = replace(lent(make_job(5)), state=LeaseState.RETURNING, by_person=True)
    ours = [lent(make_job(6)), lent(make_job(7), ending=Ending.TAKEN_BACK)]

    votes = votes_of([*twice, requeued, *old, returning, *ours], TAKEN_AT - DAY_S, 9)

    assert (votes.reverted_jobs, votes.overruling_users, votes.overruled_jobs) == (2, 1, 1)
    # All changes of the window are what the share is of.
    assert (votes.users, votes.jobs) == (3, 7)


def changed(first_id: int, users: int, jobs: int = 3) -> tuple[Lease, ...]:
    """Changes to some jobs of each of some users, with which nobody disagrees."""
    return tuple(
        lent(make_job(first_id + user * jobs + job, user=f"user{user}")) for user in range(users) for job in range(jobs)
    )


def test_two_users_turn_the_advisor_off_for_nobody_however_many_jobs_they_overrule() -> None:
    two = tuple(overruled(job_id, user) for job_id, user in enumerate(["mallory", "trudy"] * 50, start=1))

    for others in (0, 2, 200):
        leases = (*two, *changed(1000, others))
        assert judged(ALL_CLOSED, replace(WELL, leases=leases), SETTINGS) == ALL_CLOSED


@pytest.mark.parametrize(
    ("objecting", "jobs", "others", "is_open"),
    [
        pytest.param(3, 2, 0, False, id="too few users, though all"),
        pytest.param(4, 2, 0, True, id="four users, who are all"),
        pytest.param(4, 2, 200, False, id="four users of many"),
        pytest.param(20, 2, 180, False, id="a tenth of the users"),
        pytest.param(21, 2, 179, True, id="more than a tenth of the users and of the jobs"),
        pytest.param(21, 1, 179, False, id="more than a tenth of the users, with few jobs"),
    ],
)
def test_a_share_of_users_and_of_changed_jobs_turns_the_advisor_off(
    objecting: int, jobs: int, others: int, *, is_open: bool
) -> None:
    against = tuple(
        overruled(user * jobs + job + 1, f"objector{user}") for user in range(objecting) for job in range(jobs)
    )
    state = judged(ALL_CLOSED, replace(WELL, leases=(*against, *changed(1000, others))), SETTINGS)

    assert names(state) == (["people_object"] if is_open else [])


def test_share_that_was_overruled_is_worded_with_the_users() -> None:
    against = tuple(overruled(job_id, f"user{job_id}") for job_id in range(1, 6))

    state = judged(ALL_CLOSED, replace(WELL, leases=(*against, *changed(1000, 15, 1))), SETTINGS)

    assert state.open[0].cause == (
        "5 of 15 users overrode changes to 5 of 20 jobs, a share of 0.25 at least (breakers.max_overruled_ratio = 0.1)"
    )


def test_overruled_jobs_of_one_user_weigh_as_much_as_those_of_another() -> None:
    leases = (*(overruled(job_id, "mallory") for job_id in range(1, 100)), *changed(1000, 9, 2))

    votes = votes_of(leases, TAKEN_AT - DAY_S, SETTINGS.max_objections_of_user)

    assert (votes.overruled_jobs, votes.jobs) == (2, 20)
    assert votes.overruled_ratio == 0.1


@pytest.mark.parametrize(("least", "requests", "is_open"), [(0, 0, False), (0, 1, True), (2, 1, False), (2, 2, True)])
def test_share_of_failed_requests_counts_from_the_least_number_on_and_never_of_none(
    least: int, requests: int, is_open: bool
) -> None:
    failing = replace(WELL, error_ratio=1.0, requests=requests)

    assert bool(judged(ALL_CLOSED, failing, replace(SETTINGS, min_requests=least)).open) is is_open


def test_only_job_of_the_only_user_overruled_is_a_share_of_one() -> None:
    assert votes_of([overruled(1, "mallory")], TAKEN_AT - DAY_S, 9).overruled_ratio == 1.0
    assert votes_of([], TAKEN_AT - DAY_S, 9).overruled_ratio == 0.0


def test_fewer_than_four_users_cannot_be_made_to_decide() -> None:
    with pytest.raises(ValueError, match="min_overruling_users must be 4 at least"):
        BreakerSettings(min_overruling_users=3)


@pytest.mark.parametrize("name", [each.name for each in fields(BreakerSettings)])
def test_senseless_settings_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must (not be negative|be from 0 to 1)$"):
        BreakerSettings(**{name: -1})


def test_share_above_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_error_ratio must be from 0 to 1"):
        BreakerSettings(max_error_ratio=1.1)


# All that may be known of one figure of each kind, unknown ones among them.
HEALTHS = [
    Vitals(
        now=TAKEN_AT,
        load=ControllerLoad(server_threads=threads, cycle_s=cycle_s, backfill_cycle_s=backfill_s),
        reads_failed=reads_failed,
        leases=None if objected is None else reverted(objected),
    )
    for threads, cycle_s, backfill_s, reads_failed, objected in product(
        (None, 3, 65), (None, 0.1, 9.0), (None, 2.0, 900.0), (None, 0, 3), (None, 0, 4)
    )
]


def looks() -> st.SearchStrategy[list[tuple[float, Vitals]]]:
    """Draw what is seen in turn, with the seconds between."""
    between = st.sampled_from([1.0, 60.0, 599.0, 1800.0, DAY_S])
    return st.lists(st.tuples(between, st.just(WELL) | st.sampled_from(HEALTHS)), max_size=12)


def worse(health: Vitals) -> Vitals:
    """Make everything that is known worse."""
    known = asdict(health.load or ControllerLoad())
    worse_load: dict[str, Any] = {
        name: value * 2 + 1 for name, value in known.items() if isinstance(value, int | float)
    }
    return replace(
        health,
        load=ControllerLoad(**worse_load),
        reads_failed=None if health.reads_failed is None else health.reads_failed + 1,
        leases=None if health.leases is None else reverted(len(health.leases) + 1),
    )


@given(looks())
def test_no_breaker_closes_early(seen: list[tuple[float, Vitals]]) -> None:
    state, now, bad_time = ALL_CLOSED, TAKEN_AT, dict[str, float]()
    for after_s, health in seen:
        now += after_s
        before, state = state, judged(state, replace(health, now=now), SETTINGS)
        faults = judged(ALL_CLOSED, replace(health, now=now), SETTINGS)
        bad_time |= dict.fromkeys(names(faults), now)
        for name in set(names(before)) - set(names(state)):
            assert now - bad_time[name] >= SETTINGS.rest_s
            assert name not in state.unknown


@given(looks(), st.sampled_from(HEALTHS))
def test_worse_figures_never_close_what_better_ones_leave_open(seen: list[tuple[float, Vitals]], last: Vitals) -> None:
    state, now = ALL_CLOSED, TAKEN_AT
    for after_s, health in seen:
        now += after_s
        state = judged(state, replace(health, now=now), SETTINGS)

    better, bad = (judged(state, replace(each, now=now + 60.0), SETTINGS) for each in (last, worse(last)))

    assert set(names(better)) <= set(names(bad))
