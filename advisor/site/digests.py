"""Puts the weekly digest and the mails to users together from the journal, also as a process of its own."""

import json
import pickle
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from advisor.backends.child import run_module
from advisor.backends.process import Deadline
from advisor.config import Config
from advisor.domain.dataclass import dataclass
from advisor.domain.idle_gpus import IdleOfUser
from advisor.domain.notice import HINT, Notice, NoticeSettings
from advisor.domain.outcome import JobOutcome
from advisor.domain.standings import WINDOW_S
from advisor.domain.tune_verdict import TuneVerdict
from advisor.domain.units import HOUR_S
from advisor.domain.waiting_gangs import WeekOfGangs
from advisor.errors import AdvisorError, ConfigError, NoticeError
from advisor.journal import SqliteJournal
from advisor.journal.audit import AuditRow
from advisor.journal.base import BREAKERS, FAILING, GANGS, IDLE, SETTINGS, TUNED
from advisor.site.adoption import settings_words
from advisor.site.status_file import read_status
from advisor.view.digest_words import Week, digest_notice, user_notice
from advisor.view.impact_report import impact_of
from advisor.view.terminal import instant

_MOST_ROWS: Final = 100_000
_MOST_USERS: Final = 1000
_IDLE_JOBS: Final = TypeAdapter(list[tuple[int, str, int, float, float]])
_STARVED: Final = TypeAdapter(list[tuple[int, str]])
_SCATTERED: Final = TypeAdapter(list[tuple[str, float]])


def weekly_digest(journal: SqliteJournal, config: Config, now: float) -> Notice:
    """Return the digest of the last seven days; raises `JournalError`."""
    since = now - WINDOW_S
    rows = journal.audit(since, _MOST_ROWS)
    week = Week(
        cluster=journal.cluster() or "",
        impact=impact_of(
            journal, config.experiment, since=since, now=now, planning=config.planning, limits=config.guard
        ),
        opened=_opened(rows),
        probation=_probation(config),
        tuned=_tuned(journal, since),
        settings=settings_words(config) or _dropped(journal, since),
        failing_nodes=_failing_nodes(journal, since),
        idle=idle_by_user(rows, since),
        gangs=week_of_gangs(rows),
    )
    return digest_notice(week)


def user_mails(journal: SqliteJournal, config: Config, *, since: float, now: float) -> list[Notice]:
    """Return a mail for each user with changed jobs that ended since an instant and who gets mails."""
    ended: dict[str, list[JobOutcome]] = {}
    for outcome in journal.outcomes(since):
        if outcome.changes and outcome.user and _wants(outcome, config.notify):
            ended.setdefault(outcome.user, []).append(outcome)
    by_user = journal.standings(now - WINDOW_S).by_user
    cluster = journal.cluster() or ""
    return [
        user_notice(user, ended[user], by_user.get(user), now=now, cluster=cluster)
        for user in sorted(ended)[:_MOST_USERS]
        if config.notify.address_of_user(user) is not None
    ]


def _wants(outcome: JobOutcome, settings: NoticeSettings) -> bool:
    return settings.reaches_users and (settings.users != HINT or outcome.wants_mail)


def _opened(rows: tuple[AuditRow, ...]) -> Mapping[str, int]:
    """Count how often each breaker opened, by the rows of the audit, newest first."""
    counts: Counter[str] = Counter()
    before: frozenset[tuple[str, float]] | None = None
    for row in reversed(rows):
        if row.event == BREAKERS:
            now = _open_in(row)
            counts.update(name for name, _ in now - (before or frozenset()))
            before = now
    return counts


def _open_in(row: AuditRow) -> frozenset[tuple[str, float]]:
    """Return the open breakers of a row, each with when it opened; none for a row that cannot be read."""
    try:
        state = json.loads(str(row.detail.get("state", "")))
        return frozenset((str(breaker["name"]), float(breaker["opened_time"])) for breaker in state["open"])
    except (ValueError, TypeError, KeyError):
        return frozenset()


def _tuned(journal: SqliteJournal, since: float) -> TuneVerdict | None:
    """Return what `sadvise tune` advised since an instant; None if it did not run, or a row that cannot be read."""
    row = journal.last(TUNED)
    if row is None or row.time < since:
        return None
    try:
        return TuneVerdict(**row.detail)  # type: ignore[arg-type]
    except TypeError:
        return None


