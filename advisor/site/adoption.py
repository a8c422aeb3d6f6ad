"""Moves the daemon to settings that the weekly `sadvise tune` chose twice, and back; the audit says so first."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from advisor.config import Config, adoption_file
from advisor.domain.mode import Mode
from advisor.domain.tune_verdict import Adoption, TuneVerdict
from advisor.errors import JournalError
from advisor.files import EVERYONE, replace_file
from advisor.journal import SqliteJournal
from advisor.journal.base import CANDIDATE, SETTINGS
from advisor.view.digest_words import adoption_words, change_words

_ADOPTION: Final = TypeAdapter(Adoption)


def consider(journal: SqliteJournal, config: Config, move: TuneVerdict, now: float) -> None:
    """Move to what a weekly run chose if the run before chose it too, with nothing done about settings in between.

    Only a daemon that applies moves, and none during an experiment, whose arms it would change. Raises `JournalError`.
    """
    before, done = journal.last(CANDIDATE), journal.last(SETTINGS)
    journal.note(now, CANDIDATE, asdict(move))
    if before is None or (done is not None and done.number > before.number):
        return
    if config.mode.farthest is not Mode.APPLY or config.experiment.by:
        return
    if move.preset not in config.daemon.presets or not move.confirms(before.detail.get("setting"), now - before.time):
        return
    last, guard, planning = config.adoption, config.guard, config.planning
    adoption = Adoption(
        fairness=move.fairness,
        priority_decades=move.priority_decades,
        configured_fairness=guard.fairness if last is None else last.configured_fairness,
        configured_decades=planning.priority_decades if last is None else last.configured_decades,
        since_time=now,
        why=f"chosen in two weekly runs, the last of which found that it would {change_words(move)}",
    )
    content = _ADOPTION.dump_json(adoption)
    journal.note(now, SETTINGS, {"adopted": move.setting, **asdict(adoption)})
    _write(config, lambda path: replace_file(path, content, mode=EVERYONE))


def drop(journal: SqliteJournal, config: Config, now: float, *, by: str, why: str) -> bool:
    """Return to the configured settings from the next reload on, and return whether others were kept.

    Raises `JournalError`.
    """
    if not adoption_file(config).exists():
        return False
    journal.note(now, SETTINGS, {"dropped_by": by, "why": why})
    _write(config, Path.unlink)
    return True


def settings_words(config: Config) -> str:
    """Return which settings the daemon took up by itself, or why those that it did do not hold, "" without any."""
    return config.not_adopted if config.adoption is None else adoption_words(config.adoption)


def _write(config: Config, write: Callable[[Path], object]) -> None:
    path = adoption_file(config)
    try:
        write(path)
    except OSError as err:
        raise JournalError(f"{path}: {err.strerror}") from err
