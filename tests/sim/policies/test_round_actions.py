"""How jobs are brought onto GPUs in the order of a policy; the books are checked after every decision."""

import numpy as np
import pytest

from advisor.sim.policies.rounds import Decision, RoundView
from advisor.sim.run_outcome import Run
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_trace, starts_and_ends
from tests.sim.watching import run_decision, run_script, seen_at_first, sizes_of, start_all

LONG = {"run_time_s": 10_000}


def preempted(run: Run) -> list[int]:
    """Return the rows of the jobs that were put back into the queue."""
    return np.flatnonzero(run.outcomes["preemptions"]).tolist()


def serve(order: list[int], sizes: list[int] | None = None, *, may_preempt: bool = True) -> Decision:
    """Serve some jobs in an order, with what they ask if no sizes are given, and preempt for them."""
    rows = np.array(order)

    def decide(view: RoundView) -> None:
        gpus = view.jobs["gpus"][rows] if sizes is None else np.array(sizes)
        view.serve(rows, gpus, may_preempt=may_preempt)

    return decide


def serve_in_order(trace: Trace, cluster: str, order: list[int]) -> Run:
    """Start all jobs that fit, at 300 s serve some in an order, and preempt for them."""
    return run_script(trace, cluster, {300.0: serve(order)})


def test_a_job_takes_as_many_gpus_as_fit() -> None:
    trace = make_trace([{"gpus": 3, **LONG}, {"gpus": 8, "gpus_min": 3, "run_time_s": 300}])

    assert sizes_of(run_script(trace, "nodes=2,gpus=4", {})) == [[3], [5]]


def test_a_job_stays_in_the_queue_where_its_least_size_does_not_fit() -> None:
    trace = make_trace([{"gpus": 3, "run_time_s": 200}, {"gpus": 4, "gpus_min": 2}])

    assert starts_and_ends(run_script(trace, "nodes=1,gpus=4", {})) == [(0, 200), (300, 400)]


def test_a_size_of_zero_puts_a_running_job_back_and_leaves_a_pending_one() -> None:
    trace = make_trace([LONG, {"run_time_s": 1000}, {"submit_time": 100, "run_time_s": 1000}])

    run = run_script(trace, "nodes=1,gpus=3", {300.0: lambda view: view.serve(np.array([1, 2]), np.zeros(2, np.int64))})

    assert starts_and_ends(run)[1:] == [(0, 1300), (600, 1600)]
    assert preempted(run) == [1]


def test_a_shrinking_job_makes_room_for_one_before_it_in_the_order() -> None:
    trace = make_trace(
        [{"gpus": 4, "gpus_min": 2, "run_time_s": 1000}, {"submit_time": 100, "gpus": 2, "run_time_s": 1000}]
    )

    run = run_script(trace, "nodes=1,gpus=4", {300.0: serve([1, 0], [2, 2], may_preempt=False)})

    # 700 s of work are left at half the speed.
    assert starts_and_ends(run) == [(0, 1700), (300, 1300)]
    assert run.outcomes["resizes"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("free", "least", "sizes"), [(2, 4, [2, 4]), (1, 4, [2]), (1, 3, [2, 3])], ids=["fits", "too little", "in part"]
)
def test_a_running_job_grows_if_its_least_size_fits_and_else_keeps_its_place(
    free: int, least: int, sizes: list[int]
) -> None:
    trace = make_trace([{"gpus": 2, "gpus_max": 4, "run_time_s": 1000}, {"gpus": 6 - free, **LONG}])

    def grow(view: RoundView) -> None:
        view.serve(np.array([0]), np.array([4]), np.array([least]))

    run = run_script(trace, "nodes=1,gpus=8", {300.0: grow})

    assert sizes_of(run)[0] == sizes
    assert preempted(run) == []


def test_a_gang_that_fills_whole_leaves_shrinks_to_whole_nodes_of_its_own() -> None:
    trace = make_trace([{"gpus": 16, "gpus_min": 8, "nodes_max": 0, **LONG}])

    run = run_script(trace, "nodes=4,gpus=4,leaf=2", {300.0: lambda view: view.serve(view.running, np.array([8]))})

    assert sizes_of(run)[0] == [16, 8]


def test_a_gang_keeps_what_it_holds_of_each_node_as_it_shrinks() -> None:
    trace = make_trace([{"gpus": 6, "gpus_min": 5, "nodes_max": 0, **LONG}, {"gpus": 2, **LONG}])

    run = run_script(trace, "nodes=2,gpus=4", {300.0: lambda view: view.serve(np.array([0]), np.array([5]))})

    # Four GPUs of one node and two of the other, which the second job fills.
    assert sizes_of(run) == [[6, 5], [2]]


def test_a_resize_costs_a_restart() -> None:
    trace = make_trace([{"gpus": 1, "gpus_max": 2, "run_time_s": 1000}])

    grow = serve([0], [2], may_preempt=False)

    run = run_script(trace, "nodes=1,gpus=2,restart_s=50", {300.0: grow}, SimulationOptions())

    assert run.outcomes["lost_gpu_s"].tolist() == [100]


def test_the_last_in_the_order_makes_room_and_no_more_than_it_takes() -> None:
    trace = make_trace([LONG, LONG, LONG, LONG, {"submit_time": 100, "gpus": 2, **LONG}])

    run = serve_in_order(trace, "nodes=1,gpus=4", [4, 0, 1, 2, 3])

    assert preempted(run) == [2, 3]
    assert starts_and_ends(run)[4][0] == 300


def test_a_job_that_is_not_listed_makes_room_first() -> None:
    trace = make_trace([LONG, LONG, LONG, LONG, {"submit_time": 100, "gpus": 2, **LONG}])

    run = serve_in_order(trace, "nodes=1,gpus=4", [4, 1, 2, 3])

    assert preempted(run) == [0, 3]


