"""What users gained and gave: sums over stretches, with the interval of their sum."""

from dataclasses import replace

import pytest

from advisor.domain.forecast import Interval
from advisor.domain.standings import NO_STANDINGS, standings_of
from tests.builders import TAKEN_AT, make_stretch, make_wait_sum

DRAWS = tuple(float(value) for value in range(100, 111))


def test_nothing_compared_is_no_standing() -> None:
    empty = replace(make_stretch(), total=make_wait_sum(0.0, jobs=0, plain_s=(0.0,)), by_user={}, by_account={})

    assert standings_of([]) == standings_of([empty]) == NO_STANDINGS
    assert NO_STANDINGS.age_s(TAKEN_AT) is None


def test_difference_is_that_of_the_waits_with_eighty_percent_of_the_draws() -> None:
    total = standings_of([make_stretch(waited_s=90.0, plain_s=DRAWS)]).total

    assert total is not None
    assert total.plain_s == Interval(low=101.0, median=105.0, high=109.0)
    assert total.difference_s == Interval(low=-19.0, median=-15.0, high=-11.0)
    assert total.is_known


def test_errors_of_the_model_widen_the_interval_and_leave_no_wait_below_nothing() -> None:
    unsure = make_wait_sum(90.0, DRAWS, less_s=500.0, more_s=20.0)

    total = standings_of([replace(make_stretch(), total=unsure)]).total

    assert total is not None
    assert total.plain_s == Interval(low=0.0, median=105.0, high=129.0)
    assert not total.is_known


def test_stretches_add_up_draw_by_draw_and_a_job_that_waited_on_counts_once() -> None:
    first = replace(make_stretch(), total=make_wait_sum(100.0, (200.0, 300.0, 400.0), jobs=5, carried=2))
    second = replace(
        make_stretch(anchor_time=first.until), total=make_wait_sum(50.0, (40.0, 10.0, 60.0), jobs=4, carried=3)
    )

    standings = standings_of([second, first])

    assert standings.total is not None
    assert standings.total.jobs == 6
    assert standings.total.waited_s == 150.0
    assert standings.total.plain_s == Interval(low=254.0, median=310.0, high=430.0)
    assert (standings.since, standings.until) == (first.anchor_time, second.until)
    assert standings.age_s(second.until + 60.0) == 60.0


def test_users_and_accounts_stand_by_name_and_notes_once_the_newest_first() -> None:
    hostile = "__class__\x1b[2J\n"
    stretches = [
        make_stretch(user=hostile, account="b", notes=("old", "both")),
        make_stretch(anchor_time=TAKEN_AT + 3600.0, user="ann", account="b", notes=("new", "both")),
    ]

    standings = standings_of(stretches)

    assert list(standings.by_user) == [hostile, "ann"]
    assert {name: standing.jobs for name, standing in standings.by_account.items()} == {"b": 2}
    assert standings.notes == ("new", "both", "old")


@pytest.mark.parametrize(
    "fields", [{"carried": 2}, {"waited_s": -1.0}, {"plain_s": ()}, {"plain_s": (-1.0,)}, {"less_s": -1.0}]
)
def test_impossible_waits_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"jobs|waits"):
        make_wait_sum(**fields)  # type: ignore[arg-type]  # a test's own


def test_stretch_that_ends_before_its_anchor_is_refused() -> None:
    with pytest.raises(ValueError, match="after its anchor"):
        make_stretch(until=TAKEN_AT - 1.0)
