"""Reads the cluster that `--cluster` of `simulate` and `compare` names: a file, a short form, or the site."""

import sys
from pathlib import Path
from typing import Final

from advisor.backends.assoc_text import read_queue_limits
from advisor.backends.process import SlurmCommands
from advisor.config import Config
from advisor.errors import OptionsError, SimulationError
from advisor.sim.cluster import Cluster, is_short_form, parse_cluster
from advisor.sim.slurm.site_cluster import site_cluster
from advisor.view.lines import one_line
from advisor.watch.queue_source import open_queue
from advisor.watch.reading import Reading

LIVE: Final = "live"
_SNAPSHOT_ENDS: Final = (".json", ".json.gz")


def cluster_of(text: str, config: Config) -> Cluster:
    """Return a cluster; note on standard error what of a site is not in it.

    Raises `OptionsError` for a short form that cannot be parsed, another `AdvisorError` for what cannot be read.
    """
    if text != LIVE and not text.endswith(_SNAPSHOT_ENDS):
        try:
            return parse_cluster(text)
        except SimulationError as err:
            if is_short_form(text):
                raise OptionsError(str(err)) from err
            raise
    limits = None
    reading = Reading(snapshot=None if text == LIVE else Path(text))
    seen = open_queue(reading, config).snapshot()
    if text == LIVE:
        limits = read_queue_limits(SlurmCommands(timeout_s=reading.timeout_of(config)), seen.config)
    try:
        site = site_cluster(seen, limits)
    except SimulationError as err:
        raise SimulationError(f"--cluster {text}: {err}") from err
    for note in site.notes:
        sys.stderr.write(f"sadvise: --cluster {one_line(text)}: {one_line(note)}\n")
    return site.cluster
