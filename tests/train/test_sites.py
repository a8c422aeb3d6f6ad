"""Sites that differ: how they are drawn, what is learnt from them, and how a policy learns over them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from advisor.domain.units import DAY_S
from advisor.features.observe.known_models import ServerOutlook
from advisor.features.observe.least_loss import SEEN_COLUMNS, least_loss, planned_places, seen_columns
from advisor.features.observe.pointer import Choice, Gang, Interference
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.served_policy import SCORES
from tools.train.drawn_sites import HELD_OUT, TRAINING, Change, DrawnSite, Regime, SiteFamily, draw_site
from tools.train.gang_rules import cheapest_action, play
from tools.train.learnt_site import LearntSite, Nightly, aged, prior_of, speeds_in_truth
from tools.train.metarl import (
    RECIPE,
    MetarlRun,
    SiteActor,
    checked_parity,
    greedy,
    learnt,
    site_policy_to_onnx,
)
from tools.train.parted_cluster import GangDecision
from tools.train.performance_fit import Samples, SitePrior, Spreads, adapted, no_samples
from tools.train.training import read_checkpoint, write_checkpoint

SMALL = replace(
    TRAINING, servers=4, jobs_per_gpu=2.0, gpu_types=(("v100", "a100"),), leaf_servers=(2,), regimes=(Regime.DRIFTED,)
)


def site(seed: int = 1, family: SiteFamily = SMALL, change: Change = Change.NONE) -> DrawnSite:
    """Return a small site."""
    return draw_site(seed, family, change)


def unlearnt(drawn: DrawnSite) -> LearntSite:
    """Return a site of which nothing is known but the profiles."""
    prior = prior_of(drawn, learnt())
    return LearntSite(drawn, adapted(prior, no_samples(len(prior.models)), seed=0))


def test_seed_gives_the_same_site_again() -> None:
    one, other = site(), site()

    assert one.trace.jobs.tobytes() == other.trace.jobs.tobytes()
    assert one.before.type_speed.tobytes() == other.before.type_speed.tobytes()


def test_held_out_sites_have_gpu_types_and_networks_that_no_training_site_has() -> None:
    assert not set(HELD_OUT.gpu_types) & set(TRAINING.gpu_types)
    assert not set(HELD_OUT.nic_gbps) & set(TRAINING.nic_gbps)
    assert not set(HELD_OUT.oversubscription) & set(TRAINING.oversubscription)
    assert not set(HELD_OUT.mixes) & set(TRAINING.mixes)


@pytest.mark.parametrize("change", [Change.TYPES, Change.NETWORK, Change.GRADUAL, Change.MODELS])
def test_site_behaves_otherwise_after_a_change(change: Change) -> None:
    cluster = unlearnt(site(change=change))
    before = cluster.state.type_speed.copy(), float(cluster.state.rules["nic_gbps"][0])

    play(cluster, cheapest_action)

    after = cluster.state.type_speed, float(cluster.state.rules["nic_gbps"][0])
    assert (before[0] != after[0]).any() or before[1] != after[1]


def test_load_rises_after_a_change_of_the_load() -> None:
    calm, busy = site(), site(change=Change.LOAD)

    assert busy.trace.jobs["submit_time"].max() < calm.trace.jobs["submit_time"].max()


def test_every_ended_job_leaves_a_sample() -> None:
    busy = replace(SMALL, servers=8, jobs_per_gpu=3.0, mixes=("helios",), load_ratio=(1.2, 1.2))
    drawn = draw_site(2, busy)
    cluster = unlearnt(drawn)

    play(cluster, cheapest_action)

    samples = cluster.samples
    # The last round ends before its jobs are looked at.
    assert len(drawn.trace) - 8 <= len(samples) <= len(drawn.trace)
    assert set(samples.gpu_type.tolist()) <= {0, 1}
    assert (samples.place > 0.0).any()
    assert samples.others.sum() > 0.0


def test_what_is_learnt_of_a_site_is_closer_to_the_truth_than_the_profiles() -> None:
    drawn = draw_site(2, replace(SMALL, jobs_per_gpu=20.0))
    cluster = unlearnt(drawn)
    prior = prior_of(drawn, learnt())
    play(cluster, cheapest_action)

    learned = adapted(prior, cluster.samples, seed=0)

    truth = speeds_in_truth(drawn, drawn.before).log_speed[:-1, 1]
    often = np.bincount(cluster.model_of, minlength=len(truth)) >= 20
    error, before = (
        float(np.abs(table[:-1, 1] - truth)[often].mean()) for table in (learned.log_speed, prior.log_speed)
    )
    assert often.sum() >= 3
    assert error < before


def test_older_samples_have_more_noise() -> None:
    drawn = site()
    cluster = unlearnt(drawn)
    play(cluster, cheapest_action)

    noise = aged(cluster.samples).noise

    assert noise[-1] == pytest.approx(cluster.samples.noise[-1])
    assert (np.diff(noise) < 0.0).all()


def test_tables_change_at_night_alone() -> None:
    drawn = draw_site(2, replace(SMALL, jobs_per_gpu=8.0))
    nightly = Nightly(prior=prior_of(drawn, learnt()), seed=0)
    cluster = LearntSite(drawn, nightly.first())
    changed: list[int] = []

    def follow(site: LearntSite) -> None:
        before = site.speeds
        nightly(site)
        if site.speeds is not before:
            changed.append(int(site.now // DAY_S))

    cluster.on_samples = follow

    play(cluster, cheapest_action)

    assert changed and changed == sorted(set(changed)) and changed[0] > 0


@pytest.mark.parametrize("seed", range(5))
def test_one_sample_moves_what_is_known_of_its_model_and_the_members_differ(seed: int) -> None:
    tables = np.zeros((2, 2))
    prior = SitePrior(models=("a",), gpu_types=("v100",), log_speed=tables, added=tables, spreads=Spreads(family=0.01))
    sample = Samples(
        model=np.zeros(1, np.intp), gpu_type=np.zeros(1, np.intp), place=np.zeros(1), others=np.zeros((1, 2)),
        log_speed=np.full(1, 0.5), noise=np.full(1, 0.02),
    )  # fmt: skip

    before, after = (adapted(prior, samples, seed=seed) for samples in (no_samples(1), sample))

    assert not before.log_speed.any() and after.log_speed[0, 0] > 0.35
    assert after.speed_variance[0, 0] < before.speed_variance[0, 0]


def choice_between(behind: list[float], *, gpus: int = 4, wait_s: float = 0.0, unsure: float = 0.0) -> Choice:
    """Return the choice of a gang among servers of eight free GPUs, of types that are behind the best one."""
    count = len(behind)
    zeros = np.zeros(count)
    return Choice(
        gang=Gang(
            gpus=gpus, fewest_nodes=1, model=0, leaf_inflation=1.5, spine_inflation=2.0, run_s=3600.0, wait_s=wait_s
        ),
        usable=np.full(count, 8),
        leaf=np.zeros(count, np.intp),
        leaf_crossing=np.zeros(1, np.intp),
        interference=Interference(slows_me=zeros, slows_others=zeros),
        chosen=[],
        taken=[],
        outlook=ServerOutlook(behind_best=np.array(behind), slows_by_time=zeros, unsure=zeros + unsure),
    )


def test_rule_takes_the_fastest_type_that_is_free() -> None:
    assert least_loss(choice_between([-0.7, 0.0, -0.7])) == 1


@pytest.mark.parametrize(("wait_s", "server"), [(60.0, None), (3 * 3600.0, 0)])
def test_rule_waits_for_a_faster_type_for_as_long_as_that_saves(wait_s: float, server: int | None) -> None:
    assert least_loss(choice_between([-0.7, -0.7], wait_s=wait_s)) == server


@pytest.mark.parametrize(("unsure", "server"), [(0.3, None), (0.6, 0), (0.8, 0)])
def test_rule_waits_for_what_is_surely_better(unsure: float, server: int | None) -> None:
    waits_s = 3600.0 * (np.exp(0.7 - 0.6) - 1.0) + 60.0

    assert least_loss(choice_between([-0.7, -0.7], wait_s=waits_s, unsure=unsure)) == server


def test_policy_begins_as_the_rule() -> None:
    cluster = unlearnt(site(3, replace(SMALL, load_ratio=(1.2, 1.2))))
    torch.manual_seed(1)
    policy, is_planned, compared = greedy(SiteActor(), cluster), SEEN_COLUMNS.index("is_planned"), set()

    def decide(decision: GangDecision) -> int | None:
        by_rule, by_policy = cheapest_action(decision), policy(decision)
        # The servers of a plan are taken in any order.
        assert (by_rule is None) == (by_policy is None)
        assert by_policy is None or seen_columns(decision.choice)[by_policy, is_planned] == 1.0
        compared.add(by_policy is None)
        return by_rule

    play(cluster, decide)
    assert compared == {True, False}


def test_columns_mark_the_servers_of_the_plan_with_the_least_loss() -> None:
    choice = choice_between([-0.7, 0.0, -0.7])

    columns = dict(zip(SEEN_COLUMNS, seen_columns(choice).T, strict=True))

    assert columns["is_planned"].tolist() == [0.0, 1.0, 0.0]
    assert columns["loss"][1] < columns["loss"][0]
    assert len(list(planned_places(choice))) == 2


def test_weights_move_over_sites() -> None:
    recipe = replace(RECIPE, warm_updates=2, updates=2, episodes=2, replay=32, steps=8, batch=16, value_first=0)
    run = MetarlRun(recipe, "cheapest", 1, every=(2, 2), family=replace(SMALL, jobs_per_gpu=1.0), seeds=[1_000_000])
    run.advance()
    before = [weight.detach().clone() for weight in run.agent.policy.parameters()]

    run.advance()

    assert run.is_over
    assert any(not torch.equal(old, new) for old, new in zip(before, run.agent.policy.parameters(), strict=True))


def test_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    recipe = replace(RECIPE, warm_updates=2, updates=2, episodes=2, replay=32, steps=8, batch=16)
    run = MetarlRun(recipe, "cheapest", 1, every=(1, 1), family=replace(SMALL, jobs_per_gpu=1.0), seeds=[1_000_000])
    run.advance()
    write_checkpoint(tmp_path / "run.ckpt", run)

    again = read_checkpoint(tmp_path / "run.ckpt")

    assert run.advance().loss == again.advance().loss


def test_graph_scores_as_the_network_does() -> None:
    torch.manual_seed(1)
    actor = SiteActor()

    graph = site_policy_to_onnx(actor)

    assert checked_parity(actor, graph, sizes=(16,), least_rows=500).max_error < 1e-4
    assert set(TensorGraph(graph, name="policy").inputs) == {"choice", "outlook", "gang", "own"}
    assert SCORES in TensorGraph(graph, name="policy").outputs
