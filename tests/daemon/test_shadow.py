"""Shadow mode: a policy plans beside the rules; the journal keeps what it would do, and Slurm hears nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.clock import ManualClock
from advisor.config import load_config
from advisor.daemon.live_parts import LiveParts
from advisor.daemon.service import Outfit, Service
from advisor.daemon.shadow import EVENT, Shadow
from advisor.daemon.site_gate import RoundDeadline
from advisor.domain.mode import Mode
from advisor.errors import ConfigError
from advisor.journal import opened
from tests.builders import TAKEN_AT
from tests.daemon.rounds import Site
from tests.fake_cluster import FakeCluster
from tests.planning.test_policies import Scripted, queue
from tests.predict.graphs import publish_sizes


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A cluster with two jobs that grow by the rules."""
    jobs = {job.job_id: job for job in queue().jobs}
    return Site(folder=tmp_path, cluster=FakeCluster(jobs=jobs), mode=Mode.RECOMMEND)


def built(site: Site, build: Callable[[Outfit], Outfit]) -> Service:
    """Start a service with other parts."""
    config = site.service().config
    return Service(lambda config: build(site.outfit(config)), config, site.clock, site.told.append)


def shadowed(site: Site, policy: Scripted) -> Service:
    """Start a service with a policy in its shadow."""
    return built(site, lambda outfit: replace(outfit, shadow=Shadow(policy)))


def in_force(site: Site, policy: Scripted) -> Service:
    """Start a service whose changes a policy decides."""

    def build(outfit: Outfit) -> Outfit:
        return replace(outfit, applier=replace(outfit.applier, cycle=replace(outfit.applier.cycle, policy=policy)))

    return built(site, build)


def test_difference_is_kept_once_and_nothing_of_it_is_sent(site: Site) -> None:
    service = shadowed(site, Scripted(0.0))

    done = [service.round(), service.round()]

    assert all(each.step is not None and len(each.step.record.recommendations) == 2 for each in done)
    assert site.cluster.sent == []
    with opened(site.folder / "journal.sqlite") as journal:
        rows = [row for row in journal.audit() if row.event == EVENT]
    assert [row.detail for row in rows] == [
        {
            "policy": "scripted",
            "same": 0,
            "only_shadow": "",
            "only_in_force": "job 1 per job 6 GPUs; job 2 per job 6 GPUs",
        }
    ]


def test_policy_that_fails_is_told(site: Site) -> None:
    shadowed(site, Scripted(float("nan"))).round()

    with opened(site.folder / "journal.sqlite") as journal:
        row = journal.last(EVENT)
    assert row is not None and row.detail["same"] == 2
    assert "finite" in str(row.detail["fault"])


def test_shadow_remembers_from_round_to_round(site: Site) -> None:
    policy = Scripted(0.0)
    service = shadowed(site, policy)

    for _ in range(3):
        service.round()

    assert policy.states == [b"", b".", b".."]


def test_policy_goes_on_after_a_restart_from_what_it_remembered(site: Site) -> None:
    before, after = Scripted(0.0), Scripted(0.0)
    service = in_force(site, before)
    service.round()
    service.round()
    service.leave(1.0)

    in_force(site, after).round()

    assert (before.states, after.states) == ([b"", b"."], [b".."])


def test_shadow_of_the_configuration_is_a_policy_of_the_site(tmp_path: Path) -> None:
    publish_sizes(tmp_path / "models")
    file = tmp_path / "sadvise.toml"
    file.write_text(f'[daemon]\nshadow = "own"\n[forecasts]\nmodels = "{tmp_path / "models"}"\n')

    outfit = LiveParts(ManualClock(TAKEN_AT), RoundDeadline()).build(load_config(file, {}))

    assert outfit.shadow is not None and isinstance(outfit.applier, Applier)


def test_unknown_shadow_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "sadvise.toml"
    file.write_text('[daemon]\nshadow = "lineal"\n')

    with pytest.raises(ConfigError, match=r"daemon\.shadow: there is no policy 'lineal'"):
        LiveParts(ManualClock(TAKEN_AT), RoundDeadline()).build(load_config(file, {}))
