"""The pause file: while it exists, the daemon makes no new change; with `freeze` it reverts none either."""

import json
import os
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from advisor.domain.dataclass import dataclass
from advisor.errors import ConfigError
from advisor.text import blanked

NAME: Final = "pause"
_FREEZE: Final = "freeze"
_REASON_LENGTH: Final = 200
_MOST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """When a pause began, who asked for it and why, as far as the file holds it.

    `freezes` is whether changes that are due stay in effect as well.
    """

    since_time: float
    by: str = ""
    reason: str = ""
    freezes: bool = False

    @property
    def text(self) -> str:
        """Return the pause in plain words."""
        what = "paused, and what is due stays," if self.freezes else "paused"
        text = f"{what} by {self.by}" if self.by else what.rstrip(",")
        return f"{text}{f': {self.reason}' if self.reason else ''}"


def paused(folder: Path) -> Pause | None:
    """Return the pause in force, None without one; an empty or unreadable file is a pause too."""
    path = folder / NAME
    try:
        since_time = path.stat().st_mtime
    except FileNotFoundError:
        return None
    except OSError as err:
        return Pause(since_time=0.0, reason=f"{path} cannot be read: {err.strerror}")
    try:
        content = _content(path)
        return Pause(
            since_time=since_time,
            by=_shown(content.get("by")),
            reason=_shown(content.get("reason")),
            freezes=content.get(_FREEZE) is True,
        )
    except (OSError, ValueError, AttributeError):
        return Pause(since_time=since_time)


def pause(folder: Path, *, by: str, reason: str, freeze: bool = False) -> None:
    """Stop the daemon from changing jobs, with `freeze` also from reverting; raises `ConfigError` if it cannot."""
    path = folder / NAME
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with open(descriptor, "w", encoding="utf-8") as stream:  # noqa: PTH123  (a descriptor)
            json.dump({"by": _shown(by), "reason": _shown(reason), _FREEZE: freeze}, stream)
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}: nothing is paused; run as root or as the daemon's user") from err


def resume(folder: Path) -> bool:
    """Let the daemon change jobs again; return whether it was paused. Raises `ConfigError` if the file stays."""
    path = folder / NAME
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}: still paused; run as root or as the daemon's user") from err
    return True


def _content(path: Path) -> Any:
    """Read the start of a file, which need be no file; raises `OSError` or `ValueError`, for deep nesting too."""
    # A pipe without a writer must not keep the daemon waiting.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:  # noqa: PTH123  (a descriptor)
        return from_json(stream.read(_MOST_BYTES) or b"")


def _shown(text: object) -> str:
    """Return text of a user on one line, cut to a length that fits it."""
    return blanked(str(text or ""))[:_REASON_LENGTH]
