"""Open gangs on the fewest nodes: which gangs are held, and what that does to where they run."""

from collections.abc import Mapping

import pytest

from advisor.sim.cluster import parse_cluster
from advisor.sim.policies.lifted import Lift, lift_of
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


def test_without_pins_the_option_changes_nothing() -> None:
    assert lift_of("lift:pin=no").begin == Lift()
    assert not lift_of("lift:pin=no").pins
