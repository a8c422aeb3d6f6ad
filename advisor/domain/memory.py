"""What earlier rounds left for the next one to plan with."""

from dataclasses import dataclass
from typing import Final

from advisor.domain.lease import Lease
from advisor.domain.waits import Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The changes that are or were out, and how long gangs waited for closer places.

    `leases` holds every open one; of those that have ended, the ones of jobs at hand, and those of any job within the
    window of the bounds on users and accounts. `busy` names further jobs that get no other change.
    """

    leases: tuple[Lease, ...] = ()
    waits: tuple[Wait, ...] = ()
    busy: frozenset[int] = frozenset()

    @property
    def outstanding(self) -> frozenset[int]:
        """The jobs that get no other change for now."""
        return self.busy | {lease.job_id for lease in self.leases if lease.ending is None and lease.keeps_others_off}


NOTHING_KNOWN: Final = Memory()
