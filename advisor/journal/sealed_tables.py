"""Stores what decides, and is sealed: leases and waits, outcomes of jobs, and how long users waited."""

import json
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from advisor.domain.lease import Ending, Lease
from advisor.domain.memory import KEPT_S, Wait, check_owner
from advisor.domain.outcome import JobOutcome
from advisor.domain.standings import Standings, Stretch, standings_of
from advisor.domain.topology import LocalityTier
from advisor.journal.base import JournalBase
from advisor.journal.rows import (
    LEASE_COLUMNS,
    LEASE_VALUES,
    STOP_LEVER,
    audit_detail,
    lease_of,
    lease_row,
    outcome_of,
    outcome_row,
    stretch_of,
    stretch_row,
)


class SealedTables(JournalBase):
    """Leases, waits, outcomes and stretches; every change of a lease is in the audit, in the same transaction.

    There is one outcome for each job id and submit time, since Slurm reuses ids, and one stretch for each anchor; a
    longer one takes the place of the one before.
    """

    def cluster(self) -> str | None:
        """Return the cluster that the journal belongs to; None before the first claim."""
        with self._reading():
            (owner,) = self._database.execute("SELECT cluster FROM site").fetchone()
            return None if owner is None else str(owner)

    def claim(self, cluster: str) -> None:
        """Bind the journal to a cluster at the first call; raises `ConfigError` for any other cluster."""
        owner = self.cluster()
        check_owner(owner, cluster, str(self._path))
        if owner is None:
            with self._writing():
                self._database.execute("UPDATE site SET cluster = ?", (cluster,))
                self._audit("claimed", {"cluster": cluster})

    def nonce(self) -> str:
        """Return the nonce of the last round; empty if there was none."""
        with self._reading():
            return str(self._database.execute("SELECT nonce FROM site").fetchone()[0])

    def set_nonce(self, nonce: str) -> None:
        """Store the nonce by which the daemon recognises the file in the next round."""
        with self._writing():
            self._database.execute("UPDATE site SET nonce = ?", (nonce,))

    def keep(self, lease: Lease) -> None:
        """Store an open lease in place of the job's earlier one on the field."""
        with self._writing():
            self._remove(lease)
            self._insert(lease)
            self._audit(lease.state, audit_detail(lease))

    def close(self, lease: Lease, ending: Ending, ended_time: float) -> None:
        """Store the end of an open lease, and delete leases that ended too long ago."""
        with self._writing():
            self._remove(lease)
            self._insert(lease.ended(ending, ended_time))
            self._database.execute("DELETE FROM leases WHERE ended_time <= ?", (ended_time - KEPT_S,))
            self._audit(ending, audit_detail(lease))

    def started(self, start_times: Mapping[int, float]) -> None:
        """Store when jobs started, or left the queue, with their closed leases that do not know it yet."""
        with self._writing():
            for job_id, start_time in sorted(start_times.items()):
                self._database.execute(
                    "UPDATE leases SET start_time = ? WHERE job_id = ? AND ending IS NOT NULL AND start_time IS NULL",
                    (start_time, job_id),
                )
                self._audit("started", {"job_id": job_id, "start_time": start_time})

    def would_start(self, times: Mapping[int, float]) -> None:
        """Store when jobs would have started as submitted with their leases that do not know it yet."""
        with self._writing():
            for job_id, time in sorted(times.items()):
                self._database.execute(
                    "UPDATE leases SET would_start_time = ? "
                    "WHERE job_id = ? AND would_start_time IS NULL AND start_time IS NULL",
                    (time, job_id),
                )
                self._audit("would_start", {"job_id": job_id, "would_start_time": time})

    def leases(self) -> tuple[Lease, ...]:
        """Return the open leases, by job and field."""
        return self._read_leases("ending IS NULL ORDER BY job_id, lever")

    def closed(self, job_ids: Collection[int], since: float | None = None) -> tuple[Lease, ...]:
        """Return the closed leases of jobs, and of any job since an instant, in the order of writing."""
        return self._read_leases(
            "id IN ("
            "SELECT id FROM leases WHERE ending IS NOT NULL AND job_id IN (SELECT value FROM json_each(?)) "
            "UNION SELECT id FROM leases WHERE ending IS NOT NULL AND ended_time > ?"
            ") ORDER BY id",
            json.dumps(sorted(job_ids)),
            since,
        )

    def add_waits(self, waits: Iterable[Wait], observed_until: float) -> None:
        """Add waits and the instant up to which starts have been observed; delete those that ended too long ago."""
        rows = [(wait.gpus, wait.tier.name, wait.waited_s, wait.got, wait.ended_time) for wait in waits]
        with self._writing():
            self._database.executemany(
                "INSERT INTO waits (gpus, tier, waited_s, got, ended_time) VALUES (?, ?, ?, ?, ?)", rows
            )
            self._database.execute("UPDATE site SET observed_until = ?", (observed_until,))
            self._database.execute("DELETE FROM waits WHERE ended_time <= ?", (observed_until - KEPT_S,))

    def waits(self, since: float) -> tuple[Wait, ...]:
        """Return the waits that ended after an instant, in order of their end."""
        with self._reading():
            rows = self._database.execute(
                "SELECT gpus, tier, waited_s, got, ended_time FROM waits WHERE ended_time > ? ORDER BY ended_time, id",
                (since,),
            ).fetchall()
            return tuple(
                Wait(gpus=gpus, tier=LocalityTier[tier], waited_s=waited_s, got=bool(got), ended_time=ended_time)
                for gpus, tier, waited_s, got, ended_time in rows
            )

    def observed_until(self) -> float | None:
        """Return the instant up to which starts have been observed; None if never."""
        with self._reading():
            (until,) = self._database.execute("SELECT observed_until FROM site").fetchone()
            return None if until is None else float(until)

    def _insert(self, lease: Lease) -> None:
        self._database.execute(
            f"INSERT INTO leases ({LEASE_COLUMNS}) VALUES ({LEASE_VALUES})",  # noqa: S608  (ours)
            lease_row(lease),
        )

    def _remove(self, lease: Lease) -> None:
        self._database.execute(
            "DELETE FROM leases WHERE job_id = ? AND lever = ? AND ending IS NULL", (lease.job_id, lease.lever)
        )

    def _read_leases(self, which: str, *values: str | float | None) -> tuple[Lease, ...]:
        with self._reading():
            # A stop of a running job by an earlier version is over: nothing can be seen of it, nor reverted.
            rows = self._database.execute(
                f"SELECT {LEASE_COLUMNS} FROM leases WHERE lever <> ? AND {which}",  # noqa: S608  (ours)
                (STOP_LEVER, *values),
            )
            return tuple(lease_of(row) for row in rows.fetchall())

    def keep_outcomes(self, outcomes: Iterable[JobOutcome]) -> None:
        """Store outcomes, each in place of the earlier one of the same job."""
        with self._writing():
            self._database.executemany(
                "INSERT INTO outcomes (job_id, submit_time, end_time, outcome) VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET end_time = excluded.end_time, outcome = excluded.outcome",
                map(outcome_row, outcomes),
            )

    def outcomes(self, since: float, most: int = -1) -> tuple[JobOutcome, ...]:
        """Return the outcomes of the last `most` jobs that ended after an instant, in order of their end.

        A `most` of -1 is no bound.
        """
        newest = self._read_outcomes(
            "end_time > ? ORDER BY end_time DESC, job_id DESC, submit_time DESC LIMIT ?", since, most
        )
        return newest[::-1]

    def open_outcomes(self) -> tuple[JobOutcome, ...]:
        """Return the outcomes of jobs whose end has not been observed, by job."""
        return self._read_outcomes("end_time IS NULL ORDER BY job_id, submit_time")

    def outcomes_of(self, job_ids: Iterable[int]) -> tuple[JobOutcome, ...]:
        """Return the outcomes of some job ids, whether the jobs ended or not, by job and submission."""
        ids = json.dumps(sorted(set(job_ids)))
        return self._read_outcomes("job_id IN (SELECT value FROM json_each(?)) ORDER BY job_id, submit_time", ids)

    def _read_outcomes(self, which: str, *values: float | str) -> tuple[JobOutcome, ...]:
        with self._reading():
            rows = self._database.execute(f"SELECT outcome FROM outcomes WHERE {which}", values)  # noqa: S608  (ours)
            return tuple(outcome_of(text) for (text,) in rows.fetchall())

    def keep_stretch(self, stretch: Stretch) -> None:
        """Store a stretch in place of the one of the same anchor."""
        with self._writing():
            self._database.execute(
                "INSERT INTO standings (anchor_time, until, stretch) VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET until = excluded.until, stretch = excluded.stretch",
                stretch_row(stretch),
            )

    def stretches(self, since: float) -> tuple[Stretch, ...]:
        """Return the stretches that ended after an instant, in the order of their anchors."""
        return tuple(map(stretch_of, self._stretch_texts(since)))

    def standings(self, since: float) -> Standings:
        """Return the standings over the stretches that ended after an instant."""
        return _standings(self._stretch_texts(since))

    def _stretch_texts(self, since: float) -> tuple[str, ...]:
        with self._reading():
            rows = self._database.execute(
                "SELECT stretch FROM standings WHERE until > ? ORDER BY anchor_time", (since,)
            ).fetchall()
            return tuple(text for (text,) in rows)


@lru_cache(maxsize=2)
def _standings(texts: tuple[str, ...]) -> Standings:
    """Return the standings over stretches, cached, since a stretch takes as long as many cycles."""
    return standings_of(map(stretch_of, texts))
