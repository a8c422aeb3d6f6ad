"""Agents place gangs: what clusters, rewards, networks and their export hold to."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.features.observe.pointer import REPORT_COLUMNS, best_fit, report_of
from advisor.sim.state import ENDED
from tools.train.drawn_gangs import TRAINING, UNSEEN, Scale, draw
from tools.train.gang_rules import RULES, play, play_by_rule
from tools.train.gang_training import advantages_by_job
from tools.train.imitation import deterministic
from tools.train.marl import (
    LAYOUT,
    RECIPE,
    GangActor,
    GangCritic,
    GangLayout,
    MarlRun,
    PlacesEnv,
    begun,
    greedy,
)
from tools.train.parted_cluster import MOST_DELAY_S, PartedCluster, residents_exactly, servers_of
from tools.train.training import TrainingRun, read_checkpoint, write_checkpoint

SMALL = Scale(agents=(1,), servers_each=(8,), jobs_per_gpu=0.5)
SHARED = Scale(agents=(2,), servers_each=(8,), jobs_per_gpu=0.5)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    deterministic()


def random_plays(cluster: PartedCluster, seed: int) -> None:
    """Take random legal actions to the end."""
    rng = np.random.default_rng(seed)
    while (decision := cluster.next_decision()) is not None:
        choice = decision.choice
        if decision.can_wait and rng.random() < 0.3:
            continue
        if not choice.legal.any():
            cluster.take(decision, cluster.size + int(rng.choice(np.flatnonzero(decision.forwards))))
            continue
        while choice.rest > 0:
            choice.choose(int(rng.choice(np.flatnonzero(choice.legal))))
        cluster.place(decision)
        assert (cluster.state.nodes["gpus_free"] >= 0).all()


@pytest.mark.parametrize("scale", [SMALL, SHARED])
def test_all_jobs_end_and_all_gpus_are_free_again_whatever_agents_do(scale: Scale) -> None:
    cluster = begun(1, scale)

    random_plays(cluster, 1)

    assert (cluster.state.jobs["phase"] == ENDED).all()
    assert (cluster.state.nodes["gpus_free"] == cluster.state.nodes["gpus"]).all()


def test_gangs_stay_on_the_servers_of_the_agent_that_places_them() -> None:
    cluster = begun(2, SHARED)
    while (decision := cluster.next_decision()) is not None:
        choice = decision.choice
        while choice.rest > 0 and (server := best_fit(choice)) is not None:
            choice.choose(server)
        if choice.rest == 0:
            cluster.place(decision)
            job = cluster.state.jobs[decision.row]
            held = cluster.state.held_nodes[job["pool"] : job["pool"] + job["span"]]
            assert set((held // cluster.size).tolist()) == {decision.agent}
        elif decision.forwards.any():
            other = int(np.flatnonzero(decision.forwards)[0])
            cluster.take(decision, cluster.size + other)
            assert cluster.agent[decision.row] == other != decision.agent


def test_start_costs_what_the_gang_loses_on_its_place_and_what_it_takes_from_others() -> None:
    cluster = begun(3, replace(SHARED, topologies=TRAINING[4:5], jobs_per_gpu=1.0))
    starts = 0
    while (decision := cluster.next_decision()) is not None:
        choice, before_s = decision.choice, float(cluster.losses().sum())
        while choice.rest > 0 and choice.legal.any():
            choice.choose(int(np.flatnonzero(choice.legal)[-1]))
        if choice.rest > 0:
            continue
        cluster.place(decision)
        job = cluster.state.jobs[decision.row]
        own_s = job["finish_time"] - cluster.now - job["left_s"]
        cost_s = cluster.cost(decision, before_s) * cluster.unit_s
        assert cost_s >= own_s - 1e-6
        if choice.gang.gpus == 1:
            assert cost_s == pytest.approx(0.0, abs=1e-6)
        starts += 1

    assert starts == len(cluster.state.jobs)


def test_gang_that_fits_waits_no_longer_than_the_bound_on_added_delay() -> None:
    cluster = begun(4, SMALL)
    first: dict[int, float] = {}
    while (decision := cluster.next_decision()) is not None:
        since = first.setdefault(decision.row, cluster.now)
        assert decision.can_wait == (cluster.now - since < MOST_DELAY_S)
        if decision.can_wait and decision.choice.gang.gpus > 1:
            continue
        while decision.choice.rest > 0 and (server := best_fit(decision.choice)) is not None:
            decision.choice.choose(server)
        cluster.place(decision)

    assert len(first) == len(cluster.state.jobs)


def test_reports_are_those_of_the_features() -> None:
    cluster = begun(5, replace(SMALL, jobs_per_gpu=1.0))
    for _ in range(40):
        decision = cluster.next_decision()
        assert decision is not None
        while decision.choice.rest > 0 and (server := best_fit(decision.choice)) is not None:
            decision.choice.choose(server)
        cluster.place(decision)
    state = cluster.state
    running = np.sort(state.running[: int(state.tally["running"][0])]).astype(np.intp)
    residents = residents_exactly(state, cluster.model_of, running)
    demand = int(state.jobs["gpus"][cluster.pending].sum())

    report = report_of(servers_of(state), residents, len(cluster.pending), demand)

    assert report.tolist() == pytest.approx(cluster.reports_now()[0].tolist())
    assert len(report) == len(REPORT_COLUMNS)


def test_every_rule_runs_a_workload_to_its_end_and_equal_seeds_give_equal_runs() -> None:
    for rule in RULES:
        first, second = (play_by_rule(begun(6, SHARED), rule) for _ in range(2))
        assert (first > 0.0).all()
        assert first.tolist() == second.tolist()


def test_judged_topologies_are_not_among_those_of_the_training() -> None:
    assert not set(UNSEEN) & set(TRAINING)
    assert all(draw(seed, replace(SMALL, topologies=UNSEEN)).cluster.gpus % 8 == 0 for seed in range(8))


def test_advantages_are_over_the_actions_about_the_same_job() -> None:
    values = np.array([[1.0], [2.0], [3.0], [4.0], [5.0]], np.float32)
    times = np.array([[0.0], [0.0], [0.5], [0.5], [0.5]], np.float32)
    costs = np.array([[0.0], [0.0], [0.0], [7.0], [0.0]], np.float32)
    is_over = np.array([[False], [False], [False], [True], [False]])
    jobs = np.array([[1], [2], [1], [1], [3]])

    advantages = advantages_by_job(values, times, costs, is_over, jobs, 0.5)

    last = -7.0 - 4.0
    middle = (4.0 - 3.0) + 0.5 * last
    first = (3.0 - 0.5 - 1.0) + 0.5 * middle
    assert advantages[:, 0].tolist() == pytest.approx([first, 0.0, middle, last, 0.0])


@settings(max_examples=15, deadline=None)
@given(servers=st.integers(1, 12), leaves=st.integers(1, 4), agents=st.integers(1, 3), seed=st.integers(0, 99))
def test_padding_changes_no_logit_and_the_order_of_servers_only_that_of_their_logits(
    servers: int, leaves: int, agents: int, seed: int
) -> None:
    torch.manual_seed(seed)
    rng, actor = np.random.default_rng(seed), GangActor()
    exact, padded = (
        GangLayout(servers=servers, leaves=leaves, agents=agents),
        GangLayout(servers=servers + 3, leaves=leaves + 2, agents=agents + 1),
    )
    arrays = {name: rng.random(shape).astype(np.float32) for name, shape in exact.shapes.items()}
    arrays["leaf"] = rng.integers(leaves, size=servers).astype(np.float32)
    arrays["leaf"][0] = 0.0
    order = rng.permutation(servers)
    mixed = {
        name: value[order] if name in {"slots", "servers", "leaf", "choice"} else value
        for name, value in arrays.items()
    }

    logits, wide, moved = (
        _logits(actor, layout, of) for layout, of in ((exact, arrays), (padded, arrays), (exact, mixed))
    )

    assert wide[:servers] == pytest.approx(logits[:servers], abs=1e-5)
    assert wide[padded.servers : padded.servers + agents] == pytest.approx(logits[servers:-1], abs=1e-5)
    assert wide[-1] == pytest.approx(logits[-1], abs=1e-5)
    assert moved[:servers] == pytest.approx(logits[:servers][order], abs=1e-5)


def _logits(actor: GangActor, layout: GangLayout, arrays: dict[str, np.ndarray]) -> np.ndarray:
    row = np.zeros(layout.numbers, np.float32)
    layout.packed(row, **arrays)
    with torch.no_grad():
        return np.asarray(actor(layout.unpacked(torch.from_numpy(row)[None]))[0])


def test_critic_gives_one_value_for_each_observation() -> None:
    env = PlacesEnv(3, SHARED, LAYOUT)
    env.reset([1, 2, 3])

    values = GangCritic()(LAYOUT.unpacked(torch.from_numpy(env.observe())))

    assert values.shape == (3,)
    assert torch.isfinite(values).all()


def test_episode_of_the_environment_ends_with_all_jobs_and_then_only_waits() -> None:
    env, rng = PlacesEnv(2, SMALL, LAYOUT), np.random.default_rng(3)
    env.reset([8, 9])
    done = np.zeros(2, np.bool_)
    for _ in range(4000):
        logits = np.where(env.mask(), rng.random((2, env.n_actions)), -1.0)
        outcome = env.step(logits.argmax(axis=1))
        done |= outcome.done
        assert (outcome.cost[~outcome.is_over] == 0.0).all()
        if done.all():
            break

    assert done.all()
    assert env.mask()[:, -1].all()
    assert env.mask().sum() == 2


def test_training_again_gives_the_same_weights_also_from_a_checkpoint(tmp_path: Path) -> None:
    recipe = replace(RECIPE, episodes=2, warm_updates=2, updates=2, steps=6, batch=8, replay=32)
    weights = []
    for is_interrupted in (False, True):
        run: TrainingRun = MarlRun(recipe, "best-fit", 1, every=(2, 1), validation=([1], SMALL))
        while not run.is_over:
            run.advance()
            if is_interrupted:
                write_checkpoint(tmp_path / "run.ckpt", run)
                run = read_checkpoint(tmp_path / "run.ckpt")
        weights.append(torch.cat([value.flatten() for value in run.agent.policy.state_dict().values()]))

    assert torch.equal(*weights)


def test_network_plays_a_cluster_of_another_size_to_its_end() -> None:
    torch.manual_seed(3)
    cluster = begun(10, Scale(agents=(3,), servers_each=(6,), jobs_per_gpu=0.3, topologies=UNSEEN[:1]))

    play(cluster, greedy(GangActor(), cluster))

    assert (cluster.state.jobs["phase"] == ENDED).all()
