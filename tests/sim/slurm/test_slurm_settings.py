"""Which settings of a site the model of slurmctld leaves out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from advisor.backends.site_config import site_config
from advisor.domain.gang import ShareCount
from advisor.domain.topology import TopologyKind
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters, parse_cluster
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_settings import settings_left_out, unknown_settings
from advisor.sim.slurm.slurmctld import pick_now
from tests.builders import make_node, make_partition
from tests.sim.building import FIRST_COME, make_state, make_trace, occupy, picked, run_of, starts_and_ends


def test_settings_that_change_nothing_are_not_named() -> None:
    parameters = {
        "PriorityFlags": "CALCULATE_RUNNING,SMALL_RELATIVE_TO_TIME",
        "SchedulerParameters": "bf_continue,bf_interval=30,max_switch_wait=300",
        "PreemptMode": "OFF",
        "EnforcePartLimits": "NO",
    }

    assert settings_left_out(parameters) == ()


def test_settings_without_a_model_are_named_with_their_values() -> None:
    parameters = {
        "PriorityFlags": "NO_FAIR_TREE,INCR_ONLY",
        "SchedulerParameters": "bf_one_resv_per_job,bf_interval=30,max_rpc_cnt=100",
        "PreemptMode": "REQUEUE",
    }

    assert settings_left_out(parameters) == (
        "PriorityFlags=NO_FAIR_TREE",
        "SchedulerParameters=bf_one_resv_per_job",
        "SchedulerParameters=max_rpc_cnt",
        "PreemptMode=REQUEUE",
    )


def test_settings_of_a_site_without_a_model_are_listed_with_what_they_change() -> None:
    raw = {
        "schedulerparameters": "defer,bf_continue",
        "prioritytype": "priority/multifactor",
        "priorityflags": "MAX_TRES,FAIR_TREE",
        "priorityweighttres": "GRES/gpu=1000,billing=5",
        "selecttypeparameters": "CR_CORE,CR_LLN",
        "preempttype": "preempt/qos",
        "preemptmode": "REQUEUE",
        "licenses": "matlab:10",
        "completewait": "0 sec",
        "suspendtime": "INFINITE",
        "topologyplugin": "topology/tree",
    }
    nodes = [make_node(gpu_type="1g.5gb", shares=(ShareCount(kind="shard", count=8),))]
    partitions = [replace(make_partition("busy"), over_subscribe="FORCE:4"), make_partition()]

    unknown = unknown_settings(site_config(raw, version="24.11.5"), TopologyKind.TREE, partitions, nodes)

    assert [each.setting for each in unknown] == [
        "SchedulerParameters=defer",
        "PreemptType=preempt/qos",
        "Licenses=matlab:10",
        "PriorityFlags=MAX_TRES",
        "PriorityWeightTRES=billing",
        "SelectTypeParameters=CR_LLN",
        "SelectTypeParameters=CR_CORE,CR_LLN",
        "OverSubscribe=FORCE:4 of partition busy",
        "Gres=shard",
        "Gres=gpu:1g.5gb",
    ]
    assert str(unknown[0]) == (
        "the what-if model does not know SchedulerParameters=defer: nothing is tried at submission"
    )


def test_settings_of_a_plain_site_are_all_known() -> None:
    raw = {"selecttypeparameters": "CR_CORE_MEMORY", "topologyplugin": "topology/tree", "preemptmode": "OFF"}
    config = site_config(raw, version="24.11.5")

    assert unknown_settings(config, TopologyKind.TREE, [make_partition()], [make_node()]) == ()


def starts(
    jobs: Sequence[Mapping[str, Any]], release: str, *, nodes: int = 1, slurm: SlurmParameters = FIRST_COME
) -> list[float]:
    """Simulate jobs that are submitted one second after the other on nodes of four GPUs."""
    trace = make_trace([{"submit_time": second, **job} for second, job in enumerate(jobs)])
    cluster = Cluster(nodes=(NodeGroup(count=nodes, gpus=4),), slurm=replace(slurm, release=release))
    return [start for start, _ in starts_and_ends(run_of(trace, cluster, "slurm"))]


def lasting(seconds: float, gpus: int = 1, **fields: float) -> dict[str, float]:
    """A job that runs as long as its limit."""
    return {"gpus": gpus, "run_time_s": seconds, "time_limit_s": seconds, **fields}


def passing(limit_s: float, gpus: int = 1) -> dict[str, float]:
    """A job of ten seconds that backfill has to take for a longer one."""
    return {"gpus": gpus, "run_time_s": 10, "time_limit_s": limit_s}


def picks(release: str, in_use: str, **job: int) -> dict[str, int]:
    """Return the GPUs that a job gets at once on two leaves of four nodes, by node, beside what is in use."""
    cluster = replace(parse_cluster("nodes=8,gpus=8,leaf=4"), slurm=SlurmParameters(release=release))
    trace = make_trace([job])
    state = make_state(trace, cluster)
    occupy(state, [int(each) for each in in_use.replace("|", " ").split()])
    assert pick_now(state, build_slurm(state, trace, cluster), 0, 100.0)
    return {f"n{node + 1:02d}": held for node, held in picked(state).items()}


@pytest.mark.parametrize(
    ("in_use", "gpus", "nodes_max", "older", "newer"),
    [
        pytest.param("0 0 0 0 | 8 8 0 0", 1, 1, "n07", "n01", id="the first node of all"),
        pytest.param("0 0 0 0 | 1 0 0 0", 8, 1, "n06", "n01", id="a whole node"),
        pytest.param("8 8 8 7 | 0 0 0 0", 1, 1, "n04", "n04", id="whatever its leaf offers"),
        pytest.param("7 2 6 0 | 0 0 0 0", 2, 1, "n02", "n02", id="the first that is usable"),
        pytest.param("6 4 0 0 | 6 6 8 4", 4, 0, "n08", "n08", id="by leaves without a node count"),
    ],
)
def test_job_of_one_node_ignores_leaves(in_use: str, gpus: int, nodes_max: int, older: str, newer: str) -> None:
    for release, expected in (("22.05", older), ("24.11", older), ("26.05", newer)):
        assert list(picks(release, in_use, gpus=gpus, nodes_max=nodes_max)) == [expected]


@pytest.mark.parametrize(
    ("in_use", "gpus", "older", "newer"),
    [
        pytest.param("4 4 6 2 | 4 4 4 4", 8, {"n01": 4, "n04": 4}, {"n01": 2, "n04": 6}, id="two nodes"),
        pytest.param(
            "4 4 6 2 | 4 4 4 4", 12, {"n01": 4, "n02": 4, "n04": 4}, {"n01": 4, "n02": 2, "n04": 6}, id="three nodes"
        ),
        pytest.param("7 6 7 0 | 8 7 7 0", 12, {"n04": 8, "n08": 4}, {"n04": 8, "n08": 4}, id="equal nodes in order"),
    ],
)
def test_open_gang_fills_the_emptiest_of_its_nodes_first(
    in_use: str, gpus: int, older: dict[str, int], newer: dict[str, int]
) -> None:
    for release, expected in (("22.05", older), ("24.11", newer), ("26.05", newer)):
        assert picks(release, in_use, gpus=gpus, nodes_max=0) == expected


@pytest.mark.parametrize(
    ("release", "limit_s", "start"), [("22.05", 151.0, 200.0), ("24.11", 209.0, 30.0), ("24.11", 211.0, 200.0)]
)
def test_reservation_ends_on_the_next_point_of_the_grid(release: str, limit_s: float, start: float) -> None:
    jobs = [lasting(100, gpus=2), lasting(1000, gpus=3), lasting(100, gpus=4), lasting(50, gpus=2, nodes_max=2)]
    jobs[3]["nodes_min"] = 2

    # The first node is reserved for the third from 60 to 180, or to 240, then both for the fourth: what runs on the
    # second until then does not delay it.
    assert (
        starts([*jobs, passing(limit_s)], release, nodes=2, slurm=replace(FIRST_COME, bf_resolution_s=60.0))[4] == start
    )


def test_end_after_the_next_opening_of_a_node_does_not_count() -> None:
    # The fourth is expected on the first node at 106. The fifth then fits the second node at 100; 22.05 goes on to the
    # end at 502, prefers the first node from 156 on, and leaves a GPU of the second to the sixth.
    running = [lasting(106, gpus=3), lasting(99, gpus=3), lasting(500, gpus=4)]
    waiting = [lasting(50, gpus=4), lasting(50, gpus=4), passing(600)]

    assert starts([*running, *waiting], "22.05", nodes=3)[5] == 30.0
    assert starts([*running, *waiting], "24.11", nodes=3)[5] == 150.0


@pytest.mark.parametrize(
    ("release", "limit_s", "start"), [("24.11", 110.0, 30.0), ("26.05", 69.0, 30.0), ("26.05", 110.0, 149.0)]
)
def test_job_is_expected_at_the_last_end_on_its_own_nodes(release: str, limit_s: float, start: float) -> None:
    # The ends at 100 and 149 are in one group; the third takes the first node, whose job ends at 100.
    jobs = [lasting(100, gpus=2), lasting(148, gpus=4), lasting(50, gpus=4), passing(limit_s, gpus=2)]

    assert starts(jobs, release, nodes=2)[3] == start
