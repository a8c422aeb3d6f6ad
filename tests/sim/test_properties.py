"""What holds in every run, whatever the trace, the cluster and the policy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.sim.cluster import Cluster, Costs, Failures, Network, NodeGroup, SlurmParameters
from advisor.sim.policies import POLICIES
from advisor.sim.run_outcome import End, Run
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.traces.trace import Trace
from tests.sim.building import IDEAL, bytes_of, make_trace, run_of
from tests.sim.watching import stepping

MEASURED = SimulationOptions(advise_every_s=100.0)
# Of names that set options of one policy, one stands for all; tests/golden holds a run under each name.
ALIKE = ("order-oracle", "lift-", "dally-", "forecast-o", "oracle-", "lift+dally")
EVERY_POLICY = pytest.mark.parametrize("policy", [name for name in POLICIES if not name.startswith(ALIKE)])
MODELS = ("bert", "gpt2", "lm", "recommendation")

NOISY = replace(MEASURED, speeds="noisy=30")

small = settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def traces(draw: st.DrawFn, *, elastic: bool = True) -> Trace:
    """Draw up to ten jobs, some alike, some larger than any cluster here."""
    jobs: list[dict[str, Any]] = []
    at = 0
    for _ in range(draw(st.integers(1, 10))):
        at += draw(st.sampled_from([0, 0, 7, 60, 290, 1000]))
        gpus = draw(st.sampled_from([1, 1, 2, 3, 4, 8, 40]))
        job: dict[str, Any] = {
            "submit_time": at,
            "gpus": gpus,
            "nodes_max": draw(st.sampled_from([0, 1, 4])),
            "run_time_s": draw(st.sampled_from([1, 33, 250, 900, 4000])),
            "cpus_per_gpu": draw(st.sampled_from([0, 1, 4])),
            "checkpoint_interval_s": draw(st.sampled_from([0, 100])),
            "model": draw(st.sampled_from(MODELS)),
            "user": draw(st.sampled_from(["ann", "bob"])),
            "gpu_type": draw(st.sampled_from([-1, 0, 1])),
        }
        if draw(st.booleans()):
            job["time_limit_s"] = job["run_time_s"] * draw(st.sampled_from([0.5, 1.0, 3.0]))
            job["time_min_s"] = job["time_limit_s"] * draw(st.sampled_from([0.0, 0.5]))
        if draw(st.booleans()):
            job |= {"switches": 1, "switches_wait_s": 120.0}
        if elastic and draw(st.booleans()):
            job |= {"gpus_min": max(1, gpus // 2), "gpus_max": 2 * gpus}
        jobs.append(job)
    return replace(make_trace(jobs), gpu_types=("v100", "a100"))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Draw a cluster of up to 24 GPUs, of one kind of node or of two."""
    types = draw(st.sampled_from([("",), ("v100",), ("v100", "a100")]))
    groups = tuple(
        NodeGroup(
            count=draw(st.integers(1, 4)),
            gpus=draw(st.sampled_from([1, 2, 4])),
            cpus=16,
            leaf=draw(st.integers(0, 2)),
            gpu_type=each,
        )
        for each in types
    )
    return Cluster(
        nodes=groups,
        network=Network(nic_gbps=50.0, oversubscription=draw(st.sampled_from([1.0, 4.0]))),
        costs=Costs(restart_s=draw(st.sampled_from([0.0, 30.0]))),
        failures=Failures(node_mtbf_h=draw(st.sampled_from([0.0, 0.0, 0.2])), repair_h=0.1),
        slurm=SlurmParameters(
            time_min_as_soft_limit=draw(st.booleans()), bf_interval_s=draw(st.sampled_from([10.0, 30.0]))
        ),
    )


INSTANTS = st.lists(st.one_of(st.integers(0, 12_000).map(float), st.floats(0.0, 12_000.0)), max_size=40)


@pytest.mark.slow
@EVERY_POLICY
@small
@given(
    trace=traces(),
    cluster=clusters(),
    instants=INSTANTS,
    options=st.sampled_from([IDEAL, MEASURED, NOISY]),
    seed=st.integers(0, 3),
    shift=st.sampled_from([0, 600, 86_400]),
)
def test_a_run_is_right_repeatable_and_blind_to_names(
    policy: str,
    trace: Trace,
    cluster: Cluster,
    instants: list[float],
    options: SimulationOptions,
    seed: int,
    shift: int,
) -> None:
    renamed = replace(trace, jobs=trace.jobs.copy(), users=("dan", "eve", "fay"))
    renamed.jobs["job_id"] = renamed.jobs["job_id"] * 3 + shift

    straight = run_of(trace, cluster, policy, options, seed)
    # Looks at the books at every instant on the way.
    with stepping(instants):
        paused = run_of(trace, cluster, policy, options, seed)
    other = run_of(renamed, cluster, policy, options, seed)

    assert bytes_of(paused) == bytes_of(straight)
    assert bytes_of(other) == bytes_of(straight)
    check_outcomes(straight, trace)


def check_outcomes(run: Run, trace: Trace) -> None:
    """Assert that every possible job ends once, after it began, after it was submitted, and holds what it used."""
    outcomes, segments = run.outcomes, run.segments
    possible = outcomes["end"] != End.IMPOSSIBLE
    assert np.isin(outcomes["end"][possible], [End.FINISHED, End.TIME_LIMIT]).all()
    assert (outcomes["start_time"][possible] >= trace.jobs["submit_time"][possible]).all()
    assert (outcomes["end_time"][possible] > outcomes["start_time"][possible]).all()
    assert np.isnan(outcomes["start_time"][~possible]).all()
    lengths = segments["end_time"] - segments["start_time"]
    assert (lengths >= 0.0).all()
    held = np.bincount(segments["job"], weights=segments["gpus"] * lengths, minlength=len(trace))
    assert held == pytest.approx(outcomes["held_gpu_s"], rel=1e-9, abs=1e-6)
    for row in np.flatnonzero(possible):
        mine = segments[segments["job"] == row]
        assert len(mine) == outcomes["preemptions"][row] + 1 or outcomes["resizes"][row] > 0
        assert mine["start_time"][0] == outcomes["start_time"][row]
        assert mine["end_time"][-1] == outcomes["end_time"][row]
        # No job runs twice at one time.
        assert (mine["start_time"][1:] >= mine["end_time"][:-1]).all()
    # Each is a part of what was held; work that is lost may have waited for the network while it was done.
    for part in ("exposed_gpu_s", "lost_gpu_s"):
        assert (outcomes[part] <= outcomes["held_gpu_s"] * (1 + 1e-9) + 1e-6).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", ["slurm", "lift", "pin", "rules", "srtf", "las", "drf", "optimus", "gandiva", "dally"]
)
@small
@given(trace=traces(elastic=False), cluster=clusters())
def test_under_ideal_execution_a_rigid_job_holds_its_gpus_for_its_work_and_no_longer(
    policy: str, trace: Trace, cluster: Cluster
) -> None:
    run = run_of(trace, cluster, policy, IDEAL)

    possible = run.outcomes["end"] != End.IMPOSSIBLE
    work_gpu_s = trace.jobs["run_time_s"] * trace.jobs["gpus"]
    assert run.outcomes["held_gpu_s"][possible] == pytest.approx(work_gpu_s[possible], rel=1e-9, abs=1e-6)
    assert (run.outcomes["lost_gpu_s"] == 0.0).all()
