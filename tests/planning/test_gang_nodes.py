"""Which nodes are named for gangs, and when."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Lever, Reason, SetNodeList
from advisor.domain.gang import GpuScope, SwitchRequest
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.plan import Kind
from advisor.domain.snapshot import Snapshot
from advisor.errors import ModelError
from advisor.features.observe.graph import Neighbours, Rows, size_log
from advisor.features.observe.known_models import KnownModels
from advisor.features.observe.pointer import GANG_COLUMNS
from advisor.features.policy import Options, RecordedPolicy, Scores
from advisor.settings import Limits, PlanningSettings
from advisor.view.sentences import assumption, sentence
from tests.builders import (
    HOUR_S,
    MINUTE_S,
    TAKEN_AT,
    make_gang,
    make_hints,
    make_holders,
    make_job,
    make_node,
    make_snapshot,
)

ON = PlanningSettings(name_nodes=True)
PAIR = make_gang(16, nodes_min=2, nodes_max=2)


@dataclass
class Places:
    """A policy that has a say in the places of gangs, and in nothing else."""

    name: str = "places"
    digest: str = ""
    levers: frozenset[Lever] = field(default_factory=lambda: frozenset({Lever.NODE_LIST}))

    def act(self, _options: Options) -> Scores:
        """Fail: the rule chooses."""
        raise ModelError("not fitted")


class LastFirst(Places):
    """A policy that points to the last legal server."""

    def act(self, options: Options) -> Scores:
        """Score later servers higher, and all higher than to wait."""
        return np.arange(1.0, len(options) + 1.0)


@dataclass
class Recalling(LastFirst):
    """The same, which remembers what it was asked."""

    asked: list[Options] = field(default_factory=list)

    def act(self, options: Options) -> Scores:
        """Remember the options."""
        self.asked.append(options)
        return super().act(options)


class Waiting(Places):
    """A policy that leaves every gang to Slurm."""

    def act(self, options: Options) -> Scores:
        """Score every server lower than to wait."""
        return np.full(len(options), -1.0)


def cycle(*, planning: PlanningSettings = ON, policy: Places | None = None, models: KnownModels | None = None) -> Cycle:
    """Return the pipeline with a policy for places."""
    plain = Cycle(planning=planning, policy=Places() if policy is None else policy)
    return plain if models is None else replace(plain, models=models)


def waiting(job_id: int = 1, gang: object = PAIR, **fields: object) -> Job:
    """Return a gang that wants two whole nodes for two hours."""
    return make_job(job_id, gang=gang, time_limit_s=2 * HOUR_S, **fields)  # type: ignore[arg-type]


def site(*jobs: Job, used: tuple[int, ...] = (8, 0, 0, 0)) -> Snapshot:
    """Return four nodes of eight GPUs under two leaves, some in use for ten more minutes."""
    nodes = [make_node(f"n0{number}", used=count) for number, count in enumerate(used, start=1)]
    return make_snapshot([*jobs, *make_holders(nodes)], nodes)


def named(record: CycleRecord) -> dict[int, tuple[str, ...]]:
    """Map gangs to the nodes that were named for them."""
    return {
        change.job_id: change.action.after
        for change in record.recommendations
        if isinstance(change.action, SetNodeList)
    }


def refusal(snapshot: Snapshot, memory: Memory | None = None, **settings: Any) -> str | None:
    """Return the rule that refuses the nodes of the first gang."""
    judged = Cycle(planning=replace(ON, **settings), policy=Places()).judge(snapshot, memory or Memory()).judged
    return next((change.refused_by for change in judged if isinstance(change.action, SetNodeList)), "not proposed")


def test_gang_gets_the_leaf_that_holds_it() -> None:
    record = cycle().judge(site(waiting()))

    (change,) = [change for change in record.recommendations if isinstance(change.action, SetNodeList)]
    assert change.action == SetNodeList(job_id=1, before=(), after=("n03", "n04"))
    assert (change.kind, change.reason) == (Kind.CONSOLIDATE, Reason.PLACE_FOR_GANG)
    assert (change.revert_after_s, change.expected.added_delay_max_s) == (120.0, 120.0)


@pytest.mark.parametrize(("used", "nodes"), [((8, 0, 0, 0), ("n03", "n04")), ((0, 0, 8, 0), ("n02", "n04"))])
def test_gang_gets_the_nodes_that_the_policy_points_to(used: tuple[int, ...], nodes: tuple[str, ...]) -> None:
    record = cycle(policy=LastFirst()).judge(site(waiting(), used=used))

    assert named(record) == {1: nodes}
    assert len(record.decisions) == 2


def test_policy_is_shown_the_fewest_nodes_that_hold_a_gang() -> None:
    policy = Recalling()

    cycle(policy=policy).judge(site(waiting()))

    gang = dict(zip(GANG_COLUMNS, policy.asked[0].tensors["gang"].ravel(), strict=True))
    assert gang["fewest_nodes"] == np.float32(size_log(np.array(2)))


def test_gang_is_left_to_slurm_where_the_policy_would_wait() -> None:
    record = cycle(policy=Waiting()).judge(site(waiting()))

    assert named(record) == {}
    assert record.policy_fault == ""


def test_replay_repeats_the_nodes_without_the_policy() -> None:
    snapshot = site(waiting(), used=(0, 0, 8, 0))
    record = cycle(policy=LastFirst()).judge(snapshot)

    again = replace(cycle(), policy=RecordedPolicy(record.decisions)).judge(snapshot)

    assert named(again) == named(record)


def test_sentence_says_where_and_for_how_long() -> None:
    (change,) = cycle(policy=LastFirst()).judge(site(waiting())).recommendations

    assert sentence(change) == (
        "16 GPUs are idle on 2 nodes under one leaf switch, with no other gang. The policy places chose them. "
        "After 2 min, or if they are taken, Slurm chooses again"
    )
    assert assumption(change).startswith("What the place saves is not forecast")


@pytest.mark.parametrize("pipeline", [Cycle(planning=ON), Cycle(policy=Places())], ids=["no policy", "not allowed"])
def test_nothing_is_named_unless_the_site_allows_it_and_a_policy_chooses(pipeline: Cycle) -> None:
    assert named(pipeline.judge(site(waiting()))) == {}


def test_record_says_that_the_policy_has_no_say_where_no_nodes_are_named() -> None:
    record = Cycle(policy=LastFirst()).judge(site(waiting()))

    assert record.policy_fault == "policy places chooses nodes for gangs alone, and planning.name_nodes is off"


def test_policy_of_another_lever_names_no_nodes() -> None:
    policy = Places(levers=frozenset({Lever.GPU_COUNT}))

    assert named(cycle(policy=policy).judge(site(waiting()))) == {}


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(waiting(gang=replace(PAIR, required_nodes=("n02", "n03"))), id="names nodes"),
        pytest.param(waiting(gang=replace(PAIR, excluded_nodes=("n02",))), id="excludes a node"),
        pytest.param(waiting(gang=replace(PAIR, switches=SwitchRequest(count=1, max_wait_s=60.0))), id="own switches"),
        pytest.param(waiting(gang=replace(PAIR, nodes_min=1, nodes_max=4)), id="range of nodes"),
        pytest.param(waiting(gang=make_gang(16)), id="open number of nodes"),
        pytest.param(waiting(gang=make_gang(4, nodes_min=1, nodes_max=1)), id="one node"),
        pytest.param(waiting(gang=replace(PAIR, features="nvlink")), id="features"),
        pytest.param(waiting(reservation="course"), id="reservation"),
        pytest.param(waiting(gang=make_gang(32, nodes_min=4, nodes_max=4)), id="does not fit now"),
    ],
)
def test_gang_is_left_alone(job: Job) -> None:
    assert named(cycle().judge(site(job))) == {}


def test_gang_with_gpus_per_node_gets_as_many_nodes_as_it_asks_for() -> None:
    gang = make_gang(4, scope=GpuScope.NODE, nodes_min=2, nodes_max=2, tasks=2, cpus=2)

    record = cycle().judge(site(waiting(gang=gang), used=(4, 8, 4, 4)))

    assert named(record) == {1: ("n03", "n04")}


def test_two_gangs_get_different_nodes() -> None:
    record = cycle().judge(site(waiting(1), waiting(2), used=(0, 0, 0, 0)))

    places = named(record)
    assert sorted(places) == [1, 2]
    assert not set(places[1]) & set(places[2])


def test_gang_keeps_off_the_nodes_of_a_gang_that_would_slow_it() -> None:
    def codes(names: object) -> Rows:
        return np.array([{"loud": 0, "quiet": 1}.get(name, -1) for name in names], np.intp)  # type: ignore[attr-defined]

    added = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    models = KnownModels(codes=codes, neighbours=Neighbours.of(added))
    half = make_gang(4, scope=GpuScope.NODE, nodes_min=2, nodes_max=2, tasks=2, cpus=2)
    running = [
        make_job(number, gang=half, running_on=nodes, hints=make_hints(model))
        for number, model, nodes in ((8, "loud", ("n01", "n02")), (9, "quiet", ("n03", "n04")))
    ]
    gang = waiting(gang=half, hints=make_hints("quiet"))
    nodes = [make_node(f"n0{number}", used=4) for number in range(1, 5)]

    record = cycle(models=models).judge(make_snapshot([gang, *running], nodes))

    assert named(record) == {1: ("n03", "n04")}


def past(*endings: Ending | None) -> Memory:
    """Return what is remembered of earlier names for the gang, all of them hours ago."""
    action = SetNodeList(job_id=1, before=(), after=("n01", "n02"))
    leases: list[Lease] = []
    for number, ending in enumerate(endings):
        lease = replace(intended(action, TAKEN_AT - (20 - number) * HOUR_S, after_s=120.0), state=LeaseState.OUT)
        leases.append(lease if ending is None else lease.ended(ending, lease.applied_time + 2 * MINUTE_S))
    return Memory(leases=tuple(leases))


def test_gang_whose_nodes_were_taken_three_times_is_left_to_slurm() -> None:
    twice, thrice = past(*[Ending.TAKEN_BACK] * 2), past(*[Ending.TAKEN_BACK] * 3)
    never_held = past(*[Ending.NOT_APPLIED] * 3)

    assert [refusal(site(waiting()), memory) for memory in (twice, thrice, never_held)] == [
        None,
        "nodes_named_rarely",
        None,
    ]


def test_gang_with_a_list_out_gets_no_second_one() -> None:
    assert named(cycle().judge(site(waiting()), past(None))) == {}


def test_bound_on_delay_holds_for_named_nodes_too() -> None:
    strict = Cycle(planning=ON, policy=Places(), limits=Limits(max_added_delay_s=60.0))

    assert named(strict.judge(site(waiting()))) == {}
