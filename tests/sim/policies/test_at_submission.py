"""Interactive jobs of a simulation stand first from their submission on, within a share of the GPUs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.settings import Limits
from advisor.sim.policies.lifted import Lift, policy_with
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.metrics import interactive_waits
from tests.builders import HOUR_S
from tests.sim.building import make_trace, run_of

FOUR_GPUS = "nodes=1,gpus=4"
# No round lifts a job within these runs.
OPTIONS = SimulationOptions(execution="ideal", limits=Limits(min_job_age_s=1e9))
BUSY = {"gpus": 4, "run_time_s": HOUR_S, "time_limit_s": 2 * HOUR_S, "user": "cy"}
# Too long to start as backfill beside another one of them.
WAITS = {"submit_time": 10, "gpus": 4, "run_time_s": 20 * HOUR_S, "time_limit_s": 24 * HOUR_S, "user": "bob"}
ASKS = {"submit_time": 20, "gpus": 1, "run_time_s": HOUR_S, "time_limit_s": 8 * HOUR_S, "user": "ann"}


def starts(policy: str, *marked: dict[str, Any], options: SimulationOptions = OPTIONS) -> list[float]:
    """Return when interactive jobs start that are submitted behind a job which waits for a busy node."""
    jobs = make_trace([BUSY, WAITS, *marked])
    jobs.jobs["interactive"][2:] = 1
    return list(run_of(jobs, FOUR_GPUS, policy, options).outcomes["start_time"][2:])


def test_interactive_job_starts_with_the_first_gpu_that_comes_free() -> None:
    (without,), (lifted,) = starts("lift", ASKS), starts("lift:interactive=25", ASKS)

    assert without > 20 * HOUR_S
    assert HOUR_S <= lifted < HOUR_S + 120.0


def test_share_can_be_that_of_the_settings() -> None:
    options = replace(OPTIONS, limits=replace(OPTIONS.limits, interactive_ratio=0.25))

    assert starts("lift", ASKS, options=options) == starts("lift:interactive=25", ASKS)


def test_share_is_kept_and_one_user_has_half_of_it() -> None:
    second, other = ASKS | {"submit_time": 21}, ASKS | {"submit_time": 22, "user": "cy"}

    lifted = np.array(starts("lift:interactive=50", ASKS, second, other, ASKS | {"submit_time": 23, "user": "bob"}))

    # Two GPUs: one of them each user's. The node is held by the others until the day after.
    assert (lifted < 2 * HOUR_S).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    "unlike",
    [{"time_limit_s": 9 * HOUR_S}, {"gpus": 2, "nodes_max": 0}, {"nice": 5}],
    ids=str,
)
def test_other_jobs_are_left_alone(unlike: dict[str, Any]) -> None:
    (start,) = starts("lift:interactive=100", ASKS | unlike)

    assert start > 20 * HOUR_S


def test_summary_has_the_waits_of_interactive_jobs_and_the_jct_of_others() -> None:
    trace = make_trace([BUSY, ASKS])
    assert interactive_waits(run_of(trace, FOUR_GPUS, "slurm", OPTIONS)) is None
    trace.jobs["interactive"][1] = 1

    waits = interactive_waits(run_of(trace, FOUR_GPUS, "slurm", OPTIONS))

    assert waits is not None and waits.jobs == 1
    assert waits.p50_queueing_delay_s == waits.p90_queueing_delay_s == pytest.approx(HOUR_S - 20, abs=120)
    assert waits.mean_jct_of_others_s == pytest.approx(HOUR_S, abs=120)


def test_share_is_an_option_in_percent() -> None:
    assert policy_with("lift:interactive=2.5").begin == Lift(interactive=2.5)
    for name in ("lift:interactive=101", "lift:interactive=x", "lift:interactive=", "slurm:interactive=5"):
        with pytest.raises(SimulationError, match="is no option of"):
            policy_with(name)
