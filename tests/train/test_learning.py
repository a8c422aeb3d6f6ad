"""Properties of the learner: samples and their slots, warm-up, actor-critic, checkpoints."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tools.train.dl2 import app
from tools.train.dl2_env import PublishedEnv, job_times
from tools.train.dl2_published import RECIPES, VALIDATION_SEEDS, PublishedRun, jct, read_policy
from tools.train.dl2_rules import TEACHERS, Mending
from tools.train.dl2_setting import Published
from tools.train.imitation import Agent, Architecture, Method, Recipe, Replay, permuted
from tools.train.improvement import Clipped, on_policy
from tools.train.training import draw_curves, read_checkpoint, read_curve, train

SMALL = Published(nodes=4, jobs=5, window=4, cap=5)
QUICK = Recipe(hidden=(32, 32), episodes=4, warm_updates=20, updates=12, replay=256, batch=64)
CLIPPED = replace(QUICK, method=Method.CLIPPED, updates=4, steps=32, rewards_by_step=True)
SHARED = replace(CLIPPED, network=Architecture.SHARED)
WHOLE = replace(QUICK, batch=256, updates=24)
RUNS = {"actor-critic": QUICK, "clipped": CLIPPED, "shared": SHARED, "on-policy": replace(QUICK, has_replay=False)}


def weights(training: PublishedRun) -> torch.Tensor:
    both = (*training.agent.policy.parameters(), *training.agent.value.parameters())
    return torch.cat([values.detach().flatten() for values in both])


def trained(recipe: Recipe, folder: Path, seed: int = 1) -> PublishedRun:
    training = PublishedRun(SMALL, recipe, "drf", seed, (10, 4))
    train(training, folder, lambda *_: None)
    return training


def test_replay_gives_samples_the_reward_and_the_state_that_follows_their_slot() -> None:
    env, rng = PublishedEnv(SMALL, 3), np.random.default_rng(0)
    env.reset(range(3))
    replay = Replay(env, SMALL.jobs, 96)
    samples: list[tuple[int, int, np.ndarray]] = []
    slot_of_row, following, rewards = [0, 1, 2], {}, {}
    for _ in range(40):
        seen, mask = env.observe(), env.mask()
        action = np.where(rng.random(3) < 0.2, env.n_actions - 1, mask.argmax(axis=1))
        samples += [(row, slot_of_row[row], seen[row]) for row in range(3)]
        replay.add(seen, mask, action)
        step = env.step(action)
        assert not step.done.any()
        replay.close(step, env.observe())
        for row in np.flatnonzero(step.slot_ended):
            following[slot_of_row[row]], rewards[slot_of_row[row]] = env.observe()[row], step.reward[row]
            slot_of_row[row] = 3 + len(following) - 1

    places = replay.drawn(rng, 500)

    assert replay.is_full and len(set(places.tolist())) > 50
    for place in places:
        index = place + 96 if place + 96 < 120 else place
        _, slot, seen = samples[index]
        assert (replay.observation[place] == seen).all()
        assert replay.reward[replay.slot[place]] == rewards[slot]
        assert (replay.next_observation[replay.slot[place]] == following[slot]).all()


def test_permuted_samples_mean_the_same() -> None:
    env, rng = PublishedEnv(SMALL, 64), np.random.default_rng(0)
    env.reset(range(64))
    teacher = TEACHERS["drf"](SMALL, 0)
    seen, mask, action = env.observe(), env.mask(), teacher.act(env)
    mixed, mixed_mask, mixed_action = permuted(seen, mask, action, rng)

    rows = np.arange(64)
    stop = action == env.n_actions - 1
    assert (mixed_mask[rows, mixed_action]).all() and (stop == (mixed_action == env.n_actions - 1)).all()
    assert (mixed[rows, mixed_action // 3][~stop[rows]] == seen[rows, action // 3][~stop[rows]]).all()
    assert (mixed.sum(axis=1) == pytest.approx(seen.sum(axis=1), rel=1e-5)) and (mixed != seen).any()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_killed_ends_as_one_that_was_not(name: str, tmp_path: Path) -> None:
    whole = trained(RUNS[name], tmp_path / "whole")

    killed = PublishedRun(SMALL, RUNS[name], "drf", 1, (10, 4))
    with pytest.raises(KeyboardInterrupt):
        train(killed, tmp_path / "killed", _Kill(after=3))
    resumed: PublishedRun = read_checkpoint(tmp_path / "killed" / "run.ckpt")
    train(resumed, tmp_path / "killed", lambda *_: None)

    assert (weights(resumed) == weights(whole)).all()
    assert [point[:-1] for point in resumed.points] == [point[:-1] for point in whole.points]
    assert (tmp_path / "killed" / "policy.pt").read_bytes() == (tmp_path / "whole" / "policy.pt").read_bytes()


class _Kill:
    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, *_: object) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    return weights(learnt(WHOLE, tmp_path_factory.mktemp("whole")))


def learnt(recipe: Recipe, folder: Path) -> PublishedRun:
    # DRF stops only where nothing fits; this teacher stops where it believes that nothing gains. Without the tasks that
    # each job begins with there are bad states, which exploration mends.
    training = PublishedRun(replace(SMALL, starter=False), recipe, "optimus-10", 1, (20, 24))
    train(training, folder, lambda *_: None)
    return training


@pytest.mark.parametrize(
    "changed",
    [{"has_value": False}, {"explore": 0.0}, {"has_replay": False}, {"reward_by_job": True}, {"warm_updates": 0}],
    ids=str,
)
def test_each_part_of_a_recipe_changes_what_is_learnt(
    changed: dict[str, Any], whole: torch.Tensor, tmp_path: Path
) -> None:
    assert (weights(learnt(replace(WHOLE, **changed), tmp_path)) != whole).any()


def test_clipped_learning_without_a_value_trains_the_policy_alone(tmp_path: Path) -> None:
    whole, part = trained(CLIPPED, tmp_path / "whole"), trained(replace(CLIPPED, has_value=False), tmp_path / "part")
    untrained = PublishedRun(SMALL, CLIPPED, "drf", 1, (10, 4))

    assert (flat(part.agent.value) == flat(untrained.agent.value)).all()
    assert (flat(part.agent.policy) != flat(untrained.agent.policy)).any()
    assert (flat(part.agent.policy) != flat(whole.agent.policy)).any()


def flat(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([values.detach().flatten() for values in network.parameters()])


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    assert (weights(trained(QUICK, tmp_path / "a")) != weights(trained(QUICK, tmp_path / "b", seed=2))).any()


def test_warm_up_comes_close_to_its_teacher(tmp_path: Path) -> None:
    recipe = replace(QUICK, hidden=(64, 64), warm_updates=700, updates=0, replay=2048, batch=128, warm_decay=True)
    training = PublishedRun(SMALL, recipe, "drf", 1, (700, 1))
    train(training, tmp_path, lambda *_: None)
    seeds = range(50, 66)
    teacher = job_times(SMALL, TEACHERS["drf"](SMALL, 0).act, seeds).mean()
    rng = np.random.default_rng(0)

    agent, described = read_policy(tmp_path, "warm.pt", setting=SMALL)
    learnt = job_times(SMALL, lambda env: agent.act(env, rng), seeds).mean()

    assert learnt == pytest.approx(teacher, rel=0.1)
    assert described["teacher"] == "drf"


def test_clipped_learning_needs_no_teacher_to_get_better(tmp_path: Path) -> None:
    setting = replace(SMALL, nodes=12, cap=12)
    recipe = replace(CLIPPED, episodes=16, warm_updates=0, updates=12, lr=3e-3, entropy=0.0, discount=0.0)
    training = PublishedRun(setting, recipe, "drf", 1, (1, 12))
    before = jct(setting, training.agent, VALIDATION_SEEDS, 1).mean()

    train(training, tmp_path, lambda *_: None)

    assert training.points[-1].figure < 0.9 * before


def test_rewards_by_step_add_up_to_those_of_the_slots() -> None:
    env = PublishedEnv(SMALL, 4)
    agent = Agent(env, CLIPPED, 0)
    clipped = Clipped(agent, env, CLIPPED, 0, on_policy)
    rng = np.random.default_rng(0)
    earned, added = np.zeros(4), np.zeros(4)
    for _ in range(100):
        step = env.step(agent.act(env, rng))
        earned += step.reward
        added += clipped._reward(step.reward, step.slot_ended)
        if step.done.any():
            break

    assert added - clipped.earned == pytest.approx(earned, rel=1e-4)


def test_exploration_mends_bad_states_only() -> None:
    setting = replace(SMALL, cap=16, starter=False)
    env, rng = PublishedEnv(setting, 2), np.random.default_rng(0)
    env.reset([1, 1])
    env.step(np.array([0, env.n_actions - 1]))
    stop = np.full(2, env.n_actions - 1)

    mended = Mending(1.0)(env, stop, rng)
    never = Mending(0.0)(env, stop, rng)

    assert mended.tolist() == [1, env.n_actions - 1]
    assert never.tolist() == stop.tolist()
    for _ in range(100):
        env.step(Mending(0.5)(env, stop, rng))


def test_the_command_trains_and_refuses_another_run_in_the_same_folder(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    quick = ["warm_updates=1", "updates=0", "replay=256", "episodes=4", "hidden=[8]"]
    options = [word for change in quick for word in ("--set", change)]

    done = CliRunner().invoke(app, ["published", "--out", out, *options])
    again = CliRunner().invoke(app, ["published", "--out", out, "--seed", "2", *options])
    unknown = CliRunner().invoke(app, ["published", "--out", out, "--set", "speed=1"])

    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]["warm_updates"] == 1
    assert len(read_curve(tmp_path / "run" / "curve.csv")) == 1
    assert again.exit_code == 2 and unknown.exit_code == 2


def test_a_curve_is_drawn_alike_each_time(tmp_path: Path) -> None:
    training = trained(replace(QUICK, updates=0), tmp_path)
    for name in ("a.svg", "b.svg"):
        draw_curves(tmp_path / name, [training.points], label="slots", lines=[("teacher", 3.0)])

    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_every_recipe_is_named_with_its_method() -> None:
    assert RECIPES["published"] == Recipe()
    assert RECIPES["ours"].method is Method.CLIPPED
