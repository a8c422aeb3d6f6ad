"""What the core needs from outside; Slurm, a file and the simulator plug in here."""

from typing import Protocol

from advisor.domain.snapshot import Snapshot


class ClusterSource(Protocol):
    """Where snapshots come from.

    Raises `SlurmError`, `DecodeError` or `SnapshotFileError`; never returns half a snapshot as a whole one.
    """

    @property
    def name(self) -> str:
        """The reader's name: text, json, pyslurm, file or demo."""

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now."""
