"""Stores how long users waited, and how long plain Slurm would have made them wait, by stretch."""

from functools import lru_cache

from advisor.domain.standings import Standings, Stretch, standings_of
from advisor.journal.base import JournalBase
from advisor.journal.rows import stretch_of, stretch_row


class StandingTables(JournalBase):
    """One stretch for each anchor; a longer one takes the place of the one before."""

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
        return tuple(map(stretch_of, self._texts(since)))

    def standings(self, since: float) -> Standings:
        """Return the standings over the stretches that ended after an instant."""
        return _standings(self._texts(since))

    def _texts(self, since: float) -> tuple[str, ...]:
        with self._reading():
            rows = self._database.execute(
                "SELECT stretch FROM standings WHERE until > ? ORDER BY anchor_time", (since,)
            ).fetchall()
            return tuple(text for (text,) in rows)


@lru_cache(maxsize=2)
def _standings(texts: tuple[str, ...]) -> Standings:
    """Return the standings over stretches, cached, since a stretch takes as long as many cycles."""
    return standings_of(map(stretch_of, texts))
