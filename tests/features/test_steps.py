"""The steps of elastic jobs: sizes, speeds between known ones, what is legal, and what a policy is shown."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.gang import MOST
from advisor.features.steps import (
    OPTION_COLUMNS,
    RUNGS,
    ElasticJobs,
    Scaling,
    Steps,
    Supply,
    between,
    climb,
    elastic_jobs,
    ladder,
    near,
    next_steps,
    rungs,
    step_options,
    supply_of,
)

HOUR_S = 3600.0


def jobs(
    *asked: tuple[int, int, int], run_s: float = HOUR_S, limit_s: float = np.inf, ratio: float = 4.0
) -> ElasticJobs:
    """Return jobs of `(low, asked, high)` GPUs on nodes of 8, as fast as they have GPUs."""
    tables = []
    for low, now, high in asked:
        sizes = rungs(ladder(low, high, now, 8))
        tables.append(Scaling(sizes=sizes, speed=sizes / now, is_forecast=True))
    count = len(asked)
    return elastic_jobs(
        tables,
        asked=np.array([now for _, now, _ in asked], dtype=np.float64),
        run_s=np.full(count, run_s),
        run_is_forecast=np.ones(count, np.bool_),
        limit_s=np.full(count, limit_s),
        wait_s=np.zeros(count),
        limit_ratio=ratio,
    )


def supply(idle: float = 0.0, wanted: float = 100.0) -> Supply:
    return supply_of(capacity=64, idle=idle, wanted=wanted, waiting=10, node_gpus=8)


def steps_of(table: ElasticJobs, available: Supply) -> Steps:
    return next_steps(table, available, table.first)


def last(_steps: Steps, _supply: Supply) -> int | None:
    """Take the last legal step."""
    return int(np.flatnonzero(_steps.is_legal)[-1])


@given(low=st.integers(1, MOST), span=st.integers(0, MOST), asked=st.integers(1, MOST), node_gpus=st.integers(1, 16))
def test_ladder_holds_the_range_and_what_is_asked(low: int, span: int, asked: int, node_gpus: int) -> None:
    high = min(MOST, low + span)

    sizes = ladder(low, high, asked, node_gpus)

    assert sizes == sorted(set(sizes)) and len(sizes) <= RUNGS
    assert sizes[0] == low and sizes[-1] == high and (asked in sizes) == (low <= asked <= high)


def test_ladder_goes_by_gpus_on_a_node_and_by_nodes_beyond() -> None:
    assert ladder(2, 32, 4, 8) == [2, 3, 4, 5, 6, 7, 8, 16, 24, 32]


def test_speeds_between_known_sizes_follow_a_power_law() -> None:
    known = np.array([1.0, 4.0])

    assert between(np.array([1.0, 2.0, 4.0, 8.0]), known, known**0.5) == pytest.approx([1.0, 2**0.5, 2.0, 2.0])


def test_job_begins_at_the_smallest_size_for_which_its_limit_can_be_raised() -> None:
    assert [jobs((1, 8, 8), limit_s=limit_s).first[0] for limit_s in (np.inf, HOUR_S)] == [0, 1]
    assert jobs((1, 8, 8), limit_s=HOUR_S, ratio=1.0).first[0] == 7


def test_growth_beyond_what_is_asked_needs_gpus_that_no_job_waits_for() -> None:
    table = jobs((4, 4, 8))

    assert not steps_of(table, supply(idle=8, wanted=8)).is_legal.any()
    assert steps_of(table, supply(idle=8, wanted=4)).is_legal.tolist() == [[True], [True]]
    # A step that is one more GPU and a node's worth is offered once.
    assert steps_of(jobs((7, 7, 8)), supply(idle=8, wanted=7)).is_legal.tolist() == [[True], [False]]


def test_gpus_that_jobs_of_the_window_give_up_are_spare() -> None:
    table = jobs((1, 4, 4), (4, 4, 8))

    assert steps_of(table, supply(idle=8, wanted=8)).is_legal[:, 1].tolist() == [True, False]


def test_job_of_unknown_run_time_takes_no_step() -> None:
    assert not steps_of(jobs((1, 4, 8), run_s=np.nan), supply(idle=64, wanted=4)).is_legal.any()


@pytest.mark.parametrize("asked", [(1, 16, 8), (4, 2, 8)], ids=["more than declared", "less"])
@pytest.mark.parametrize("run_s", [HOUR_S, np.nan])
def test_job_that_asks_for_a_size_outside_of_its_range_stays_in_it(asked: tuple[int, int, int], run_s: float) -> None:
    table = jobs(asked, run_s=run_s)

    rung = climb(table, supply(), last)

    assert asked[0] <= table.sizes[0, rung[0]] <= asked[2]


def test_climb_ends_where_the_policy_stops_or_no_step_is_left() -> None:
    table = jobs((1, 4, 8), (1, 2, 2))

    assert climb(table, supply(), lambda *_: None).tolist() == [0, 0]
    assert climb(table, supply(), last).tolist() == [3, 1]
    assert climb(table, supply(idle=64, wanted=6), last).tolist() == [7, 1]


def test_options_are_the_legal_steps_with_their_columns() -> None:
    table = jobs((2, 4, 8), (4, 4, 4))

    legal, options = step_options(steps_of(table, supply()), np.array([7, 9]))

    assert legal.tolist() == [0] and options.job_id.tolist() == [7]
    assert tuple(options.columns) == OPTION_COLUMNS
    shown = {name: float(column[0]) for name, column in options.columns.items()}
    assert shown["gpus"] == 1.0 and shown["gpus_asked"] == -1.0 and shown["is_node"] == 0.0
    assert shown["gain_per_gpu"] == pytest.approx(1.0) and shown["run_time"] == pytest.approx(np.log1p(120.0))
    assert np.isfinite(options.features()).all()


def test_windows_side_by_side_are_what_they_are_alone() -> None:
    tables = jobs((1, 4, 8), (1, 2, 2)), jobs((2, 8, 32), (4, 4, 16), run_s=60.0)
    available = supply(), supply(idle=30, wanted=12)
    both = ElasticJobs(
        **{name: np.stack([getattr(table, name) for table in tables]) for name in ElasticJobs.__dataclass_fields__}
    )
    many = Supply(**{name: np.stack([getattr(one, name) for one in available]) for name in Supply.__dataclass_fields__})

    together = next_steps(both, many, both.first)

    for place, (table, one) in enumerate(zip(tables, available, strict=True)):
        alone = steps_of(table, one)
        assert (together.columns[place] == alone.columns).all() and (together.rung[place] == alone.rung).all()
        assert (together.is_legal[place] == alone.is_legal).all()


def test_jobs_are_near_whose_turn_comes_within_the_idle_gpus_and_a_quarter_of_all() -> None:
    assert [near(np.full(10, 8.0), idle, 64.0) for idle in (0.0, 8.0, 64.0)] == [3, 4, 10]
