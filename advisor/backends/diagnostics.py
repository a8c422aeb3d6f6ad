"""Reads how busy slurmctld is with sdiag; one request to slurmctld."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from advisor.backends.process import Commands, ask_text
from advisor.backends.spelling import count, is_unset
from advisor.domain.load import ControllerLoad
from advisor.errors import DecodeError

_MICROSECONDS: Final = 1e6
_REQUESTS: Final = "Remote Procedure Call statistics by message type"
# After it come names of users; nothing that we read does.
_END: Final = "Remote Procedure Call statistics by user"
_REQUEST: Final = re.compile(
    r"\s+(?P<kind>[A-Z][A-Z0-9_]*)\s*\(\s*\d{1,9}\)\s+count:\d{1,19}\s+ave_time:(?P<mean_us>\d{1,19})\s.*", re.ASCII
)
_BEGIN: Final = "sdiag output at "
_MAIN: Final = "Main schedule statistics"
_BACKFILL: Final = "Backfilling stats"


def read_load(commands: Commands) -> ControllerLoad:
    """Ask slurmctld how busy it is; raises `SlurmError`, or `DecodeError` for an answer that ends halfway."""
    return decode_load(ask_text(commands, "sdiag"))


def decode_load(text: str) -> ControllerLoad:
    """Decode what sdiag prints; a line that is not there is unknown, and other lines do not matter."""
    lines = text.split("\n")
    if _REQUESTS not in lines or not any(line.startswith(_BEGIN) for line in lines[: lines.index(_REQUESTS)]):
        raise DecodeError("sdiag gave an incomplete answer: try again")
    values: dict[str, str] = {}
    section = ""
    for line in lines[: lines.index(_REQUESTS)]:
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
        request_times_s=_request_times_s(lines[lines.index(_REQUESTS) :]),
    )


def _request_times_s(lines: Sequence[str]) -> dict[str, float]:
    """Map each kind of request to its mean time in slurmctld."""
    end = lines.index(_END) if _END in lines else len(lines)
    matches = (_REQUEST.fullmatch(line) for line in lines[:end])
    return {match["kind"]: int(match["mean_us"]) / _MICROSECONDS for match in matches if match is not None}


def _count(values: Mapping[str, str], name: str) -> int | None:
    value = values.get(name, "")
    return None if is_unset(value) else count(value, field=f"sdiag {name.strip('/')}")


def _seconds(values: Mapping[str, str], name: str) -> float | None:
    microseconds = _count(values, name)
    return None if microseconds is None else microseconds / _MICROSECONDS
