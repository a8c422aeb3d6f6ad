"""What must hold of every policy that decides in rounds, on random mixes of rigid and elastic jobs."""

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, Failures, NodeGroup
from advisor.sim.policies import POLICIES
from advisor.sim.policies.rounds import RoundPolicy
from advisor.sim.run_outcome import End
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.traces.trace import Trace
from tests.sim.building import IDEAL, make_trace, run_of, starts_and_ends
from tests.sim.policies.watching import check_books, run_watched

MODELS = ("a3c", "bert", "lm", "resnet50")
CLUSTER = "nodes=3,gpus=4,cpus=32,memory_mib=4000,leaf=2"
EVERY_S = {name: policy.every_s for name, policy in POLICIES.items() if isinstance(policy, RoundPolicy)}
ROUND_POLICIES = list(EVERY_S)


def mixed_trace(seed: int, jobs: int = 60) -> Trace:
    """Build an overloaded mix: half of the jobs elastic, several models, some hungry for CPUs or memory."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice((1, 1, 1, 2, 4, 5, 8), jobs)
    elastic = rng.random(jobs) < 0.5
    return make_trace(
        [
            {
                "submit_time": submit_time,
                "run_time_s": run_time_s,
                "gpus": size,
                "gpus_min": max(1, size // 2) if can_change else size,
                "gpus_max": min(12, size * 3) if can_change else size,
                "nodes_max": 0,
                "cpus_per_gpu": 10 if size == 1 else 2,
                "memory_mib_per_gpu": 900 if size == 2 else 0,
                "model": MODELS[int(rng.integers(len(MODELS)))],
            }
            for submit_time, run_time_s, size, can_change in zip(
                rng.uniform(0.0, 400.0, jobs).cumsum(),
                rng.lognormal(7.5, 1.0, jobs),
                gpus.tolist(),
                elastic.tolist(),
                strict=True,
            )
        ]
    )


def test_the_policies_in_rounds_are_those_of_the_literature() -> None:
    in_rounds = [name for name, every_s in EVERY_S.items() if every_s > 0.0]
    whenever_something_happens = [name for name, every_s in EVERY_S.items() if every_s == 0.0]

    assert in_rounds == ["drf", "tetris", "optimus", "gandiva", "themis"]
    dally = ["dally", "dally+preempt", "dally-nowait", "dally-consolidated", "dally-fixed"]
    assert whenever_something_happens == dally


@pytest.mark.parametrize("policy", ROUND_POLICIES)
@pytest.mark.parametrize(
    "options",
    [IDEAL, SimulationOptions(), SimulationOptions(speeds="estimated"), SimulationOptions(speeds="noisy=10")],
    ids=["ideal", "measured", "estimated", "noisy"],
)
def test_all_jobs_end_and_no_gpu_is_held_twice(policy: str, options: SimulationOptions) -> None:
    trace = mixed_trace(seed=1)

    run = run_watched(trace, CLUSTER, policy, check_books, options)

    assert (run.outcomes["end"] == End.FINISHED).all()
    assert (run.outcomes["start_time"] >= trace.jobs["submit_time"]).all()


@pytest.mark.parametrize("policy", ROUND_POLICIES)
def test_under_ideal_execution_the_gpu_time_held_is_the_work(policy: str) -> None:
    trace = mixed_trace(seed=2)

    run = run_of(trace, CLUSTER, policy)

    work_gpu_s = trace.jobs["run_time_s"] * trace.jobs["gpus"]
    assert run.outcomes["held_gpu_s"] == pytest.approx(work_gpu_s)


@pytest.mark.parametrize("policy", ROUND_POLICIES)
def test_nodes_that_fail_are_left_and_used_again(policy: str) -> None:
    cluster = Cluster(nodes=(NodeGroup(count=3, gpus=4),), failures=Failures(node_mtbf_h=1.0, repair_h=0.5))
    trace = mixed_trace(seed=3)

    run = run_watched(trace, cluster, policy, check_books, SimulationOptions())

    assert (run.outcomes["end"] == End.FINISHED).all()
    assert run.outcomes["preemptions"].sum() > 0


@pytest.mark.parametrize("policy", ROUND_POLICIES)
def test_equal_seeds_give_equal_runs(policy: str) -> None:
    trace, options = mixed_trace(seed=4), SimulationOptions(speeds="estimated")

    first, second = (run_of(trace, CLUSTER, policy, options, seed=5) for _ in range(2))

    assert (first.segments == second.segments).all()


@pytest.mark.parametrize("policy", ROUND_POLICIES)
def test_on_an_idle_cluster_a_rigid_job_starts_with_the_next_round_and_runs_through(policy: str) -> None:
    trace = make_trace(
        [{"submit_time": 10, "run_time_s": 5000, "gpus": 6, "nodes_max": 2}, {"submit_time": 20_000, "run_time_s": 10}]
    )

    run = run_of(trace, "nodes=2,gpus=4", policy)

    starts = (300, 20_100) if EVERY_S[policy] else (10, 20_000)
    assert starts_and_ends(run) == [(starts[0], starts[0] + 5000), (starts[1], starts[1] + 10)]
    assert run.outcomes["preemptions"].tolist() == run.outcomes["resizes"].tolist() == [0, 0]


@pytest.mark.parametrize("policy", ROUND_POLICIES)
def test_a_gpu_type_is_waited_for(policy: str) -> None:
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=1, gpu_type="v100"), NodeGroup(count=1, gpus=1, gpu_type="a100")))
    asked = make_trace([{"gpu_type": 0}, {"gpu_type": 0}])
    trace = Trace(name=asked.name, jobs=asked.jobs, gpu_types=("a100",))

    run = run_of(trace, cluster, policy)

    second = 300 if EVERY_S[policy] else 100
    assert starts_and_ends(run) == [(0, 100), (second, second + 100)]
