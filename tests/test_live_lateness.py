"""The late jobs of a live run, and who starts before them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.domain.actions import SetNice
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from tools.live_adversary.verdict import InLine, Known, LatenessBound, LateRun, LateWatch, WaitingLine

BOUND = LatenessBound(lateness_s=100.0, ratio=0.0)
UNTIL = 1000.0
# A round every 5 s.
ROUNDS = tuple(np.arange(0.0, UNTIL, 5.0))


def job(job_id: int, start_time: float, *, submit_time: float = 0.0) -> InLine:
    """A job that started on the advised cluster at an instant, with the nice of its place at submission."""
    return InLine(
        name=f"job-{job_id}", job_id=job_id, submit_time=submit_time, start_time=start_time, nice=round(submit_time)
    )


def lift(job_id: int, applied_time: float, nice: int, **fields: object) -> Lease:
    lease = intended(SetNice(job_id=job_id, before=0, after=nice), applied_time, after_s=600.0)
    return replace(lease, state=LeaseState.OUT, **fields)  # type: ignore[arg-type]


def late_run(jobs: Sequence[InLine], known: dict[int, list[Known]], *leases: Lease) -> LateRun:
    line = WaitingLine(jobs=jobs, leases=leases, rounds=ROUNDS, known=known, bound=BOUND)
    return line.late_run(UNTIL)


# Job 1 would have started at 100, so that it is late from 200 on; job 2 came later and stands behind it.
LATE, OTHER = job(1, 400.0), job(2, 300.0, submit_time=10.0)
KNOWN: dict[int, list[Known]] = {1: [(150.0, 100.0)]}


def test_job_that_is_lifted_above_a_late_one_and_starts_first_is_a_fault() -> None:
    found = late_run([LATE, OTHER], KNOWN, lift(2, 250.0, -500))

    assert found == LateRun(late=("job-1",), passed=(("job-1", "job-2"),))


def test_job_that_stands_behind_a_late_one_starts_first_by_backfill() -> None:
    backfilled = LateRun(late=("job-1",), backfilled=(("job-1", "job-2"),))

    assert late_run([LATE, OTHER], KNOWN) == backfilled
    assert late_run([LATE, OTHER], KNOWN, lift(1, 205.0, -900), lift(2, 100.0, -500)) == backfilled
    # Reverted, and refused by Slurm.
    reverted = lift(2, 100.0, -500, ending=Ending.TAKEN_BACK, ended_time=290.0)
    assert late_run([LATE, OTHER], KNOWN, reverted) == backfilled
    refused = lift(2, 100.0, -500, ending=Ending.NOT_APPLIED, ended_time=100.0)
    assert late_run([LATE, OTHER], KNOWN, refused) == backfilled


@pytest.mark.parametrize(
    "known",
    [
        pytest.param({}, id="not known"),
        pytest.param({1: [(150.0, 100.0), (180.0, None)]}, id="no longer known"),
        pytest.param({1: [(150.0, 310.0)]}, id="not late yet"),
        # The third round after 285 reads the cluster at 300.
        pytest.param({1: [(291.0, 100.0)]}, id="known too late to act"),
        pytest.param({1: [(150.0, 100.0)], 2: [(150.0, 110.0)]}, id="the other is late too"),
    ],
)
def test_start_before_a_job_that_the_daemon_did_not_hold_to_be_later_is_none(known: dict[int, list[Known]]) -> None:
    found = late_run([LATE, OTHER], known, lift(2, 250.0, -500))

    assert (found.passed, found.backfilled) == ((), ())


def test_watch_notes_what_was_known_when() -> None:
    watch = LateWatch(Path("/nonexistent"))

    watch.look(0.0)
    for now, starts in ((1.0, {7: 0.5}), (2.0, {7: 0.5}), (3.0, {7: 0.6, 8: 0.1}), (4.0, {8: 0.1})):
        watch.note(now, starts)

    assert watch.known == {7: [(1.0, 0.5), (3.0, 0.6), (4.0, None)], 8: [(3.0, 0.1)]}
