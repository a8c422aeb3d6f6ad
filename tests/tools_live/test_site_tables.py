"""The daemon of a compressed cluster takes the tables that are written for it, however fast its time runs."""

from pathlib import Path

import pytest

from advisor.config import load_config
from tools.live.compressed_site import CompressedSite
from tools.stage.daemon import write_config


@pytest.mark.parametrize("speedup", [1.0, 60.0, 480.0, 1200.0])
def test_compressed_tables_are_a_configuration_that_the_daemon_takes(speedup: float, tmp_path: Path) -> None:
    site = CompressedSite(release="22.05", nodes=2, leaf_nodes=1, speedup=speedup, nic_gbps=100.0, oversubscription=1.0)

    config = load_config(write_config(tmp_path, 2.0, site.daemon_tables("default", "trade", None)), {})

    assert config.planning.node_list_lease_s == max(1.0, 120.0 / speedup)
    assert config.planning.lift_lease_s >= 1.0
