"""What the page about forecasts end to end counts."""

import numpy as np
import pytest

from advisor.sim.study.comparison import PairedDifference
from advisor.sim.study.statistics import Pairing, RelativeChange
from tests.sim.building import make_trace
from tools.pages.experiment import Experiment
from tools.pages.forecasts import ORACLE, POLICIES, SHIPPED, cells, kept_share
from tools.simulated_traces import Workload


def change(policy: str, percent: float) -> PairedDifference:
    """A change of the mean JCT against the rules."""
    found = RelativeChange(
        percent=percent, low=percent, high=percent, pairing=Pairing.JOBS, pairs=1, left_out=0, units=1
    )
    return PairedDifference(trace="one", policy=policy, against="rules", metric="mean_jct_s", change=found)


def test_share_that_is_kept_is_that_of_the_summed_gains() -> None:
    # Logarithms of 0.9 and 0.81 are one and two steps.
    steps = {"one": (-10.0, -19.0), "two": (-10.0, -19.0)}
    differences = {
        name: {SHIPPED: change(SHIPPED, own), ORACLE: change(ORACLE, best)} for name, (own, best) in steps.items()
    }

    kept = kept_share(differences)

    assert (kept.percent, kept.low, kept.high) == pytest.approx((50.0, 50.0, 50.0))


def test_share_of_no_gain_is_not_a_number() -> None:
    differences = {"one": {SHIPPED: change(SHIPPED, 0.0), ORACLE: change(ORACLE, 0.0)}}

    kept = kept_share(differences)

    assert np.isnan([kept.percent, kept.low, kept.high]).all()


def test_every_policy_runs_on_the_same_cluster() -> None:
    workload = Workload(trace=make_trace([{"gpus": 1}]), nodes=2)

    hard, soft = (
        cells(workload, Experiment(page="forecasts", summary="", soft_limits=soft_limits))
        for soft_limits in (False, True)
    )

    assert [cell.policy for cell in hard] == list(POLICIES)
    assert {cell.cluster.slurm.time_min_as_soft_limit for cell in hard} == {False}
    assert {cell.cluster.slurm.time_min_as_soft_limit for cell in soft} == {True}
