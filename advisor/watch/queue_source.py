"""Opens the source that the options select, or else the configuration."""

from advisor.backends.snapshot_file import SnapshotFileSource
from advisor.clock import SystemClock
from advisor.config import Config
from advisor.cycle import ClusterSource
from advisor.errors import OptionsError
from advisor.watch.reading import Reading, demo_path


def open_queue(reading: Reading, config: Config) -> ClusterSource:
    """Open the demo, the snapshot file, or a reader of the live queue."""
    if reading.demo and reading.snapshot is not None:
        raise OptionsError("--demo and --snapshot exclude each other: give one")
    if reading.demo or reading.snapshot is not None:
        path = demo_path() if reading.snapshot is None else reading.snapshot
        return SnapshotFileSource(path, name="demo" if reading.demo else "file")
    # A file needs no reader of Slurm.
    from advisor.backends.sources import open_source

    return open_source(
        reading.source or config.source.reader,
        cluster=reading.cluster,
        timeout_s=reading.timeout_of(config),
        clock=SystemClock(),
    )
