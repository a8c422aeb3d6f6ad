"""Reads what is remembered of earlier rounds: from the journal, or from the daemon where the journal is closed."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.rehearsal import in_memory
from advisor.config import Config
from advisor.cycle import Cycle
from advisor.domain.memory import check_owner
from advisor.domain.snapshot import Snapshot
from advisor.errors import AdvisorError
from advisor.files import is_closed
from advisor.journal import SqliteJournal
from advisor.site.breaker_events import read_breakers
from advisor.site.lease_socket import asked
from advisor.site.round_state import proofs_so_far
from advisor.watch.planned import Remembered

_COST: Final = "so outstanding changes and observed waits are unknown"
_MISSING: Final = "changes in effect and observed waits are missing from this advice"


def recall(config: Config, path: Path, seen: Snapshot, cycle: Cycle, nothing: MemoryJournal) -> Remembered:
    """Return what is known of earlier rounds, or `nothing` with a note.

    A journal that is missing or cannot be read is a note, not an error.
    """
    unknown = Remembered(journal=nothing)
    try:
        if is_closed(path):
            try:
                return _shown(Path(config.daemon.runtime_folder), path, seen)
            except AdvisorError as err:
                note = f"{path} is closed to this user, and {err}; {_MISSING}"
                return replace(unknown, note=note, is_broken=True)
        if path.exists():
            return _held(path, seen, cycle, judges=config.forecasts.enabled)
        return replace(unknown, note=f"{path}: no such journal, {_COST}")
    except (AdvisorError, OSError) as err:
        return replace(unknown, note=f"{err}; {_COST}", is_broken=True)


def _shown(folder: Path, path: Path, seen: Snapshot) -> Remembered:
    """Return what the daemon shows of a journal."""
    disclosure = asked(folder)
    check_owner(disclosure.cluster, seen.config.cluster, str(path))
    return Remembered(journal=disclosure.journal(), purposes=disclosure.purposes)


def _held(path: Path, seen: Snapshot, cycle: Cycle, *, judges: bool) -> Remembered:
    """Return what a journal holds, with how its forecasts held if it `judges` them."""
    with SqliteJournal.read_only(path) as kept:
        if kept.leases() or kept.waits(0.0):
            check_owner(kept.cluster(), seen.config.cluster, str(path))
        return Remembered(
            journal=in_memory(kept, cycle, seen),
            purposes=kept.purposes(kept.leases()),
            stops=read_breakers(kept)[0].open,
            proofs=proofs_so_far(kept, seen.taken_at) if judges else {},
        )
