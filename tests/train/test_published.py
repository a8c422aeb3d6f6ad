"""Properties of the published setting: its jobs, its speeds, its environment and its rules."""

from dataclasses import replace

import numpy as np
import pytest

from tools.train.dl2_env import PublishedEnv, job_times
from tools.train.dl2_rules import TEACHERS, MarginalGain, fitted_speeds
from tools.train.dl2_setting import Published, daily_pattern, drawn, epochs_per_slot
from tools.train.slots import Integers

SMALL = Published(nodes=6, jobs=9, window=5, cap=8)
SETTINGS = {
    "published": Published(),
    "small": SMALL,
    "window of two": replace(SMALL, window=2),
    "tiny cluster": replace(SMALL, nodes=2),
    "no starter": replace(SMALL, starter=False),
}


def random_actions(env: PublishedEnv, rng: np.random.Generator) -> Integers:
    mask = env.mask()
    chance = rng.random(mask.shape) * mask
    chance[:, -1] *= 1.01 * (rng.random(env.n) < 0.2) + 0.01 * ~mask[:, :-1].any(axis=1)
    return np.asarray(chance.argmax(axis=1))


def test_arrivals_have_the_published_moments() -> None:
    pattern = daily_pattern(Published())

    assert [pattern.min(), pattern.mean(), pattern.max()] == pytest.approx([3.0, 33.7, 82.0], abs=0.1)
    assert len(pattern) == 72


def test_jobs_come_in_order_and_are_the_same_for_a_seed() -> None:
    setting = Published()
    jobs, again, other = drawn(setting, 3), drawn(setting, 3), drawn(setting, 4)

    assert len(jobs.kind) == 60 and jobs.arrival_slot[0] == 0 and (np.diff(jobs.arrival_slot) >= 0).all()
    assert np.bincount(jobs.arrival_slot).max() <= 3
    assert (jobs.kind == again.kind).all() and not (jobs.kind == other.kind).all()


def test_lengths_have_the_published_mean() -> None:
    setting = Published()
    kinds = np.concatenate([drawn(setting, seed).kind for seed in range(200)])

    assert np.array(setting.length_min)[kinds].mean() == pytest.approx(147, rel=0.05)


def test_too_few_parameter_servers_slow_many_workers() -> None:
    table = epochs_per_slot(Published())[1]

    assert table[1, 8] < table[1, 2]
    assert table[8, 8] > table[1, 8]
    assert 1 < table[16].argmax() < 32
    assert table[0].max() == 0.0 and table[:, 0].max() == 0.0


@pytest.mark.parametrize("name", SETTINGS)
def test_no_resource_is_held_twice_and_masks_are_true(name: str) -> None:
    setting = SETTINGS[name]
    env, rng = PublishedEnv(setting, 5), np.random.default_rng(1)
    env.reset(range(5))
    for _ in range(300):
        mask = env.mask()
        env.step(random_actions(env, rng))

        gpus = env.worker_gpus[env.kind] * env.workers
        cpus = setting.worker_cpus * env.workers + setting.server_cpus * env.servers
        assert (env.free_cpus >= 0).all() and (env.free_gpus >= 0).all()
        assert (gpus.sum(axis=1) == setting.nodes * setting.node_gpus - env.free_gpus.sum(axis=1)).all()
        assert (cpus.sum(axis=1) == setting.nodes * setting.node_cpus - env.free_cpus.sum(axis=1)).all()
        assert (env.workers[~env.active] == 0).all() and (env.workers <= setting.cap).all()
        assert (env.servers[~env.active] == 0).all() and (env.servers <= setting.cap).all()
        rows = np.arange(5)[:, None]
        can_worker = env.active[rows, env.window] & (env.workers[rows, env.window] < setting.cap)
        assert (env.mask()[:, :-1].reshape(5, -1, 3)[:, :, 0] == can_worker).all()
        assert mask[:, -1].all()


