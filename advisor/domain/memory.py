"""Defines what earlier rounds leave for the next one to plan with, waits included, and the journal that keeps it."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol

from advisor.domain.dataclass import dataclass
from advisor.domain.lease import Ending, Lease
from advisor.domain.probation import Trust
from advisor.domain.standings import NO_STANDINGS, Standings, Stretch
from advisor.domain.topology import LocalityTier
from advisor.domain.units import DAY_S
from advisor.errors import ConfigError

# How long a journal keeps waits and leases that have ended.
KEPT_S: Final = 30 * DAY_S


# Gangs of this many GPUs and more are one class.
LARGEST_CLASS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One gang's wait for a tier, from its first chance to start on a worse one.

    `got` is whether it started at the tier or closer; if not, it gave up after `waited_s`, so that a place would have
    taken longer. `ended_time` is when it started.
    """

    gpus: int
    tier: LocalityTier
    waited_s: float
    got: bool
    ended_time: float

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.waited_s < 0.0:
            raise ValueError(f"{self.gpus} GPUs that wait {self.waited_s} s are no wait")


def gang_class(gpus: int) -> int:
    """Return the size class of a gang's waits: its GPUs rounded up to a power of two, at most 64."""
    return min(LARGEST_CLASS, 1 << max(0, gpus - 1).bit_length())


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The changes that are or were out, and how long gangs waited for closer places.

    `leases` holds all open ones, and of the ended ones those of the jobs in the snapshot and those of any job within
    the window of the limits on users and accounts. `busy` names further jobs that get no other change. `trust` says
    which models jobs of this site have proven; None where none has to, as in a simulation. `standings` say what users
    gained and gave.
    """

    leases: tuple[Lease, ...] = ()
    waits: tuple[Wait, ...] = ()
    busy: frozenset[int] = frozenset()
    trust: Trust | None = None
    standings: Standings = NO_STANDINGS

    @property
    def outstanding(self) -> frozenset[int]:
        """The jobs that get no other change for now."""
        return self.busy | {
            lease.job_id for lease in self.leases if lease.ending is None and lease.blocks_other_changes
        }

    @property
    def lifted(self) -> frozenset[int]:
        """The jobs whose lift is in effect."""
        return frozenset(lease.job_id for lease in self.leases if lease.is_lift and lease.is_in_effect)


NOTHING_KNOWN: Final = Memory()


class Journal(Protocol):
    """What outlives the advisor: the changes that are out, how long gangs and users waited.

    One open lease for each job and field. Every method is atomic and durable, or raises an `AdvisorError`.
    """

    def claim(self, cluster: str) -> None:
        """Bind the journal to a cluster at the first call; raises `ConfigError` for any other cluster."""

    def together(self) -> AbstractContextManager[None]:
        """Store what a block writes all together, or nothing of it."""

    def keep(self, lease: Lease) -> None:
        """Store an open lease: an intent before it is sent, or a new state in place of the old one."""

    def close(self, lease: Lease, ending: Ending, ended_time: float) -> None:
        """Store the end of an open lease."""

    def started(self, start_times: Mapping[int, float]) -> None:
        """Store when jobs started, or left the queue, with their closed leases that do not know it yet."""

    def would_start(self, times: Mapping[int, float]) -> None:
        """Store when jobs would have started as submitted with their leases that do not know it yet."""

    def leases(self) -> tuple[Lease, ...]:
        """Return the open leases, by job and field."""

    def closed(self, job_ids: Collection[int], since: float | None = None) -> tuple[Lease, ...]:
        """Return the leases of jobs that ended within the last `KEPT_S`, in the order of writing.

        That is the order in which they ended, also if the clock was set back. With `since` also those of any other job
        that ended after that instant.
        """

    def add_waits(self, waits: Iterable[Wait], observed_until: float) -> None:
        """Add waits, and store the instant up to which starts have been observed."""

    def waits(self, since: float) -> tuple[Wait, ...]:
        """Return the waits that ended after an instant, within the last `KEPT_S`, in order of their end."""

    def observed_until(self) -> float | None:
        """Return the instant up to which starts have been observed; None if never."""

    def trust(self) -> Trust | None:
        """Return which models jobs of this site have proven; None where none has to."""

    def keep_stretch(self, stretch: Stretch) -> None:
        """Store a stretch of waits with and without advice, in place of the one of the same anchor."""

    def standings(self, since: float) -> Standings:
        """Return the standings over the stretches that ended after an instant."""


def check_owner(owner: str | None, cluster: str, journal: str) -> None:
    """Raise `ConfigError` if a journal belongs to another cluster than the present one."""
    if owner not in (None, cluster):
        raise ConfigError(
            f"{journal} holds the changes made on cluster {owner!a}, not those on {cluster!a}: "
            "name one of its own with --journal or in journal.file"
        )
