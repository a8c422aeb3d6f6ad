"""What is claimed of random queues on a live cluster, against what slurmctld does."""

import os

import pytest

from tools.live_claims import rounds

pytestmark = pytest.mark.live


def test_claims_about_random_queues_are_borne_out(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The rounds set both for their clusters.
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("SLURM_CONF", "")

    found = rounds(release, minutes=1.0, seed=1)

    assert found.wrong == []
    assert found.claims.total() >= 2
