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
    assert site.audited(SHADOW) == [
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

    (row,) = site.audited(SHADOW)
    assert row["same"] == 2 and "finite" in row["fault"]


def outfit_with(folder: Path, key: str, policy: str) -> Outfit:
    """Build the parts of a daemon whose configuration names a policy; the site has one version of `own`."""
    publish_sizes(folder / "models")
    file = folder / "sadvise.toml"
    file.write_text(f'[daemon]\n{key} = "{policy}"\n[forecasts]\nmodels = "{folder / "models"}"\n')
    return LiveParts(ManualClock(TAKEN_AT), RoundDeadline()).build(load_config(file, {}))


def test_policies_of_the_configuration_are_those_of_the_site(tmp_path: Path) -> None:
    shadowed, decided = (outfit_with(tmp_path / key, key, "own") for key in ("shadow", "policy"))

    assert shadowed.shadow is not None and isinstance(shadowed.applier, Applier)
    assert decided.policy is not None and decided.policy().name == "own"


@pytest.mark.parametrize(
    ("key", "policy", "complaint"),
    [
        ("shadow", "lineal", r"daemon\.shadow: there is no policy 'lineal'"),
        ("shadow", "own@site-7", r"daemon\.shadow: there is no version 'site-7' of policy-own: there are 1"),
        ("policy", "lineal", r"daemon\.policy: there is no policy 'lineal'"),
    ],
)
def test_policy_that_is_not_there_is_an_error_of_the_configuration(
    key: str, policy: str, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        outfit_with(tmp_path, key, policy)


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


def test_version_in_shadow_is_named_and_not_promoted(site: Site) -> None:
    library = Library(versions_of(site))

    service_with(site, "own@site-2").round()

    (row,) = site.audited(SHADOW)
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

    assert [row["in_force"] for row in site.audited(SHADOW)] == [0, 2, 0]


def test_version_that_is_damaged_while_the_daemon_runs_is_a_fault_of_the_shadow_alone(site: Site) -> None:
    models = versions_of(site)
    service = service_with(site, "own")
    Library(models).use("policy-own", "site-2")
    (models / "policy-own" / "site-2" / GRAPH).write_bytes(b"damaged")

    done = service.round()

    assert done.step is not None and len(done.step.record.recommendations) == 2
    (row,) = site.audited(SHADOW)
    assert "not the file of its digest" in str(row["fault"])


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
    (row,) = site.audited("policy fault")
    assert "not the file of its digest" in row["fault"]
