"""The soak: the daemon's own rounds over a cluster that changes, in short."""

from pathlib import Path

import pytest

from tools.bench.measuring import Stages
from tools.bench.soak import Changing, configured, soak

GROWN_MIB = 8.0


@pytest.mark.slow
def test_memory_stays_flat_over_rounds_in_which_changes_come_and_go(tmp_path: Path) -> None:
    cluster = Changing.made(jobs=150, nodes=20, turnover=0.05, seed=1)
    stages = Stages()

    rows = list(soak(cluster, configured(tmp_path, with_models=False), hours=3.0, interval_s=180.0, stages=stages))

    assert [row.hour for row in rows] == [1, 2, 3]
    assert sum(row.applied for row in rows) > 10
    assert rows[-1].journal_mib > 0
    assert rows[-1].resident_mib - rows[0].resident_mib < GROWN_MIB
    assert {"judge", "journal, writing", "journal, reading"} <= stages.cpu_s.keys()


@pytest.mark.slow
def test_equal_seeds_soak_alike(tmp_path: Path) -> None:
    def applied(folder: Path) -> list[tuple[int, int]]:
        folder.mkdir()
        cluster = Changing.made(jobs=100, nodes=20, turnover=0.05, seed=2)
        rows = soak(cluster, configured(folder, with_models=False), hours=0.5, interval_s=180.0, stages=Stages())
        return [(row.applied, row.leases) for row in rows]

    assert applied(tmp_path / "first") == applied(tmp_path / "second")
