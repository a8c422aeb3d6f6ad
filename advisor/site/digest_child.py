"""Runs as a process of its own: reads the journal, and prints the digest and the mails to users as JSON."""

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from advisor.backends.child import run_module
from advisor.backends.process import Deadline
from advisor.config import Config
from advisor.domain.notice import Notice
from advisor.errors import AdvisorError, NoticeError
from advisor.journal import SqliteJournal
from advisor.site.digests import user_mails, weekly_digest

DEADLINE_S: Final = 300.0
_MODULE: Final = "advisor.site.digest_child"
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
