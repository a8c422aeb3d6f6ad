"""Keeps a journal in memory, for simulations and rehearsals."""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from operator import attrgetter

from advisor.apply.step import Reconciled, Step
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Lever
from advisor.domain.lease import Ending, Lease
from advisor.domain.memory import KEPT_S, Wait, check_owner
from advisor.domain.probation import Trust
from advisor.domain.standings import NO_STANDINGS, Standings, Stretch, standings_of


class MemoryJournal:
    """A journal in memory, for simulations and rehearsals."""

    def __init__(
        self,
        *,
        leases: Iterable[Lease] = (),
        closed: Iterable[Lease] = (),
        waits: Iterable[Wait] = (),
        observed_until: float | None = None,
        trust: Trust | None = None,
        standings: Standings = NO_STANDINGS,
    ) -> None:
        """Start with the contents of another journal: leases that are open and that have ended, waits, and a state.

        `standings` are returned until there is a stretch.
        """
        self._cluster: str | None = None
        self._open: dict[tuple[int, Lever], Lease] = {(lease.job_id, lease.lever): lease for lease in leases}
        self._closed: deque[Lease] = deque(closed)
        self._waits: list[Wait] = list(waits)
        self._observed_until = observed_until
        self._trust = trust
        self._stretches: dict[float, Stretch] = {}
        self._known_standings = standings

    def claim(self, cluster: str) -> None:
        """Bind the journal to a cluster at the first call; raises `ConfigError` for any other cluster."""
        check_owner(self._cluster, cluster, "the journal")
        self._cluster = cluster

    def together(self) -> AbstractContextManager[None]:
        """Run a block; what it writes is stored at once."""
        return nullcontext()

    def keep(self, lease: Lease) -> None:
        """Store an open lease in place of the job's earlier one on the field."""
        self._open[lease.job_id, lease.lever] = lease

    def close(self, lease: Lease, ending: Ending, ended_time: float) -> None:
        """Move a lease to the closed ones."""
        self._open.pop((lease.job_id, lease.lever), None)
        self._closed.append(lease.ended(ending, ended_time))
        while self._closed and (self._closed[0].ended_time or 0.0) <= ended_time - KEPT_S:
            self._closed.popleft()

    def started(self, start_times: Mapping[int, float]) -> None:
        """Store when jobs started, or left the queue, with their closed leases that do not know it yet."""
        self._closed = deque(
            replace(lease, start_time=start_times[lease.job_id])
            if lease.job_id in start_times and lease.start_time is None
            else lease
            for lease in self._closed
        )

    def would_start(self, times: Mapping[int, float]) -> None:
        """Store when jobs would have started as submitted with their leases that do not know it yet."""

        def noted(lease: Lease) -> Lease:
            new = lease.job_id in times and lease.would_start_time is None and lease.start_time is None
            return replace(lease, would_start_time=times[lease.job_id]) if new else lease

        self._open = {key: noted(lease) for key, lease in self._open.items()}
        self._closed = deque(map(noted, self._closed))

    def leases(self) -> tuple[Lease, ...]:
        """Return the open leases, by job and field."""
        return tuple(self._open[key] for key in sorted(self._open))

    def closed(self, job_ids: Collection[int], since: float | None = None) -> tuple[Lease, ...]:
        """Return the closed leases of jobs, and of any job since an instant, in the order of writing."""
        return tuple(
            lease
            for lease in self._closed
            if lease.job_id in job_ids or (since is not None and (lease.ended_time or 0.0) > since)
        )

    def add_waits(self, waits: Iterable[Wait], observed_until: float) -> None:
        """Add waits, and delete those that ended too long ago."""
        for wait in waits:
            insort(self._waits, wait, key=attrgetter("ended_time"))
        self._observed_until = observed_until
        oldest = observed_until - KEPT_S
        del self._waits[: self._ended_by(oldest)]

    def waits(self, since: float) -> tuple[Wait, ...]:
        """Return the waits that ended after an instant, in order of their end."""
        return tuple(self._waits[self._ended_by(since) :])

    def record(self, record: CycleRecord, cycle: Cycle) -> int:  # noqa: ARG002  (the protocol's)
        """Keep nothing of a cycle; its number is 0."""
        return 0

    def receipts(self, cycle_id: int, step: Step) -> None:
        """Keep no step."""

    def returns(self, time: float, reconciled: Reconciled) -> None:
        """Keep nothing of it."""

    def observed_until(self) -> float | None:
        """Return the instant up to which starts have been observed; None if never."""
        return self._observed_until

    def trust(self) -> Trust | None:
        """Return which models were proven beforehand; None where none has to be."""
        return self._trust

    def keep_stretch(self, stretch: Stretch) -> None:
        """Store a stretch in place of the one of the same anchor."""
        self._stretches[stretch.anchor_time] = stretch

    def standings(self, since: float) -> Standings:
        """Return the standings over the stretches that ended after an instant."""
        if not self._stretches:
            return self._known_standings
        return standings_of(stretch for stretch in self._stretches.values() if stretch.until > since)

    def _ended_by(self, instant: float) -> int:
        return bisect_right(self._waits, instant, key=attrgetter("ended_time"))
