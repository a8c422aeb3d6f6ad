"""Holds the clusters that are served, sums each up in a line, and finds the one that an address names."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from flask import Flask, abort, current_app, g

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import whole_gpus
from advisor.errors import AdvisorError
from advisor.site.status_words import Overlook, state_sentence
from advisor.watch.cluster_view import ClusterView
from advisor.watch.reading import Reading
from advisor.web.content import PATIENCE_S, Content

# Below this stand the pages of each of several clusters.
PREFIX: Final = "/clusters/<cluster>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """A cluster in one line; null is what is not known.

    `name` is that of -M, by which its address names it among several, "" without -M. `gpus_in_use` and `gpus_idle`
    count types of which the use is known, `gpus_idle` on nodes that can start jobs. `mode` is the farthest in force.
    `state` is what stops the daemon, or why nothing was changed. `stopped_partitions` are not up though GPU jobs wait
    for them. `fault` says why the cluster could not be read; without it and `taken_at`, it is being read.
    """

    name: str
    taken_at: float | None = None
    gpus: int | None = None
    gpus_in_use: int | None = None
    gpus_idle: int | None = None
    waiting_gpu_jobs: int | None = None
    recommendations: int | None = None
    changes_in_effect: int | None = None
    daemon: str | None = None
    mode: str | None = None
    is_well: bool | None = None
    is_paused: bool | None = None
    state: str | None = None
    stopped_partitions: tuple[str, ...] = ()
    fault: str | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether the cluster is being read for the first time."""
        return self.taken_at is None and self.fault is None


class ServedCluster:
    """A cluster whose configuration and source are opened when they are needed; for any thread.

    A configuration that cannot be read is read again when someone looks again.
    """

    def __init__(self, name: str, make: Callable[[], Content]) -> None:
        self.name = name
        self._make = make
        self._lock = threading.Lock()
        self._opened: Content | None = None

    @property
    def opened(self) -> Content | None:
        """What is shown of the cluster; None if its configuration or its source could not be opened yet."""
        return self._opened

    def content(self) -> Content:
        """Return what is shown of the cluster; raises `AdvisorError` if it cannot be opened."""
        with self._lock:
            if self._opened is None:
                self._opened = self._make()
            return self._opened

    def summary(self, patience_s: float) -> ClusterSummary:
        """Return the cluster in a line; it is read if it is old, for which this waits at most `patience_s`."""
        try:
            content = self.content()
        except AdvisorError as err:
            return ClusterSummary(name=self.name, fault=str(err))
        seen, daemon = None, None
        # The viewer keeps why it could not read.
        with contextlib.suppress(AdvisorError):
            seen = content.viewer.latest(patience_s)
        with contextlib.suppress(AdvisorError):
            daemon = content.daemon()
        made = ClusterSummary(name=self.name, fault=content.viewer.fault or None)
        if daemon is not None:
            made = _with_daemon(made, daemon)
        return made if seen is None else _with_queue(made, seen)


def served(reading: Reading, journal: Path | None = None) -> ServedCluster:
    """Return the cluster of a reading, to be opened with its own configuration."""
    return ServedCluster(reading.cluster or "", lambda: Content(reading, reading.load_config(), journal=journal))


def summaries(clusters: Sequence[ServedCluster]) -> list[ClusterSummary]:
    """Return every cluster in a line; those that are old are read at the same time."""
    for cluster in clusters:
        cluster.summary(0.0)
    deadline = time.monotonic() + PATIENCE_S
    return [cluster.summary(max(0.0, deadline - time.monotonic())) for cluster in clusters]


def select_by_address(app: Flask, clusters: Sequence[ServedCluster]) -> None:
    """Let an application know the cluster of each request, and name it in the addresses that its pages link to.

    One cluster has no name in addresses.
    """
    app.extensions["clusters"] = clusters
    by_name = {cluster.name: cluster for cluster in clusters}

    @app.url_value_preprocessor
    def select(_endpoint: str | None, values: dict[str, Any] | None) -> None:
        name = (values or {}).pop("cluster", None)
        # An unknown one is not found later, once it is known who asks.
        g.cluster = clusters[0] if len(clusters) == 1 else by_name.get(name)

    @app.url_defaults
    def name_cluster(endpoint: str, values: dict[str, Any]) -> None:
        if app.url_map.is_endpoint_expecting(endpoint, "cluster") and g.cluster is not None:
            values.setdefault("cluster", g.cluster.name)


def served_clusters() -> Sequence[ServedCluster]:
    """Return all clusters that are served."""
    clusters: Sequence[ServedCluster] = current_app.extensions["clusters"]
    return clusters


def selected() -> ServedCluster | None:
    """Return the cluster that the address names, if it names one that is served."""
    cluster: ServedCluster | None = g.get("cluster")
    return cluster


def selected_content() -> Content:
    """Return what is shown of the cluster that the address names; raises `AdvisorError` if it cannot be opened."""
    cluster = selected()
    if cluster is None:
        abort(404)
    return cluster.content()


def _with_daemon(made: ClusterSummary, daemon: Overlook) -> ClusterSummary:
    return replace(
        made,
        daemon=daemon.state,
        mode=str(daemon.mode),
        is_well=daemon.is_well,
        is_paused=daemon.pause is not None,
        state=state_sentence(daemon),
        changes_in_effect=daemon.out,
    )


def _with_queue(made: ClusterSummary, seen: ClusterView) -> ClusterSummary:
    types = seen.overview.gpu_types
    return replace(
        made,
        taken_at=seen.taken_at,
        gpus=whole_gpus((gpus.gpu_type, gpus.total) for gpus in types),
        gpus_in_use=_known((gpus.gpu_type, gpus.in_use) for gpus in types),
        gpus_idle=_known((gpus.gpu_type, None if gpus.idle is None else gpus.idle.total) for gpus in types),
        waiting_gpu_jobs=seen.overview.pending_gpu_jobs,
        recommendations=len(seen.advice),
        changes_in_effect=len(seen.in_effect) if made.changes_in_effect is None else made.changes_in_effect,
        stopped_partitions=tuple(partition.name for partition in seen.overview.stopped),
    )


def _known(counts: Iterable[tuple[str, int | None]]) -> int | None:
    """Return the sum of the counts by type that are known, as whole GPUs; None if there are only others."""
    listed = list(counts)
    known = [(gpu_type, count) for gpu_type, count in listed if count is not None]
    return whole_gpus(known) if known or not listed else None
