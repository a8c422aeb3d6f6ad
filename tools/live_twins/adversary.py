"""Submits a long job right after each change that can delay its job, where it hurts most."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

from advisor.domain.lease import Ending, Lease
from advisor.errors import JournalError
from advisor.journal import SqliteJournal
from tools.live_twins.twins import RUSH_PRIORITY, Pair, Twin, Twins
from tools.live_twins.workload import GPUS, attack

# Attacks hold no more than half of the GPUs at once.
MOST_GPUS: Final = GPUS // 2
# One that has not started by then found the change taken back, and makes room for the next.
PATIENCE_S: Final = 20.0


def leases_of(path: Path) -> tuple[Lease, ...]:
    """Return all changes of a journal that a daemon writes, the ended ones first; none while there is no journal."""
    with suppress(JournalError), SqliteJournal.read_only(path) as journal:
        return (*journal.closed((), since=0.0), *journal.leases())
    return ()


def can_delay(lease: Lease) -> bool:
    """Return whether a change was made that can delay its job."""
    return lease.added_delay_s > 0.0 and lease.ending is not Ending.NOT_APPLIED


class Place(StrEnum):
    """Where an attack stands in line."""

    LAST = "last"  # behind all jobs, as any job that arrives
    BETWEEN = "between"  # right behind the changed job as submitted


def options_for(place: Place, lease: Lease) -> tuple[str, ...]:
    """Return the options of sbatch, open to every user, that put an attack at its place."""
    if place is Place.LAST or lease.priority is None:
        return ()
    return ("--partition=rush", f"--nice={RUSH_PRIORITY - lease.priority + 1}")


class Adversary:
    """Attacks each change once, and cancels an attack on both clusters once the changed job has started.

    An attack that does not start soon is cancelled too.
    """

    def __init__(self, twins: Twins, journal: Path, place: Place, sizes: Sequence[int]) -> None:
        """Take the place of the attacks, and the GPUs that they ask for in turn."""
        self._twins, self._journal, self._place, self._sizes = twins, journal, place, sizes
        self._attacked: set[tuple[int, str, float]] = set()
        self._attackers: dict[Pair, int] = {}
        self.attacks = 0
        self.left_out = 0

    def act(self, passed_s: float, now: float) -> None:
        """Cancel the attacks whose victims have started, and attack what has been changed since the last call."""
        self._withdraw(now)
        ours = {pair.job_id[Twin.ADVISED] for pair in self._attackers}
        for lease in self._fresh(leases_of(self._journal)):
            if lease.job_id in ours:
                continue
            gpus = self._sizes[self.attacks % len(self._sizes)]
            if self._held() + gpus > MOST_GPUS:
                self.left_out += 1
                continue
            request = attack(self.attacks, gpus, passed_s, options_for(self._place, lease))
            pair = self._twins.submit(request, now)
            self._attackers[pair] = lease.job_id
            self.attacks += 1

    def _fresh(self, leases: Iterable[Lease]) -> Sequence[Lease]:
        fresh = []
        for lease in leases:
            key = (lease.job_id, str(lease.lever), lease.applied_time)
            if can_delay(lease) and lease.ending is None and key not in self._attacked:
                self._attacked.add(key)
                fresh.append(lease)
        return fresh

    def _held(self) -> int:
        return sum(pair.request.gpus for pair in self._attackers)

    def _withdraw(self, now: float) -> None:
        waiting = {
            pair.job_id[Twin.ADVISED] for pair in self._twins.pairs if pair.stay[Twin.ADVISED].start_time is None
        }
        for pair, victim in list(self._attackers.items()):
            came_too_late = pair.job_id[Twin.ADVISED] in waiting and now - pair.submit_time > PATIENCE_S
            if victim not in waiting or came_too_late:
                self._twins.cancel(pair)
                del self._attackers[pair]
