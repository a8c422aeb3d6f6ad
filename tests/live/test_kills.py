"""Kill -9 at every write step against a live slurmctld, in short; `python -m tools.kill_test` is the long form."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.conftest import started
from tools.kill_test.kill_play import KillPlay, kill_cluster
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

KILLS = 16


@pytest.fixture(scope="module")
def killing_ground(release: str) -> Iterator[LiveCluster]:
    with started(kill_cluster(release)) as live:
        yield live


def test_whatever_kills_the_advisor_every_change_is_owned_or_taken_back(
    killing_ground: LiveCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, killing_ground.env[name])

    tally = KillPlay(killing_ground, tmp_path / "journal.sqlite", seed=7).run(KILLS)

    assert tally.faults == []
    assert sum(tally.kills.values()) == KILLS
    assert tally.intents.total() > 0
