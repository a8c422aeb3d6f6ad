"""How running jobs progress, on cases small enough to compute by hand."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, Network, NodeGroup
from advisor.sim.profiles import exposed_s, inflation, step_s
from advisor.sim.run_outcome import End
from advisor.sim.state import ENDED
from tests.sim.building import PROFILES, contended_gbps, ended, ends, make_state, make_trace, place, profile, run_out
from tests.sim.internals import book, preempt

NIC_GBPS = 100.0


def speed(name: str, gpu_type: str) -> float:
    return float(PROFILES.type_speed[PROFILES.names.index(name), PROFILES.gpu_types.index(gpu_type)])


def two_leaves(*, gpus: int = 2, oversubscription: float = 4.0, nodes: int = 8) -> Cluster:
    """Two leaves of four nodes, 100 Gb/s each; by default an uplink carries 4 x 100 / 4 = 100 Gb/s."""
    return Cluster(
        nodes=(NodeGroup(count=nodes, gpus=gpus, leaf=4),),
        network=Network(nic_gbps=NIC_GBPS, oversubscription=oversubscription),
    )


def test_two_gangs_over_the_same_uplink_share_it_as_long_as_both_run() -> None:
    jobs = [
        {"gpus": 4, "nodes_max": 2, "run_time_s": 1000, "model": "gpt2"},
        {"gpus": 4, "nodes_max": 2, "run_time_s": 300, "model": "gpt2"},
    ]

    state = ended(jobs, two_leaves(), {0: 2, 4: 2}, {1: 2, 5: 2})

    # Alone a gang has an uplink of 100 Gb/s to itself, which is what the best placement, two nodes of one leaf, has.
    # Together each has 50 Gb/s. The second ends first; from then on the first runs as if alone.
    gpt2 = profile("gpt2")
    slower = inflation(gpt2, 4, 2, 50.0, 2, 100.0)
    parted = 300.0 * slower
    assert slower > 1.0
    assert ends(state) == pytest.approx([parted + 700.0, parted])
    shared, alone = exposed_s(gpt2, 4, 2, 50.0), exposed_s(gpt2, 4, 2, 100.0)
    exposed = 4 * (parted * shared / (1 + shared) + 700.0 * alone / (1 + alone))
    assert state.jobs["exposed_gpu_s"][0] == pytest.approx(exposed)
    assert state.jobs["held_gpu_s"] == pytest.approx([4 * (parted + 700.0), 4 * parted])


def test_a_gang_alone_on_an_uplink_that_suffices_runs_as_on_its_best_placement() -> None:
    state = ended([{"gpus": 4, "nodes_max": 2, "run_time_s": 1000, "model": "gpt2"}], two_leaves(), {0: 2, 4: 2})

    assert ends(state) == [1000.0]
    assert state.segments["tier"][0] == 2


def test_a_gang_that_comes_later_slows_the_one_that_runs() -> None:
    gang = {"gpus": 4, "nodes_max": 2, "run_time_s": 1000, "model": "gpt2"}
    state = ended([gang, gang], two_leaves(), {0: 2, 4: 2}, {1: 2, 5: 2}, at=(0.0, 400.0))

    # The first has 600 s of work left when they meet and ends first; by then the second has done 600 s of its own.
    slower = inflation(profile("gpt2"), 4, 2, 50.0, 2, 100.0)
    first = 400.0 + 600.0 * slower
    assert ends(state) == pytest.approx([first, first + 400.0])


def test_nodes_of_a_gang_under_one_leaf_share_its_uplink() -> None:
    jobs = [{"gpus": 6, "nodes_max": 3, "run_time_s": 1000, "model": "gpt2"}]

    state = ended(jobs, two_leaves(oversubscription=8.0), {0: 2, 1: 2, 4: 2})

    # An uplink carries 4 x 100 / 8 = 50 Gb/s: 25 for each of the two nodes of the first leaf. Three nodes fit there.
    assert ends(state) == pytest.approx([1000.0 * inflation(profile("gpt2"), 6, 3, 25.0, 3, 100.0)])


def test_a_gang_larger_than_a_leaf_is_held_against_what_the_uplinks_give_it_alone() -> None:
    jobs = [{"gpus": 16, "nodes_max": 8, "run_time_s": 1000, "model": "gpt2"}]

    state = ended(jobs, two_leaves(), dict.fromkeys(range(8), 2))

    # 100 Gb/s for the four nodes of each leaf: 25 each, which is also the best that a gang of eight nodes can have.
    assert ends(state) == [1000.0]


def test_gangs_that_cross_other_uplinks_do_not_slow_each_other() -> None:
    gang = {"gpus": 4, "nodes_max": 2, "run_time_s": 1000, "model": "gpt2"}
    state = ended([gang, gang], two_leaves(nodes=16), {0: 2, 4: 2}, {8: 2, 12: 2})

    assert ends(state) == [1000.0, 1000.0]


def test_two_gangs_on_the_same_nodes_share_their_nics() -> None:
    jobs = [
        {"gpus": 4, "nodes_min": 2, "nodes_max": 2, "run_time_s": 1000, "model": "gpt2"},
        {"gpus": 4, "nodes_min": 2, "nodes_max": 2, "run_time_s": 100, "model": "bert"},
    ]

    state = ended(jobs, two_leaves(gpus=4), {0: 2, 1: 2}, {0: 2, 1: 2})

    # The best placement of both is one node of four GPUs. Each NIC leaves a gang 100 / (1 + pressure of the other).
    gpt2, bert = profile("gpt2"), profile("bert")
    beside = inflation(gpt2, 4, 2, contended_gbps(NIC_GBPS, float(bert["node_pressure"])), 1, NIC_GBPS)
    alone = inflation(gpt2, 4, 2, NIC_GBPS, 1, NIC_GBPS)
    short = 100.0 * inflation(bert, 4, 2, contended_gbps(NIC_GBPS, float(gpt2["node_pressure"])), 1, NIC_GBPS)
    assert beside > alone > 1.0
    assert ends(state) == pytest.approx([short + (1000.0 - short / beside) * alone, short])


def test_a_job_within_one_node_is_not_slowed_by_its_neighbours() -> None:
    jobs = [
        {"gpus": 2, "run_time_s": 1000, "model": "gpt2"},
        {"gpus": 4, "nodes_min": 2, "nodes_max": 2, "run_time_s": 1000, "model": "gpt2"},
    ]

    state = ended(jobs, two_leaves(gpus=4), {0: 2}, {0: 2, 1: 2})

    # Nor does it slow the gang beside it: it sends nothing.
    assert ends(state) == pytest.approx([1000.0, 1000.0 * inflation(profile("gpt2"), 4, 2, NIC_GBPS, 1, NIC_GBPS)])
    assert state.jobs["exposed_gpu_s"][0] == 0.0


def test_pressure_and_crossings_are_gone_when_all_have_ended() -> None:
    gang = {"gpus": 4, "nodes_min": 2, "nodes_max": 2, "model": "bert"}
    jobs = [gang, gang, gang]

    state = ended(jobs, two_leaves(gpus=4), {0: 2, 4: 2}, {0: 2, 1: 2}, {1: 2, 4: 2}, at=(0.0, 10.0, 20.0))

    assert state.nodes["pressure"] == pytest.approx(np.zeros(8))
    assert state.leaves["crossing"].tolist() == [0, 0]


MIXED = Cluster(
    nodes=(NodeGroup(count=2, gpus=2, gpu_type="v100"), NodeGroup(count=2, gpus=2, gpu_type="a100")),
    network=Network(nic_gbps=NIC_GBPS),
)


def test_a_job_of_any_type_runs_faster_on_a_faster_gpu() -> None:
    jobs = [{"run_time_s": 1000, "model": "bert"}, {"run_time_s": 1000, "model": "bert"}]

    state = ended(jobs, MIXED, {0: 1}, {2: 1})

    # The run time refers to the first group's type.
    assert ends(state) == pytest.approx([1000.0, 1000.0 * speed("bert", "v100") / speed("bert", "a100")])


def test_the_run_time_of_a_job_that_asks_for_a_type_refers_to_that_type() -> None:
    trace = replace(make_trace([{"run_time_s": 1000, "model": "bert", "gpu_type": 1}]), gpu_types=("v100", "a100"))
    state = ended(trace, MIXED, {3: 1})

    assert ends(state) == [1000.0]


def test_the_slowest_gpus_set_the_pace_of_a_gang() -> None:
    state = ended([{"gpus": 4, "nodes_max": 2, "run_time_s": 1000, "model": "bert"}], MIXED, {1: 2, 2: 2})

    # Two leaves of two nodes without oversubscription: 200 Gb/s of uplink, so the NICs decide. V100 are the reference.
    assert ends(state) == [1000.0]


def test_a_gang_of_faster_gpus_needs_more_bandwidth() -> None:
    trace = make_trace([{"gpus": 4, "nodes_min": 2, "nodes_max": 2, "run_time_s": 1000, "model": "gpt2"}])
    cluster = Cluster(
        nodes=(NodeGroup(count=1, gpus=4, gpu_type="v100"), NodeGroup(count=2, gpus=4, gpu_type="a100")),
        network=Network(nic_gbps=NIC_GBPS),
    )
    state = ended(trace, cluster, {1: 2, 2: 2})

    faster = speed("gpt2", "a100")
    slower = inflation(profile("gpt2"), 4, 2, NIC_GBPS / faster, 1, NIC_GBPS / faster)
    assert slower > inflation(profile("gpt2"), 4, 2, NIC_GBPS, 1, NIC_GBPS)
    assert ends(state) == pytest.approx([1000.0 * slower / faster])


def test_a_resized_job_runs_at_the_pace_of_its_profile() -> None:
    jobs = [{"gpus": 4, "gpus_min": 1, "gpus_max": 4, "run_time_s": 1000, "model": "gpt2"}]

    state = ended(jobs, "nodes=1,gpus=4", {0: 2})

    gpt2 = profile("gpt2")
    assert ends(state) == pytest.approx([1000.0 * step_s(gpt2, 2) / step_s(gpt2, 4)])
    assert state.jobs["held_gpu_s"][0] == pytest.approx(2 * ends(state)[0])


def test_under_ideal_execution_half_the_gpus_take_twice_as_long() -> None:
    jobs = [{"gpus": 4, "gpus_min": 1, "gpus_max": 4, "run_time_s": 1000, "model": "gpt2"}]

    state = ended(jobs, "nodes=2,gpus=1", {0: 1, 1: 1}, ideal=True)

    assert ends(state) == [2000.0]


def test_a_restart_takes_time_in_which_nothing_is_done() -> None:
    state = make_state(make_trace([{"gpus": 2, "run_time_s": 100}]), "nodes=1,gpus=2,restart_s=30")

    place(state, 0, {0: 2}, 0.0)
    preempt(state, 0, 40.0)
    place(state, 0, {0: 2}, 50.0)
    book(state, 0, 60.0)

    assert state.jobs["left_s"].tolist() == [60.0]
    assert state.jobs["lost_gpu_s"].tolist() == [20.0]
    run_out(state)
    # 40 s before, 30 s of restart, 60 s after.
    assert ends(state) == [140.0]
    assert state.jobs["held_gpu_s"].tolist() == [2 * 40.0 + 2 * 90.0]
    assert state.jobs["lost_gpu_s"].tolist() == [2 * 30.0]
    assert state.jobs["preemptions"].tolist() == [1]


def test_a_job_stopped_while_it_restarts_has_lost_that_time() -> None:
    state = make_state(make_trace([{"run_time_s": 100}]), "nodes=1,gpus=1,restart_s=30")

    place(state, 0, {0: 1}, 0.0)
    preempt(state, 0, 40.0)
    place(state, 0, {0: 1}, 50.0)
    preempt(state, 0, 70.0)

    assert state.jobs["left_s"].tolist() == [60.0]
    assert state.jobs["lost_gpu_s"].tolist() == [20.0]


@pytest.mark.parametrize(
    ("interval_s", "left_s", "lost_gpu_s"),
    [
        pytest.param(30.0, 40.0, 20.0, id="two checkpoints, 10 s since"),
        pytest.param(0.0, 100.0, 140.0, id="no checkpoint"),
        pytest.param(70.0, 30.0, 0.0, id="a checkpoint just made"),
    ],
)
def test_a_requeued_job_falls_back_to_its_last_checkpoint(interval_s: float, left_s: float, lost_gpu_s: float) -> None:
    trace = make_trace([{"gpus": 2, "run_time_s": 100, "checkpoint_interval_s": interval_s}])
    state = make_state(trace, "nodes=1,gpus=2", loses_work=True)

    place(state, 0, {0: 2}, 0.0)
    preempt(state, 0, 70.0)

    assert state.jobs["left_s"].tolist() == [left_s]
    assert state.jobs["lost_gpu_s"].tolist() == [lost_gpu_s]


def test_a_job_that_ends_loses_nothing() -> None:
    state = ended([{"gpus": 2, "run_time_s": 100}], "nodes=1,gpus=2", {0: 2}, loses_work=True)

    assert state.jobs["lost_gpu_s"].tolist() == [0.0]
    assert state.jobs["phase"].tolist() == [ENDED]


def test_a_time_limit_counts_from_the_present_start() -> None:
    trace = make_trace([{"run_time_s": 100, "time_limit_s": 80}])
    state = make_state(trace, "nodes=1,gpus=1,restart_s=0")

    place(state, 0, {0: 1}, 0.0)
    preempt(state, 0, 30.0)
    place(state, 0, {0: 1}, 50.0)
    run_out(state)

    assert ends(state) == [120.0]
    assert state.jobs["end"].tolist() == [End.FINISHED]


def test_a_segment_tells_where_a_job_was() -> None:
    trace = make_trace([{"gpus": 4, "nodes_max": 2}, {"gpus": 4, "nodes_max": 2}])
    state = make_state(trace, two_leaves())

    place(state, 0, {0: 2, 1: 2}, 5.0)
    place(state, 1, {2: 2}, 7.0)
    preempt(state, 1, 9.0)
    run_out(state)

    seen: list[Mapping[str, float]] = [
        {name: float(segment[name]) for name in ("job", "gpus", "nodes", "tier", "start_time", "end_time")}
        for segment in state.segments[:2]
    ]
    assert seen == [
        {"job": 1, "gpus": 2, "nodes": 1, "tier": 0, "start_time": 7.0, "end_time": 9.0},
        {"job": 0, "gpus": 4, "nodes": 2, "tier": 1, "start_time": 5.0, "end_time": 105.0},
    ]
