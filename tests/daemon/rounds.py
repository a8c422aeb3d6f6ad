"""A service over a fake cluster, for tests of rounds."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from advisor.apply.applier import Applier
from advisor.clock import ManualClock
from advisor.config import Config, load_config
from advisor.cycle import Cycle, StartForecaster
from advisor.daemon.journal_keeper import Keeper
from advisor.daemon.service import Outfit, Service
from advisor.domain.lease import Lease
from advisor.domain.load import ControllerLoad
from advisor.domain.mode import Mode, Modes
from advisor.errors import AdvisorError
from advisor.journal import SqliteJournal, opened
from advisor.journal.disclosure import Disclosure
from advisor.metrics.round import Round
from advisor.planning.observing import observed
from advisor.site.site_gate import RoundDeadline, SiteGate
from advisor.trial.follower import NO_FORECASTER
from tests.builders import TAKEN_AT
from tests.fake_cluster import FakeCluster, fragmented


@pytest.fixture(autouse=True)
def journals_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the journals of daemons that a test drops as a kill would; Python warns about files left open."""
    keepers: list[Keeper] = []
    opened = Keeper._opened

    def noted(keeper: Keeper) -> SqliteJournal:
        keepers.append(keeper)
        return opened(keeper)

    monkeypatch.setattr(Keeper, "_opened", noted)
    yield
    for keeper in keepers:
        keeper.close()


@dataclass
class Site:
    """A fake cluster with a daemon's service, and what it told."""

    folder: Path
    cluster: FakeCluster
    mode: Mode = Mode.APPLY
    load: ControllerLoad = field(default_factory=ControllerLoad)
    silent: AdvisorError | None = None
    told: list[Round] = field(default_factory=list)
    shown: list[Disclosure] = field(default_factory=list)
    clock: ManualClock = field(default_factory=lambda: ManualClock(TAKEN_AT))
    stopping: threading.Event = field(default_factory=threading.Event)
    forecaster: StartForecaster = NO_FORECASTER
    asked: tuple[int, int] = (0, 0)

    def config(self, **tables: object) -> Config:
        """Return the configuration, with some tables replaced."""
        config = load_config(self.folder / "sadvise.toml", {})
        return replace(config, mode=Modes(default=self.mode), **tables)  # type: ignore[arg-type]  # a test's own

    def service(self) -> Service:
        """Start a service."""
        (self.folder / "sadvise.toml").write_text(
            f'[journal]\nfile = "{self.folder}/journal.sqlite"\n[daemon]\nruntime_folder = "{self.folder}"\n'
        )
        return Service(self.outfit, self.config(), self.clock, self.told.append, self.shown.append)

    def outfit(self, config: Config) -> Outfit:
        """Build the parts over the fake cluster."""
        gate = SiteGate(runtime_folder=self.folder, modes=config.mode, patience=RoundDeadline(self.stopping))
        last = RoundDeadline()
        applier = Applier(
            source=self.cluster,
            actuator=self.cluster,
            cycle=Cycle(planning=config.planning, limits=config.guard, modes=config.mode, forecaster=self.forecaster),
            named=self.cluster,
            observe=observed,
            gate=gate,
        )
        return Outfit(
            config=config,
            applier=applier,
            leaver=replace(applier, gate=replace(gate, patience=last)),
            gate=gate,
            last=last,
            read_load=self.read_load,
            rpcs=self.rpcs,
            asked=lambda: self.asked,
            forget_asked=self.forget_asked,
            forecaster=self.forecaster,
        )

    def forget_asked(self) -> None:
        """Begin to count commands again."""
        self.asked = (0, 0)

    def read_load(self) -> ControllerLoad:
        """Tell the load, or fail as asked."""
        if self.silent is not None:
            raise self.silent
        return self.load

    def rpcs(self) -> Mapping[str, int]:
        """Count the snapshots."""
        return {"snapshot": self.cluster.snapshots}

    def journal_leases(self) -> tuple[Lease, ...]:
        """Read the open leases, as another program would."""
        with opened(self.folder / "journal.sqlite", wait_s=5.0) as journal:
            return journal.leases()

    def audited(self, event: str) -> list[dict[str, Any]]:
        """Read what the audit holds of an event, oldest first."""
        with opened(self.folder / "journal.sqlite", wait_s=5.0) as journal:
            return [dict(row.detail) for row in journal.audit_after(0) if row.event == event]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A cluster of which the planner says: let the gang wait for one node."""
    return Site(folder=tmp_path, cluster=fragmented())
