"""Shadow mode: a policy plans beside the rules; the journal keeps what it would do, and Slurm hears nothing."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.clock import ManualClock
from advisor.config import load_config
from advisor.daemon.live_parts import LiveParts
from advisor.daemon.service import Outfit, Service
from advisor.domain.mode import Mode
from advisor.errors import ConfigError
from advisor.journal import opened
from advisor.predict.library import Library
from advisor.predict.manifest import GRAPH
from advisor.predict.served_policy import OpenedPolicy
from advisor.replay.deviations import SHADOW, Shadow
from advisor.site.site_gate import RoundDeadline
from tests.builders import TAKEN_AT, make_job
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
    return built(site, lambda outfit: replace(outfit, shadow=Shadow(lambda: policy, "scripted")))


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
        rows = [row for row in journal.audit() if row.event == SHADOW]
    assert [row.detail for row in rows] == [
        {
            "policy": "scripted",
            "digest": "",
            "decisions": 1,
            "same": 0,
            "shadow": 0,
            "in_force": 2,
            "only_shadow": "",
            "only_in_force": "job 1 per job 6 GPUs; job 2 per job 6 GPUs",
        }
    ]


def test_cycles_with_waiting_jobs_are_recorded_in_full_where_a_policy_is_in_shadow(site: Site) -> None:
    site.cluster.jobs.update({job_id: make_job(job_id) for job_id in site.cluster.jobs})

    shadowed(site, Scripted(0.0)).round()
    kept = recorded_ids(site)
    built(site, lambda outfit: outfit).round()

    assert (kept, recorded_ids(site)) == ((1,), (1,))


def test_one_round_with_waiting_jobs_is_recorded_in_full_though_it_proposes_nothing(site: Site) -> None:
    site.cluster.jobs.update({job_id: make_job(job_id) for job_id in site.cluster.jobs})
    service = built(site, lambda outfit: outfit)

    done = [service.round(), service.round()]

    assert all(each.step is not None and not each.step.record.judged for each in done)
    assert recorded_ids(site) == (1,)


def recorded_ids(site: Site) -> tuple[int, ...]:
    """Return the cycles that the journal holds in full."""
    with opened(site.folder / "journal.sqlite") as journal:
        return journal.recorded_ids(9)


def test_policy_that_fails_is_told(site: Site) -> None:
    shadowed(site, Scripted(float("nan"))).round()

    with opened(site.folder / "journal.sqlite") as journal:
        row = journal.last(SHADOW)
    assert row is not None and row.detail["same"] == 2
    assert "finite" in str(row.detail["fault"])


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


def versions_of(site: Site) -> Path:
    """Publish two versions of a policy, the first in use: the second grows no job."""
    models = site.folder / "models"
    publish_sizes(models)
    publish_sizes(models, version="site-2", constant=-9.0, in_use=False)
    return models


def service_with(site: Site, name: str) -> Service:
    """Start a service with a policy of the site in its shadow."""
    policy = OpenedPolicy(Library(site.folder / "models"), name)
    return built(site, lambda outfit: replace(outfit, shadow=Shadow(policy, name)))


def rows_of(site: Site) -> list[Mapping[str, str | int | float]]:
    """What the shadow would have done, oldest first."""
    with opened(site.folder / "journal.sqlite") as journal:
        return [row.detail for row in journal.audit_after(0) if row.event == SHADOW]


def test_version_in_shadow_is_named_and_not_promoted(site: Site) -> None:
    library = Library(versions_of(site))

    service_with(site, "own@site-2").round()

    (row,) = rows_of(site)
    assert (row["policy"], row["shadow"], row["in_force"]) == ("own@site-2", 0, 2)
    assert row["digest"] == library.find("policy-own", "site-2").entry.digests[GRAPH]
    assert library.find("policy-own", None).entry.version == "1"


def test_version_put_in_use_is_in_shadow_from_the_next_round_on(site: Site) -> None:
    library = Library(versions_of(site))
    service = service_with(site, "own")

    service.round()
    library.use("policy-own", "site-2")
    service.round()
    library.rollback("policy-own")
    service.round()

    assert [row["in_force"] for row in rows_of(site)] == [0, 2, 0]


def test_version_that_is_damaged_while_the_daemon_runs_is_a_fault_of_the_shadow_alone(site: Site) -> None:
    models = versions_of(site)
    service = service_with(site, "own")
    Library(models).use("policy-own", "site-2")
    (models / "policy-own" / "site-2" / GRAPH).write_bytes(b"damaged")

    done = service.round()

    assert done.step is not None and len(done.step.record.recommendations) == 2
    (row,) = rows_of(site)
    assert "not the file of its digest" in str(row["fault"])


def test_version_of_the_configuration_has_to_be_there(tmp_path: Path) -> None:
    publish_sizes(tmp_path / "models")
    file = tmp_path / "sadvise.toml"
    file.write_text(f'[daemon]\nshadow = "own@site-7"\n[forecasts]\nmodels = "{tmp_path / "models"}"\n')

    with pytest.raises(ConfigError, match=r"daemon\.shadow: there is no version 'site-7' of policy-own: there are 1"):
        LiveParts(ManualClock(TAKEN_AT), RoundDeadline()).build(load_config(file, {}))


def decided_by(site: Site, name: str) -> Service:
    """Start a service in which a policy of the site decides."""
    policy = OpenedPolicy(Library(site.folder / "models"), name)
    return built(site, lambda outfit: replace(outfit, policy=policy))


def test_policy_in_use_decides_from_the_next_round_on_until_it_is_taken_back(site: Site) -> None:
    library = Library(versions_of(site))
    service = decided_by(site, "own")

    first = service.round()
    library.use("policy-own", "site-2")
    promoted = service.round()
    library.rollback("policy-own")
    taken_back = service.round()

    changes = [len(done.step.record.recommendations) for done in (first, promoted, taken_back) if done.step]
    assert changes[0] == changes[2] > 0 == changes[1]
    with opened(site.folder / "journal.sqlite") as journal:
        record = journal.recorded()
    assert record.decisions and (record.policy, record.policy_digest) == (
        "own",
        library.find("policy-own", "1").entry.digests[GRAPH],
    )


def test_rules_decide_where_the_policy_in_use_cannot_be_opened(site: Site) -> None:
    models = versions_of(site)
    service = decided_by(site, "own")
    Library(models).use("policy-own", "site-2")
    (models / "policy-own" / "site-2" / GRAPH).write_bytes(b"damaged")

    rounds = [service.round(), service.round()]

    assert all(done.step is not None and len(done.step.record.recommendations) == 2 for done in rounds)
    with opened(site.folder / "journal.sqlite") as journal:
        rows = [row for row in journal.audit() if row.event == "policy fault"]
    assert len(rows) == 1 and "not the file of its digest" in str(rows[0].detail["fault"])


def test_policy_of_the_configuration_decides_in_the_daemon(tmp_path: Path) -> None:
    publish_sizes(tmp_path / "models")
    file = tmp_path / "sadvise.toml"
    file.write_text(f'[daemon]\npolicy = "own"\n[forecasts]\nmodels = "{tmp_path / "models"}"\n')

    outfit = LiveParts(ManualClock(TAKEN_AT), RoundDeadline()).build(load_config(file, {}))

    assert outfit.policy is not None and outfit.policy().name == "own"
    file.write_text('[daemon]\npolicy = "lineal"\n')
    with pytest.raises(ConfigError, match=r"daemon\.policy: there is no policy 'lineal'"):
        LiveParts(ManualClock(TAKEN_AT), RoundDeadline()).build(load_config(file, {}))
