"""Reads what seldom changes: the site's configuration, its topology, and whether this user can see the queue.

Slurm's own files are read first, since slurmctld would need three requests of the four that a snapshot
can cost (docs/decisions/slurm.md). The result is kept for some minutes.
"""

import os
import pwd
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from advisor.backends.process import Commands, ask_text, printable
from advisor.backends.scontrol_text import for_jobs
from advisor.backends.site_config import config_lines, site_config, topology_kind
from advisor.backends.slurm_conf import (
    ConfigFileError,
    conf_path,
    read_conf,
    read_topology,
    reserves_for_system,
    shown_topology,
)
from advisor.clock import Clock
from advisor.domain.dataclass import dataclass
from advisor.domain.load import RateLimit
from advisor.domain.releases import version_in
from advisor.domain.site import SiteConfig
from advisor.domain.topology import Topology, TopologyKind
from advisor.errors import SlurmError, SlurmRefusedError

REFRESH_S: Final = 600.0

# Slurm's own defaults: the size of the bucket, and how much of it is refilled in which period of seconds.
_LIMITER: Final = {"rl_bucket_size": 30, "rl_refill_rate": 2, "rl_refill_period": 1}
_HIDING: Final = ("jobs", "nodes", "partitions")
_TRUSTED_LEVELS: Final = frozenset(("operator", "administrator"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The site as read; `unread` lists in plain words what could be missing, `limit` is on this user's requests.

    `for_jobs` maps nodes to the CPUs and the MiB of memory that jobs can have, where that is not all of them.
    """

    config: SiteConfig
    topology: Topology
    unread: tuple[str, ...] = ()
    limit: RateLimit | None = None
    for_jobs: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The user who asks."""

    uid: int
    name: str

    def is_slurm_user(self, named: str) -> bool:
        """Return whether this is SlurmUser, as slurm.conf (`slurm`, `64030`) or scontrol (`slurm(64030)`) names it."""
        name, _, uid = named.partition("(")
        return bool(named) and (name == self.name or str(self.uid) in (name, uid.rstrip(")")))


def own_identity() -> Identity:
    """Return the user this process runs as."""
    uid = os.geteuid()
    try:
        return Identity(uid=uid, name=pwd.getpwuid(uid).pw_name)
    except KeyError:
        return Identity(uid=uid, name=str(uid))


def _check_named_file() -> None:
    """Raise `SlurmRefusedError` for a SLURM_CONF that is not there: Slurm's commands wait a minute for it to appear."""
    named = os.environ.get("SLURM_CONF")
    if named and not Path(named).exists():
        raise SlurmRefusedError(f"SLURM_CONF names {printable(named)}, which is not there: correct it or unset it")


def rate_limit(raw: Mapping[str, str], user: Identity) -> RateLimit | None:
    """Return the limit of slurmctld on a user's requests; None where there is none, as for root and SlurmUser."""
    words = dict(word.partition("=")[::2] for word in raw.get("slurmctldparameters", "").lower().split(","))
    if "rl_enable" not in words or user.uid == 0 or user.is_slurm_user(raw.get("slurmuser", "root")):
        return None
    size, rate, period = (
        int(value) if (value := words.get(name, "")[:9]).isdecimal() and int(value) > 0 else default
        for name, default in _LIMITER.items()
    )
    return RateLimit(size=size, per_s=rate / period)


def running_config(commands: Commands) -> SiteConfig:
    """Ask slurmctld for the configuration it runs with; costs it two requests."""
    raw = config_lines(ask_text(commands, "scontrol", "show", "config"))
    return site_config(raw, version=raw["slurm_version"])


class SiteReader:
    """Reads the site and keeps it for `refresh_s`."""

    def __init__(
        self, commands: Commands, clock: Clock, *, refresh_s: float = REFRESH_S, identity: Identity | None = None
    ) -> None:
        self._commands = commands
        self._clock = clock
        self._refresh_s = refresh_s
        self._identity = identity or own_identity()
        self._site: Site | None = None
        self._read_at = 0.0

    def read(self) -> Site:
        """Return the site, read again if the last reading is too old; raises `SlurmError` or `DecodeError`."""
        now = self._clock.now()
        if self._site is None or not 0 <= now - self._read_at < self._refresh_s:
            self._site = self._read()
            self._read_at = now
        return self._site

    def _read(self) -> Site:
        _check_named_file()
        raw, version = self._configuration()
        config = site_config(raw, version=version)
        unread = self._check_visibility(config, raw)
        return Site(
            config=config,
            topology=self._topology(topology_kind(config)),
            unread=unread,
            limit=rate_limit(raw, self._identity),
            for_jobs=self._for_jobs(),
        )

    def _configuration(self) -> tuple[Mapping[str, str], str]:
        """Return the raw pairs and Slurm's version, from the files or else from slurmctld."""
        try:
            raw: Mapping[str, str] = read_conf(self._conf_path())
        except ConfigFileError:
            raw = config_lines(self._text("scontrol", "show", "config"))
            return raw, raw["slurm_version"]
        return raw, version_in(self._text("sinfo", "--version"))

    def _topology(self, kind: TopologyKind) -> Topology:
        try:
            return read_topology(self._conf_path(), kind)
        except ConfigFileError:
            return shown_topology(kind, self._text("scontrol", "show", "topology"))

    def _for_jobs(self) -> Mapping[str, tuple[int, int]]:
        """Ask which CPUs and memory jobs can have, unless slurm.conf keeps none from them."""
        try:
            asks = reserves_for_system(self._conf_path())
        except ConfigFileError:
            asks = True
        return for_jobs(self._text("scontrol", "show", "node")) if asks else {}

    def _conf_path(self) -> Path:
        if self._commands.cluster is not None:
            raise ConfigFileError("the files here could belong to another cluster")
        return conf_path()

    def _check_visibility(self, config: SiteConfig, raw: Mapping[str, str]) -> tuple[str, ...]:
        """Raise `SlurmRefusedError` where the site hides the queue from this user; say so where that is not sure."""
        hidden = [part for part in _HIDING if part in config.private_data]
        if not hidden or self._identity.uid == 0 or self._identity.is_slurm_user(raw.get("slurmuser", "root")):
            return ()
        setting = f"PrivateData={','.join(hidden)}"
        level = self._admin_level(raw)
        if level is None:
            doubt = f"the accounting database does not show whether {self._identity.name} is an Operator"
            return (f"{setting} could hide the jobs of other users: {doubt}",)
        if level in _TRUSTED_LEVELS:
            return ()
        name = self._identity.name
        seen = f"shows {name} only their own jobs" if "jobs" in hidden else f"hides {' and '.join(hidden)} from {name}"
        raise SlurmRefusedError(
            f"Slurm {seen} ({setting}), so there is no advice: run sadvise as SlurmUser, root or an Operator "
            f"(`sacctmgr modify user {name} set adminlevel=Operator`); `sadvise journal` lists changes of own jobs"
        )

    def _admin_level(self, raw: Mapping[str, str]) -> str | None:
        """Return the user's level in the accounting database, "" for none, None where it cannot be known."""
        if "slurmdbd" not in raw.get("accountingstoragetype", ""):
            return ""
        arguments = ("-n", "-P", "show", "user", "where", f"name={self._identity.name}", "format=adminlevel")
        try:
            return self._text("sacctmgr", *arguments).strip().lower()
        except SlurmError:
            return None

    def _text(self, program: str, *arguments: str) -> str:
        return ask_text(self._commands, program, *arguments)
