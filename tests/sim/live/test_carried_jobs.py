"""The queue of plain Slurm over several anchors: what users gained and gave stays in the interval of the sum."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.standings import Standings, standings_of
from advisor.sim.live.plain_twin import PlainTwin
from advisor.sim.live.twin_child import TwinTask, answered
from tests.builders import TAKEN_AT
from tests.sim.live.test_plain_twin import (
    SLURM,
    Played,
    as_submitted,
    held,
    lift_small,
    observed,
    played,
    seen,
    started,
    twin_of,
    waiting,
)


def over_anchors(run: Played, parts: int, *, carries: bool = True) -> Standings:
    """Return the standings over a run in which the anchor moves after equal parts."""
    twin = PlainTwin(run.snapshots[0], as_submitted, parameters=SLURM)
    ends = np.linspace(0, len(run.snapshots) - 1, parts + 1).round().astype(int).tolist()
    stretches = []
    for first, last in pairwise(ends):
        for snapshot in run.snapshots[first + 1 : last + 1]:
            twin.observe(snapshot)
        answer = answered(TwinTask(twin=twin, forecasts=NO_FORECASTS, draws=16))
        stretches.append(answer.stretch)
        before = twin.submitted
        twin.move_anchor(run.snapshots[last])
        if carries:
            twin.carry_over(answer.queues, before)
    return standings_of(stretches)


@cache
def compared(seed: int) -> NDArray[np.int64]:
    """Return the ids of the jobs whose waits are compared over a run under lifts."""
    return observed(played(seed, lift_small)).starts(draws=1).job_ids


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_difference_over_several_anchors_is_near_the_true_one(seed: int, parts: int) -> None:
    plain, run = played(seed), played(seed, lift_small)
    job_ids = compared(seed)
    true_s = float((run.true_starts(job_ids) - plain.true_starts(job_ids)).sum())

    total = over_anchors(run, parts).total

    assert total is not None
    assert total.difference_s.low < true_s < total.difference_s.high
    assert total.jobs == len(job_ids)


def test_job_that_was_lifted_waits_on_plain_slurm_and_the_other_runs() -> None:
    run_s_by_job = {2: 600.0, 3: 300.0}
    first, second = waiting(2, priority=200), waiting(3, priority=100)
    twin = twin_of(
        seen(0, held(), first, second),
        seen(300, started(second, 299.0), first),
        seen(400, started(second, 299.0), first),
    )
    run = twin.starts(draws=8, run_s_by_job=run_s_by_job)
    before = twin.submitted

    twin.move_anchor(seen(400, started(second, 299.0), first))
    twin.carry_over(run.carried, before)
    for snapshot in (seen(600, first), seen(610, started(first, 605.0)), seen(1000, started(first, 605.0))):
        twin.observe(snapshot)
    starts = [twin.starts(draws=2, run_s_by_job=run_s_by_job, queue=number) for number in range(twin.queues)]

    assert {(stay.job_id, stay.is_running) for stay in run.carried[0]} == {(2, True), (3, False)}
    for begun in starts:
        plain = dict(zip(begun.job_ids.tolist(), (begun.plain_start_time - TAKEN_AT).T.tolist(), strict=True))
        assert set(plain) == {2, 3}
        assert set(plain[2]) == {400.0}
        # The first began between the snapshots of 0 and 300 s, and ran for 600 s.
        assert all(600.0 <= instant <= 940.0 for instant in plain[3])


def test_job_that_ended_on_plain_slurm_alone_waits_no_longer_there() -> None:
    run_s_by_job = {2: 60.0, 3: 300.0}
    first, second = waiting(2, priority=200), waiting(3, priority=100)
    lifted = started(second, 299.0)
    twin = twin_of(seen(0, held(), first, second), seen(300, lifted, first), seen(550, lifted, first))
    run = twin.starts(draws=8, run_s_by_job=run_s_by_job)
    before = twin.submitted

    twin.move_anchor(seen(550, lifted, first))
    twin.carry_over(run.carried, before)
    twin.observe(seen(700, started(first, 650.0)))
    begun = twin.starts(draws=2, run_s_by_job=run_s_by_job)

    assert begun.plain_start_time[:, begun.job_ids.tolist().index(2)].tolist() == [TAKEN_AT + 550.0] * 2
    assert begun.real_start_time[begun.job_ids.tolist().index(2)] == TAKEN_AT + 650.0
    # It runs on both sides, or nothing of it is to be compared any more.
    assert [stay.job_id for stay in begun.carried[0] if stay.end_time is not None] == [2]
