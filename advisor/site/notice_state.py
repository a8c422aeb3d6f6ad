"""The notices that were sent, and those still to deliver, in a file that outlives the daemon."""

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor.domain.mode import Mode
from advisor.domain.notice import Notice
from advisor.files import read_bounded, replace_file

_MOST_BYTES: Final = 32 << 20


class Letter(BaseModel):
    """One notice on its way to one target; `due_time` is when it is tried next."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    notice: Notice
    target: Literal["mail", "webhook"]
    due_time: float
    attempts: int = 0


class NoticeState(BaseModel):
    """What is known across restarts; instants in seconds since the epoch, 0 for never.

    `topics` maps what lasts to the value that was sent. `sent_times` are those of the event notices of the last hour,
    `summed` counts the ones above the bound by kind.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)

    format: Literal["sadvise.notices/1"] = "sadvise.notices/1"
    mode: Mode | None = None
    topics: dict[str, str] = Field(default_factory=dict)
    letters: list[Letter] = Field(default_factory=list)
    sent_times: list[float] = Field(default_factory=list)
    summed: dict[str, int] = Field(default_factory=dict)
    digest_time: float = 0.0
    users_time: float = 0.0


def state_file(journal: Path) -> Path:
    """Return the path of the file beside a journal."""
    return journal.with_name(f"{journal.name}.notices")


def read_state(path: Path) -> tuple[NoticeState, str]:
    """Return the state, an empty one if there is none or it cannot be read, and why it cannot, "" if it can."""
    try:
        return NoticeState.model_validate_json(read_bounded(path, _MOST_BYTES)), ""
    except FileNotFoundError:
        return NoticeState(), ""
    except OSError as err:
        return NoticeState(), f"{path}: {err.strerror or err}"
    except ValidationError:
        return NoticeState(), f"{path}: is not the state of this release; notices about what lasts are sent once more"


def write_state(path: Path, state: NoticeState) -> str:
    """Write the state; return why it cannot be written, "" if it is."""
    try:
        replace_file(path, state.model_dump_json().encode() + b"\n")
    except OSError as err:
        return f"{path}: {err.strerror or err}"
    return ""
