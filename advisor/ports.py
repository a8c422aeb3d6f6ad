"""What the core needs from outside; Slurm, a file and the simulator plug in here."""

from typing import Protocol

from advisor.domain.plan import Action, Receipt
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


class Actuator(Protocol):
    """What carries an action to the cluster and reads back what came of it."""

    def apply(self, action: Action) -> Receipt:
        """Change one field of one pending job; what cannot be done is a receipt, not an error."""
