"""The options that select a source, the configuration and the journal that go with them, and the source opened."""

import os
import shlex
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.backends.commands import chosen_cluster
from advisor.config import CLUSTER_VARIABLE, Config, load_config
from advisor.domain.dataclass import dataclass

if TYPE_CHECKING:
    from advisor.cycle import ClusterSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The options that select the source; `tries_plans` is whether plans are rolled out before they are shown."""

    snapshot: Path | None = None
    demo: bool = False
    source: str | None = None
    cluster: str | None = None
    timeout_s: float | None = None
    config: Path | None = None
    policy: str | None = None
    tries_plans: bool = False

    @property
    def is_live(self) -> bool:
        """Whether the live queue is read, rather than a file or the demo."""
        return not self.demo and self.snapshot is None

    def load_config(self) -> Config:
        """Load the configuration in force: that of the cluster, if it has one of its own.

        Raises `ConfigError` if several clusters are named.
        """
        cluster = chosen_cluster(self.cluster, os.environ) if self.is_live else None
        return load_config(self.config, os.environ, cluster=cluster)

    def timeout_of(self, config: Config) -> float:
        """Return the time limit of one Slurm command in seconds."""
        return config.source.timeout_s if self.timeout_s is None else self.timeout_s

    def command_line(self, journal: Path | None, name: str, *arguments: str) -> str:
        """Return the command that does what a live view was asked, with the options that select the same cluster.

        `pause` and `resume` ask Slurm nothing, and name no journal.
        """
        timeout = None if self.timeout_s is None else f"{self.timeout_s:g}"
        options = {"-M": self.cluster, "--config": self.config}
        if name in ("apply", "revert"):
            options |= {"--journal": journal, "--source": self.source, "--timeout": timeout}
        spelled = [word for option, value in options.items() if value is not None for word in (option, str(value))]
        return shlex.join(["sadvise", name, *arguments, *spelled])


def site_config(path: Path | None) -> Config:
    """Load the configuration of the site, whichever cluster is named in the environment."""
    return load_config(path, {name: value for name, value in os.environ.items() if name != CLUSTER_VARIABLE})


def journal_file(config: Config, given: Path | None) -> Path:
    """Return the path of the journal: that of the option, else that of the configuration."""
    return Path(config.journal.file) if given is None else given


def demo_path() -> Path:
    """Return the snapshot that ships with the package, recorded from a live test cluster."""
    return Path(str(files("advisor") / "demo" / "snapshot.json"))


def open_queue(reading: Reading, config: Config) -> "ClusterSource":
    """Open the demo, the snapshot file, or a reader of the live queue."""
    # Commands that read no queue need none of this, and a file needs no reader of Slurm.
    from advisor.backends.snapshot_file import SnapshotFileSource
    from advisor.clock import SystemClock
    from advisor.errors import OptionsError

    if reading.demo and reading.snapshot is not None:
        raise OptionsError("--demo and --snapshot exclude each other: give one")
    if reading.demo or reading.snapshot is not None:
        path = demo_path() if reading.snapshot is None else reading.snapshot
        return SnapshotFileSource(path, name="demo" if reading.demo else "file")
    from advisor.backends.sources import open_source

    return open_source(
        reading.source or config.source.reader,
        cluster=reading.cluster,
        timeout_s=reading.timeout_of(config),
        clock=SystemClock(),
    )
