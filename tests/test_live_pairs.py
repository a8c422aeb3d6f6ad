"""Pairs of live clusters: the jobs drawn by number, late jobs and who starts before them, and the sum over pairs."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.domain.actions import SetNice
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.journal import SqliteJournal
from tools.live_twins import pairs as pairs_tool
from tools.live_twins.both_clusters import Pair, Twin, line_of
from tools.live_twins.checks import TwinFacts, faults
from tools.live_twins.twin_jobs import GPUS, draw_jobs, draw_requests, work_s
from tools.live_twins.twin_report import keep_jobs
from tools.stage.lateness import Known, LatenessBound, LateRun, LateWatch, WaitingLine
from tools.stage.watch import LiveStay

REQUEST = draw_requests(1, 60.0)[0]
BOUND = LatenessBound(lateness_s=100.0, ratio=0.0)
UNTIL = 1000.0
# A round every 5 s.
ROUNDS = tuple(np.arange(0.0, UNTIL, 5.0))


def pair(job_id: int, start_time: float | None, *, submit_s: float = 0.0, plain: float = 50.0) -> Pair:
    """A job that started on the advised cluster at an instant, and on the plain one at another."""
    stays = (
        LiveStay() if at is None else LiveStay(start_time=at, end_time=at + 9.0, state="COMPLETED", nodes="n01")
        for at in (plain, start_time)
    )
    return Pair(
        request=replace(REQUEST, name=f"job-{job_id}", submit_s=submit_s),
        submit_time=submit_s,
        job_id=dict.fromkeys(Twin, job_id),
        stay=dict(zip(Twin, stays, strict=True)),
    )


def lift(job_id: int, applied_time: float, nice: int, **fields: object) -> Lease:
    lease = intended(SetNice(job_id=job_id, before=0, after=nice), applied_time, after_s=600.0)
    return replace(lease, state=LeaseState.OUT, **fields)  # type: ignore[arg-type]


def late_run(pairs: Sequence[Pair], known: dict[int, list[Known]], *leases: Lease) -> LateRun:
    line = WaitingLine(jobs=line_of(pairs), leases=leases, rounds=ROUNDS, known=known, bound=BOUND)
    return line.late_run(UNTIL)


# Job 1 would have started at 100, so that it is late from 200 on; job 2 came later and stands behind it.
LATE, OTHER = pair(1, 400.0), pair(2, 300.0, submit_s=10.0)
KNOWN: dict[int, list[Known]] = {1: [(150.0, 100.0)]}


def test_job_that_is_lifted_above_a_late_one_and_starts_first_is_a_fault() -> None:
    found = late_run([LATE, OTHER], KNOWN, lift(2, 250.0, -500))

    assert found == LateRun(late=("job-1",), passed=(("job-1", "job-2"),))
    facts = TwinFacts(pairs=(), leases=(), rounds=(), until=UNTIL, bound_s=1.0, tolerance_s=1.0, late_run=found)
    assert "job-2 stood above job-1, which was late, and started before it" in list(faults(facts))


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


def test_jobs_are_drawn_by_number_with_shorter_run_times_and_the_same_limits() -> None:
    whole, half = draw_jobs(3, 50, 1.0), draw_jobs(3, 50, 0.5)

    assert len(whole) == len(half) == 50
    assert [request.limit_s for request in whole] == [request.limit_s for request in half]
    assert half[7].run_s == pytest.approx(whole[7].run_s / 2, abs=0.06)
    # More work arrives at first than the GPUs can do.
    first = [request for request in half if request.submit_s < half[25].submit_s]
    assert work_s(first) / GPUS > half[25].submit_s


def kept_pair(folder: Path, pairs: Sequence[Pair], known: dict[int, list[Known]]) -> Path:
    """What a run of two clusters leaves, with a journal without changes."""
    folder.mkdir()
    keep_jobs(pairs, known, folder / "jobs.jsonl")
    run = {"version": "22.05.8", "options": {"lateness_s": 100.0}, "until": UNTIL, "rounds": ROUNDS}
    (folder / "run.json").write_text(json.dumps(run))
    with SqliteJournal(folder / "journal.sqlite"):
        pass
    return folder


def test_pairs_are_summed_up_each_as_one_observation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sooner = [[pair(1, 40.0, plain=plain), pair(2, 40.0, plain=50.0), pair(3, None)] for plain in (50.0, 54.0)]
    folders = [kept_pair(tmp_path / f"pair{number}", jobs, {}) for number, jobs in enumerate(sooner)]
    worse = kept_pair(tmp_path / "worse", [pair(1, 400.0), pair(2, 300.0, submit_s=10.0)], KNOWN)

    def printed(*chosen: Path) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["pairs", *map(str, chosen)])
        return pairs_tool.main(), capsys.readouterr().out

    status, out = printed(*folders)
    worse_status, worse_out = printed(*folders, worse)

    # Means of -10 and -12 s, with a t of 12.7 on one degree of freedom.
    assert status == 1
    assert "mean difference of waits, s: -11.0 (95 % -23.7 to +1.7)" in out
    assert worse_status == 1
    row = next(line for line in worse_out.splitlines() if line.startswith("worse"))
    # 350 and 250 s later than on the plain cluster, by 250 and 150 s beyond the bound of 100 s or the wait there.
    assert row.split()[-4:] == ["2", "(250)", "1", "0"]
