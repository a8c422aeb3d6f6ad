"""Stores the outcomes of jobs."""

import json
from collections.abc import Iterable

from advisor.domain.outcome import JobOutcome
from advisor.journal.base import JournalBase
from advisor.journal.rows import outcome_of, outcome_row


class OutcomeTables(JournalBase):
    """One outcome for each job id and submit time, since Slurm reuses ids."""

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
        newest = self._read("end_time > ? ORDER BY end_time DESC, job_id DESC, submit_time DESC LIMIT ?", since, most)
        return newest[::-1]

    def open_outcomes(self) -> tuple[JobOutcome, ...]:
        """Return the outcomes of jobs whose end has not been observed, by job."""
        return self._read("end_time IS NULL ORDER BY job_id, submit_time")

    def outcomes_of(self, job_ids: Iterable[int]) -> tuple[JobOutcome, ...]:
        """Return the outcomes of some job ids, whether the jobs ended or not, by job and submission."""
        ids = json.dumps(sorted(set(job_ids)))
        return self._read("job_id IN (SELECT value FROM json_each(?)) ORDER BY job_id, submit_time", ids)

    def _read(self, which: str, *values: float | str) -> tuple[JobOutcome, ...]:
        with self._reading():
            rows = self._database.execute(f"SELECT outcome FROM outcomes WHERE {which}", values)  # noqa: S608  (ours)
            return tuple(outcome_of(text) for (text,) in rows.fetchall())
