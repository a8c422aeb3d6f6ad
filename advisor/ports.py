"""What the core needs from outside; Slurm, a file and the simulator plug in here."""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final, Protocol

from advisor.domain.actions import Action, Lever
from advisor.domain.forecast import NO_FORECASTS, Forecasts
from advisor.domain.lease import Ending, Lease
from advisor.domain.plan import Receipt
from advisor.domain.snapshot import Snapshot
from advisor.domain.waits import Wait
from advisor.errors import ConfigError

# How long a journal remembers waits and leases that have ended.
KEPT_S: Final = 30 * 86_400.0


class ClusterSource(Protocol):
    """Where snapshots come from.

    Raises `SlurmError`, `DecodeError` or `SnapshotFileError`; never returns half a snapshot as a whole one.
    """

    @property
    def name(self) -> str:
        """The reader's name: text, json, pyslurm, file or demo."""

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now."""


class Actuator(Protocol):
    """What carries an action to the cluster and reads back what came of it."""

    def apply(self, action: Action) -> Receipt:
        """Change one field of one pending job; what cannot be done is a receipt, not an error."""

    def hides_range_end(self, job_id: int) -> bool:
        """Whether Slurm shows the lower end of a job's node range in place of the upper one."""


class Forecaster(Protocol):
    """What says how long jobs run, how fast, and when they start."""

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        """Forecast the GPU jobs of a snapshot; what is not known is absent, a broken model is a note, not an error."""


class StartForecaster(Forecaster, Protocol):
    """A forecaster that may be asked afterwards when some jobs start, which no plan looks at."""

    def with_starts(self, forecasts: Forecasts, snapshot: Snapshot, job_ids: Collection[int]) -> Forecasts:
        """Return what is believed of some jobs, of when they start too; other jobs may be left out."""


class NoForecaster:
    """Knows nothing, so that the planner goes by its rules."""

    def forecasts(self, snapshot: Snapshot) -> Forecasts:  # noqa: ARG002  (the protocol's)
        """Return no forecasts."""
        return NO_FORECASTS

    def with_starts(
        self,
        forecasts: Forecasts,
        snapshot: Snapshot,  # noqa: ARG002  (the protocol's)
        job_ids: Collection[int],  # noqa: ARG002  (the protocol's)
    ) -> Forecasts:
        """Add nothing."""
        return forecasts


class Journal(Protocol):
    """What outlives the advisor: the changes that are out, and how long gangs waited.

    One open lease for each job and field. Every method takes effect at once and whole, or raises an `AdvisorError`.
    """

    def claim(self, cluster: str) -> None:
        """Belong to a cluster from the first call on; raises `ConfigError` for any other."""

    def keep(self, lease: Lease) -> None:
        """Write down an open lease: an intent before it is sent, or a new state of it in place of the old one."""

    def close(self, lease: Lease, ending: Ending, ended_time: float) -> None:
        """Write down how an open lease ended."""

    def leases(self) -> tuple[Lease, ...]:
        """Return the open leases, by job and field."""

    def closed(self, job_ids: Collection[int], since: float | None = None) -> tuple[Lease, ...]:
        """Return the leases of jobs that ended within the last `KEPT_S`, in the order in which that was written down.

        That is the order in which they ended, also where the clock was set back. With `since` also those of any other
        job that ended after that instant.
        """

    def add_waits(self, waits: Iterable[Wait], observed_until: float) -> None:
        """Add waits, and remember that every start up to an instant has been looked at."""

    def waits(self, since: float) -> tuple[Wait, ...]:
        """Return the waits that ended after an instant, in the order in which they did, as far as `KEPT_S` goes."""

    def observed_until(self) -> float | None:
        """Return up to which instant starts have been looked at; None if never."""


class MemoryJournal:
    """A journal that ends with the process, for simulations."""

    def __init__(
        self,
        *,
        leases: Iterable[Lease] = (),
        closed: Iterable[Lease] = (),
        waits: Iterable[Wait] = (),
        observed_until: float | None = None,
    ) -> None:
        """Start with the contents of another journal: leases that are open and that have ended, and waits."""
        self._cluster: str | None = None
        self._open: dict[tuple[int, Lever], Lease] = {(lease.job_id, lease.lever): lease for lease in leases}
        self._closed: deque[Lease] = deque(closed)
        self._waits: list[Wait] = list(waits)
        self._observed_until = observed_until

    def claim(self, cluster: str) -> None:
        """Belong to a cluster from the first call on; raises `ConfigError` for any other."""
        check_owner(self._cluster, cluster, "the journal")
        self._cluster = cluster

    def keep(self, lease: Lease) -> None:
        """Write down an open lease in place of the job's earlier one on the field."""
        self._open[lease.job_id, lease.lever] = lease

    def close(self, lease: Lease, ending: Ending, ended_time: float) -> None:
        """Move a lease to those that have ended."""
        self._open.pop((lease.job_id, lease.lever), None)
        self._closed.append(lease.ended(ending, ended_time))
        while self._closed and (self._closed[0].ended_time or 0.0) <= ended_time - KEPT_S:
            self._closed.popleft()

    def leases(self) -> tuple[Lease, ...]:
        """Return the open leases, by job and field."""
        return tuple(self._open[key] for key in sorted(self._open))

    def closed(self, job_ids: Collection[int], since: float | None = None) -> tuple[Lease, ...]:
        """Return the leases of jobs, and of any job since an instant, that ended, in the order of writing."""
        return tuple(
            lease
            for lease in self._closed
            if lease.job_id in job_ids or (since is not None and (lease.ended_time or 0.0) > since)
        )

    def add_waits(self, waits: Iterable[Wait], observed_until: float) -> None:
        """Add waits, and forget what ended too long ago."""
        for wait in waits:
            insort(self._waits, wait, key=attrgetter("ended_time"))
        self._observed_until = observed_until
        oldest = observed_until - KEPT_S
        del self._waits[: self._ended_by(oldest)]

    def waits(self, since: float) -> tuple[Wait, ...]:
        """Return the waits that ended after an instant, in the order in which they did."""
        return tuple(self._waits[self._ended_by(since) :])

    def observed_until(self) -> float | None:
        """Return up to which instant starts have been looked at; None if never."""
        return self._observed_until

    def _ended_by(self, instant: float) -> int:
        return bisect_right(self._waits, instant, key=attrgetter("ended_time"))


def check_owner(owner: str | None, cluster: str, journal: str) -> None:
    """Raise `ConfigError` where a journal belongs to another cluster than the one at hand."""
    if owner not in (None, cluster):
        raise ConfigError(
            f"{journal} holds the changes made on cluster {owner!a}, not those on {cluster!a}: "
            "name one of its own with --journal or in journal.file"
        )
