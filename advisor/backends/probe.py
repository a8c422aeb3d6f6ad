"""Checks the host: commands, privileges, readers, and whether slurmctld runs with the slurm.conf at hand."""

import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import fields

from advisor.backends.controllers import read_controllers, turn_of
from advisor.backends.diagnostics import read_load, strained
from advisor.backends.privileges import GIVES, LACKS, TAKES, Level, read_privilege
from advisor.backends.process import Commands
from advisor.backends.site_reader import Identity, own_identity, running_config
from advisor.backends.sources import AutoSource
from advisor.cycle import ClusterSource
from advisor.diagnose.site_checks import Check, Status
from advisor.domain.releases import is_tested, releases_tested
from advisor.domain.site import SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.errors import AdvisorError
from advisor.settings import DaemonSettings

COMMANDS = ("squeue", "sinfo", "scontrol", "sprio", "sdiag")


def probes(
    snapshot: Snapshot,
    commands: Commands,
    *,
    source: ClusterSource,
    user: Identity | None = None,
    pacing: DaemonSettings | None = None,
    host: Callable[[], str] = socket.gethostname,
) -> Iterator[Check]:
    """Check the host, and slurmctld for `user`, by default the caller; costs at most seven requests to slurmctld.

    `source` is what read the snapshot.
    """
    yield _commands()
    yield _release(snapshot)
    yield _reader(snapshot, source)
    yield from _privileges(commands, user or own_identity())
    yield _load(commands, pacing or DaemonSettings())
    yield _running_config(snapshot, commands)
    # With -M scontrol would list the controllers of this host's slurm.conf, and ask those of the other cluster.
    if commands.cluster is None:
        yield from _controllers(commands, host())


def _commands() -> Check:
    missing = [command for command in COMMANDS if shutil.which(command) is None]
    if missing:
        return Check(
            name="commands",
            status=Status.LACKS,
            text=f"not on PATH: {', '.join(missing)}",
            cost="their information is missing from explain and check; install Slurm's client package",
        )
    return Check(name="commands", status=Status.OK, text="all of Slurm's client commands are on PATH")


def _release(snapshot: Snapshot) -> Check:
    version = snapshot.config.slurm_version or "unknown"
    if is_tested(version):
        return Check(name="Slurm release", status=Status.OK, text=f"{version}, tested")
    return Check(
        name="Slurm release",
        status=Status.UNKNOWN,
        text=f"{version}, not one of the tested releases ({', '.join(releases_tested())})",
        cost="read back what you apply by hand",
    )


def _reader(snapshot: Snapshot, source: ClusterSource) -> Check:
    """Report which reader is used and why; the snapshot lists what it does not show."""
    failed = bool(snapshot.reader_fault)
    if not isinstance(source, AutoSource) and not failed:
        return Check(name="reader", status=Status.OK, text=f"{snapshot.source}, as configured")
    # The text reader is as good and costs slurmctld less, so the absence of pyslurm is not a lack.
    return Check(
        name="reader",
        status=Status.LACKS if failed else Status.OK,
        text=f"{snapshot.source}: {source.why if isinstance(source, AutoSource) else snapshot.reader_fault}",
        cost="each failed read costs slurmctld requests; fix the cause, or set source.reader" if failed else "",
    )


def _privileges(commands: Commands, user: Identity) -> Iterator[Check]:
    """Report what each level of privilege allows, and which of them the user has."""
    held = read_privilege(commands, user)
    if held.known:
        cost = LACKS[held.level]
        status = Status.LACKS if cost else Status.OK
    else:
        status = Status.UNKNOWN
        cost = "an unknown privilege counts as not given: changes that could be denied are not sent"
    yield Check(name="privileges", status=status, text=held.text, cost=cost)
    levels = list(Level)
    for level in levels:
        has = levels.index(level) <= levels.index(held.level)
        lacking = Status.LACKS if held.known else Status.UNKNOWN
        yield Check(
            name=f"privilege {level}",
            status=Status.OK if has else lacking,
            text=GIVES[level],
            cost="" if has else TAKES[level],
        )


def _load(commands: Commands, pacing: DaemonSettings) -> Check:
    name = "slurmctld load"
    try:
        load = read_load(commands)
    except AdvisorError as err:
        return Check(name=name, status=Status.UNKNOWN, text=f"unknown: {err}", cost="the daemon skips such a round")
    strain = strained(load, pacing)
    if strain:
        return Check(name=name, status=Status.LACKS, text=strain, cost="the daemon skips rounds and makes them rarer")
    counts = {"server threads": load.server_threads, "messages in the agent queue": load.agent_queue}
    shown = [f"{number} {what}" for what, number in counts.items() if number is not None]
    return Check(name=name, status=Status.OK, text=", ".join(shown) or "nothing that shows strain")


def _running_config(snapshot: Snapshot, commands: Commands) -> Check:
    name = "slurm.conf"
    try:
        running = running_config(commands)
    except AdvisorError as err:
        return Check(name=name, status=Status.UNKNOWN, text=f"not compared: {err}")
    differing = _differences(snapshot.config, running)
    if differing:
        return Check(
            name=name,
            status=Status.LACKS,
            text=f"differs from what slurmctld runs with: {', '.join(differing)}",
            cost="plans follow the file; run scontrol reconfigure, or correct the file",
        )
    return Check(name=name, status=Status.OK, text="agrees with what slurmctld runs with")


def _controllers(commands: Commands, host: str) -> Iterator[Check]:
    """Report which of several slurmctld acts, and whether a daemon on this host would apply changes."""
    name, cost = "controllers", "a daemon here does not apply"
    try:
        controllers = read_controllers(commands)
    except AdvisorError as err:
        yield Check(name=name, status=Status.UNKNOWN, text=f"which slurmctld acts is not known: {err}", cost=cost)
        return
    if len(controllers) > 1:
        turn = turn_of(controllers, host)
        # To stand by is what all but one of them are there for.
        status = Status.OK if turn.is_known else Status.UNKNOWN
        yield Check(name=name, status=status, text=turn.text, cost="" if turn.is_known else cost)


def _differences(read: SiteConfig, running: SiteConfig) -> list[str]:
    return [
        f"{setting.name} ({getattr(read, setting.name)} against {getattr(running, setting.name)})"
        for setting in fields(SiteConfig)
        if getattr(read, setting.name) != getattr(running, setting.name)
    ]
