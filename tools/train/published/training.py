"""Runs in the published setting: recipes, validation, and reading what a run made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from tools.train import checkpoints
from tools.train.clipped import Clipped, on_policy
from tools.train.learning import ActorCritic, Agent, Explorer, Method, Network, Recipe, WarmUp, recipe_of
from tools.train.published.env import PublishedEnv
from tools.train.published.exploration import AsInCode, AsInPaper
from tools.train.published.runs import job_times
from tools.train.published.setting import Published
from tools.train.published.teachers import TEACHERS, Teacher
from tools.train.slots import Integers, SlotEnv
from tools.train.training import Run

# Training episodes have seeds below a million.
VALIDATION_SEEDS: Final = range(1_000_000, 1_000_016)
TEST_SEEDS: Final = range(2_000_000, 2_000_040)

# The paper's recipe, the same with the discount that the authors' code has in effect and a faster rate, and ours.
RECIPES: Final[Mapping[str, Recipe]] = {
    "published": Recipe(),
    "undiscounted": Recipe(discount=0.0, lr=3e-4),
    "ours": Recipe(
        method=Method.CLIPPED,
        network=Network.SHARED,
        hidden=(48,),
        episodes=64,
        warm_updates=300,
        warm_decay=True,
        updates=60,
        lr=1e-3,
        batch=512,
        discount=0.0,
        entropy=0.02,
        explore=0.0,
        rewards_by_step=True,
        steps=128,
        passes=3,
        value_first=2,
    ),
}
# What each ablation of the paper changes.
ABLATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "value": {"has_value": False},
    "exploration": {"explore": 0.0},
    "replay": {"has_replay": False},
    "reward": {"reward_by_job": True},
    "warm-up": {"warm_updates": 0},
    "stop-labels": {"stop_labels": False},
}


class Training(Run):
    """A run in the published setting."""

    def __init__(self, setting: Published, recipe: Recipe, teacher: str, seed: int, every: tuple[int, int]) -> None:
        """Begin a run of a seed; `every` as in `Run`."""
        self.setting = setting
        env = PublishedEnv(setting, recipe.episodes, seed)
        agent = Agent(env, recipe, seed)
        rule = _Acting(TEACHERS[teacher](setting, seed))
        online: ActorCritic | Clipped
        if recipe.method is Method.CLIPPED:
            online = Clipped(agent, env, recipe, seed, explorer(recipe))
        else:
            online = ActorCritic(agent, env, setting.jobs, recipe, seed, explorer(recipe))
        warm_up = WarmUp(agent, PublishedEnv(setting, recipe.episodes, seed), rule, recipe, seed)
        super().__init__(agent, warm_up, online, recipe=recipe, teacher=teacher, seed=seed, every=every)

    def figure(self) -> float:
        """Return the mean JCT in slots over the validation traces."""
        return float(jct(self.setting, self.agent, VALIDATION_SEEDS, self.seed).mean())

    def described(self) -> Mapping[str, Any]:
        """Return the setting."""
        return {"setting": asdict(self.setting)}


def jct(
    setting: Published, agent: Agent, seeds: Sequence[int], seed: int, *, greedy: bool = False
) -> NDArray[np.float64]:
    """Return the JCT of jobs under a policy that samples, as published, or takes the best `(n_seeds, n_jobs)`."""
    rng = np.random.default_rng([seed, 3])
    return job_times(setting, lambda env: agent.act(env, rng, greedy=greedy), seeds)


def explorer(recipe: Recipe) -> Explorer:
    """Return the exploration of a recipe."""
    if not recipe.explore:
        return on_policy
    return cast(Explorer, AsInCode(recipe.explore) if recipe.explore_as_code else AsInPaper(recipe.explore))


def read_policy(
    folder: Path, name: str = "policy.pt", *, setting: Published | None = None
) -> tuple[Agent, dict[str, Any]]:
    """Return the agent of a finished run, and the description of the run."""
    described = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    recipe = recipe_of(described["recipe"])
    agent = Agent(PublishedEnv(setting or Published(), 1), recipe, 0)
    agent.policy.load_state_dict(checkpoints.read_weights(folder / name))
    return agent, described


class _Acting:
    """A rule as the warm-up calls it."""

    def __init__(self, teacher: Teacher) -> None:
        self.teacher = teacher

    def __call__(self, env: SlotEnv) -> Integers:
        assert isinstance(env, PublishedEnv)  # noqa: S101
        return self.teacher.act(env)
