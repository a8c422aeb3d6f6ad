"""Which gangs wait for a closer place, for how long, and by which lever."""

from dataclasses import replace

import pytest

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import NodeRange, Reason, SetNodeRange, SetSwitches
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.gang import GangRequest, GpuScope, SwitchRequest
from advisor.domain.job import Job, Sensitivity
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier, TopologyKind
from advisor.planning.beliefs import Beliefs
from advisor.settings import Limits, PlanningSettings
from tests.builders import (
    DAY_S,
    HOUR_S,
    make_config,
    make_gang,
    make_hints,
    make_holders,
    make_job,
    make_node,
    make_snapshot,
    make_topology,
)

TWO_NODES = make_gang(8, scope=GpuScope.NODE, nodes_min=2, nodes_max=2, tasks=2)
RANGE = make_gang(8, nodes_min=1, nodes_max=4)


def waiting(
    gang: GangRequest = TWO_NODES, *, minutes: float = 5.0, hours: float = 48.0, sensitivity: Sensitivity | None = None
) -> Job:
    """A gang that has waited some minutes and may run for some hours."""
    return make_job(
        1,
        gang=gang,
        submitted_ago_s=minutes * 60,
        time_limit_s=hours * HOUR_S,
        hints=make_hints(sensitivity=sensitivity),
    )


def ahead(node: str = "n01") -> Job:
    """A job ahead of all others that waits for a full node, so that none of them is the first in line."""
    return make_job(99, gang=make_gang(8, nodes_max=1, required_nodes=(node,)), priority=9000, time_limit_s=None)


def one_idle_node_per_leaf(job: Job, **parameters: str) -> Snapshot:
    """Two leaves of two nodes, one node of each idle: two nodes fit now only across leaves."""
    nodes = [make_node(name, used=8 if name in ("n02", "n04") else 0) for name in ("n01", "n02", "n03", "n04")]
    return make_snapshot(
        [job, ahead("n02"), *make_holders(nodes)],
        nodes,
        config=make_config(scheduler_parameters=parameters or {"max_switch_wait": "86400"}),
    )


def half_idle_nodes(job: Job) -> Snapshot:
    """Four nodes with four idle GPUs each: eight fit now only over two nodes."""
    nodes = [make_node(f"n0{number}", used=4) for number in range(1, 5)]
    return make_snapshot([job, ahead(), *make_holders(nodes)], nodes)


def timers(record: CycleRecord) -> dict[int, object]:
    """Map consolidated jobs to what their lever is set to."""
    return {
        change.job_id: change.action.after
        for change in record.recommendations
        if isinstance(change.action, SetSwitches | SetNodeRange)
    }


def test_gang_waits_for_one_leaf_from_now_on() -> None:
    record = Cycle().judge(one_idle_node_per_leaf(waiting(minutes=5)))

    # 48 hours at 20 % of the limit, times 1.3 - 1.1, are 6912 s; half an hour is assumed, and at most three times that.
    assert timers(record) == {1: SwitchRequest(count=1, max_wait_s=90 * 60.0)}
    assert record.recommendations[0].reason is Reason.LEAF_WORTH_WAITING
    assert record.recommendations[0].revert_after_s is None
    assert record.recommendations[0].expected.added_delay_max_s == 90 * 60.0


def test_time_already_in_the_queue_takes_nothing_off_a_timer() -> None:
    new, old = (Cycle().judge(one_idle_node_per_leaf(waiting(minutes=minutes))) for minutes in (5, 300))

    assert timers(old) == timers(new) != {}


def test_wait_is_never_longer_than_it_can_save() -> None:
    # 13 hours at 20 % of the limit, times 1.3 - 1.1, are 1872 s; 12 hours less than the half hour that it may take.
    worth, not_worth = (Cycle().judge(one_idle_node_per_leaf(waiting(hours=hours))) for hours in (13, 12))

    assert timers(worth) == {1: SwitchRequest(count=1, max_wait_s=31 * 60.0)}
    assert timers(not_worth) == {}


def test_gang_that_calls_itself_sensitive_vouches_for_its_whole_limit() -> None:
    record = Cycle().judge(one_idle_node_per_leaf(waiting(hours=3, sensitivity=Sensitivity.HIGH)))

    # Three hours times 1.3 - 1.1 are 36 min.
    assert timers(record) == {1: SwitchRequest(count=1, max_wait_s=36 * 60.0)}


def test_wait_is_never_longer_than_the_bound_on_added_delay() -> None:
    snapshot = one_idle_node_per_leaf(waiting())

    assert timers(Cycle(limits=Limits(max_added_delay_s=3599.0)).judge(snapshot)) == {
        1: SwitchRequest(count=1, max_wait_s=29 * 60.0)
    }


