"""The controller of a live cluster, as a machine with a systemd of its own to install packages on."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tests.throwaway_machine import ThrowawayMachine
from tools.stage import LiveCluster

# Where the cluster's files are on the machine, and who its daemon is there, for slurmctld as well.
_SLURM: Final = "/srv/slurm"
_PACKAGES: Final = "/root/packages"
_USER: Final = "sadvise"
_USER_NUMBER: Final = 870
_DEADLINE_S: Final = 1200.0
# Debian's minimal systems have no sudo.
_SUDO: Final = '#!/bin/sh\n[ "$1" = -u ] || exit 2\nuser=$2; shift 2\nexec runuser -u "$user" -- "$@"\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A command as it was typed, and what it printed on both streams."""

    line: str
    exit_status: int
    printed: str


class Prompt(Protocol):
    """A shell of root in which commands are typed."""

    def type(self, line: str) -> Typed:
        """Run a line of a shell."""


class ControllerMachine:
    """A booted machine with packages in its home that talks to a live cluster."""

    def __init__(self, machine: ThrowawayMachine) -> None:
        self._machine = machine

    def type(self, line: str) -> Typed:
        """Run a line of bash as root, in its home."""
        answer = self._machine.ask("bash", "-c", f"cd /root && exec 2>&1; {line}", deadline_s=_DEADLINE_S)
        return typed(line, answer)


def typed(line: str, answer: "subprocess.CompletedProcess[str]") -> Typed:
    """Return what came of a line that was typed."""
    return Typed(line=line, exit_status=answer.returncode, printed=answer.stdout + answer.stderr)


@contextmanager
def controller(live: LiveCluster, packages: Path, scratch: Path) -> Iterator[ControllerMachine]:
    """Boot a machine with the packages of a folder in its home; `scratch` is an empty folder."""
    live.add_system_user(_USER, _USER_NUMBER)
    etc = scratch / "etc"
    etc.mkdir()
    (etc / "slurm.conf").write_text((live.folder / "slurm.conf").read_text().replace(str(live.folder), _SLURM))
    scratch.chmod(0o755)
    home = scratch / "home"
    home.mkdir()
    (scratch / "machine").mkdir()
    binds = {home: "/root", packages.absolute(): _PACKAGES, live.folder: _SLURM, etc: "/etc/slurm"}
    with ThrowawayMachine(scratch / "machine", binds) as machine:
        machine.run("sh", "-c", f"echo 'u {_USER} {_USER_NUMBER}' | systemd-sysusers -")
        if machine.ask("sh", "-c", "command -v sudo").returncode:
            machine.run("sh", "-c", f"printf %s '{_SUDO}' >/usr/bin/sudo && chmod 755 /usr/bin/sudo")
        yield ControllerMachine(machine)
