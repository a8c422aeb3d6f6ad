"""Sizes written to the arrays of a simulation, with the time limits that smaller jobs need."""

import numpy as np
import pytest

from advisor.features.steps import climb
from advisor.settings import Limits
from advisor.sim.cluster import Cluster, NodeGroup
from advisor.sim.policies.lifted import by_limits
from advisor.sim.policies.mover import Mover
from advisor.sim.simulated_policy import Problem, SimulationOptions, Stopwatch
from advisor.sim.slurm.queue_tables import PartitionTable
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import State, outcomes
from tests.sim.building import make_state, make_trace
from tools.train.sizer import Sizes, speeds_by_rule


def sized(*, limit_s: float, ratio: float = 4.0, longest_s: float | None = None) -> tuple[State, bool]:
    """Make a job of four GPUs on a full node as small as it can be; return the arrays, and whether it was changed."""
    full = {"gpus": 8, "run_time_s": 5000, "time_limit_s": 6000}
    elastic = {"submit_time": 10, "gpus": 4, "gpus_min": 1, "gpus_max": 8, "run_time_s": 600, "time_limit_s": limit_s}
    trace = make_trace([full, elastic])
    cluster = Cluster(
        nodes=(NodeGroup(count=1, gpus=8),),
        partitions=(PartitionTable(name="gpu", default=True, max_time_s=longest_s),),
    )
    state = make_state(trace, cluster)
    slurm = build_slurm(state, trace, cluster)
    problem = Problem(
        trace=trace,
        cluster=cluster,
        state=state,
        options=SimulationOptions(limits=Limits(max_limit_ratio=ratio)),
        rng=np.random.default_rng(0),
        tell=lambda _: None,
        watch=Stopwatch(),
        plain_outcomes=lambda: outcomes(state),
    )
    sizes = Sizes(speeds=speeds_by_rule, choose=lambda _steps, _supply: None, knows_run_s=False)
    sizer = sizes.sizer(problem, Mover(problem, slurm, by_limits(problem, slurm)))
    run_slurm(state, slurm, 120.0)
    (window,) = sizer.windows(state, 120.0)
    return state, sizer.write(state, window, climb(window.jobs, window.supply, sizer.choose))


@pytest.mark.parametrize(
    ("limit_s", "ratio", "longest_s", "size", "limit_after_s"),
    [
        # The limit in GPU-time stays.
        pytest.param(3600.0, 4.0, None, 1, 240 * 60.0, id="as the GPUs fall"),
        pytest.param(3630.0, 2.5, None, 2, 121 * 60.0, id="smallest within the ratio, in whole minutes"),
        pytest.param(3600.0, 4.0, 240 * 60.0, 1, 240 * 60.0, id="as long as the partition admits"),
        pytest.param(3600.0, 4.0, 239 * 60.0, 4, 3600.0, id="longer than the partition admits"),
        pytest.param(3600.0, 1.0, None, 4, 3600.0, id="none raised"),
        pytest.param(60.0, 1.9, None, 4, 60.0, id="beyond the ratio once rounded up"),
    ],
)
def test_smaller_job_gets_the_limit_it_needs_or_keeps_its_size(
    limit_s: float, ratio: float, longest_s: float | None, size: int, limit_after_s: float
) -> None:
    state, is_changed = sized(limit_s=limit_s, ratio=ratio, longest_s=longest_s)

    job = state.jobs[1]
    assert (job["gpus"], job["limit_s"], job["resizes"]) == (size, limit_after_s, int(size != 4))
    assert is_changed is (size != 4)
