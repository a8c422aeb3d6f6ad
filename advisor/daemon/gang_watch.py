"""Looks at the pending gangs now and then: which starve, and what small jobs that are scattered cost them."""

import json
from collections import Counter
from typing import Final

from advisor.diagnose.starving import long_waiting, scattered, starved
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import HOUR_S
from advisor.domain.waiting_gangs import MOST, GangLook
from advisor.journal import SqliteJournal
from advisor.journal.base import GANGS

LOOK_S: Final = 600.0
# A longer time between two looks counts as this one, as it was not seen.
_LONGEST_S: Final = 3 * LOOK_S
# To read more takes a second or longer; the latest count.
_MOST_RUNS: Final = 20_000


class GangWatch:
    """The last look, and the idle GPU-time by node since the last row of the audit; one thread uses it."""

    def __init__(self) -> None:
        self.look: GangLook | None = None
        self._gpu_s: Counter[str] = Counter()
        self._noted_time: float | None = None

    def observe(self, journal: SqliteJournal, snapshot: Snapshot, longest_s: float) -> None:
        """Look if it is time, and once an hour write what was found; gangs wait long from `longest_s` on.

        Raises `JournalError`.
        """
        now, last = snapshot.taken_at, self.look
        # A clock that was set back does not end the looks.
        if last is not None and 0.0 <= now - last.looked_time < LOOK_S:
            return
        elapsed_s = 0.0 if last is None else min(max(0.0, now - last.looked_time), _LONGEST_S)
        for node, gpus in () if last is None else last.scattered:
            self._gpu_s[node] += round(gpus * elapsed_s)
        waiting = long_waiting(snapshot, longest_s)
        since = min((now - job.queueing_delay_s(now) for job in waiting), default=now)
        ended = journal.outcomes(since, _MOST_RUNS) if waiting else ()
        self.look = GangLook(
            looked_time=now, starved=starved(snapshot, ended, longest_s), scattered=scattered(snapshot)[:MOST]
        )
        if self._noted_time is not None and 0.0 <= now - self._noted_time < HOUR_S:
            return
        self._note(journal, snapshot, self.look)

    def _note(self, journal: SqliteJournal, snapshot: Snapshot, look: GangLook) -> None:
        by_id = snapshot.jobs_by_id
        gangs = [(gang.job_id, by_id[gang.job_id].user) for gang in look.starved]
        hours = [(node, round(gpu_s / HOUR_S, 3)) for node, gpu_s in self._gpu_s.most_common(MOST) if gpu_s]
        if gangs or hours:
            journal.note(look.looked_time, GANGS, {"starved": json.dumps(gangs), "scattered": json.dumps(hours)})
        self._gpu_s.clear()
        self._noted_time = look.looked_time
