"""Looks at several clusters, each with its own configuration and journal; a fault of one hides no other."""

import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from advisor.config import chosen_clusters
from advisor.domain.dataclass import dataclass
from advisor.errors import AdvisorError, OptionsError
from advisor.watch.reading import Reading

if TYPE_CHECKING:
    from advisor.watch.cluster_view import ClusterView
    from advisor.watch.viewer import Viewer


# Slurm answers slowly when it is loaded; the other clusters do not wait for it.
MOST_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLook:
    """A cluster as it was seen last: `view` is None if it was never read, `fault` says why it cannot be read now."""

    name: str
    view: "ClusterView | None"
    fault: str


class WatchedCluster:
    """One of the clusters that are looked at; for any thread.

    `name` is "" for the cluster of this host, a file or the demo. A configuration that cannot be read is a fault, and
    is read again at the next look.
    """

    def __init__(self, reading: Reading, *, journal: Path | None, max_age_s: float) -> None:
        self.name = reading.cluster or ""
        self.reading = reading
        self.journal = journal
        self._max_age_s = max_age_s
        self._viewer: Viewer | None = None
        self._lock = threading.Lock()

    def look(self, *, now: bool = False) -> ClusterLook:
        """Return the cluster as it is, read again if it is older than `max_age_s`, or if asked for `now`."""
        try:
            viewer = self._opened()
        except AdvisorError as err:
            return ClusterLook(name=self.name, view=None, fault=str(err))
        view = None
        try:
            view = viewer.refresh() if now else viewer.view()
        except AdvisorError:
            view = viewer.last
        return ClusterLook(name=self.name, view=view, fault=viewer.fault)

    def _opened(self) -> "Viewer":
        # Commands that look once need neither the sources nor the journal that a view reads again and again.
        from advisor.watch.viewer import Viewer

        with self._lock:
            if self._viewer is None:
                config = self.reading.load_config()
                self._viewer = Viewer(self.reading, config, journal=self.journal, max_age_s=self._max_age_s)
            return self._viewer


def readings_of(reading: Reading) -> tuple[Reading, ...]:
    """Return a reading for each cluster that -M names, or the one of a file, the demo or this host.

    Raises `OptionsError` for what is no name of a cluster.
    """
    if not reading.is_live:
        return (replace(reading, cluster=None),)
    names = chosen_clusters(reading.cluster, reading.config, os.environ)
    return tuple(replace(reading, cluster=name) for name in names)


def watched_clusters(reading: Reading, *, journal: Path | None, max_age_s: float) -> tuple[WatchedCluster, ...]:
    """Return the clusters that -M names; raises `OptionsError` if there are several for one `journal`."""
    readings = readings_of(reading)
    check_one_journal(readings, journal)
    return tuple(WatchedCluster(one, journal=journal, max_age_s=max_age_s) for one in readings)


def check_one_journal(readings: Sequence[Reading], journal: Path | None) -> None:
    """Raise `OptionsError` if the option names one journal for several clusters."""
    if journal is not None and len(readings) > 1:
        raise OptionsError(
            "--journal names one file, and each cluster has a journal of its own: leave it out, or name one cluster"
        )


def looks(clusters: Sequence[WatchedCluster], *, now: bool = False) -> tuple[ClusterLook, ...]:
    """Look at all clusters at once, and return them in their order."""
    if len(clusters) == 1:
        return (clusters[0].look(now=now),)
    with ThreadPoolExecutor(max_workers=min(len(clusters), MOST_AT_ONCE)) as pool:
        return tuple(pool.map(lambda cluster: cluster.look(now=now), clusters))


def leave() -> None:
    """Wait for the threads that have to end, and then end the process at once if others still run.

    A thread that reads a cluster cannot be cancelled, and the compiled libraries that it is in abort the process if the
    interpreter ends around them. Returns if no such thread runs.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    for thread in others:
        if not thread.daemon:
            thread.join()
    if any(thread.is_alive() for thread in others):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
