from datetime import datetime

from tools.fidelity.recording import Pass, Scheduler, read_log

LINES = """\
[2026-03-01T10:00:00.100] slurmctld version 22.05.8 started on cluster live
[2026-03-01T10:00:01.000] _slurm_rpc_submit_batch_job: JobId=1 InitPrio=7 usec=300
[2026-03-01T10:00:09.000] slurmctld version 22.05.8 started on cluster live
[2026-03-01T10:00:10.250] _slurm_rpc_submit_batch_job: JobId=1 InitPrio=2066 usec=388
[2026-03-01T10:00:10.300] _slurm_rpc_submit_batch_job: JobId=2 InitPrio=2010 usec=388
[2026-03-01T10:00:12.000] debug:  sched: Running job scheduler for default depth.
[2026-03-01T10:00:12.001] sched: Allocate JobId=1 NodeList=n01 #CPUs=8 Partition=gpu
[2026-03-01T10:00:20.000] sched/backfill: _attempt_backfill: beginning
[2026-03-01T10:00:20.001] sched/backfill: _start_job: Started JobId=2 in gpu on n02
a line without a time
[2026-03-01T10:00:31.500] _job_complete: JobId=1 WEXITSTATUS 0
[2026-03-01T10:00:31.501] _job_complete: JobId=1 done
[2026-03-01T10:01:09.900] debug2: priority/multifactor: decay_apply_weighted_factors: priority for job 1 is now 5
[2026-03-01T10:01:09.901] debug2: priority/multifactor: decay_apply_weighted_factors: priority for job 2 is now 6
[2026-03-01T10:02:09.900] debug2: priority/multifactor: decay_apply_weighted_factors: priority for job 2 is now 8
""".splitlines()


def moment(text: str) -> float:
    return datetime.fromisoformat(f"2026-03-01T10:{text}").astimezone().timestamp()


def test_log_counts_from_the_last_start_of_slurmctld() -> None:
    log = read_log(LINES)

    assert log.start_time == moment("00:09.000")


def test_start_of_a_job_names_the_scheduler() -> None:
    log = read_log(LINES)

    assert log.starts == {
        1: Pass(scheduler=Scheduler.MAIN, time=moment("00:12.001")),
        2: Pass(scheduler=Scheduler.BACKFILL, time=moment("00:20.001")),
    }


def test_submissions_ends_and_passes_keep_their_milliseconds() -> None:
    log = read_log(LINES)

    assert log.submits == {1: moment("00:10.250"), 2: moment("00:10.300")}
    assert log.ends == {1: moment("00:31.501")}
    assert log.passes == [
        Pass(scheduler=Scheduler.MAIN, time=moment("00:12.000")),
        Pass(scheduler=Scheduler.BACKFILL, time=moment("00:20.000")),
    ]


def test_start_by_backfill_without_a_line_of_its_own_is_seen_by_its_credential() -> None:
    log = read_log(
        [
            "[2026-03-01T10:00:11.695] debug:  slurm_cred_create: creating credential for JobId=9 SLUID=sFM5M83MFNAZ00",
            "[2026-03-01T10:00:12.001] sched: Allocate JobId=8 NodeList=n01 #CPUs=8 Partition=gpu",
            "[2026-03-01T10:00:12.002] debug:  slurm_cred_create: creating credential for JobId=8 SLUID=sFM5M83MDH0Z00",
            "[2026-03-01T10:00:14.714] debug:  slurm_cred_create: creating credential for JobId=9 SLUID=sFM5M83MFNAZ00",
        ]
    )

    assert log.starts == {
        9: Pass(scheduler=Scheduler.BACKFILL, time=moment("00:11.695")),
        8: Pass(scheduler=Scheduler.MAIN, time=moment("00:12.001")),
    }


def test_task_of_an_array_counts_under_its_own_id() -> None:
    log = read_log(
        [
            "[2026-03-01T10:00:12.001] sched: Allocate JobId=5_0(8) NodeList=n01 #CPUs=1 Partition=gpu",
            "[2026-03-01T10:00:12.002] sched/backfill: _start_job: Started JobId=5_1(5) in gpu on n01",
            "[2026-03-01T10:00:13.001] _job_complete: JobId=5_0(8) done",
        ]
    )

    assert log.starts == {
        8: Pass(scheduler=Scheduler.MAIN, time=moment("00:12.001")),
        5: Pass(scheduler=Scheduler.BACKFILL, time=moment("00:12.002")),
    }
    assert log.ends == {8: moment("00:13.001")}


def test_priorities_computed_together_are_one_recalculation() -> None:
    log = read_log(LINES)

    assert log.recalculations == [moment("01:09.900"), moment("02:09.900")]
