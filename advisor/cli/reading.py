"""From options to a source and a configuration."""

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.options import Reader
from advisor.errors import ConfigError

if TYPE_CHECKING:
    from advisor.cli.remembering import Memory
    from advisor.config import Config
    from advisor.cycle import Cycle
    from advisor.domain.snapshot import Snapshot
    from advisor.ports import ClusterSource, Forecaster


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the user said about where to read from."""

    snapshot: Path | None = None
    demo: bool = False
    source: Reader | None = None
    cluster: str | None = None
    timeout_s: float | None = None
    config: Path | None = None

    def load_config(self) -> "Config":
        """Load the configuration that is in force."""
        from advisor.config import load_config

        return load_config(self.config, os.environ)

    def timeout_of(self, config: "Config") -> float:
        """Return how long one Slurm command may take."""
        return config.source.timeout_s if self.timeout_s is None else self.timeout_s

    def memory(self, config: "Config", journal: Path | None, seen: "Snapshot") -> "Memory":
        """Return what the journal knows; of a file or the demo nothing, unless a journal is named."""
        from advisor.cli.remembering import Memory, remembered

        if journal is None and (self.demo or self.snapshot is not None):
            return Memory()
        return remembered(journal_file(config, journal), seen, config.planning)

    def cycle(self, config: "Config") -> "Cycle":
        """Return the pipeline with the settings and the models that are in force."""
        from advisor.cycle import Cycle
        from advisor.ports import NoForecaster

        forecaster: Forecaster = NoForecaster()
        if config.forecasts.enabled:
            from advisor.predict.forecaster import ModelForecaster
            from advisor.predict.library import Library

            forecaster = ModelForecaster(Library(Path(config.forecasts.models)))
        return Cycle(planning=config.planning, limits=config.guard, forecaster=forecaster)

    def open(self, config: "Config") -> "ClusterSource":
        """Open the source that the options, then the configuration, ask for."""
        if self.demo and self.snapshot is not None:
            raise ConfigError("--demo and --snapshot exclude each other: give one")
        if self.demo or self.snapshot is not None:
            from advisor.backends.snapshot_file import SnapshotFileSource

            path = demo_path() if self.snapshot is None else self.snapshot
            return SnapshotFileSource(path, name="demo" if self.demo else "file")
        from advisor.backends.sources import open_source
        from advisor.clock import SystemClock

        return open_source(
            config.source.reader if self.source is None else self.source.value,
            cluster=self.cluster,
            timeout_s=self.timeout_of(config),
            clock=SystemClock(),
        )


def journal_file(config: "Config", given: Path | None) -> Path:
    """Return the journal that an option names, else that of the configuration."""
    return Path(config.journal.file) if given is None else given


def demo_path() -> Path:
    """Return the snapshot that ships with the package, recorded from a live test cluster."""
    return Path(str(files("advisor") / "demo" / "snapshot.json"))
