"""What `tune` chooses on the first half of a trace is judged on the second half alone."""

import pytest

from tests.sim.building import make_trace
from tools.data.simulated_traces import Workload
from tools.evaluate.preset_choice import ADVISED, CHOICES, PLAIN, TUNED_SLURM, halves, judge_halves, over_traces


def workload(jobs: int = 40) -> Workload:
    """Return a node of 8 GPUs, for which long and short jobs of two users wait in turn."""
    long = {"gpus": 8, "run_time_s": 2_000, "time_limit_s": 90_000}
    short = {"gpus": 8, "run_time_s": 100, "time_limit_s": 600}
    rows = [
        {**(long if at % 2 else short), "user": ("ann", "bob")[at // 2 % 2], "submit_time": 10.0 * at}
        for at in range(jobs)
    ]
    return Workload(trace=make_trace(rows), nodes=1)


def test_halves_hold_each_job_once_and_begin_at_their_first_submission() -> None:
    first, second = halves(workload(5).trace)

    assert first.jobs["submit_time"].tolist() == [0.0, 10.0]
    assert second.jobs["submit_time"].tolist() == [0.0, 10.0, 20.0]
    assert {*first.jobs["job_id"]} | {*second.jobs["job_id"]} == {*workload(5).trace.jobs["job_id"]}


@pytest.mark.slow
def test_what_the_first_half_advises_is_run_on_the_second() -> None:
    halved = judge_halves(workload(), repeats=2, seed=0, store=None, workers=1)

    assert set(halved.chosen) == set(halved.judged) == set(CHOICES)
    for choice, point in halved.chosen.items():
        assert halved.judged[choice].setting == point.setting
        assert len(halved.judged[choice].jct_s) == 20
    # No gang leaves its node count open.
    assert halved.chosen["free"].setting.name == PLAIN and halved.judged["free"].change.percent == 0.0
    assert halved.chosen[ADVISED].change.percent < 0.0
    assert halved.chosen[TUNED_SLURM].setting.preset is None
    assert over_traces([halved, halved], ADVISED).percent == pytest.approx(halved.judged[ADVISED].change.percent)
