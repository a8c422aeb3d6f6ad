"""Defines the groups of options that select a queue, or a site whose configuration and files are read."""

from typing import Annotated

from advisor.cli.option_groups import OptionGroup
from advisor.cli.options import Cluster, Clusters, ConfigFile, Demo, SnapshotFile, Source, Timeout
from advisor.watch.reading import Reading


def _live(
    source: Source = None, cluster: Cluster = None, timeout: Timeout = None, config: ConfigFile = None
) -> Reading:
    return Reading(source=source, cluster=cluster, timeout_s=timeout, config=config)


def _any(
    snapshot: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Cluster = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
) -> Reading:
    return Reading(snapshot=snapshot, demo=demo, source=source, cluster=cluster, timeout_s=timeout, config=config)


def _several(
    snapshot: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Clusters = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
) -> Reading:
    return _any(snapshot, demo, source, cluster, timeout, config)


def _site(cluster: Cluster = None, config: ConfigFile = None) -> Reading:
    return Reading(cluster=cluster, config=config)


# Where a command reads the queue: the live one, also a file or the demo, also of several clusters.
LiveQueue = Annotated[Reading, OptionGroup(_live)]
AnyQueue = Annotated[Reading, OptionGroup(_any)]
SeveralQueues = Annotated[Reading, OptionGroup(_several)]
# Whose configuration and files a command uses that reads no queue.
Site = Annotated[Reading, OptionGroup(_site)]
