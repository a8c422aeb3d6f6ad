"""Open gangs on the fewest nodes: which gangs are held, and what that does to where they run."""

from collections.abc import Mapping

import pytest

from advisor.errors import SimulationError
from advisor.sim.cluster import parse_cluster
from advisor.sim.policies.lifted import Lift, policy_with
from advisor.sim.runner import simulate
from tests.sim.building import make_trace

CLUSTER = "nodes=2,gpus=8,cpus=16"
HOUR_S = 3600.0
# One on each node, of which three GPUs are left.
BUSY = ({"gpus": 5, "submit_time": 0.0, "run_time_s": HOUR_S},) * 2
GANG = {"gpus": 6, "nodes_max": 0, "submit_time": 10.0, "run_time_s": HOUR_S}


def nodes_held(policy: str, gang: Mapping[str, float]) -> int:
    """Return on how many nodes a gang runs that comes behind jobs on both nodes."""
    trace = make_trace([*BUSY, {**GANG, **gang}])
    run = simulate(trace, parse_cluster(CLUSTER), policy, seed=0)
    return int(run.segments["nodes"][run.segments["job"] == len(BUSY)][0])


@pytest.mark.parametrize("policy", ["pin", "lift-pin", "lift:run-times=truth,pin=yes"])
def test_open_gang_runs_on_the_fewest_nodes(policy: str) -> None:
    assert nodes_held("slurm", {}) == 2
    assert nodes_held(policy, {}) == 1


@pytest.mark.parametrize(
    "gang",
    [
        pytest.param({"nodes_min": 2, "nodes_max": 2}, id="fixed"),
        pytest.param({"nodes_min": 2}, id="at least two"),
        pytest.param({"cpus_per_gpu": 3}, id="needs the CPUs of two nodes"),
    ],
)
def test_other_gangs_run_as_under_plain_slurm(gang: Mapping[str, float]) -> None:
    assert nodes_held("pin", gang) == nodes_held("slurm", gang) == 2


def test_young_jobs_hold_no_nodes_in_backfill_where_the_policy_says_so() -> None:
    # Behind a job of eight GPUs that waits for a node, a small one that outlasts its start.
    busy = {"gpus": 5, "submit_time": 0.0, "run_time_s": HOUR_S, "time_limit_s": HOUR_S}
    large = {"gpus": 8, "nodes_max": 1, "submit_time": 10.0, "run_time_s": HOUR_S, "time_limit_s": HOUR_S}
    small = {"gpus": 3, "submit_time": 20.0, "run_time_s": 5 * HOUR_S, "time_limit_s": 5 * HOUR_S}
    trace, cluster = make_trace([busy, large, small]), parse_cluster("nodes=1,gpus=8,cpus=16")

    def waits(policy: str) -> bool:
        return bool(simulate(trace, cluster, policy, seed=0).outcomes["start_time"][2] > HOUR_S)

    assert waits("slurm")
    assert not waits("slurm:reserve-after=3d")
    assert not waits("lift:reserve-after=6h,pin=yes")


def test_plain_slurm_beside_a_policy_has_what_the_site_sets() -> None:
    policy = policy_with("lift:pin=yes,reserve-after=3d")

    assert policy.summary.endswith(", open gangs on the fewest nodes, bf_min_age_reserve 3.0 d")
    assert policy.unadvised.begin is policy_with("slurm:pin=yes").begin
    assert (policy.unadvised.pins, policy.unadvised.parameters) == (True, {"bf_min_age_reserve_s": 72 * HOUR_S})
    with pytest.raises(SimulationError, match="is no option of slurm: known are pin = yes, no; reserve-after, "):
        policy_with("slurm:fairness=user")


def test_without_pins_the_option_changes_nothing() -> None:
    assert policy_with("lift:pin=no").begin == Lift()
    assert not policy_with("lift:pin=no").pins