def test_who_comes_first_is_not_pushed_aside() -> None:
    trace = make_trace([LONG, LONG, {"submit_time": 100, "gpus": 2, "run_time_s": 100}])

    run = serve_in_order(trace, "nodes=1,gpus=2", [0, 2, 1])

    assert preempted(run) == []
    assert starts_and_ends(run)[2] == (10_200, 10_300)


def test_without_leave_to_preempt_nobody_makes_room() -> None:
    trace = make_trace([LONG, {"submit_time": 100}])

    assert preempted(run_script(trace, "nodes=1,gpus=1", {})) == []


def test_an_elastic_job_pushes_aside_for_the_size_it_gets_and_not_the_one_it_asked() -> None:
    trace = make_trace([LONG, LONG, LONG, {"submit_time": 100, "gpus": 3, "gpus_min": 1, "run_time_s": 100}])

    run = run_script(trace, "nodes=1,gpus=3", {300.0: serve([3, 0, 1, 2], [2, 1, 1, 1])})

    assert sizes_of(run)[3] == [2]
    assert preempted(run) == [1, 2]
    assert starts_and_ends(run)[3] == (300, 450)


def share(guest: int, host: int) -> dict[float, Decision]:
    """Let one job share the GPUs of another at the first round, after all that fit have started."""

    def pair(view: RoundView) -> None:
        start_all(view)
        view.share(np.array([guest]), np.array([host]))

    return {0.0: pair}


def test_a_guest_goes_with_its_host() -> None:
    trace = make_trace([LONG, LONG, {"submit_time": 100, "run_time_s": 100}])

    run = run_script(trace, "nodes=1,gpus=1", {**share(1, 0), 300.0: serve([2])})

    assert preempted(run) == [0, 1]
    assert starts_and_ends(run)[2] == (300, 400)


def test_a_guest_is_not_counted_as_room() -> None:
    trace = make_trace([LONG, LONG, LONG, {"submit_time": 100, "gpus": 2, "run_time_s": 100}])

    # The first stands before the gang: the other two free one GPU only.
    run = run_script(trace, "nodes=1,gpus=2", {**share(2, 1), 300.0: serve([0, 3])})

    assert preempted(run) == []
    assert starts_and_ends(run)[3][0] == 10_200


def test_a_gang_over_several_nodes_empties_them_of_guests_too() -> None:
    trace = make_trace([LONG, LONG, LONG, {"submit_time": 100, "gpus": 2, "nodes_max": 2, "run_time_s": 100}])

    run = run_script(trace, "nodes=2,gpus=1", {**share(2, 1), 300.0: serve([3])})

    assert preempted(run) == [0, 1, 2]
    assert starts_and_ends(run)[3] == (300, 400)


def test_a_guest_owns_the_gpus_when_its_host_ends() -> None:
    trace = make_trace([{"run_time_s": 200}, LONG, {"submit_time": 100}])

    run = run_script(trace, "nodes=1,gpus=1", share(1, 0))

    assert starts_and_ends(run) == [(0, 200), (0, 10_000), (10_200, 10_300)]


def test_a_stopped_guest_frees_nothing() -> None:
    trace = make_trace([{"run_time_s": 1000}, {"run_time_s": 1000}])

    run = run_script(trace, "nodes=1,gpus=1", {**share(1, 0), 300.0: lambda view: view.stop(np.array([1]))})

    assert starts_and_ends(run) == [(0, 1000), (0, 1900)]


def do_nothing(view: RoundView) -> None:
    """Decide nothing."""


def test_shares_are_of_the_gpus_cpus_and_memory_of_all_nodes() -> None:
    trace = make_trace(
        [
            {"gpus": 2, "cpus_per_gpu": 8, "memory_mib_per_gpu": 1000, **LONG},
            {"submit_time": 100, "gpus": 1, "cpus_per_gpu": 4, "memory_mib_per_gpu": 500},
        ]
    )
    seen: list[tuple[list[list[float]], list[float]]] = []

    def look(view: RoundView) -> None:
        seen.append((view.shares_per_gpu(view.active).tolist(), view.shares_free().tolist()))

    run_script(trace, "nodes=2,gpus=4,cpus=32,memory_mib=4000", {300.0: look})

    # Of 8 GPUs, 64 CPUs and 8000 MiB the first job holds 2, 16 and 2000.
    assert seen == [([[1 / 8, 8 / 64, 1000 / 8000], [1 / 8, 4 / 64, 500 / 8000]], [6 / 8, 48 / 64, 6000 / 8000])]


@pytest.mark.parametrize("speeds", ["oracle", "noisy=10", "estimated"])
def test_users_estimates_grow_with_the_gpus_and_other_beliefs_as_the_job_does(speeds: str) -> None:
    trace = make_trace([{"gpus": 2, "gpus_max": 8, "model": "bert"}])
    sizes = np.array([2, 8])

    def look(view: RoundView) -> tuple[list[float], list[float]]:
        rows = np.zeros(2, np.intp)
        return view.speedup(rows, sizes).tolist(), view.measured_speedup(rows, sizes).tolist()

    believed, measured = seen_at_first(trace, "nodes=1,gpus=8", look, SimulationOptions(speeds=speeds))

    assert measured[1] < 4.0
    assert believed == ([1.0, 4.0] if speeds == "estimated" else measured)


def test_a_policy_that_starts_nobody_on_an_idle_cluster_is_told_so() -> None:
    trace = make_trace([{}, {}])

    with pytest.raises(RuntimeError, match="starts none of 2 jobs"):
        run_decision(trace, "nodes=1,gpus=1", lambda: do_nothing)
