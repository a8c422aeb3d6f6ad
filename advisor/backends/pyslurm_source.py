"""Reads a live cluster through pyslurm, in a child process with a deadline: four requests to slurmctld."""

import json
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from advisor.backends import pyslurm_decode
from advisor.backends.assembly import assemble
from advisor.backends.process import Answer, Commands, failure, printable
from advisor.backends.pyslurm_decode import Counted, Fault, Raw
from advisor.backends.records import JobRecord, UnreadJob, record_or_unread, row_or_unread
from advisor.backends.reservations import read_reservations
from advisor.backends.site_reader import SiteReader
from advisor.clock import Clock
from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.releases import same_release
from advisor.domain.snapshot import Snapshot
from advisor.errors import (
    DecodeError,
    SlurmError,
    SlurmMissingError,
    SlurmRefusedError,
    SlurmUnavailableError,
    TooLargeError,
)

LIMIT_BYTES: Final = 512 << 20
CHILD: Final = Path(__file__).with_name("pyslurm_child.py")
# -P keeps the folder of the child, and with it this package's modules, out of its import path.
INTERPRETER: Final = (sys.executable, "-P")

REQUEST_FORM: Final = "pyslurm does not show --gpus of a job, so no GPU count is changed"
CPUS_PER_GPU: Final = "pyslurm does not show --cpus-per-gpu; jobs that ask for it are left alone"
GPUS_IN_USE: Final = (
    "pyslurm does not tell which GPUs of a node are in use unless AccountingStorageTRES counts gres/gpu"
)
NO_EXCLUSIVE: Final = "pyslurm of this release does not tell which jobs want whole nodes for themselves"
GPUS_ASKED: Final = "pyslurm does not show how many GPUs --gpus asks for unless AccountingStorageTRES counts gres/gpu"

# Where `TresPerJob` is shown as none, whatever a job asks for, no form of a request is certain.
HIDDEN_LEVERS: Final = (Lever.GPU_COUNT,)

_NOT_IMPORTABLE: Final = re.compile(r"ModuleNotFoundError|ImportError|cannot open shared object")
_OTHER_RELEASE: Final = re.compile(r"incompatible versions|protocol version", re.IGNORECASE)
_INSTALL: Final = "install the pyslurm of this Slurm release (docs/install.md), or use --source text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The pyslurm of this host: its version, the attributes that it lacks, and whether it shows forms of requests."""

    version: str
    shows_forms: bool = False
    lacks: tuple[str, ...] = ()


def installed(commands: Commands, *, interpreter: Sequence[str] = INTERPRETER) -> Installed:
    """Return the pyslurm of this host; raises `SlurmError` where it cannot be imported."""
    output = _run_child(commands, interpreter, "--version").output
    try:
        line = json.loads(output)
        lacks = tuple(map(str, line["lacks"]))
        return Installed(version=str(line["version"]), shows_forms=line["forms"] is True, lacks=lacks)
    except (ValueError, KeyError, TypeError) as err:
        raise DecodeError(f"pyslurm did not say which version it is: {_INSTALL}") from err


def types_not_counted(uncounted: frozenset[str]) -> str:
    """Return a sentence about which types of GPUs the site has to count, and how."""
    words = ",".join(f"gres/gpu:{gpu_type}" for gpu_type in sorted(uncounted))
    return f"AccountingStorageTRES does not count each type of GPU: set AccountingStorageTRES=gres/gpu,{words}"


class PyslurmSource:
    """The cluster, read through pyslurm."""

    name = "pyslurm"

    def __init__(
        self,
        clock: Clock,
        site: SiteReader,
        commands: Commands,
        *,
        interpreter: Sequence[str] = INTERPRETER,
    ) -> None:
        """Take the commands that run the child process, and the interpreter that has pyslurm."""
        self._clock = clock
        self._site = site
        self._commands = commands
        self._interpreter = interpreter

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now."""
        return self.read()[0]

    def read(self) -> tuple[Snapshot, Counted]:
        """Read the cluster as it is now, and which of its GPUs the site counts as TRES."""
        site = self._site.read()
        taken_at = self._clock.now()
        answer = pyslurm_decode.parse(_run_child(self._commands, self._interpreter).output)
        traits = site.config.traits
        if not same_release(answer.version, site.config.slurm_version):
            raise SlurmRefusedError(does_not_fit(answer.version, site.config.slurm_version))
        counted = pyslurm_decode.counted(site.config.accounting_tres, answer.nodes)
        snapshot = assemble(
            source=self.name,
            reservations=lambda: read_reservations(self._commands),
            taken_at=taken_at,
            site=site,
            jobs=[_job(raw, counted, traits.sharing_tells_exclusive) for raw in answer.jobs],
            nodes=[
                row_or_unread(
                    partial(pyslurm_decode.node_record, raw, gpus_counted=counted.gpus), raw.values.get("name")
                )
                for raw in answer.nodes
            ],
            partitions=[
                row_or_unread(partial(pyslurm_decode.partition, raw), raw.values.get("name"))
                for raw in answer.partitions
            ],
            hidden_levers=() if answer.shows_forms else HIDDEN_LEVERS,
            hides_bars=not traits.sharing_tells_exclusive,
            unread=(
                *(() if answer.shows_forms else (REQUEST_FORM,)),
                CPUS_PER_GPU,
                *(() if counted.gpus else (GPUS_IN_USE, GPUS_ASKED)),
                *((types_not_counted(counted.uncounted),) if counted.gpus and not counted.types_known else ()),
                *(() if traits.sharing_tells_exclusive else (NO_EXCLUSIVE,)),
            ),
        )
        return snapshot, counted


def does_not_fit(version: str, slurm_version: str) -> str:
    """Say that pyslurm is made for another release of Slurm."""
    return f"pyslurm {printable(version, 40)} does not fit Slurm {slurm_version or 'of an unknown release'}: {_INSTALL}"


def _job(raw: Raw, counted: Counted, sharing_tells_exclusive: bool) -> JobRecord | UnreadJob:
    job_id = raw.values.get("id")
    return record_or_unread(
        lambda: pyslurm_decode.job_record(raw, tres_counted=counted, sharing_tells_exclusive=sharing_tells_exclusive),
        job_id if isinstance(job_id, int) else 0,
    )


def _run_child(commands: Commands, interpreter: Sequence[str], *arguments: str) -> Answer:
    program, *options = interpreter
    try:
        answer = commands.ask(program, *options, str(CHILD), *arguments)
    except SlurmRefusedError as err:
        if _NOT_IMPORTABLE.search(str(err)):
            raise SlurmMissingError(f"pyslurm cannot be imported here: {_INSTALL}") from err
        raise
    except (SlurmUnavailableError, TooLargeError) as err:
        raise type(err)(str(err).replace(program, "pyslurm", 1)) from err
    fault = pyslurm_decode.fault(answer.output)
    if fault is not None:
        raise _error(fault)
    return answer


def _error(fault: Fault) -> SlurmError:
    """Make the error for one that the child process named."""
    message = printable(f"{fault.kind}: {fault.text}")
    if fault.kind in ("ImportError", "ModuleNotFoundError"):
        return SlurmMissingError(f"pyslurm cannot be imported here ({message}): {_INSTALL}")
    if fault.kind not in ("RPCError", "PyslurmError") or _OTHER_RELEASE.search(fault.text):
        return SlurmRefusedError(f"pyslurm does not fit ({message}): {_INSTALL}")
    return failure("pyslurm", 1, message.encode(), os.environ)
