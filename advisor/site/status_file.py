"""The status file: what the last round of the daemon came to, for `sadvise status`, without names of jobs or users."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor import __version__
from advisor.domain.idle_gpus import IdleLook
from advisor.domain.mode import Mode
from advisor.domain.probation import OrderLook
from advisor.domain.waiting_gangs import GangLook
from advisor.errors import ConfigError
from advisor.files import EVERYONE, read_bounded, replace_file
from advisor.planning.levers import missing_by_lever

if TYPE_CHECKING:
    from advisor.metrics.round import Round

NAME: Final = "status.json"
MOST_STRAYS: Final = 20
_MOST_BYTES: Final = 1 << 20
_CHECKED: Final = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
_Count = Annotated[int, Field(ge=0)]


class RoundCounts(BaseModel):
    """What a round read, proposed and did; `pending_gpu_jobs` are those that wait."""

    model_config = _CHECKED

    cluster: str
    jobs: _Count
    pending_gpu_jobs: _Count
    recommended: _Count
    refused: _Count
    left_alone: _Count
    sent: _Count
    held_back: _Count
    taken_back: _Count


class DaemonStatus(BaseModel):
    """The last round of a daemon; instants in seconds since the epoch.

    `mode` is the farthest in force; `held_to` maps each cause that keeps it below the configured one to its reason.
    `planned` is None where the round read nothing, and `fault` says why. `out` counts the changes in effect, `overdue`
    those of them that should have been reverted. `strays` are the first jobs that hold a lift of ours which the journal
    does not know. `run_time_order` is the last look at how a run-time model orders the jobs of the site; what it orders
    counts unless `on_probation` names the model. `failing_nodes` says which nodes fail more often than chance makes.
    `idle` is the last look at idle GPUs of running jobs, `gangs` that at pending gangs. `undelivered` is why notices do
    not reach their targets. `settings` says which ones the daemon took up by itself, or why those do not hold. `asleep`
    maps the levers that the site lacks to what is missing.
    """

    model_config = _CHECKED

    format: Literal["sadvise.status/1"] = "sadvise.status/1"
    version: str
    pid: _Count
    mode: Mode
    started_time: float
    duration_s: float
    interval_s: float
    held_to: dict[str, str]
    on_probation: dict[str, str]
    run_time_order: OrderLook | None = None
    fault: str
    planned: RoundCounts | None
    out: _Count
    overdue: _Count
    strays: tuple[_Count, ...] = ()
    failing_nodes: str = ""
    idle: IdleLook | None = None
    gangs: GangLook | None = None
    undelivered: str = ""
    settings: str = ""
    asleep: dict[str, str] = {}


def status_after(done: "Round", *, undelivered: str = "") -> DaemonStatus:
    """Return the status after a round of this process; `undelivered` is why notices do not reach their targets."""
    step = done.step
    planned, asleep = None, {}
    if step is not None:
        record, snapshot = step.record, step.record.snapshot
        asleep = {str(lever): missing for lever, missing in missing_by_lever(snapshot).items()}
        planned = RoundCounts(
            cluster=snapshot.config.cluster,
            jobs=len(snapshot.jobs),
            pending_gpu_jobs=len(snapshot.pending_gpu_jobs),
            recommended=len(record.recommendations),
            refused=len(record.judged) - len(record.recommendations),
            left_alone=len(record.left_alone),
            sent=len(step.applied),
            held_back=len(step.held_back),
            taken_back=len(step.reconciled.taken_back),
        )
    return DaemonStatus(
        version=__version__,
        pid=os.getpid(),
        mode=done.mode,
        started_time=done.started_time,
        duration_s=done.duration_s,
        interval_s=done.interval_s,
        held_to=dict(done.held_to),
        on_probation=dict(done.on_probation),
        run_time_order=done.order,
        fault=done.fault,
        planned=planned,
        out=sum(done.open_leases.values()),
        overdue=done.overdue,
        strays=done.unknown_lifts[:MOST_STRAYS],
        failing_nodes=done.failing_nodes,
        idle=done.idle,
        gangs=done.gangs,
        undelivered=undelivered,
        settings=done.settings,
        asleep=asleep,
    )


def write_status(folder: Path, status: DaemonStatus) -> str:
    """Write the status file; return why it cannot be written, "" if it is."""
    try:
        replace_file(folder / NAME, status.model_dump_json().encode() + b"\n", mode=EVERYONE)
    except OSError as err:
        return f"{folder / NAME}: {err.strerror}"
    return ""


def remove_status(folder: Path) -> None:
    """Remove the status file of a daemon that ends."""
    try:
        (folder / NAME).unlink(missing_ok=True)
    except OSError:
        # It names a process that has ended, which shows its reader as much.
        return


def read_status(folder: Path) -> DaemonStatus | None:
    """Read the status file; None where there is none. Raises `ConfigError` for one that cannot be read."""
    path = folder / NAME
    try:
        return DaemonStatus.model_validate_json(read_bounded(path, _MOST_BYTES))
    except FileNotFoundError:
        return None
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror or err}") from err
    except ValidationError as err:
        raise ConfigError(f"{path}: is not the status of this release: restart the daemon") from err


def is_running(pid: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0


def status_of(last: DaemonStatus | None, cluster: str) -> DaemonStatus | None:
    """Return a status if its daemon runs and works on a cluster."""
    if last is None or not is_running(last.pid) or last.planned is None or last.planned.cluster != cluster:
        return None
    return last
