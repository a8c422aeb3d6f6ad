"""What the core needs from outside; Slurm, a file and the simulator plug in here."""

from typing import Protocol

from advisor.domain.forecast import NO_FORECASTS, Forecasts
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


class Forecaster(Protocol):
    """What says how long jobs run, how fast, and when they start."""

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        """Forecast the GPU jobs of a snapshot; what is not known is absent, a broken model is a note, not an error."""


class NoForecaster:
    """Knows nothing, so that the planner goes by its rules."""

    def forecasts(self, snapshot: Snapshot) -> Forecasts:  # noqa: ARG002  (the protocol's)
        """Return no forecasts."""
        return NO_FORECASTS