def test_timer_is_cut_to_the_longest_wait_slurm_grants() -> None:
    snapshot = one_idle_node_per_leaf(waiting(), max_switch_wait="300")

    assert timers(Cycle().judge(snapshot)) == {1: SwitchRequest(count=1, max_wait_s=300.0)}


def test_gang_held_to_few_nodes_until_the_timer_ends() -> None:
    record = Cycle().judge(half_idle_nodes(waiting(RANGE)))

    assert timers(record) == {1: NodeRange(low=1, high=1)}
    assert record.recommendations[0].reason is Reason.NODE_WORTH_WAITING
    # 34560 s times 1.1 - 1 are 57 min; ten minutes are assumed, and at most three times that.
    assert record.recommendations[0].revert_after_s == 30 * 60.0


def test_gang_that_could_start_soon_is_given_a_timer_before() -> None:
    running = [
        make_job(9, gpus=8, running_on=["n02"], started_ago_s=0.0, time_limit_s=900.0),
        make_job(8, gpus=8, running_on=["n04"], started_ago_s=0.0, time_limit_s=1200.0),
        make_job(7, gpus=8, running_on=["n03"], started_ago_s=0.0, time_limit_s=1200.0),
    ]
    nodes = [make_node(f"n0{number}", used=8) for number in range(1, 5)]

    assert 1 in timers(Cycle().judge(make_snapshot([waiting(), ahead(), *running], nodes)))


def test_inflation_grows_with_the_tier() -> None:
    settings = PlanningSettings()

    by_rule = Beliefs(forecasts=NO_FORECASTS, settings=settings)
    assert [by_rule.inflation(make_job(1), tier, LocalityTier.NODE).median for tier in LocalityTier] == [
        1.0,
        1.1,
        1.3,
        1.3,
    ]


PER_NODE = make_gang(4, scope=GpuScope.NODE, nodes_min=1, nodes_max=4)
PER_SOCKET = make_gang(4, scope=GpuScope.SOCKET, nodes_min=2, nodes_max=2)
THREE_NODES = make_gang(8, scope=GpuScope.NODE, nodes_min=3, nodes_max=3)
OWN_SWITCHES = replace(TWO_NODES, switches=SwitchRequest(count=1, max_wait_s=60.0))
# All nodes are full; one of the first leaf comes free in a day, and of the others nothing is known.
FAR_OFF = make_snapshot(
    [waiting(), make_job(9, gpus=8, running_on=["n02"], started_ago_s=0.0, time_limit_s=DAY_S)],
    [make_node(f"n0{number}", used=8) for number in range(1, 5)],
)
DRAINED = [make_node("n01", flags=("DRAIN",)), *(make_node(f"n0{number}", gpus=4) for number in (2, 3, 4))]
TOPOPT = {"bf_topopt_enable": ""}


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(one_idle_node_per_leaf(waiting(sensitivity=Sensitivity.LOW)), id="not sensitive"),
        pytest.param(one_idle_node_per_leaf(waiting(hours=0.25)), id="short"),
        pytest.param(one_idle_node_per_leaf(replace(waiting(), time_limit_s=None)), id="no limit, so no known saving"),
        pytest.param(one_idle_node_per_leaf(waiting(OWN_SWITCHES)), id="own wait for switches"),
        pytest.param(one_idle_node_per_leaf(waiting(replace(TWO_NODES, features="h100"))), id="restricted by features"),
        pytest.param(make_snapshot([waiting()]), id="fits one leaf now"),
        pytest.param(make_snapshot([waiting(THREE_NODES)]), id="no leaf can hold it"),
        pytest.param(make_snapshot([replace(waiting(make_gang(1)), job_id=2)]), id="a single GPU"),
        pytest.param(make_snapshot([replace(waiting(PER_SOCKET), job_id=3)]), id="GPUs per socket"),
        pytest.param(make_snapshot([waiting(RANGE)], DRAINED), id="the node is out of service"),
        pytest.param(FAR_OFF, id="far from starting"),
        # Slurm cannot be made to leave it open again, so the change could not be taken back.
        pytest.param(half_idle_nodes(waiting(make_gang(8))), id="open node count"),
        pytest.param(half_idle_nodes(waiting(PER_NODE)), id="GPUs per node"),
        pytest.param(one_idle_node_per_leaf(waiting(), **TOPOPT), id="Slurm delays on its own: leaf"),
        pytest.param(
            replace(half_idle_nodes(waiting(RANGE)), config=make_config(scheduler_parameters=TOPOPT)),
            id="Slurm delays on its own: node",
        ),
        *(
            pytest.param(replace(one_idle_node_per_leaf(waiting()), topology=make_topology(kind=kind)), id=kind)
            for kind in (TopologyKind.FLAT, TopologyKind.BLOCK)
        ),
    ],
)
def test_gang_gets_no_timer(snapshot: Snapshot) -> None:
    assert timers(Cycle().judge(snapshot)) == {}
