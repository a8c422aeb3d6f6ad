"""Reads how busy slurmctld is with sdiag; one request to slurmctld."""

from collections.abc import Mapping
from typing import Final

from advisor.backends.process import Commands, text_of
from advisor.backends.spelling import count, is_unset
from advisor.domain.load import ControllerLoad
from advisor.errors import DecodeError

_MICROSECONDS: Final = 1e6
# After it come names of users; nothing that we read does.
_END: Final = "Remote Procedure Call statistics by message type"
_BEGIN: Final = "sdiag output at "
_MAIN: Final = "Main schedule statistics"
_BACKFILL: Final = "Backfilling stats"


def read_load(commands: Commands) -> ControllerLoad:
    """Ask slurmctld how busy it is; raises `SlurmError`, or `DecodeError` for an answer that ends halfway."""
    return decode_load(text_of(commands.ask("sdiag").output))


def decode_load(text: str) -> ControllerLoad:
    """Decode what sdiag prints; a line that is not there is unknown, and other lines do not matter."""
    lines = text.split("\n")
    if _END not in lines or not any(line.startswith(_BEGIN) for line in lines[: lines.index(_END)]):
        raise DecodeError("sdiag gave an incomplete answer: try again")
    values: dict[str, str] = {}
    section = ""
    for line in lines[: lines.index(_END)]:
        if not line.startswith("\t"):
            section = ""
            for heading in (_MAIN, _BACKFILL):
                section = heading if line.startswith(heading) else section
        name, colon, value = line.strip().partition(":")
        if colon:
            values.setdefault(f"{section}/{name}", value.strip())
    return ControllerLoad(
        server_threads=_count(values, "/Server thread count"),
        agent_queue=_count(values, "/Agent queue size"),
        database_queue=_count(values, "/DBD Agent queue size"),
        cycle_s=_seconds(values, f"{_MAIN}/Last cycle"),
        backfill_cycle_s=_seconds(values, f"{_BACKFILL}/Last cycle"),
    )


def _count(values: Mapping[str, str], name: str) -> int | None:
    value = values.get(name, "")
    return None if is_unset(value) else count(value, field=f"sdiag {name.strip('/')}")


def _seconds(values: Mapping[str, str], name: str) -> float | None:
    microseconds = _count(values, name)
    return None if microseconds is None else microseconds / _MICROSECONDS
