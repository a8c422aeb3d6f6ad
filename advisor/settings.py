"""Every key of sadvise.toml: its default, its bounds and the sentence that documents it.

The tables `mode` and `experiment` stand beside what they decide, in `domain`; `config` lists and reads all tables.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from advisor.units import DAY_S

Reader = Literal["auto", "text", "json", "pyslurm"]
Level = Literal["debug", "info", "warning", "error"]
Layout = Literal["auto", "logfmt", "json"]

# The unit's WatchdogSec has to be longer than the longest round.
LONGEST_DEADLINE_S: Final = 80.0
# What one round asks before anything is changed: sdiag, and the four of a snapshot.
ROUND_REQUESTS: Final = 5
# What a change costs: the job is read, changed, and read back.
CHANGE_REQUESTS: Final = 5
_UNIX: Final = "unix:"
# The kernel takes no longer path of a socket.
_LONGEST_PATH: Final = 107
_PORT: Final = re.compile(r"(?P<host>[^:]+|\[[^\]]+\]):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """How the cluster is read."""

    reader: Annotated[Reader, "which reader asks Slurm: auto, text, json or pyslurm"] = "auto"
    timeout_s: Annotated[float, "how long one Slurm command may take"] = 30.0

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise ValueError("timeout_s must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSettings:
    """Which models make the forecasts."""

    enabled: Annotated[bool, "whether models forecast; without them the planner goes by its rules alone"] = True
    models: Annotated[str, "folder of the models that this site fitted; those that ship serve for the rest"] = (
        "/var/lib/sadvise/models"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """Where the journal of all changes is kept, and for how long."""

    file: Annotated[str, "SQLite file of the changes that are out, of what was done and why; one for each cluster"] = (
        "/var/lib/sadvise/journal.sqlite"
    )
    keep_days: Annotated[float, "days for which cycles, outcomes and the audit are kept"] = 90.0
    records_mib: Annotated[float, "most room that cycles kept whole, for `sadvise replay`, may take"] = 512.0

    def __post_init__(self) -> None:
        for name in ("keep_days", "records_mib"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """How `sadvise serve` runs."""

    interval_s: Annotated[float, "time from the start of one round to the next"] = 60.0
    interval_max_s: Annotated[float, "longest interval, which it reaches when slurmctld is under strain"] = 600.0
    jitter_s: Annotated[float, "most that a round starts late by chance, so that clusters do not ask in step"] = 5.0
    deadline_s: Annotated[float, "how long one round may talk to Slurm; then what is left waits for the next"] = 45.0
    runtime_folder: Annotated[str, "folder of the pause file and of the lock that keeps a second daemon off"] = (
        "/run/sadvise"
    )
    refit: Annotated[bool, "whether run times are fitted again every night; needs the extra `fit`"] = False
    night_hour: Annotated[int, "hour of the day, UTC, of that fit and of pruning the journal"] = 3
    strain_threads: Annotated[int, "slurmctld threads from which on it counts as strained"] = 64
    strain_queue: Annotated[int, "agent queue of slurmctld from which on it counts as strained"] = 200
    strain_cycle_s: Annotated[float, "pass of slurmctld's main scheduler from which on it counts as strained"] = 5.0
    log_level: Annotated[Level, "least severe events that are logged: debug, info, warning or error"] = "info"
    log_format: Annotated[Layout, "auto, logfmt or json"] = "auto"

    def __post_init__(self) -> None:
        if not 1.0 <= self.interval_s <= self.interval_max_s <= DAY_S:
            raise ValueError("interval_s must be at least 1 and at most interval_max_s, which is at most 86400")
        if not 0.0 <= self.jitter_s <= self.interval_s:
            raise ValueError("jitter_s must not be negative, nor above interval_s")
        if not 0.0 < self.deadline_s <= LONGEST_DEADLINE_S:
            raise ValueError(f"deadline_s must be above 0 and at most {LONGEST_DEADLINE_S:g}")
        if not 0 <= self.night_hour <= 23:
            raise ValueError("night_hour must be an hour from 0 to 23")
        if min(self.strain_threads, self.strain_queue, self.strain_cycle_s) <= 0:
            raise ValueError("strain_threads, strain_queue and strain_cycle_s must be above 0")
        if not self.runtime_folder.startswith("/"):
            raise ValueError("runtime_folder must be an absolute path")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """How many requests slurmctld may get, reads and writes together.

    The defaults stay within Slurm's own rate limiter at its defaults, which holds 30 requests and adds 2 every second.
    """

    rpcs_per_minute: Annotated[float, "requests to slurmctld that are earned every minute, reads and changes"] = 60.0
    burst: Annotated[int, "most requests that may be saved up; those of one round come close together"] = 30
    writes_per_minute: Annotated[int, "changes that may be sent to slurmctld in a minute"] = 12
    kept_for_reads: Annotated[int, "requests that changes leave for the next reading of the cluster"] = ROUND_REQUESTS

    def __post_init__(self) -> None:
        if self.rpcs_per_minute <= 0 or self.writes_per_minute < 0 or self.kept_for_reads < 0:
            raise ValueError("rpcs_per_minute must be above 0, writes_per_minute and kept_for_reads must be at least 0")
        least = ROUND_REQUESTS + CHANGE_REQUESTS + self.kept_for_reads
        if self.burst < least:
            raise ValueError(f"burst must be at least {least}: a round, one change and kept_for_reads")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopbackAddress:
    """A port that only this machine reaches."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketFile:
    """A Unix socket."""

    path: str


Address = LoopbackAddress | SocketFile


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """Where metrics and health are served, read only, to every program that can reach the address."""

    listen: Annotated[
        str, 'loopback address with a port, or "unix:" and the path of a socket, for /metrics and /healthz; "" for none'
    ] = "127.0.0.1:9341"

    def __post_init__(self) -> None:
        address_of(self.listen)


def address_of(listen: str) -> Address | None:
    """Read `metrics.listen`; None for nowhere. Raises `ValueError` for what is neither loopback nor a path."""
    if not listen:
        return None
    if listen.startswith(_UNIX):
        path = listen.removeprefix(_UNIX)
        if not path.startswith("/") or "\0" in path or len(path.encode()) > _LONGEST_PATH:
            raise ValueError(f'listen must be "unix:" and an absolute path of at most {_LONGEST_PATH} bytes')
        return SocketFile(path=path)
    found = _PORT.fullmatch(listen)
    host = found["host"].strip("[]") if found else ""
    if found is None or not _is_loopback(host) or int(found["port"]) > 65_535:
        raise ValueError(
            'listen must be a loopback address with a port, such as "127.0.0.1:9341" or "[::1]:9341", or "unix:/path"'
        )
    return LoopbackAddress(host=host, port=int(found["port"]))


def _is_loopback(host: str) -> bool:
    """Whether a host is a number that only this machine reaches; names are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
