"""Reads how busy slurmctld is with sdiag, one request to it, and makes rounds rarer while it is under strain."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from advisor.backends.process import Commands, ask_text
from advisor.backends.spelling import count, is_unset
from advisor.domain.load import ControllerLoad
from advisor.errors import DecodeError
from advisor.settings import DaemonSettings

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
_WIDER: Final = 2.0
# After strain ends it takes three rounds to come back from one doubling.
_NARROWER: Final = 0.8


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


def strained(load: ControllerLoad, settings: DaemonSettings) -> str:
    """Return in plain words what shows that slurmctld is under strain; "" if nothing does.

    The time of a backfill pass does not count: it is mostly spent asleep between locks.
    """
    signs: list[str] = []
    if load.server_threads is not None and load.server_threads >= settings.strain_threads:
        signs.append(f"{load.server_threads} server threads (strained from {settings.strain_threads})")
    if load.agent_queue is not None and load.agent_queue >= settings.strain_queue:
        signs.append(f"{load.agent_queue} messages in the agent queue (strained from {settings.strain_queue})")
    if load.cycle_s is not None and load.cycle_s >= settings.strain_cycle_s:
        signs.append(f"a scheduling pass of {load.cycle_s:.1f} s (strained from {settings.strain_cycle_s:g} s)")
    return " and ".join(signs)


def next_interval_s(current_s: float, settings: DaemonSettings, *, trouble: bool) -> float:
    """Return the interval until the next round: twice as long after trouble, else a fifth shorter, within its bounds.

    Trouble is strain, or a slurmctld that did not answer.
    """
    wanted_s = current_s * (_WIDER if trouble else _NARROWER)
    return min(max(wanted_s, settings.interval_s), settings.interval_max_s)