def _dropped(journal: SqliteJournal, since: float) -> str:
    """Return why settings that the daemon took up by itself were dropped since an instant, "" if they were not."""
    row = journal.last(SETTINGS)
    if row is None or row.time < since or "dropped_by" not in row.detail:
        return ""
    return f"what is configured, since {instant(row.time)}: {row.detail['why']} ({row.detail['dropped_by']})"


def _failing_nodes(journal: SqliteJournal, since: float) -> str:
    """Return which nodes failed more often than chance makes, as they were last found since an instant."""
    row = journal.last(FAILING)
    return "" if row is None or row.time < since else str(row.detail.get("nodes", ""))


def idle_by_user(rows: Iterable[AuditRow], since: float) -> tuple[IdleOfUser, ...]:
    """Sum up the idle GPUs of each user by the rows of the audit, most first; time in which none was seen is left out.

    A row that cannot be read is skipped.
    """
    until_by_job: dict[int, float] = {}
    jobs_by_user: defaultdict[str, set[int]] = defaultdict(set)
    hours_by_user: defaultdict[str, float] = defaultdict(float)
    for row in sorted((row for row in rows if row.event == IDLE), key=lambda row: row.time):
        for job_id, user, gpus, since_time, until_time in _idle_jobs(row):
            begin = max(since, since_time, until_by_job.get(job_id, 0.0))
            until_by_job[job_id] = max(until_time, begin)
            jobs_by_user[user].add(job_id)
            hours_by_user[user] += gpus * max(0.0, until_time - begin) / HOUR_S
    found = [
        IdleOfUser(user=user, jobs=len(jobs_by_user[user]), gpu_hours=hours) for user, hours in hours_by_user.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.gpu_hours, each.user)))


def _idle_jobs(row: AuditRow) -> list[tuple[int, str, int, float, float]]:
    """Return the jobs of a row: id, user, idle GPUs, since when and until when; none for one that cannot be read."""
    try:
        return _IDLE_JOBS.validate_json(str(row.detail.get("jobs", "")))
    except ValidationError:
        return []


def week_of_gangs(rows: Iterable[AuditRow]) -> WeekOfGangs:
    """Sum up which gangs starved, and what idled beside scattered jobs; a row that cannot be read is skipped."""
    user_by_job: dict[int, str] = {}
    hours_by_node: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        if row.event != GANGS:
            continue
        try:
            user_by_job.update(_STARVED.validate_json(str(row.detail.get("starved", ""))))
            for node, hours in _SCATTERED.validate_json(str(row.detail.get("scattered", ""))):
                hours_by_node[node] += hours
        except ValidationError:
            continue
    return WeekOfGangs(
        starved=tuple(sorted(user_by_job.items())),
        scattered=tuple(sorted(hours_by_node.items(), key=lambda of: (-of[1], of[0]))),
    )


def _probation(config: Config) -> tuple[str, ...]:
    """Return the lines about models on probation in the last round; none where no daemon runs."""
    try:
        status = read_status(Path(config.daemon.runtime_folder))
    except ConfigError:
        return ()
    return () if status is None else tuple(status.on_probation.values())


DEADLINE_S: Final = 300.0
_MODULE: Final = "advisor.site.digests"
_NOTICES: Final = TypeAdapter(list[Notice])


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestTask:
    """What the process reads; `users_since` is when users last got mails, None to make none."""

    config: Config
    now: float
    with_digest: bool
    users_since: float | None


def notices_of(task: DigestTask, patience: Deadline | None) -> list[Notice]:
    """Return what a task asks for, from a process of the lowest priority; raises `AdvisorError`."""
    packed = pickle.dumps(task, pickle.HIGHEST_PROTOCOL)
    try:
        return _NOTICES.validate_json(run_module(_MODULE, packed, patience, limit_s=DEADLINE_S))
    except ValueError as err:
        raise NoticeError(f"the digest cannot be read: {err}") from err


def made(task: DigestTask) -> list[Notice]:
    """Return the notices from the journal; raises `JournalError`."""
    with SqliteJournal.read_only(Path(task.config.journal.file)) as journal:
        digest = [weekly_digest(journal, task.config, task.now)] if task.with_digest else []
        if task.users_since is None:
            return digest
        return [*digest, *user_mails(journal, task.config, since=task.users_since, now=task.now)]


def main() -> None:
    """Read a task, and print its notices, or end with the reason."""
    # Written by the process that started this one.
    task: DigestTask = pickle.load(sys.stdin.buffer)  # noqa: S301
    try:
        notices = made(task)
    except AdvisorError as err:
        sys.exit(str(err))
    sys.stdout.buffer.write(_NOTICES.dump_json(notices))


if __name__ == "__main__":
    main()
