"""The nodes that a policy names for gangs against those on which they started, by its performance model."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.cycle import Cycle
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.errors import ModelError
from advisor.features.observe.graph import Neighbours, Rows
from advisor.features.observe.known_models import NO_MODELS, KnownModels, SiteSpeeds
from advisor.journal import SqliteJournal
from advisor.planning.case import Case
from advisor.replay.place_comparison import PlaceComparison, PlacesCompared
from advisor.replay.policy_comparison import PolicyComparison
from tests.builders import TAKEN_AT, make_gang, make_hints, make_job, make_node, make_snapshot
from tests.made_rounds import ROUND_S
from tests.planning.test_gang_nodes import ON, LastFirst, Waiting

FAST, SLOW, BESIDE = 0.4, -0.4, 0.5
GANG = make_gang(8, nodes_min=2, nodes_max=2)
# The second leaf has the faster GPUs, and the policy points to the last server that is left.
TYPES = {"n01": "v100", "n02": "v100", "n03": "a100", "n04": "a100"}


def codes(names: Sequence[str]) -> Rows:
    """Code the one model that is known."""
    return np.array([0 if name == "bert" else -1 for name in names], np.intp)


def site_speeds(*, place_weight: float = 0.0) -> SiteSpeeds:
    """Beliefs about two GPU types, and models of which each slows the other by half."""
    rows = np.array([[FAST, SLOW, 0.0], [FAST / 2, SLOW / 2, 0.0]])
    return SiteSpeeds(
        models=("bert",),
        gpu_types=("a100", "v100"),
        log_speed=rows,
        speed_variance=np.zeros((2, 3)),
        place_weight=np.full(2, place_weight),
        neighbours=Neighbours.of(np.full((2, 2), BESIDE)),
        added_variance=np.zeros((2, 2)),
    )


def known(*, place_weight: float = 0.0) -> KnownModels:
    """The models with these beliefs."""
    speeds = site_speeds(place_weight=place_weight)
    return KnownModels(codes=codes, neighbours=speeds.neighbours, speeds=speeds)


def waiting(job_id: int, model: str | None = "bert") -> Job:
    """Return a gang that waits."""
    return make_job(job_id, gang=GANG, hints=make_hints(model))


def running(job_id: int, *nodes: str, named: bool = False, model: str | None = "bert") -> Job:
    """Return the gang once it runs, with its list of nodes if it named any."""
    gang = replace(GANG, required_nodes=nodes) if named else GANG
    return make_job(job_id, gang=gang, running_on=nodes, hints=make_hints(model))


def seen(number: int, *jobs: Job) -> Snapshot:
    """Return the snapshot of a round."""
    held = {name: sum(4 for job in jobs if job.allocation and name in job.allocation.nodes) for name in TYPES}
    nodes = [make_node(name, gpu_type=gpu_type, used=held[name]) for name, gpu_type in TYPES.items()]
    return make_snapshot(jobs, nodes, taken_at=TAKEN_AT + number * ROUND_S)


def compared(folder: Path, *snapshots: Snapshot, models: KnownModels | None = None) -> PlacesCompared:
    """Record the rounds of the rules, and compare the policy on the journal."""
    places, plans = PlaceComparison(models or known()), PolicyComparison((LastFirst(), None), lambda: 0.0)
    with SqliteJournal(folder / "journal.sqlite") as journal:
        ids = [journal.record(Cycle(planning=ON).judge(one), Cycle(planning=ON), whole=True) for one in snapshots]
        for recorded in journal.recorded_cycles(ids):
            pair = plans.plan(recorded)
            places.add(pair.case, pair.plans[0])
    return places.result()


def test_gang_on_the_slower_type_would_have_run_shorter_on_the_named_nodes(tmp_path: Path) -> None:
    found = compared(tmp_path, seen(0, waiting(1)), seen(1, running(1, "n01", "n02")))

    assert (found.gangs, found.same, found.by_name, found.unseen) == (1, 0, 0, 0)
    assert found.change == pytest.approx(math.exp(SLOW - FAST) - 1.0)
    assert (found.low, found.high) == (None, None)


def test_gang_on_the_named_nodes_changes_nothing(tmp_path: Path) -> None:
    found = compared(tmp_path, seen(0, waiting(1)), seen(1, running(1, "n03", "n04")))

    assert (found.gangs, found.same, found.change) == (1, 1, 0.0)


def test_interval_is_that_of_the_mean_over_gangs(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        seen(0, waiting(1)),
        seen(1, running(1, "n01", "n02"), waiting(2, None)),
        # Both are on the slower type, for which the second is less sensitive, and beside the first.
        seen(2, running(1, "n01", "n02"), running(2, "n01", "n02", model=None)),
    )

    first, second = SLOW - FAST, (SLOW - FAST) / 2 - math.log1p(BESIDE)
    mean, reach = (first + second) / 2, 12.706 * abs(first - second) / 2
    assert found.gangs == 2
    assert found.change == pytest.approx(math.exp(mean) - 1.0)
    assert found.low == pytest.approx(math.exp(mean - reach) - 1.0)
    assert found.high == pytest.approx(math.exp(mean + reach) - 1.0)


def test_gang_that_named_nodes_as_it_started_shows_nothing_of_slurm(tmp_path: Path) -> None:
    found = compared(tmp_path, seen(0, waiting(1)), seen(1, running(1, "n03", "n04", named=True)))

    assert (found.gangs, found.by_name, found.unseen, found.change) == (0, 1, 0, None)


@pytest.mark.parametrize(
    "later",
    [
        pytest.param((), id="no later cycle"),
        pytest.param((seen(1, waiting(1)),), id="still waits"),
        pytest.param((seen(1),), id="gone"),
        pytest.param((seen(1, running(1, "n01", "gone")),), id="on a node that was not there"),
    ],
)
def test_gang_that_was_not_seen_to_start_is_counted_apart(tmp_path: Path, later: tuple[Snapshot, ...]) -> None:
    found = compared(tmp_path, seen(0, waiting(1)), *later)

    assert (found.gangs, found.unseen, found.change) == (0, 1, None)


def test_nodes_named_last_before_the_start_count(tmp_path: Path) -> None:
    full = make_job(9, gang=make_gang(16, nodes_min=2, nodes_max=2), running_on=("n03", "n04"))
    busy = seen(1, full, waiting(1))
    busy = replace(busy, nodes=tuple(make_node(name, gpu_type=TYPES[name], used=8 * (name > "n02")) for name in TYPES))

    found = compared(tmp_path, seen(0, waiting(1)), busy, seen(2, running(1, "n01", "n02")))

    assert (found.gangs, found.same, found.change) == (1, 1, 0.0)


def test_gang_counts_once_though_it_starts_again(tmp_path: Path) -> None:
    found = compared(
        tmp_path,
        seen(0, waiting(1)),
        seen(1, running(1, "n01", "n02")),
        seen(2, waiting(1)),
        seen(3, running(1, "n03", "n04")),
    )

    assert (found.gangs, found.same) == (1, 0)


def test_gang_that_was_not_shown_for_a_while_counts_once_it_starts(tmp_path: Path) -> None:
    found = compared(tmp_path, seen(0, waiting(1)), seen(1), seen(2, waiting(1)), seen(3, running(1, "n03", "n04")))

    assert (found.gangs, found.same, found.unseen) == (1, 1, 0)


def test_gangs_for_which_no_nodes_are_named_are_not_compared() -> None:
    places = PlaceComparison(known())
    snapshots = seen(0, waiting(1)), seen(1, running(1, "n01", "n02"))

    for snapshot in snapshots:
        proposed: Sequence[Recommendation] = Cycle(planning=ON, policy=Waiting()).judge(snapshot).recommendations
        places.add(Case(snapshot=snapshot, settings=ON), proposed)

    assert places.result() == PlacesCompared(gangs=0, same=0, by_name=0, unseen=0)


def test_comparison_needs_a_performance_model() -> None:
    with pytest.raises(ModelError, match="the policy looks at none"):
        PlaceComparison(NO_MODELS)
