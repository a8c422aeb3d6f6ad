"""Nodes in every state on a live slurmctld: what it does with a job there, and what sadvise makes of the state."""

import pytest

from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from tools.stage.node_states import NOT_SHOWN, disagreement, rows, states_cluster

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]


def test_node_takes_jobs_where_slurmctld_starts_them(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with states_cluster(release) as (cluster, recipes):
        monkeypatch.setenv("PATH", cluster.env["PATH"])
        monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
        snapshot = open_source("text", cluster=None, timeout_s=60.0, clock=SystemClock()).snapshot()
        found = rows(cluster, recipes)

    nodes = {node.name: node for node in snapshot.nodes}
    shown = {name: row for name, row in found.items() if row.words != NOT_SHOWN}
    wrong = {
        row.how: (row, nodes[name], text) for name, row in shown.items() if (text := disagreement(row, nodes[name]))
    }
    assert wrong == {}
