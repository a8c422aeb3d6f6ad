"""Opens the reader that the configuration names."""

import os
from collections.abc import Callable, Mapping
from typing import Final

from advisor.backends.auto_source import AutoSource
from advisor.backends.json_source import LIMIT_BYTES, JsonSource
from advisor.backends.process import OUTPUT_LIMIT_BYTES, Commands, SlurmCommands
from advisor.backends.pyslurm_source import LIMIT_BYTES as PYSLURM_LIMIT_BYTES
from advisor.backends.pyslurm_source import PyslurmSource
from advisor.backends.site_reader import SiteReader
from advisor.backends.text_source import TextSource
from advisor.clock import Clock
from advisor.cycle import ClusterSource
from advisor.errors import ConfigError

READERS: Final = ("auto", "text", "json", "pyslurm")

# The most requests to slurmctld that a snapshot costs, by reader; where pyslurm fails, text is read in its place.
MOST_REQUESTS: Final[Mapping[str, int]] = {"text": 4, "json": 4, "pyslurm": 5, "auto": 9}

# The share of a command's time that pyslurm gets where text can be read in its place.
_SHARE_OF_TIME: Final = 1 / 3


def open_source(
    name: str,
    *,
    cluster: str | None,
    timeout_s: float,
    clock: Clock,
    through: Callable[[SlurmCommands], Commands] = lambda plain: plain,
) -> ClusterSource:
    """Open a reader by name; `cluster` None means SLURM_CLUSTERS, or else the cluster of this host.

    `auto` reads with pyslurm where its release is Slurm's and the site counts every type of GPU as TRES, else text.
    Whatever is asked goes `through` what is given, such as a budget.
    """
    asked = chosen_cluster(cluster, os.environ)
    limit_bytes = LIMIT_BYTES if name == "json" else OUTPUT_LIMIT_BYTES
    commands = through(SlurmCommands(timeout_s=timeout_s, cluster=asked, limit_bytes=limit_bytes))
    site = SiteReader(commands, clock)
    match name:
        case "text":
            return TextSource(commands, clock, site)
        case "json":
            return JsonSource(commands, clock, site)
        case "pyslurm":
            if asked is not None:
                raise ConfigError("pyslurm reads only the cluster of this host: use --source text with --clusters")
            large = through(SlurmCommands(timeout_s=timeout_s, limit_bytes=PYSLURM_LIMIT_BYTES))
            return PyslurmSource(clock, site, large)
        case "auto":
            quick = through(SlurmCommands(timeout_s=timeout_s * _SHARE_OF_TIME, limit_bytes=PYSLURM_LIMIT_BYTES))
            pyslurm = PyslurmSource(clock, site, quick) if asked is None else None
            return AutoSource(TextSource(commands, clock, site), pyslurm, site, quick, clock)
        case _:
            raise ConfigError(f"there is no reader {name!r}: choose one of {', '.join(READERS)}")


def chosen_cluster(cluster: str | None, variables: Mapping[str, str]) -> str | None:
    """Return the one cluster to ask, None for that of this host; raises `ConfigError` for several."""
    named = variables.get("SLURM_CLUSTERS") or None if cluster is None else cluster
    if named is not None and (not named or named.startswith("-") or "," in named or named == "all"):
        raise ConfigError(f"{named!r} is not one cluster: name one with --clusters or in SLURM_CLUSTERS")
    return named