def test_observation_kept_up_to_date_equals_one_made_from_the_arrays() -> None:
    env, rng = PublishedEnv(SMALL, 4), np.random.default_rng(2)
    env.reset(range(4))
    for _ in range(200):
        env.step(random_actions(env, rng))
        seen, mask = env.observe(), env.mask()
        env._fill_window(np.arange(4))

        assert (env.observe() == seen).all() and (env.mask() == mask).all()


def test_rewards_of_an_episode_add_up_to_its_jobs() -> None:
    env, rng = PublishedEnv(SMALL, 6), np.random.default_rng(3)
    env.reset(range(6))
    total, by_job, open_ = np.zeros(6), np.zeros((6, SMALL.jobs + 1)), np.ones(6, np.bool_)
    while open_.any():
        result = env.step(random_actions(env, rng))
        total += result.reward * open_
        by_job += result.gained * open_[:, None]
        open_ &= ~result.done
        rows = np.flatnonzero(result.done)
        env.reset([99] * len(rows), rows)

    assert total == pytest.approx(np.full(6, SMALL.jobs), rel=1e-5)
    assert by_job[:, :-1] == pytest.approx(np.ones((6, SMALL.jobs)), rel=1e-5)


def test_reward_now_is_the_reward_if_the_slot_stops() -> None:
    env, rng = PublishedEnv(SMALL, 3), np.random.default_rng(4)
    env.reset(range(3))
    for _ in range(50):
        expected = env.reward_now()
        result = env.step(random_actions(env, rng))
        if result.done.any():
            break
        stopped = result.slot_ended & (result.touched == SMALL.jobs)

        assert result.reward[stopped] == pytest.approx(expected[stopped], rel=1e-5)


def test_an_episode_does_not_depend_on_its_neighbours() -> None:
    act = TEACHERS["drf"](SMALL, 0).act

    together = job_times(SMALL, act, [5, 6, 7])
    alone = job_times(SMALL, act, [6])

    assert (together[1] == alone[0]).all()


def test_a_job_alone_takes_the_slots_of_its_speed() -> None:
    setting = replace(SMALL, jobs=1)
    jobs = drawn(setting, 0)

    jct = job_times(setting, lambda env: np.full(env.n, env.n_actions - 1), [0])

    assert jct[0, 0] == pytest.approx(jobs.epochs[0] / epochs_per_slot(setting)[jobs.kind[0], 1, 1])


def test_an_illegal_action_is_refused() -> None:
    env = PublishedEnv(replace(SMALL, jobs=1), 1)
    env.reset([0])

    with pytest.raises(ValueError, match="not legal"):
        env.step(np.array([3]))


def test_drf_gives_equal_dominant_shares() -> None:
    env = PublishedEnv(SMALL, 1)
    env.reset([0])
    teacher = TEACHERS["drf"](SMALL, 0)
    for _ in range(500):
        before = env.workers.copy(), env.servers.copy(), env.active.copy()
        if env.step(teacher.act(env)).slot_ended[0] and before[2].sum() > 1:
            break

    workers, servers = before[0][0][before[2][0]], before[1][0][before[2][0]]
    assert np.ptp(workers) <= 2 and (np.abs(workers - servers) <= 1).all()


def test_every_rule_finishes_all_jobs_and_fifo_serves_the_first_first() -> None:
    means = {name: job_times(SMALL, make(SMALL, 1).act, range(8)).mean() for name, make in TEACHERS.items()}

    assert np.isfinite(list(means.values())).all()
    assert means["optimus"] < means["drf"] < means["fifo"]


def test_optimus_with_noise_is_worse_and_with_fitted_speeds_nearly_as_good() -> None:
    setting = replace(Published(), jobs=30)
    seeds = range(6)
    exact, noisy, fitted = (
        job_times(setting, optimus.act, seeds).mean()
        for optimus in (
            MarginalGain(setting),
            MarginalGain(setting, error=0.1),
            MarginalGain(setting, speeds=fitted_speeds(setting)),
        )
    )

    assert noisy > 1.2 * exact
    assert fitted < 1.1 * exact
