"""Two policies on recorded cycles: what each plans, what comes of both in rollouts, and the nodes that one names."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from advisor.cycle import Cycle
from advisor.domain.actions import Lever, SetNice, SetNodeList
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.errors import ModelError, SimulationError
from advisor.features.observe.graph import Neighbours, Rows
from advisor.features.observe.known_models import NO_MODELS, KnownModels, SiteSpeeds
from advisor.features.policy import Options, Policy, Scores
from advisor.journal import SqliteJournal
from advisor.journal.cycle_record import Recorded
from advisor.planning.case import Case
from advisor.planning.rollout import RolloutValues, Scenario
from advisor.replay.policy_comparison import (
    PlaceComparison,
    PlacesCompared,
    PlanComparison,
    PlanPair,
    PolicyComparison,
    RolledOut,
    rolled_out,
)
from tests.builders import (
    TAKEN_AT,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_recommendation,
    make_snapshot,
)
from tests.made_rounds import ROUND_S
from tests.planning.test_gang_nodes import ON, LastFirst, Waiting
from tests.planning.test_plan_trial import FakeRollout
from tests.planning.test_policies import Scripted, queue


class GrowsFirst(Scripted):
    """A policy that lets the first job grow from 2 to 4 GPUs, as the rules do, and the second not."""

    def __init__(self) -> None:
        super().__init__(answer=1.0)

    def act(self, options: Options) -> Scores:
        """Point to the first job twice."""
        self.asked.append(options)
        return np.where((options.job_id == 1) & (len(self.asked) <= 2), 1.0, 0.0)


@dataclass
class Failing:
    """A policy that fails, each time with the next number."""

    name: str = "failing"
    digest: str = ""
    levers: frozenset[Lever] = frozenset({Lever.GPU_COUNT})
    asked: list[Options] = field(default_factory=list)

    def act(self, options: Options) -> Scores:
        """Fail."""
        self.asked.append(options)
        raise ModelError(f"fault {len(self.asked)}")


def recorded(folder: Path, *snapshots: Snapshot) -> tuple[Recorded, ...]:
    """Record cycles of the rules, and return them."""
    with SqliteJournal(folder / "journal.sqlite") as journal:
        ids = [journal.record(Cycle().judge(one), Cycle(), whole=True) for one in snapshots]
        return tuple(journal.recorded_cycles(ids))


def cycles(folder: Path, count: int = 2) -> tuple[Recorded, ...]:
    """Return recorded cycles in which the rules let two jobs grow to 4 GPUs each, and `Scripted(1.0)` one to 6."""
    return recorded(folder, *(replace(queue(), taken_at=TAKEN_AT + 60.0 * number) for number in range(count)))


def compared(
    cycles: Sequence[Recorded], first: Policy | None, second: Policy | None, *, began: float = 100.0
) -> PlanComparison:
    """Compare two sides by a stopwatch that is a second later at each look."""
    seconds = itertools.count(began)
    comparison = PolicyComparison((first, second), lambda: next(seconds))
    for one in cycles:
        comparison.plan(one)
    return comparison.found


def test_changes_of_each_side_are_counted_over_all_cycles(tmp_path: Path) -> None:
    found = compared(cycles(tmp_path), Scripted(1.0), None)

    assert (found.cycles, found.equal, found.both) == (2, 0, 0)
    assert [(side.changes, side.only_here) for side in found.sides] == [(2, 2), (4, 4)]
    assert [(side.faults, side.first_fault) for side in found.sides] == [(0, ""), (0, "")]


def test_savings_of_a_side_are_those_of_its_changes(tmp_path: Path) -> None:
    expected = [change.expected for change in Cycle().judge(queue()).recommendations]

    found = compared(cycles(tmp_path), Scripted(0.0), None)

    assert [(side.saved_s_low, side.saved_s_high) for side in found.sides] == [
        (0.0, 0.0),
        (2 * sum(each.saved_s_low for each in expected), 2 * sum(each.saved_s_high for each in expected)),
    ]
    assert 0.0 < found.sides[1].saved_s_low < found.sides[1].saved_s_high


def test_cycle_in_which_both_sides_plan_the_same_is_equal(tmp_path: Path) -> None:
    found = compared(cycles(tmp_path, 1), None, Scripted(1.0, levers=frozenset({Lever.SWITCHES})))

    assert (found.cycles, found.equal, found.both) == (1, 1, 2)
    assert [side.only_here for side in found.sides] == [0, 0]


def test_change_that_one_side_lacks_is_apart_from_those_of_both(tmp_path: Path) -> None:
    policy = GrowsFirst()

    found = compared(cycles(tmp_path, 1), policy, None)

    assert (found.equal, found.both) == (0, 1)
    assert [side.only_here for side in found.sides] == [0, 1]


def test_time_of_a_plan_holds_that_of_its_decisions(tmp_path: Path) -> None:
    asked = Scripted(1.0)

    found = compared(cycles(tmp_path), asked, None)

    # A look before and after each plan, and before and after each decision.
    policy, rules = found.sides
    assert len(asked.asked) == policy.decisions == 8
    assert (policy.decision_s, policy.plan_s, policy.s_per_decision) == (8.0, 2 * 1.0 + 2 * 8.0, 1.0)
    assert (rules.decisions, rules.decision_s, rules.plan_s, rules.s_per_decision) == (0, 0.0, 2.0, None)


def test_faults_are_counted_and_the_first_is_told(tmp_path: Path) -> None:
    found = compared(cycles(tmp_path), None, Failing())

    rules, policy = found.sides
    assert (rules.faults, policy.faults, policy.decisions) == (0, 2, 0)
    assert "fault 1" in policy.first_fault
    assert policy.decision_s == 2.0, "a decision that fails takes time too"
    assert found.equal == 2, "where a policy fails the rules decide"


LIFT, OTHER = (make_recommendation(SetNice(job_id=job_id, before=0, after=-7)) for job_id in (1, 2))
NAMES = make_recommendation(SetNodeList(job_id=1, before=(), after=("n01", "n02")), revert_after_s=120.0)
DRAWS = 4


def pair(*plans: Sequence[Recommendation]) -> PlanPair:
    """Return the plans of two sides for two jobs."""
    first, second = plans
    return PlanPair(case=Case(snapshot=make_snapshot([make_job(1), make_job(2)])), plans=(first, second))


@dataclass(frozen=True, kw_only=True)
class Partial(FakeRollout):
    """A rollout that leaves out one thing always and another each time, and fails in the calls of some numbers."""

    fails_at: tuple[int, ...] = ()

    def values(
        self, case: Case, plans: Sequence[Scenario], *, horizon_s: float, draws: int, first_draw: int = 0
    ) -> RolloutValues:
        values = super().values(case, plans, horizon_s=horizon_s, draws=draws, first_draw=first_draw)
        if len(self.calls) in self.fails_at:
            raise SimulationError(f"call {len(self.calls)} is not modelled")
        return values._replace(left_out=("licences", f"thing {len(self.calls)}"))


def rollout(shift_s: float = -60.0, *, by_draw_s: float = 0.0, fails_at: tuple[int, ...] = ()) -> Partial:
    """Return a rollout in which a lift of job 1 shifts all completions."""
    return Partial(shift_s={LIFT.action: lambda draw: shift_s + by_draw_s * draw}, fails_at=fails_at)


def tried(*pairs: PlanPair, by: FakeRollout) -> RolledOut:
    """Roll pairs out over an hour."""
    return rolled_out(pairs, by, horizon_s=3600.0, draws=DRAWS, done=lambda: None)


def test_change_is_that_of_the_second_side_against_the_first() -> None:
    sooner, later = tried(pair([], [LIFT]), by=rollout()), tried(pair([LIFT], []), by=rollout())

    assert (sooner.change_s, sooner.low, sooner.high) == pytest.approx((-60.0, -60.0, -60.0))
    assert (later.change_s, later.low, later.high) == pytest.approx((60.0, 60.0, 60.0))
    assert (sooner.snapshots, sooner.differing, sooner.draws, sooner.horizon_s) == (1, 1, DRAWS, 3600.0)


def test_interval_of_one_snapshot_is_that_over_its_draws() -> None:
    found = tried(pair([], [LIFT]), by=rollout(by_draw_s=10.0))

    # The draws shift by -60, -50, -40 and -30 seconds.
    reach = 3.182 * math.sqrt(500.0 / 3 / 4)
    assert found.change_s == pytest.approx(-45.0)
    assert (found.low, found.high) == pytest.approx((-45.0 - reach, -45.0 + reach))


def test_interval_of_several_snapshots_is_that_over_their_means() -> None:
    by = rollout(by_draw_s=10.0)

    found = tried(pair([], [LIFT]), pair([LIFT], [LIFT]), by=by)

    assert (found.snapshots, found.differing) == (2, 1)
    assert found.change_s == pytest.approx(-22.5)
    assert (found.low, found.high) == pytest.approx((-22.5 - 12.706 * 22.5, -22.5 + 12.706 * 22.5))


def test_snapshot_for_which_both_sides_plan_the_same_changes_nothing_and_is_not_rolled_out() -> None:
    by = rollout()

    found = tried(pair([LIFT, OTHER], [OTHER, LIFT]), by=by)

    assert (found.snapshots, found.differing, found.change_s, found.low, found.high) == (1, 0, 0.0, 0.0, 0.0)
    assert by.calls == []


@pytest.mark.parametrize(
    ("low", "high", "is_clear"),
    [(-2.0, -1.0, True), (1.0, 2.0, True), (-1.0, 1.0, False), (0.0, 1.0, False), (-1.0, 0.0, False)],
)
def test_difference_is_clear_if_its_interval_leaves_out_0(low: float, high: float, is_clear: bool) -> None:
    found = replace(tried(pair([], []), by=rollout()), low=low, high=high)

    assert found.is_clear is is_clear


def test_snapshot_that_cannot_be_simulated_is_skipped() -> None:
    found = tried(pair([], [LIFT]), pair([], [LIFT]), pair([], []), by=rollout(fails_at=(1,)))

    assert (found.snapshots, found.differing, found.skipped) == (2, 1, 1)
    assert found.change_s == pytest.approx(-30.0)


def test_without_a_snapshot_that_can_be_simulated_the_last_reason_is_told() -> None:
    with pytest.raises(SimulationError, match="no plan can be rolled out: call 2 is not modelled"):
        tried(pair([], [LIFT]), pair([], [LIFT]), by=rollout(fails_at=(1, 2)))
    with pytest.raises(SimulationError, match="no plan can be rolled out: no cycle was compared"):
        tried(by=rollout())


def test_named_nodes_are_not_simulated_and_plans_that_differ_in_them_are_counted() -> None:
    by = rollout()

    found = tried(pair([NAMES], []), pair([NAMES], [NAMES, LIFT]), pair([], []), by=by)

    assert (found.snapshots, found.differing, found.named) == (3, 1, 1)
    assert by.calls == [[frozenset(), frozenset({LIFT.action})]]


def test_what_rollouts_leave_out_is_told_once() -> None:
    found = tried(pair([], [LIFT]), pair([], [LIFT]), by=rollout())

    assert found.left_out == ("licences", "thing 1", "thing 2")


def test_each_snapshot_is_reported_when_it_is_done() -> None:
    done: list[int] = []
    by = rollout(fails_at=(2,))
    pairs = [pair([], [LIFT]), pair([], [LIFT]), pair([], [])]

    rolled_out(pairs, by, horizon_s=3600.0, draws=DRAWS, done=lambda: done.append(len(by.calls)))

    assert done == [1, 2, 2]


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


def places_compared(folder: Path, *snapshots: Snapshot, models: KnownModels | None = None) -> PlacesCompared:
    """Record the rounds of the rules, and compare the policy on the journal."""
    places, plans = PlaceComparison(models or known()), PolicyComparison((LastFirst(), None), lambda: 0.0)
    with SqliteJournal(folder / "journal.sqlite") as journal:
        ids = [journal.record(Cycle(planning=ON).judge(one), Cycle(planning=ON), whole=True) for one in snapshots]
        for recorded in journal.recorded_cycles(ids):
            pair = plans.plan(recorded)
            places.add(pair.case, pair.plans[0])
    return places.result()


def test_gang_on_the_slower_type_would_have_run_shorter_on_the_named_nodes(tmp_path: Path) -> None:
    found = places_compared(tmp_path, seen(0, waiting(1)), seen(1, running(1, "n01", "n02")))

    assert (found.gangs, found.same, found.by_name, found.unseen) == (1, 0, 0, 0)
    assert found.change == pytest.approx(math.exp(SLOW - FAST) - 1.0)
    assert (found.low, found.high) == (None, None)


def test_gang_on_the_named_nodes_changes_nothing(tmp_path: Path) -> None:
    found = places_compared(tmp_path, seen(0, waiting(1)), seen(1, running(1, "n03", "n04")))

    assert (found.gangs, found.same, found.change) == (1, 1, 0.0)


def test_interval_is_that_of_the_mean_over_gangs(tmp_path: Path) -> None:
    found = places_compared(
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
    found = places_compared(tmp_path, seen(0, waiting(1)), seen(1, running(1, "n03", "n04", named=True)))

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
    found = places_compared(tmp_path, seen(0, waiting(1)), *later)

    assert (found.gangs, found.unseen, found.change) == (0, 1, None)


def test_nodes_named_last_before_the_start_count(tmp_path: Path) -> None:
    full = make_job(9, gang=make_gang(16, nodes_min=2, nodes_max=2), running_on=("n03", "n04"))
    busy = seen(1, full, waiting(1))
    busy = replace(busy, nodes=tuple(make_node(name, gpu_type=TYPES[name], used=8 * (name > "n02")) for name in TYPES))

    found = places_compared(tmp_path, seen(0, waiting(1)), busy, seen(2, running(1, "n01", "n02")))

    assert (found.gangs, found.same, found.change) == (1, 1, 0.0)


def test_gang_counts_once_though_it_starts_again(tmp_path: Path) -> None:
    found = places_compared(
        tmp_path,
        seen(0, waiting(1)),
        seen(1, running(1, "n01", "n02")),
        seen(2, waiting(1)),
        seen(3, running(1, "n03", "n04")),
    )

    assert (found.gangs, found.same) == (1, 0)


def test_gang_that_was_not_shown_for_a_while_counts_once_it_starts(tmp_path: Path) -> None:
    found = places_compared(
        tmp_path, seen(0, waiting(1)), seen(1), seen(2, waiting(1)), seen(3, running(1, "n03", "n04"))
    )

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
