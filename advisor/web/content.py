"""Gathers what pages and the API show, and keeps it for all viewers; names that a viewer must not see are left out."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from advisor.clock import SystemClock
from advisor.config import Config
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.errors import AdvisorError
from advisor.files import is_closed
from advisor.predict.library import Held, Library
from advisor.site.frontier_file import TunedFrontier, read_frontier
from advisor.site.lease_socket import asked
from advisor.site.round_state import why_on_probation
from advisor.site.status_file import status_of
from advisor.site.status_words import Overlook
from advisor.view.documents import ChangeDocument
from advisor.watch.cluster_view import ChangeInEffect, ClusterView, WaitingJob
from advisor.watch.daemon_state import GainHistory, daemon_state, read_gains
from advisor.watch.job_answer import JobReport, job_answer
from advisor.watch.reading import Reading, journal_file
from advisor.watch.viewer import Viewer

_MOST_AUDIENCES: Final = 8
_Row = TypeVar("_Row", Job, WaitingJob, ChangeDocument, ChangeInEffect)
_NOTE: Final = "users are not listed: their names are hidden (web.hide_names)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Who looks at the web view: a user, "" without a login that can be trusted, and whether all names are shown.

    `hides_names` is the setting of the site, which holds for every cluster; one can hide names by itself.
    """

    user: str = ""
    sees_all: bool = False
    hides_names: bool = False

    def sees(self, user: str) -> bool:
        """Return whether the names of a user's jobs are shown."""
        return self.sees_all or (self.user != "" and self.user == user)


# Set for each request; a thread that serves none sees no name.
AUDIENCE: Final[ContextVar[Audience]] = ContextVar("audience", default=Audience())  # noqa: B039  (frozen)


def without_names(row: _Row, names: Sequence[str] = ("name", "user", "account")) -> _Row:
    """Return a job, or a row about one, without its name, user and account, unless its audience can see them."""
    hidden: Mapping[str, Any] = dict.fromkeys(names, "")
    return row if AUDIENCE.get().sees(row.user) else replace(row, **hidden)


def view_without_names(seen: ClusterView) -> ClusterView:
    """Return a view whose rows name only what its audience can see; `planned` stays as it is, for planning alone."""
    return replace(
        seen,
        line=tuple(map(without_names, seen.line)),
        advice=tuple(map(without_names, seen.advice)),
        in_effect=tuple(without_names(row, ("user", "account")) for row in seen.in_effect),
    )


