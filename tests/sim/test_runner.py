"""Whole runs: what policies believe, what fails, what never fits, and what a run tells."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, Failures, NodeGroup, parse_cluster
from advisor.sim.engine.tables import build_victims
from advisor.sim.node_events import draw_faults
from advisor.sim.policies.engine_calls import run_queue
from advisor.sim.policies.rounds import RoundView, run_rounds
from advisor.sim.queueing import DONE, Key, Queue, build_queue
from advisor.sim.run_outcome import End
from advisor.sim.runner import known_policy, simulate
from advisor.sim.simulated_policy import Problem, SimulationOptions
from advisor.sim.state import FAULT_DTYPE, State, with_room
from advisor.sim.traces.trace import Trace
from tests.sim.building import IDEAL, bytes_of, make_problem, make_state, make_trace, run_of, starts_and_ends
from tests.sim.watching import check_books

ONE_GPU = parse_cluster("nodes=1,gpus=1")


def problem_of(trace: Trace, cluster: str | Cluster, state: State) -> Problem:
    where = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    return make_problem(trace, where, state, IDEAL)


def faults(*events: tuple[float, int, int]) -> np.ndarray:
    return np.array(list(events), FAULT_DTYPE)


@pytest.mark.parametrize(
    ("name", "message"),
    [("srft", r"is not known: did you mean srtf\? known are slurm, fifo"), ("zzzzzz", "is not known: known are slurm")],
    ids=["with the nearest", "like no other"],
)
def test_an_unknown_policy_is_refused(name: str, message: str) -> None:
    with pytest.raises(SimulationError, match=f"policy '{name}' {message}"):
        known_policy(name)


def test_a_trace_without_jobs_is_refused() -> None:
    with pytest.raises(SimulationError, match="made: the trace has no jobs"):
        simulate(make_trace([]), ONE_GPU, "fifo")


def test_progress_grows_to_one() -> None:
    trace = make_trace([{"submit_time": at, "run_time_s": 10} for at in range(0, 1000, 50)])
    told: list[float] = []

    run = simulate(trace, ONE_GPU, "fifo", options=IDEAL, progress=told.append)

    assert told == sorted(told)
    assert told[-1] == 1.0
    assert 0.4 < told[len(told) // 2] < 0.6
    assert run.wall_s > 0.0
    assert run.peak_rss_mib > 10.0
    assert (run.policy, run.cluster_gpus, run.seed) == ("fifo", 1, 0)


@pytest.mark.parametrize(
    ("speeds", "message"),
    [
        ("psychic", "speeds 'psychic' are not known"),
        ("noisy=much", "speeds 'noisy=much' are not known"),
        ("noisy=100", "from 0 to below 100"),
        ("noisy=-1", "from 0 to below 100"),
    ],
)
def test_speeds_nobody_knows_are_refused(speeds: str, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        SimulationOptions(speeds=speeds)


def test_advice_needs_a_period() -> None:
    with pytest.raises(SimulationError, match=r"advice every 0\.0 s: give a number above 0"):
        SimulationOptions(advise_every_s=0.0)


def test_noise_makes_beliefs_wrong_by_that_share_for_some_seed() -> None:
    # 100 s and 90 s: off by half, the longer may look the shorter.
    jobs = [
        {"submit_time": 0, "run_time_s": 10},
        {"submit_time": 1, "run_time_s": 100},
        {"submit_time": 2, "run_time_s": 90},
    ]
    noisy = replace(IDEAL, speeds="noisy=50")

    seen = {starts_and_ends(run_of(jobs, ONE_GPU, "sjf", noisy, seed))[2][0] for seed in range(12)}

    # The third first, or after the second.
    assert seen == {10.0, 110.0}


@pytest.mark.parametrize("policy", ["fifo", "drf", "slurm", "rules"])
@pytest.mark.parametrize(
    "job",
    [
        pytest.param({"gpus": 7, "nodes_min": 4, "nodes_max": 4}, id="more nodes than there are"),
        pytest.param({"gpus": 3, "nodes_max": 2, "cpus_per_gpu": 80}, id="no node has the CPUs"),
        pytest.param({"gpus": 9, "nodes_max": 0}, id="more GPUs than there are"),
    ],
)
def test_what_does_not_fit_the_idle_cluster_is_impossible(policy: str, job: dict[str, int]) -> None:
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=4), NodeGroup(count=2, gpus=2)))
    jobs = [{**job}, {"submit_time": 5}, {**job, "submit_time": 6}]

    assert run_of(jobs, cluster, policy).outcomes["end"].tolist() == [End.IMPOSSIBLE, End.FINISHED, End.IMPOSSIBLE]


def test_a_gang_that_fills_unlike_nodes_is_impossible_where_placement_wants_whole_ones() -> None:
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=4), NodeGroup(count=2, gpus=2)))

    # One node of four and then one of three are wanted; there is none of three.
    assert run_of([{"gpus": 7, "nodes_max": 0}], cluster, "fifo").outcomes["end"].tolist() == [End.IMPOSSIBLE]


def test_a_job_of_a_type_the_cluster_lacks_is_impossible() -> None:
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=1, gpu_type="v100"),))
    trace = replace(make_trace([{"gpu_type": 0}, {"gpu_type": 1}]), gpu_types=("h100", "v100"))

    assert run_of(trace, cluster, "fifo").outcomes["end"].tolist() == [End.IMPOSSIBLE, End.FINISHED]


def test_a_nameless_cluster_serves_every_type() -> None:
    trace = replace(make_trace([{"gpu_type": 0}]), gpu_types=("h100",))

    assert starts_and_ends(run_of(trace, ONE_GPU, "fifo")) == [(0, 100)]


def fifo_of(state: State) -> Queue:
    return build_queue(state, key=lambda jobs: jobs["submit_time"])


def test_a_failed_node_puts_its_jobs_back_into_the_queue() -> None:
    trace = make_trace([{"submit_time": 0}, {"submit_time": 1}])
    state = make_state(trace, "nodes=2,gpus=1,restart_s=0")
    state = state._replace(faults=faults((40.0, 0, 0), (60.0, 0, 1)))

    stopped = run_queue(state, fifo_of(state), build_victims(state), np.inf)

    # The first did 40 s and is saved on demand; at 60 its node is back.
    assert stopped == DONE
    assert state.jobs["end_time"].tolist() == [120.0, 101.0]
    assert state.jobs["preemptions"].tolist() == [1, 0]
    check_books(state)


def test_jobs_wait_for_a_node_that_comes_back() -> None:
    trace = make_trace([{"submit_time": 10}])
    state = make_state(trace, "nodes=1,gpus=1")
    state = state._replace(faults=faults((5.0, 0, 0), (500.0, 0, 1)))

    run_queue(state, fifo_of(state), build_victims(state), np.inf)

    assert state.jobs["start_time"].tolist() == [500.0]


class FirstFit:
    """Starts what fits, in order of submission."""

    def __call__(self, view: RoundView) -> None:
        """Serve the pending jobs."""
        view.serve(view.pending, view.jobs["gpus"][view.pending])


def test_a_failed_node_puts_its_jobs_back_before_the_next_round() -> None:
    trace = make_trace([{"submit_time": 0, "run_time_s": 1000}, {"submit_time": 0, "run_time_s": 1000}])
    state = make_state(trace, "nodes=2,gpus=1", ideal=True)
    state = state._replace(faults=faults((450.0, 1, 0), (610.0, 1, 1)))

    state = run_rounds(problem_of(trace, "nodes=2,gpus=1", state), FirstFit(), 300.0)

    # Both start at 0; the second did 450 s, its node is back for the round at 900.
    assert state.jobs["end_time"].tolist() == [1000.0, 900.0 + 550.0]
    check_books(state)


class Idler:
    """Starts nothing."""

    def __call__(self, view: RoundView) -> None:
        """Look on."""


def test_a_decision_that_leaves_an_idle_cluster_to_wait_is_an_error() -> None:
    trace = make_trace([{"submit_time": 0}])
    state = make_state(trace, ONE_GPU, ideal=True)

    with pytest.raises(RuntimeError, match="the policy starts none of 1 jobs on an idle cluster"):
        run_rounds(problem_of(trace, ONE_GPU, state), Idler(), 300.0)


class OnceAllAreThere:
    """Starts nothing before two jobs wait."""

    def __call__(self, view: RoundView) -> None:
        """Serve them together."""
        if len(view.pending) == 2:
            FirstFit()(view)


def test_rounds_go_on_while_a_node_can_come_back() -> None:
    trace = make_trace([{"submit_time": 10}])
    state = make_state(trace, ONE_GPU, ideal=True)
    state = state._replace(faults=faults((5.0, 0, 0), (500.0, 0, 1)))

    state = run_rounds(problem_of(trace, ONE_GPU, state), FirstFit(), 300.0)

    assert state.jobs["start_time"].tolist() == [600.0]


def test_rounds_go_on_while_a_job_can_arrive() -> None:
    trace = make_trace([{"submit_time": 10}, {"submit_time": 700}])
    state = make_state(trace, "nodes=2,gpus=1", ideal=True)

    state = run_rounds(problem_of(trace, "nodes=2,gpus=1", state), OnceAllAreThere(), 300.0)

    assert state.jobs["start_time"].tolist() == [900.0, 900.0]


def test_failures_are_drawn_from_the_seed() -> None:
    cluster = Cluster(nodes=(NodeGroup(count=2, gpus=1),), failures=Failures(node_mtbf_h=1.0, repair_h=0.5))
    jobs = [{"submit_time": 0, "run_time_s": 3000}, {"submit_time": 36_000, "run_time_s": 3000}]

    runs = [run_of(jobs, cluster, "fifo", SimulationOptions(), seed) for seed in (1, 1, 2)]

    assert bytes_of(runs[0]) == bytes_of(runs[1])
    assert bytes_of(runs[0]) != bytes_of(runs[2])


def test_every_drawn_failure_is_repaired() -> None:
    cluster = Cluster(nodes=(NodeGroup(count=3, gpus=1),), failures=Failures(node_mtbf_h=2.0, repair_h=0.5))
    state = make_state(make_trace([{"submit_time": 0}, {"submit_time": 360_000}]), cluster)

    drawn = draw_faults(state, cluster, np.random.default_rng(3))

    assert (np.diff(drawn["time"]) >= 0.0).all()
    for node in range(3):
        mine = drawn[drawn["node"] == node]
        assert mine["kind"].tolist() == [0, 1] * (len(mine) // 2)
        assert np.diff(mine["time"])[::2] == pytest.approx(1800.0)
    # 200 hours of three nodes, 2.5 hours from failure to failure: about 240, give or take.
    assert 180 < len(drawn) / 2 < 300


@pytest.mark.parametrize("gpus", [1, 3])
def test_a_job_that_waited_long_is_lifted_up_again(gpus: int) -> None:
    # Levels end at 100 seconds of all GPUs; a job that waited as long as it had run counts as new.
    jobs = [{"submit_time": 0, "run_time_s": 300}, {"submit_time": 150, "run_time_s": 400}]
    state = make_state(make_trace([{**job, "gpus": gpus} for job in jobs]), f"nodes=1,gpus={gpus}", ideal=True)
    queue = build_queue(
        state, key=Key.ATTAINED, preemptive=True, strict=False, levels_gpu_s=(100.0 * gpus,), promote_ratio=1.0
    )

    run_queue(state, queue, build_victims(state), np.inf)

    # At 150 the second pushes the first aside, which had sunk. At 250 the second sinks too and goes on, as equals do
    # not push each other. At 300 the first has waited for 150 s and is lifted.
    assert state.jobs["end_time"].tolist() == [450.0, 700.0]
    assert state.jobs["preemptions"].tolist() == [1, 1]


def test_jobs_that_are_lifted_again_and_again_take_turns() -> None:
    trace = make_trace([{"submit_time": 0, "run_time_s": 1000}, {"submit_time": 200, "run_time_s": 300}])
    state = make_state(trace, ONE_GPU, ideal=True)
    queue = build_queue(
        state, key=Key.ATTAINED, preemptive=True, strict=False, levels_gpu_s=(100.0,), promote_ratio=0.5
    )

    run_queue(state, queue, build_victims(state), np.inf)

    # The first runs to 200, the second to 300, where it sinks and the first is lifted; so they go on, 100 s each, until
    # the second ends at 700. The first then has 600 s left.
    assert state.jobs["end_time"].tolist() == [1300.0, 700.0]
    assert state.jobs["preemptions"].tolist() == [3, 2]
    assert state.jobs["lost_gpu_s"].tolist() == [0.0, 0.0]
    check_books(state)


def test_a_run_out_of_room_for_segments_goes_on_with_more() -> None:
    trace = make_trace([{"submit_time": at} for at in range(6)])
    state = make_state(trace, ONE_GPU)
    state = state._replace(segments=state.segments[:4].copy())
    queue = fifo_of(state)

    stops = []
    while (stopped := run_queue(state, queue, build_victims(state), np.inf)) != DONE:
        stops.append(stopped)
        state = with_room(state)

    assert len(stops) == 1
    assert state.tally["segments"].tolist() == [6]
    assert state.segments["end_time"][:6].tolist() == [100.0 * n for n in range(1, 7)]
