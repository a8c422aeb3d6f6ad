"""Batches of changes on live Slurm: each line counts for itself, names decide nothing, a long queue stops no revert."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.backends.actuator import CHANGED_MEANWHILE, NOT_PENDING, ScontrolActuator
from advisor.backends.named_jobs import NamedJobs, hidden_ends, read_jobs
from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import SiteReader
from advisor.backends.text_source import TextSource
from advisor.clock import SystemClock
from advisor.cycle import Cycle
from advisor.domain.actions import Action, NodeRange, SetNice, SetNodeRange
from advisor.domain.lease import LeaseState, intended
from advisor.domain.plan import Outcome
from advisor.domain.snapshot import Snapshot
from advisor.errors import DecodeError
from advisor.journal import SqliteJournal, opened
from tests.live.conftest import started
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

COMMANDS = SlurmCommands(timeout_s=30.0)
# Each would tell a search in `scontrol show job` that Slurm shows but one end of the node range.
NAMES = (" NumNodes=1 ", "\n   NumNodes=1 NumCPUs=4 ", '"max_nodes": 0')
NO_JOB = 987_654


@pytest.fixture(scope="module")
def small(release: str) -> Iterator[LiveCluster]:
    with started(LiveCluster(release, node_count=4, gpu_types=["a100"] * 4, shards={})) as live:
        yield live


@pytest.fixture
def live(small: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> LiveCluster:
    """The cluster, empty, and in the environment of this process."""
    small.reset()
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, small.env[name])
    return small


def nices_of(job_ids: list[int]) -> list[int]:
    return [job.nice for job in read_jobs(COMMANDS, job_ids)]


def test_every_line_of_a_batch_counts_for_itself(live: LiveCluster) -> None:
    job_ids = live.submit_many(40, "--time=10")
    live.run("scontrol", "update", f"JobId={job_ids[3]}", "Nice=7")
    changes: list[Action] = [SetNice(job_id=job_id, before=0, after=100 + job_id) for job_id in (*job_ids, NO_JOB)]

    receipts = ScontrolActuator(COMMANDS).apply_all(changes)

    by_job = {receipt.action.job_id: receipt for receipt in receipts}
    assert (by_job[job_ids[3]].text, by_job[NO_JOB].text) == (CHANGED_MEANWHILE, NOT_PENDING)
    others = [job_id for job_id in job_ids if job_id != job_ids[3]]
    assert {by_job[job_id].outcome for job_id in others} == {Outcome.APPLIED}
    assert nices_of(others) == [100 + job_id for job_id in others] and nices_of([job_ids[3]]) == [7]


def test_what_slurm_denies_in_a_batch_names_its_job(live: LiveCluster) -> None:
    theirs, others = live.submit("--hold", user="games"), live.submit("--hold")
    lines = [f"update JobId={job_id} Nice=5" for job_id in (others, theirs, NO_JOB)]

    answer = live.ask("scontrol", stdin="".join(f"{line}\n" for line in lines), user="games")

    assert answer.returncode == 1
    assert answer.stderr.splitlines() == [
        f"Invalid user id for job {others}",
        f"Invalid job id specified for job {NO_JOB}",
    ]
    assert nices_of([theirs, others]) == [5, 0]


@pytest.mark.parametrize("name", NAMES)
def test_a_jobs_name_does_not_decide_whether_a_persons_range_is_respected(
    live: LiveCluster, tmp_path: Path, name: str
) -> None:
    job_id = live.submit("--hold", "-N1-4", "-n4", f"--job-name={name}")
    wide, tight = NodeRange(low=1, high=4), NodeRange(low=1, high=2)
    hold = SetNodeRange(job_id=job_id, before=wide, after=tight)
    assert ScontrolActuator(COMMANDS).apply(hold).outcome is Outcome.APPLIED
    live.run("scontrol", "update", f"JobId={job_id}", "NumNodes=1-1")

    with opened(tmp_path / "journal.sqlite") as journal:
        journal.keep(replace(intended(hold, 1000.0, after_s=60.0), state=LeaseState.OUT))
        applier = applier_on(journal)
        applier.revert(applier.leased())
        left = journal.leases()

    assert [lease.state for lease in left] == [LeaseState.HANDS_OFF]
    assert hidden_ends(COMMANDS, [job_id]) == {job_id: False}
    (job,) = read_jobs(COMMANDS, [job_id])
    assert (job.gang.nodes_min, job.gang.nodes_max) == (1, 1)


def test_only_json_tells_a_hidden_end_from_a_closed_range(live: LiveCluster) -> None:
    hidden, closed = (live.submit("--requeue", nodes, "-n4", "--time=10") for nodes in ("-N1-4", "-N1-1"))
    live.wait_for(lambda: live.run("squeue", "-h", "-t", "RUNNING", "-o", "%A").count("\n") == 2, what="both run")
    for job_id in (hidden, closed):
        live.run("scontrol", "requeuehold", str(job_id))
    live.wait_for(lambda: live.run("squeue", "-h", "-t", "PENDING", "-o", "%A").count("\n") == 2, 60.0)
    live.stop_controller()
    live.start_controller()

    told = hidden_ends(COMMANDS, [hidden, closed, NO_JOB])

    assert told == dict.fromkeys((hidden, closed), live.release != "22.05")


def test_a_queue_that_cannot_be_read_stops_no_revert(live: LiveCluster, tmp_path: Path) -> None:
    # Each row of the queue holds a dependency on four hundred jobs.
    first = live.submit("--hold")
    after = ":".join([str(first)] * 400)
    job_ids = live.submit_many(60, f"--dependency=afterok:{after}", "--time=10")
    ours = live.submit_many(2, "--time=10")
    changes: list[Action] = [SetNice(job_id=job_id, before=0, after=50 + job_id) for job_id in ours]
    cut = replace(COMMANDS, limit_bytes=20_000)

    with opened(tmp_path / "journal.sqlite") as journal:
        for change in changes:
            journal.keep(replace(intended(change, 1000.0, after_s=60.0), state=LeaseState.OUT))
        ScontrolActuator(cut).apply_all(changes)
        changed = nices_of(ours)
        applier = replace(applier_on(journal, cut), source=Unreadable())
        reconciled = applier.return_due(2000.0)
        left = journal.leases()

    assert changed == [50 + job_id for job_id in ours]
    assert [receipt.outcome for receipt in reconciled.taken_back] == [Outcome.APPLIED] * 2
    assert left == () and nices_of(ours) == [0, 0]
    assert len(job_ids) == 60


class Unreadable:
    """A source whose queue cannot be read."""

    name = "text"

    def snapshot(self) -> Snapshot:
        """Fail, as where squeue prints what no reader can read."""
        raise DecodeError("squeue prints what cannot be read")


def applier_on(journal: SqliteJournal, commands: SlurmCommands = COMMANDS) -> Applier:
    site = SiteReader(commands, SystemClock())
    return Applier(
        source=TextSource(commands, SystemClock(), site),
        actuator=ScontrolActuator(commands),
        cycle=Cycle(),
        journal=journal,
        named=NamedJobs(commands, SystemClock(), site),
    )
