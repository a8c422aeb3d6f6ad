"""How fast a gang runs on some nodes, by a performance model."""

import math

import pytest

from advisor.domain.snapshot import Snapshot
from advisor.planning.case import Case
from advisor.planning.gang_nodes import PlaceSpeeds
from tests.planning.test_gang_nodes import ON
from tests.replay.test_policy_comparison import BESIDE, FAST, SLOW, known, running, seen, waiting


def speeds_on(snapshot: Snapshot, *, place_weight: float = 0.0) -> PlaceSpeeds:
    models = known(place_weight=place_weight)
    assert models.speeds is not None
    return PlaceSpeeds(case=Case(snapshot=snapshot, settings=ON), models=models, speeds=models.speeds)


def test_slowest_type_neighbours_and_a_place_under_two_leaves_make_a_gang_slower() -> None:
    alone, beside = seen(0, waiting(1)), seen(0, waiting(1), running(2, "n03", "n04"))

    whole = speeds_on(alone).log_speed(waiting(1), ("n03", "n04"))
    mixed = speeds_on(alone).log_speed(waiting(1), ("n02", "n03"))
    spread = speeds_on(alone, place_weight=1.0).log_speed(waiting(1), ("n02", "n03"))
    slowed = speeds_on(beside).log_speed(waiting(1), ("n03", "n04"))
    unknown = speeds_on(alone).log_speed(waiting(1), ("n03", "n99"))

    assert (whole, mixed, unknown) == (FAST, SLOW, None)
    assert slowed == pytest.approx(FAST - math.log1p(BESIDE))
    assert mixed is not None and spread is not None and spread < mixed
