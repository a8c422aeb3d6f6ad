"""Rounds of a daemon that stands by: held as far as applying goes, and at work otherwise."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.clock import ManualClock
from advisor.config import Config, load_config
from advisor.daemon.live_parts import LiveParts
from advisor.daemon.service import Outfit, Service
from advisor.domain.lease import LeaseState
from advisor.domain.mode import Mode
from advisor.guard.breakers import BREAKERS
from advisor.metrics.observer import Metrics
from advisor.site.site_gate import RoundDeadline
from tests.builders import TAKEN_AT
from tests.daemon.rounds import Site
from tests.fake_cluster import fragmented

SAID = "slurmctld acts on ctl1, this is ctl2: the daemon there applies"


class Pair:
    """A site of which a test says whether another daemon applies, and which counts how often that is asked."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of the daemon, which nothing keeps from applying at first."""
        self.site = Site(folder=folder, cluster=fragmented())
        self.said: str | None = None
        self.asked = 0

    def service(self) -> Service:
        """Start a service."""
        self.site.service()
        return Service(self.outfit, self.site.config(), self.site.clock, self.site.told.append)

    def outfit(self, config: Config) -> Outfit:
        """Build the parts."""
        return replace(self.site.outfit(config), against_applying=self.against_applying)

    def against_applying(self) -> str | None:
        """Say what the test wants, and count."""
        self.asked += 1
        return self.said


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """A daemon on one of two controllers."""
    return Pair(tmp_path)


def test_daemon_that_stands_by_recommends_and_applies_once_it_is_its_turn(pair: Pair) -> None:
    service = pair.service()
    pair.said = SAID

    held = service.round()
    pair.said = None
    freed = service.round()

    assert held.step is not None and len(held.step.record.recommendations) == 1 and held.step.applied == ()
    assert [each.text for each in held.step.held_back] == [f"standby: {SAID}"]
    assert held.held_to == {"standby": SAID} and held.mode is Mode.RECOMMEND
    assert "(held by standby)" in held.summary
    assert freed.step is not None and len(freed.step.applied) == 1 and freed.held_to == {}
    assert pair.asked == 2


def test_daemon_that_stands_by_takes_back_what_is_due(pair: Pair) -> None:
    service = pair.service()
    service.round()
    pair.said = SAID
    pair.site.cluster.now += 86_400.0

    held = service.round()

    assert held.step is not None and len(held.step.reconciled.taken_back) == 1
    assert held.open_leases.get(LeaseState.OUT, 0) == 0 and held.held_to == {"standby": SAID}


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_daemon_that_would_not_apply_asks_nothing(pair: Pair, mode: Mode) -> None:
    pair.site.mode = mode
    pair.said = SAID

    done = pair.service().round()

    assert done.held_to == {} and pair.asked == 0


def test_daemon_that_stands_by_is_seen_in_the_metrics(pair: Pair) -> None:
    pair.said = SAID
    metrics = Metrics(
        version="1", interval_s=60.0, journal=pair.site.folder / "journal.sqlite", breakers=tuple(BREAKERS)
    )

    metrics.observe(pair.service().round())

    assert b'sadvise_held{by="standby"} 1.0' in metrics.exposition()


@pytest.mark.parametrize(("host", "held"), [("ctl2", SAID), ("ctl1.hpc", None), ("login", None)])
def test_parts_of_the_daemon_know_their_host_and_ask_slurm_anew_when_built_again(
    host: str, held: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        f'#!/bin/sh\necho "$@" >>{asked}\n'
        "echo 'Slurmctld(primary) at ctl1 is UP'\necho 'Slurmctld(backup) at ctl2 is UP'\n"
    )
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CLUSTERS", raising=False)
    parts = LiveParts(ManualClock(TAKEN_AT), RoundDeadline(), host=lambda: host)
    config = load_config(None, {"SADVISE_SOURCE__READER": "text", "SADVISE_FORECASTS__ENABLED": "false"})

    said = [parts.build(config).against_applying() for _ in range(2)]

    assert said == [held, held]
    assert asked.read_text() == "ping\n" * 2
    assert parts.build(config).rpcs() == {"REQUEST_PING": 2}
