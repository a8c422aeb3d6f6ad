"""Opens the reader that the configuration names."""

import os
from collections.abc import Callable, Mapping
from typing import Final

from advisor.backends.json_source import LIMIT_BYTES, JsonSource
from advisor.backends.process import OUTPUT_LIMIT_BYTES, Commands, SlurmCommands
from advisor.backends.pyslurm_source import LIMIT_BYTES as PYSLURM_LIMIT_BYTES
from advisor.backends.pyslurm_source import PyslurmSource, installed_version
from advisor.backends.releases import release_of
from advisor.backends.site_reader import SiteReader
from advisor.backends.text_source import TextSource
from advisor.clock import Clock
from advisor.errors import AdvisorError, ConfigError
from advisor.ports import ClusterSource

READERS: Final = ("auto", "text", "json", "pyslurm")


def open_source(
    name: str,
    *,
    cluster: str | None,
    timeout_s: float,
    clock: Clock,
    through: Callable[[SlurmCommands], Commands] = lambda plain: plain,
) -> ClusterSource:
    """Open a reader by name; `cluster` None means SLURM_CLUSTERS, or else the cluster of this host.

    `auto` reads text, unless pyslurm fits this Slurm and the site counts GPUs as TRES, without which pyslurm does
    not see which are in use. Whatever is asked goes `through` what is given, such as a budget.
    """
    asked = chosen_cluster(cluster, os.environ)
    limit_bytes = LIMIT_BYTES if name == "json" else OUTPUT_LIMIT_BYTES
    commands = through(SlurmCommands(timeout_s=timeout_s, cluster=asked, limit_bytes=limit_bytes))
    large = through(SlurmCommands(timeout_s=timeout_s, limit_bytes=PYSLURM_LIMIT_BYTES))
    site = SiteReader(commands, clock)
    match name:
        case "text":
            return TextSource(commands, clock, site)
        case "json":
            return JsonSource(commands, clock, site)
        case "pyslurm":
            if asked is not None:
                raise ConfigError("pyslurm reads only the cluster of this host: use --source text with --clusters")
            return PyslurmSource(clock, site, timeout_s=timeout_s, commands=large)
        case "auto":
            if asked is None and _pyslurm_sees_all(site, timeout_s):
                return PyslurmSource(clock, site, timeout_s=timeout_s, commands=large)
            return TextSource(commands, clock, site)
        case _:
            raise ConfigError(f"there is no reader {name!r}: choose one of {', '.join(READERS)}")


def chosen_cluster(cluster: str | None, variables: Mapping[str, str]) -> str | None:
    """Return the one cluster to ask, None for that of this host; raises `ConfigError` for several."""
    named = variables.get("SLURM_CLUSTERS") or None if cluster is None else cluster
    if named is not None and (not named or named.startswith("-") or "," in named or named == "all"):
        raise ConfigError(f"{named!r} is not one cluster: name one with --clusters or in SLURM_CLUSTERS")
    return named


def _pyslurm_sees_all(site: SiteReader, timeout_s: float) -> bool:
    try:
        version = installed_version(timeout_s=timeout_s)
        config = site.read().config
    except AdvisorError:
        return False
    return release_of(version) == config.release and "gres/gpu" in config.accounting_tres
