"""Two minutes of the random adversary; `python -m tools.live_adversary` is the long form."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.conftest import started
from tools.live_adversary.adversary_play import AdversaryPlay, adversary_cluster
from tools.stage import LiveCluster

# One release is enough for the short form.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05")]


@pytest.fixture(scope="module")
def shared(release: str) -> Iterator[LiveCluster]:
    with started(adversary_cluster(release)) as live:
        yield live


def test_whatever_the_adversary_does_all_can_be_taken_back(shared: LiveCluster, tmp_path: Path) -> None:
    run = AdversaryPlay(shared, 4, 5.0, tmp_path).run(2.0)

    assert run.faults == []
    assert run.reverts == 3
    assert run.commands > 3
    assert run.lifted.total() > 3
    assert len(run.outcomes) > 3
