"""Keeps the view of a cluster up to date for everyone who looks at it; asks Slurm no more often than is allowed."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from advisor.backends.commands import chosen_cluster
from advisor.clock import SystemClock
from advisor.config import Config, with_adoption
from advisor.cycle import ClusterSource, NoForecaster, StartForecaster
from advisor.errors import AdvisorError
from advisor.watch.cluster_view import ClusterView, cluster_view, waiting_gpu_jobs
from advisor.watch.daemon_state import daemon_state
from advisor.watch.planned import forecaster_of, plan_now
from advisor.watch.reading import Reading, open_queue


class Viewer:
    """The view of one cluster, read again when it is older than `max_age_s` and someone asks; for any thread.

    While one thread reads, others get the view before, if there is one.
    """

    def __init__(
        self,
        reading: Reading,
        config: Config,
        *,
        journal: Path | None = None,
        max_age_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reading = reading
        self._config = config
        self._journal = journal
        self._max_age_s = max_age_s
        self._monotonic = monotonic
        self._source: ClusterSource = open_queue(reading, config)
        self._forecaster = forecaster_of(config)
        self._lock = threading.Lock()
        self._view: ClusterView | None = None
        self._read_at = -float("inf")
        self._fault = ""
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def fault(self) -> str:
        """Why the cluster could not be read the last time, "" if it could."""
        return self._fault

    @property
    def last(self) -> ClusterView | None:
        """The view of before, however old; None if the cluster was never read."""
        return self._view

    def view(self) -> ClusterView:
        """Return the view, at most `max_age_s` old unless it is being read or cannot be; `fault` says why it cannot.

        Raises `AdvisorError` if the cluster could not be read and there is no view yet.
        """
        if (view := self._view) is not None and not self._is_old():
            return view
        if self._lock.acquire(blocking=view is None):
            try:
                if self._is_old():
                    self._read()
            finally:
                self._lock.release()
        return self._known()

    def latest(self, patience_s: float) -> ClusterView | None:
        """Return the view; one that is old is read again in the background, for which this waits at most `patience_s`.

        Returns the view of before, or None if there is none, where that takes longer. Raises `AdvisorError` if the
        cluster could not be read and there is no view yet.
        """
        if not self._is_old():
            return self._known()
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._read_if_old, name="viewer", daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(patience_s)
        return None if self._view is None and thread.is_alive() else self._known()

    def refresh(self) -> ClusterView:
        """Read the cluster now, and return its view; raises `AdvisorError` if it cannot be read."""
        with self._lock:
            self._read()
        if self._fault or self._view is None:
            raise AdvisorError(self._fault)
        return self._view

    def forget(self) -> None:
        """Let the cluster be read again when someone looks next."""
        with self._lock:
            self._read_at = -float("inf")

    def _known(self) -> ClusterView:
        if self._view is None:
            raise AdvisorError(self._fault)
        return self._view

    def _read_if_old(self) -> None:
        with self._lock:
            if self._is_old():
                self._read()

    def _is_old(self) -> bool:
        return self._monotonic() - self._read_at > self._max_age_s

    def _read(self) -> None:
        try:
            self._view, self._fault = self._seen(), ""
        except AdvisorError as err:
            self._fault = str(err)
        # A cluster that cannot be read is not asked more often than one that can.
        self._read_at = self._monotonic()

    def _seen(self) -> ClusterView:
        reading, config, snapshot = self._reading, with_adoption(self._config), self._source.snapshot()
        planned = plan_now(reading, config, self._journal, snapshot, self._forecaster)
        forecaster: StartForecaster = self._forecaster or NoForecaster()
        starts = forecaster.with_starts(planned.record.forecasts, snapshot, waiting_gpu_jobs(snapshot))
        return cluster_view(
            planned,
            starts,
            source=self._source.name,
            cluster=chosen_cluster(reading.cluster, os.environ),
            daemon=daemon_state(config, self._journal, SystemClock().now()) if reading.is_live else None,
        )
