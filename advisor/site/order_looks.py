"""Looks at how the run-time model in use orders the jobs of this site, in the journal one look at a time."""

from dataclasses import asdict
from typing import Final

from advisor.domain.outcome import JobOutcome
from advisor.domain.probation import ORDER_WEEKS, OrderLook, OrderProof, Trust
from advisor.domain.units import DAY_S
from advisor.journal import SqliteJournal
from advisor.journal.base import ORDER_SEEN
from advisor.trial.accuracy import by_run_time_model, order_of

_WEEK_S: Final = 7 * DAY_S
# What the last days show sets a model aside; more jobs than that are not compared in a round.
_LATELY_S: Final = 3 * DAY_S
_MOST_COMPARED: Final = 2000


class OrderLooks:
    """The last look of a daemon: one in a week at a model on probation, one in a day at another."""

    def __init__(self) -> None:
        """Begin without a look; the first use reads that of an earlier daemon."""
        self._last: OrderLook | None = None
        self._is_read = False

    @property
    def last(self) -> OrderLook | None:
        """The last look; None without any."""
        return self._last

    def begin(self, journal: SqliteJournal) -> None:
        """Read the last look of an earlier daemon, once."""
        if not self._is_read:
            self._last, self._is_read = read_look(journal), True

    def look(
        self, journal: SqliteJournal, model: str, trust: Trust, now: float, *, is_tried: bool
    ) -> OrderProof | None:
        """Look at a model if that is due, and write what was seen into the audit; None where it is not due.

        A model that `is_tried` is on probation. Looks at such have to be rare, also where it is replaced every night:
        each is one more chance to pass.
        """
        last, rest_s = self._last, _WEEK_S if is_tried else DAY_S
        # A look of the future was written before the clock was set back.
        if last is not None and (is_tried or last.model == model) and 0.0 <= now - last.looked_time < rest_s:
            return None
        since = now - (ORDER_WEEKS * _WEEK_S if is_tried else _LATELY_S)
        ended = by_run_time_model(journal.outcomes(since, most=_MOST_COMPARED), trust)
        return self._note(journal, model, list(ended.get(model, ())), now)

    def _note(self, journal: SqliteJournal, model: str, ended: list[JobOutcome], now: float) -> OrderProof:
        order = order_of(ended)
        journal.note(now, ORDER_SEEN, {"model": model, **asdict(order)})
        self._last = OrderLook(model=model, looked_time=now, order=order)
        return order


def read_look(journal: SqliteJournal) -> OrderLook | None:
    """Return the last look in a journal; None without one, or if it cannot be read."""
    row = journal.last(ORDER_SEEN)
    if row is None:
        return None
    detail = dict(row.detail)
    try:
        model = str(detail.pop("model"))
        return OrderLook(model=model, looked_time=row.time, order=OrderProof(**detail))  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError):
        return None
