"""Which jobs a model is asked about, with which placements and neighbours, and what its answers learn from."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from advisor.domain.forecast import Placement
from advisor.domain.job import Allocation, GpuRange, Job, JobState
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.features.observe.graph import Rows
from advisor.predict.forecaster import _beside
from advisor.predict.interference import NeighbourTable
from advisor.predict.interference_items import Items, Shape, similarity
from advisor.predict.intervals import Intervals, listed
from advisor.predict.queue_run_times import run_time_table
from advisor.predict.queue_speeds import PlacementIndex, candidates
from advisor.predict.run_time import RunTimeParameters, Support
from advisor.predict.run_time_curve import AdaptiveLevels
from advisor.predict.run_time_features import LEVELS
from advisor.predict.run_time_replay import steps
from tests.builders import (
    HOUR_S,
    TAKEN_AT,
    gpu_counts,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
)
from tests.predict.run_time_jobs import MONDAY, make_ended, make_jobs

NODE, LEAF = LocalityTier.NODE, LocalityTier.LEAF


@pytest.mark.parametrize(
    ("largest", "asked", "declared", "placements"),
    [
        (8, 4, None, [(4, NODE, 1), (4, LEAF, 2)]),
        (8, 1, None, [(1, NODE, 1)]),
        (8, 8, None, [(8, NODE, 1), (8, LEAF, 2)]),
        (8, 9, None, [(9, LEAF, 2)]),
        (8, 24, None, [(24, LEAF, 3)]),
        (8, 25, None, [(25, LEAF, 4)]),
        (4, 4, (2, 8), [(4, NODE, 1), (4, LEAF, 2), (2, NODE, 1), (2, LEAF, 2), (8, LEAF, 2)]),
        (0, 4, None, []),
        (8, None, None, []),
        (8, 0, None, []),
    ],
)
def test_job_is_asked_about_at_its_closest_and_spread(
    largest: int, asked: int | None, declared: tuple[int, int] | None, placements: list[tuple[int, LocalityTier, int]]
) -> None:
    span = None if declared is None else GpuRange(low=declared[0], high=declared[1])

    found = [(each.placement, each.nodes) for each in candidates(largest, asked, span)]

    assert found == [(Placement(gpus=gpus, tier=tier), nodes) for gpus, tier, nodes in placements]


def spanning(job_id: int, *names: str, state: JobState = JobState.RUNNING) -> Job:
    job = make_job(job_id, gang=make_gang(2 * len(names), nodes_min=len(names)), running_on=names)
    return replace(job, state=state, allocation=Allocation(nodes=names, gpus=gpu_counts(2 * len(names))))


def two_partitions(*running: Job) -> Snapshot:
    """Two nodes in either of two partitions, one of each full, and a node that is down."""
    nodes = [
        make_node("n01", used=2, partitions=("gpu",)),
        make_node("n02", used=8, partitions=("gpu",)),
        make_node("n03", used=4, partitions=("gpu", "big")),
        make_node("n04", gpus=16, used=4, partitions=("big",)),
        make_node("n05", gpus=32, used=4, partitions=("gpu", "big"), state="DOWN"),
    ]
    partitions = [
        make_partition("gpu", nodes=["n01", "n02", "n03", "n05"]),
        make_partition("big", nodes=["n03", "n04"]),
    ]
    return make_snapshot(running, nodes, partitions=partitions)


def test_neighbours_are_gangs_over_nodes_with_idle_gpus_those_on_most_first() -> None:
    gangs = (
        spanning(10, "n02", "n05"),
        spanning(11, "n02", "n03"),
        spanning(12, "n01", "n03"),
        spanning(13, "n01"),
        spanning(14, "n03", "n04"),
        spanning(15, "n01", "n03", state=JobState.SUSPENDED),
    )
    index = PlacementIndex(two_partitions(*gangs))

    of_gpu, of_big = (
        [other.job_id for other in index.neighbours(make_job(1, partitions=(name,)))] for name in ("gpu", "big")
    )

    assert of_gpu == [12, 11, 14]
    assert of_big == [14, 11, 12]


class NotesNeighbours:
    """A model of interference that notes what it is asked, and says that nothing slows a job."""

    def codes(self, names: Sequence[str]) -> Rows:
        """Code the models by their place in a list."""
        return np.array([["", "bert", "gpt"].index(name) for name in names], dtype=np.intp)

    def inflations(self, asked: NeighbourTable) -> Intervals:
        """Note the table."""
        self.asked = asked
        ones = np.ones(len(asked.mine))
        return Intervals(low=ones, median=ones, high=ones, known=ones > 0.0)


def test_neighbours_are_asked_about_by_their_models_and_that_of_the_job() -> None:
    model, near = NotesNeighbours(), replace(spanning(12, "n01", "n03"), hints=make_hints("gpt"))
    jobs = [make_job(1, gpus=2, hints=make_hints("bert")), make_job(2, gpus=2), make_job(3, gpus=1)]

    found = _beside(model, PlacementIndex(two_partitions(near)), jobs)  # type: ignore[arg-type]  # what it asks of it

    assert model.asked.mine.tolist() == [1, 0]
    assert [row[0] for row in model.asked.other.tolist()] == [2, 2]
    assert [row[0] for row in model.asked.other_nodes.tolist()] == [2.0, 2.0]
    assert [each is None for each in found] == [False, False, True]


def test_largest_node_is_the_largest_usable_one_of_the_partitions() -> None:
    index = PlacementIndex(two_partitions())

    sizes = [
        index.gpus_on_node(make_job(1, partitions=names)) for names in (("gpu",), ("big",), ("gpu", "big"), ("no",))
    ]

    assert sizes == [8, 16, 16, 0]


def test_largest_node_is_that_of_the_type_asked_for() -> None:
    nodes = [make_node("n01", gpus=4, gpu_type="a100"), make_node("n02", gpus=8, gpu_type="t4")]
    index = PlacementIndex(make_snapshot([], nodes))

    sizes = [index.gpus_on_node(make_job(1, gang=make_gang(1, gpu_type=name))) for name in ("a100", "t4", None, "h100")]

    assert sizes == [4, 8, 8, 0]


def test_job_is_asked_about_by_its_whole_request() -> None:
    gang = make_gang(8, nodes_min=2, nodes_max=2, cpus=32, memory_mib_per_node=1000)
    running = make_job(2, running_on=["n01"], started_ago_s=600.0, time_limit_s=HOUR_S)
    snapshot = make_snapshot([make_job(1, gang=gang, partitions=("gpu", "big")), running])

    table = run_time_table(snapshot.jobs, snapshot)

    assert (table.gpus.tolist(), table.nodes.tolist()) == ([8, 1], [2, 1])
    assert (table.cpus[0], table.memory_mib[0]) == (32, 2000)
    assert np.isnan([table.cpus[1], table.memory_mib[1]]).tolist() == [running.gang.cpus == 0, True]
    assert (table.partition, table.elapsed_s.tolist()) == (("gpu", "gpu"), [0.0, 600.0])
    assert table.submit_time[0] == TAKEN_AT - HOUR_S


def test_interval_holds_its_median_and_is_none_where_not_known() -> None:
    columns = (np.array([3.0, 1.0, 1.0]), np.array([2.0, 2.0, 2.0]), np.array([1.0, 5.0, 5.0]))
    low, median, high = columns

    first, second, third = listed(
        Intervals(low=low, median=median, high=high, known=np.array([True, True, False])), least=0.0, most=np.inf
    )

    assert first is not None and (first.low, first.median, first.high) == (2.0, 2.0, 2.0)
    assert second is not None and (second.low, second.high) == (1.0, 5.0)
    assert third is None


SUPPORT = Support(gpus=(1, 8), cpus=(-1, -1), nodes=(1, 4), memory_mib=(10, 100), limit_s=(60, 86_400))


@pytest.mark.parametrize(
    ("column", "value", "is_inside"),
    [
        ("gpus", 1, True), ("gpus", 8, True), ("gpus", 0, False), ("gpus", 9, False), ("gpus", np.nan, True),
        ("cpus", np.nan, True), ("cpus", 1, False), ("nodes", 4, True), ("nodes", 5, False),
        ("memory_mib", 10, True), ("memory_mib", 9, False), ("memory_mib", 101, False),
        ("limit_s", 60, True), ("limit_s", 59, False), ("limit_s", 86_401, False), ("limit_s", np.nan, False),
    ],
)  # fmt: skip
def test_job_is_inside_of_the_fit_by_each_of_its_numbers(column: str, value: float, is_inside: bool) -> None:
    jobs = make_jobs(1, **{"cpus": np.nan, "memory_mib": 50.0, column: value})

    assert SUPPORT.holds(jobs).tolist() == [is_inside]


def test_column_that_was_zero_in_the_fit_holds_zero_alone() -> None:
    support = SUPPORT.model_copy(update={"gpus": (0.0, 0.0)})

    inside = support.holds(make_jobs(3, cpus=np.nan, memory_mib=50.0, gpus=[0.0, 1.0, np.nan]))

    assert inside.tolist() == [True, False, True]


def noted(*runs: tuple[float, float]) -> AdaptiveLevels:
    """Levels after jobs of one burst that were due at some time and ran so long, where 10 to 90 s were forecast."""
    levels = AdaptiveLevels(rate=0.01, step_power=0.0)
    quantiles_s = np.linspace(10.0, 90.0, len(LEVELS))
    for due_time, run_s in runs:
        levels.note(due_time=due_time, group=0, burst="ada", quantiles_s=quantiles_s, run_s=run_s)
    return levels


@pytest.mark.parametrize(
    ("run_s", "low", "high"),
    [(9.0, -0.009, -0.001), (10.0, 0.001, -0.001), (90.0, 0.001, -0.001), (91.0, 0.001, 0.009)],
    ids=["shorter", "at the low end", "at the high end", "longer"],
)
def test_levels_move_by_the_share_that_was_missed(run_s: float, low: float, high: float) -> None:
    levels = noted((100.0, run_s))

    levels.settle(101.0)

    assert (levels.levels[0] - LEVELS).tolist() == pytest.approx([low, 0, 0, 0, high])
    assert levels.levels[1:].tolist() == [list(LEVELS)] * 3


def test_jobs_count_once_they_are_due_and_a_burst_of_them_is_one_step() -> None:
    levels = noted((300.0, 9.0), (200.0, 50.0), (200.0, 50.0))

    levels.settle(200.0)
    untouched = levels.levels[0][0]
    levels.settle(201.0)
    first_two = levels.levels[0][0]
    levels.settle(1000.0)

    assert untouched == 0.1
    assert first_two == pytest.approx(0.1 + 0.01 * 0.1)
    assert levels.levels[0][0] == pytest.approx(0.1 + 0.01 * (0.1 - 1 / 3))


def test_job_learns_from_those_that_ended_before_its_submission() -> None:
    jobs = make_ended([100.0, 50.0, 10.0, 10.0], submit_time=MONDAY + np.array([0.0, 10.0, 60.0, 100.0]))

    taken = [(each.ended.tolist(), each.rows.tolist()) for each in steps(jobs, np.ones(4, dtype=np.bool_))]

    # Ends at 100, 60, 70 and 110. What ends at the very second of a submission is not known yet.
    assert taken == [([], [0, 1, 2]), ([1, 2], [3]), ([0, 3], [])]


@pytest.mark.parametrize(
    ("name", "thresholds", "is_sound"),
    [
        ("over_anchor", (-1.0, 0.0, 1.0), True),
        ("over_anchor", (-1.0, 1.0, 0.0), False),
        ("over_anchor", (0.0, 0.0, 1.0), False),
        ("over_limit", (-2.0, -1.0), True),
        ("over_limit", (-1.0, -2.0), False),
        ("over_limit", (-2.0, 0.0), False),
    ],
)
def test_thresholds_of_a_curve_rise_and_stay_below_the_limit(
    name: str, thresholds: tuple[float, ...], is_sound: bool
) -> None:
    curves: dict[str, tuple[float, ...]] = {"over_anchor": (-1.0, 1.0), "over_limit": (-2.0, -1.0), name: thresholds}

    def made() -> RunTimeParameters:
        return RunTimeParameters(rate=0.01, step_power=0.5, support=SUPPORT, **curves)  # type: ignore[arg-type]

    if is_sound:
        assert getattr(made(), name) == thresholds
    else:
        with pytest.raises(ValidationError, match="thresholds"):
            made()


def test_gpu_type_that_was_never_measured_is_the_average_of_those_that_were() -> None:
    def items(*groups: str) -> Items:
        count = len(groups)
        same = {"model": ("m",) * count, "variant": ("",) * count}
        return Items(group=groups, settings=np.zeros((count, 3)), profile=np.full((count, 6), 0.5), **same)

    measured = items("a100", "t4", "v100", "a100")
    alike = {group: similarity(items(group), measured, Shape())[0] for group in ("a100", "t4", "v100", "h100")}

    assert alike["h100"] == pytest.approx((alike["a100"] + alike["t4"] + alike["v100"]) / 3)
    assert alike["a100"][0] > alike["h100"][0] > alike["t4"][0]
