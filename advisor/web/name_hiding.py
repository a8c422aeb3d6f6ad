"""Leaves out the names of users, accounts and jobs for viewers who must not see them (`web.hide_names`)."""

import threading
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

from advisor.domain.job import Job
from advisor.watch.cluster_view import ClusterView
from advisor.watch.daemon_state import GainHistory
from advisor.watch.job_answer import JobReport

_MOST_AUDIENCES: Final = 8
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


def view_without_names(seen: ClusterView) -> ClusterView:
    """Return a view whose rows name only what its audience can see; `planned` stays as it is, for planning alone."""
    sees = AUDIENCE.get().sees
    return replace(
        seen,
        line=tuple(row if sees(row.user) else replace(row, name="", user="", account="") for row in seen.line),
        advice=tuple(row if sees(row.user) else replace(row, name="", user="", account="") for row in seen.advice),
        in_effect=tuple(row if sees(row.user) else replace(row, user="", account="") for row in seen.in_effect),
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


def job_without_names(job: Job) -> Job:
    """Return a job without its name, user and account, unless its audience can see them."""
    return job if AUDIENCE.get().sees(job.user) else replace(job, name="", user="", account="")


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
