"""Reads a live cluster through pyslurm, in a child process with a deadline: four requests to slurmctld."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from advisor.backends import pyslurm_decode
from advisor.backends.assembly import assemble
from advisor.backends.process import Answer, Commands, SlurmCommands
from advisor.backends.releases import release_of, traits_of
from advisor.backends.site_reader import SiteReader
from advisor.clock import Clock
from advisor.domain.snapshot import Snapshot
from advisor.errors import SlurmMissingError, SlurmRefusedError

LIMIT_BYTES: Final = 512 << 20
CHILD: Final = Path(__file__).with_name("pyslurm_child.py")
# -P keeps the folder of the child, and with it this package's modules, out of its import path.
INTERPRETER: Final = (sys.executable, "-P")

GPUS_IN_USE: Final = (
    "pyslurm does not tell which GPUs of a node are in use unless AccountingStorageTRES counts gres/gpu"
)
NO_EXCLUSIVE: Final = "pyslurm of this release does not tell which jobs want whole nodes for themselves"
GPUS_ASKED: Final = "pyslurm does not show --gpus of a job unless AccountingStorageTRES counts gres/gpu"

_NOT_IMPORTABLE: Final = re.compile(r"ModuleNotFoundError|ImportError|cannot open shared object")
_INSTALL: Final = "pip install 'sadvise[pyslurm]' with the pyslurm of this Slurm release, or use --source text"


def installed_version(*, timeout_s: float, interpreter: Sequence[str] = INTERPRETER) -> str:
    """Return the version of pyslurm; raises `SlurmError` where it cannot be imported."""
    answer = _run_child(SlurmCommands(timeout_s=timeout_s, limit_bytes=LIMIT_BYTES), interpreter, "--version")
    match = re.search(rb'"version": "([^"]*)"', answer.output)
    return match[1].decode("utf-8", "backslashreplace") if match else ""


class PyslurmSource:
    """The cluster as pyslurm sees it."""

    name = "pyslurm"

    def __init__(
        self,
        clock: Clock,
        site: SiteReader,
        *,
        timeout_s: float,
        interpreter: Sequence[str] = INTERPRETER,
        commands: Commands | None = None,
    ) -> None:
        """Take the interpreter that has pyslurm, and through what it is run, None for no more than a deadline."""
        self._clock = clock
        self._site = site
        self._commands = commands or SlurmCommands(timeout_s=timeout_s, limit_bytes=LIMIT_BYTES)
        self._interpreter = interpreter

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now."""
        site = self._site.read()
        taken_at = self._clock.now()
        answer = pyslurm_decode.parse(_run_child(self._commands, self._interpreter).output)
        if site.config.release != (0, 0) and release_of(answer.version) != site.config.release:
            raise SlurmRefusedError(
                f"pyslurm {answer.version} does not fit Slurm {site.config.slurm_version}: {_INSTALL}"
            )
        gpus_counted = "gres/gpu" in site.config.accounting_tres
        sharing = traits_of(site.config.release).sharing_tells_exclusive
        return assemble(
            source=self.name,
            taken_at=taken_at,
            site=site,
            jobs=[
                pyslurm_decode.job_record(raw, gpus_counted=gpus_counted, sharing_tells_exclusive=sharing)
                for raw in answer.jobs
            ],
            nodes=[pyslurm_decode.node_record(raw) for raw in answer.nodes],
            partitions=[pyslurm_decode.partition(raw) for raw in answer.partitions],
            unread=(
                *(() if gpus_counted else (GPUS_IN_USE, GPUS_ASKED)),
                *(() if sharing else (NO_EXCLUSIVE,)),
            ),
        )


def _run_child(commands: Commands, interpreter: Sequence[str], *arguments: str) -> Answer:
    program, *options = interpreter
    try:
        return commands.ask(program, *options, str(CHILD), *arguments)
    except SlurmRefusedError as err:
        if _NOT_IMPORTABLE.search(str(err)):
            raise SlurmMissingError(f"pyslurm cannot be imported here: {_INSTALL}") from err
        raise
