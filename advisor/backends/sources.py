"""Opens the reader that the configuration names."""

import os
from collections.abc import Callable, Mapping
from typing import Final

from advisor.backends.auto_source import AutoSource, ChosenSource
from advisor.backends.cluster_choice import chosen_cluster
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

# The most requests to slurmctld that a snapshot costs, by reader; where JSON is too large after its one request for
# the jobs, or pyslurm fails, text is read in its place.
MOST_REQUESTS: Final[Mapping[str, int]] = {"text": 4, "json": 5, "pyslurm": 9, "auto": 9}

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
    A queue that is too large for the named reader is read as text. `through` wraps every command,
    for example in a budget.
    """
    asked = chosen_cluster(cluster, os.environ)

    def commands_within(limit_bytes: int, share: float = 1.0) -> Commands:
        return through(SlurmCommands(timeout_s=timeout_s * share, cluster=asked, limit_bytes=limit_bytes))

    commands = commands_within(OUTPUT_LIMIT_BYTES)
    site = SiteReader(commands, clock)
    text = TextSource(commands, clock, site)
    match name:
        case "text":
            return text
        case "json":
            return ChosenSource(JsonSource(commands_within(LIMIT_BYTES), clock, site), text, clock)
        case "pyslurm":
            if asked is not None:
                raise ConfigError("pyslurm reads only the cluster of this host: use --source text with --clusters")
            return ChosenSource(PyslurmSource(clock, site, commands_within(PYSLURM_LIMIT_BYTES)), text, clock)
        case "auto":
            quick = commands_within(PYSLURM_LIMIT_BYTES, _SHARE_OF_TIME)
            pyslurm = PyslurmSource(clock, site, quick) if asked is None else None
            return AutoSource(text, pyslurm, site, quick, clock)
        case _:
            raise ConfigError(f"there is no reader {name!r}: choose one of {', '.join(READERS)}")
