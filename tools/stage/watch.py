"""Reads what a live cluster shows of its jobs, and what the journal of its daemon holds."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.domain.lease import Ending, Lease
from advisor.domain.snapshot import Snapshot
from advisor.errors import JournalError
from advisor.journal import SqliteJournal
from advisor.journal.views import RowQuery
from tools.stage.live_cluster import LiveCluster

TIMEOUT_S: Final = 60.0
_COLUMNS: Final = "%A|%T|%S|%e|%N"
_MOST_ROUNDS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStay:
    """Says when a job started and left a cluster, in POSIX seconds, None where it has not; `state` is Slurm's."""

    start_time: float | None = None
    end_time: float | None = None
    state: str = "PENDING"
    nodes: str = ""


def stays(live: LiveCluster) -> Iterator[tuple[int, LiveStay]]:
    """Yield the jobs that Slurm knows by their ids, the ended ones too."""
    listed = live.run("env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-a", "-r", "-t", "all", "-o", _COLUMNS)
    for line in listed.splitlines():
        job_id, state, start, end, nodes = line.split("|")
        yield int(job_id), stay_of(state, start, end, nodes)


def stay_of(state: str, start: str, end: str, nodes: str) -> LiveStay:
    """Read a row of squeue; the start of a pending job is a plan, and a job that never started has no nodes."""
    if state == "PENDING":
        return LiveStay()
    is_over = state not in ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED")
    return LiveStay(
        start_time=float(start) if nodes else None,
        end_time=float(end) if is_over and end.isdigit() else None,
        state=state,
        nodes=nodes,
    )


@contextmanager
def talking_to(live: LiveCluster) -> Iterator[None]:
    """Let Slurm's commands of this process talk to a cluster for a block; threads may not talk to another one."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(live.env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def snapshot_of(live: LiveCluster, reader: str = "text") -> Snapshot:
    """Take a snapshot of a cluster as `sadvise snapshot` does, with one of the readers."""
    with talking_to(live):
        return open_source(reader, cluster=None, timeout_s=TIMEOUT_S, clock=SystemClock()).snapshot()


def leases_of(path: Path) -> tuple[Lease, ...]:
    """Return all changes of a journal that a daemon writes, the ended ones first; none while there is no journal."""
    with suppress(JournalError), SqliteJournal.read_only(path) as journal:
        return (*journal.closed((), since=0.0), *journal.leases())
    return ()


def touched(leases: Iterable[Lease]) -> list[Lease]:
    """Return the changes that were made."""
    return [lease for lease in leases if lease.ending is not Ending.NOT_APPLIED]


def rounds_of(path: Path) -> tuple[float, ...]:
    """Return when each round of a journal read the cluster, the first one first."""
    if not path.exists():
        return ()
    with SqliteJournal.read_only(path) as journal:
        return tuple(sorted(cycle.taken_at for cycle in journal.cycles(RowQuery(most=_MOST_ROUNDS))))
