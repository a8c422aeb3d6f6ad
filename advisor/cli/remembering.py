"""What the journal remembers, for commands that change nothing."""

from dataclasses import dataclass
from pathlib import Path

from advisor.domain.lease import Lease
from advisor.domain.snapshot import Snapshot
from advisor.domain.waits import Wait
from advisor.errors import AdvisorError
from advisor.journal import SqliteJournal
from advisor.planning.settings import PlanningSettings
from advisor.planning.tuning import MEMORIES
from advisor.ports import check_owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The waits that were seen and the leases of pending jobs; `note` says why nothing is known, "" where it is.

    `is_broken`: there is a journal, and it cannot be read.
    """

    waits: tuple[Wait, ...] = ()
    leases: tuple[Lease, ...] = ()
    note: str = ""
    is_broken: bool = False

    @property
    def outstanding(self) -> frozenset[int]:
        """The jobs that get no other change for now."""
        return frozenset(lease.job_id for lease in self.leases if lease.ending is None and lease.keeps_others_off)


def remembered(path: Path, snapshot: Snapshot, settings: PlanningSettings) -> Memory:
    """Read what a journal knows of a cluster; one that is missing or cannot be read is a note, not an error."""
    try:
        if not path.exists():
            return Memory(note=f"{path}: there is no such journal, {_COST}")
        journal = SqliteJournal.read_only(path)
    except (AdvisorError, OSError) as err:
        return Memory(note=f"{err}; {_COST}", is_broken=True)
    try:
        pending = frozenset(job.job_id for job in snapshot.jobs if job.is_pending)
        waits = journal.waits(snapshot.taken_at - MEMORIES * settings.timer_memory_s)
        leases = (*journal.closed(pending), *journal.leases())
        if waits or leases:
            check_owner(journal.cluster(), snapshot.config.cluster, str(path))
    except AdvisorError as err:
        return Memory(note=f"{err}; {_COST}", is_broken=True)
    finally:
        journal.close_file()
    return Memory(waits=waits, leases=leases)


_COST = "so what is out and what waits were seen is not known"