class HiddenViews:
    """Keeps the views without names that were made of one reading, for a few audiences; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: ClusterView | None = None
        self._views: dict[Audience, ClusterView] = {}

    def view_of(self, seen: ClusterView) -> ClusterView:
        """Return a view for the present audience."""
        audience = AUDIENCE.get()
        with self._lock:
            if seen is not self._seen or len(self._views) > _MOST_AUDIENCES:
                self._seen, self._views = seen, {}
            if audience not in self._views:
                self._views[audience] = view_without_names(seen)
            return self._views[audience]


def report_without_names(report: JobReport) -> JobReport:
    """Return what is known of a job without the week of its user, unless its audience can see that."""
    if report.turn is None or AUDIENCE.get().sees(report.job.user):
        return report
    return replace(report, turn=replace(report.turn, standing=None))


def gains_without_names(history: GainHistory) -> GainHistory:
    """Return the gains by day, and by user only for users that its audience can see."""
    whole = history.whole
    by_user = {user: standing for user, standing in whole.by_user.items() if AUDIENCE.get().sees(user)}
    if len(by_user) == len(whole.by_user):
        return history
    return replace(history, whole=replace(whole, by_user=by_user, by_account={}, notes=(*whole.notes, _NOTE)))


# A page waits this long for the cluster to be read, and then shows what was read before.
PATIENCE_S = 0.5
# The state of the daemon costs three small files and a look into the journal.
_DAEMON_AGE_S = 5.0
_DAYS = 30

Value = TypeVar("Value")


class NotReadYetError(AdvisorError):
    """The cluster is being read for the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """What users gained; `note` says why something is missing, "" if nothing is."""

    history: GainHistory
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A version of a model, and how its intervals held on jobs of this site; None where no job was counted.

    `proof` says how far a model on probation is, "" for the others.
    """

    kind: str
    version: str
    in_use: bool
    shipped: bool
    fitted: str
    parity: float
    reason: str
    tested_jobs: int | None
    tested_inside: int | None
    ended_jobs: int | None
    ended_inside: int | None
    proof: str


class _Kept(Generic[Value]):
    """Keeps a value for all threads, and makes it again once it is `max_age_s` old and someone asks."""

    def __init__(self, make: Callable[[], Value], max_age_s: float) -> None:
        self._make = make
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._value: Value
        self._made_at = -math.inf

    def value(self) -> Value:
        """Return the value, at most `max_age_s` old."""
        with self._lock:
            if time.monotonic() - self._made_at > self._max_age_s:
                self._value, self._made_at = self._make(), time.monotonic()
            return self._value

    def forget(self) -> None:
        """Make the value again when it is asked for next."""
        with self._lock:
            self._made_at = -math.inf


class Content:
    """All that the web view shows, each part read at most once in a while, and only if someone looks."""

    def __init__(self, reading: Reading, config: Config, *, journal: Path | None = None) -> None:
        """Open the source of the cluster; raises `AdvisorError` if that is not possible."""
        self.reading = reading
        self.config = config
        self.journal = journal
        age_s = config.web.max_age_s
        self.viewer = Viewer(reading, config, journal=journal, max_age_s=age_s)
        self._hidden_views = HiddenViews()
        self._gains = _Kept(self._read_gains, age_s)
        self._held = _Kept(self._read_models, age_s)
        self._frontier = _Kept(self._read_frontier, age_s)
        self._daemon = _Kept(
            lambda: daemon_state(self.config, self.journal, SystemClock().now()), min(age_s, _DAEMON_AGE_S)
        )

    @property
    def _hides_names(self) -> bool:
        return self.config.web.hide_names or AUDIENCE.get().hides_names

    def view(self) -> ClusterView:
        """Return the cluster as it was read last; raises `AdvisorError` if it never was."""
        seen = self.viewer.latest(PATIENCE_S)
        if seen is None:
            raise NotReadYetError("the cluster is being read: this page opens by itself in a moment")
        return self._hidden_views.view_of(seen) if self._hides_names else seen

    def job(self, job_id: int) -> Job | None:
        """Return a job of the view; None if it has none of this number."""
        job = self.view().planned.record.snapshot.jobs_by_id.get(job_id)
        return without_names(job) if job is not None and self._hides_names else job

    def explained(self, job_id: int) -> JobReport:
        """Return why a job of the view waits."""
        planned = self.view().planned
        snapshot = planned.record.snapshot
        daemon = self.daemon()
        last = None if daemon is None else status_of(daemon.last, snapshot.config.cluster)
        report = job_answer(snapshot.jobs_by_id[job_id], snapshot, self.config, planned, last=last)
        return report_without_names(report) if self._hides_names else report

    def daemon(self) -> Overlook | None:
        """Return the state of the daemon; None for a file or the demo."""
        return self._daemon.value() if self.reading.is_live else None

    def gains(self) -> Gains:
        """Return what users gained in the last days, as far as the journal is open to this process."""
        gains = self._gains.value()
        return replace(gains, history=gains_without_names(gains.history)) if self._hides_names else gains

    def forget(self) -> None:
        """Read everything again when it is asked for next, since somebody has changed something."""
        self.viewer.forget()
        self._daemon.forget()

    def models(self) -> tuple[ModelRow, ...]:
        """Return every model; raises `AdvisorError` for a manifest that cannot be read."""
        seen = self.view()
        record, proofs = seen.planned.record, seen.planned.proofs

        def row(held: Held) -> ModelRow:
            entry, name = held.entry, held.name
            proof = proofs.get(name) if held.in_use else None
            is_tried = held.in_use and name in record.forecasts.on_probation
            return ModelRow(
                kind=entry.kind,
                version=entry.version,
                in_use=held.in_use,
                shipped=held.shipped,
                fitted=entry.fitted,
                parity=entry.parity.max_error,
                reason=entry.reason,
                tested_jobs=None if entry.tested is None else entry.tested.jobs,
                tested_inside=None if entry.tested is None else entry.tested.inside,
                ended_jobs=None if proof is None else proof.coverage.jobs,
                ended_inside=None if proof is None else proof.coverage.inside,
                proof=why_on_probation(name, proofs, record.memory.trust, self.config) if is_tried else "",
            )

        return tuple(row(held) for held in self._held.value())

    def frontier(self) -> TunedFrontier | None:
        """Return what `sadvise tune --json` wrote, None if no file is named; raises `ConfigError` for another file."""
        return self._frontier.value()

    def _now(self) -> float:
        """Return the present instant, for a file that of its snapshot."""
        seen = None if self.reading.is_live else self.viewer.last
        return SystemClock().now() if seen is None else seen.taken_at

    def _read_frontier(self) -> TunedFrontier | None:
        name = self.config.web.frontier_file
        return read_frontier(Path(name)) if name else None

    def _read_models(self) -> tuple[Held, ...]:
        return tuple(Library(Path(self.config.forecasts.models)).held())

    def _read_gains(self) -> Gains:
        """Read the history; of a journal that is closed, the daemon shows the last week by user."""
        if not self.reading.is_live and self.journal is None:
            return Gains(history=GainHistory(), note="there is no journal: a file or the demo is shown")
        path = journal_file(self.config, self.journal)
        try:
            if is_closed(path):
                history = GainHistory(whole=asked(Path(self.config.daemon.runtime_folder)).standings)
                return Gains(
                    history=history,
                    note=f"{path} is closed to the user of this process, so only the last week is shown, without days",
                )
            if not path.exists():
                return Gains(history=GainHistory(), note=f"{path}: no such journal")
            return Gains(history=read_gains(path, self._now(), days=_DAYS))
        except (AdvisorError, OSError) as err:
            return Gains(history=GainHistory(), note=str(err))
