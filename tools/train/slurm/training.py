"""Runs that learn sizes on Slurm: the recipe, teachers, and validation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from advisor.features.steps import OPTION_COLUMNS
from tools.train.clipped import Clipped, Counting, on_policy
from tools.train.learning import Agent, Method, Network, Recipe, WarmUp
from tools.train.networks import Choosing
from tools.train.shards import ShardedEnv, Workers, of_rows
from tools.train.slots import Integers, SlotEnv
from tools.train.slurm.env import ByRule, SlurmEnv
from tools.train.slurm.scorers import StepScorer, as_asked, by_gain, by_price
from tools.train.training import Run

# Training episodes have seeds below a million.
VALIDATION_SEEDS: Final = range(1_000_000, 1_000_032)
# Episodes whose first steps set the mean and the scale of the columns.
SHOWN: Final = 32
TEACHERS: Final[Mapping[str, StepScorer]] = {"asked": as_asked, "gain": by_gain, "price": by_price}
RECIPE: Final = Recipe(
    method=Method.CLIPPED,
    network=Network.OPTIONS,
    hidden=(48,),
    episodes=32,
    warm_updates=400,
    warm_decay=True,
    updates=60,
    lr=1e-3,
    batch=512,
    discount=0.99,
    entropy=0.01,
    entropy_by_action=False,
    explore=0.0,
    steps=128,
    passes=3,
    value_first=3,
    gae=1.0,
)
Act = Callable[[Any], Integers]


class Training(Run):
    """A run on drawn workloads of the model of slurmctld."""

    begins_again = True

    def __init__(self, recipe: Recipe, teacher: str, seed: int, every: tuple[int, int] = (200, 6)) -> None:
        """Begin a run of a seed; `every` as in `Run`."""
        env = SlurmEnv(recipe.episodes)
        agent = Agent(env, recipe, seed)
        _normalise(agent.policy, seed)
        rule = _Teaching(TEACHERS[teacher])
        warm_up = WarmUp(agent, SlurmEnv(recipe.episodes), rule, recipe, seed)
        online = Clipped(agent, cast(Counting, env), recipe, seed, on_policy)
        super().__init__(agent, warm_up, online, recipe=recipe, teacher=teacher, seed=seed, every=every)
        self.validation: SlotEnv = SlurmEnv(len(VALIDATION_SEEDS))
        self.asked = mean_jct(ByRule(as_asked), VALIDATION_SEEDS)

    def spread(self, workers: int) -> None:
        """Play the episodes in some worker processes from here on; the weights stay the same."""
        pool = Workers(workers)
        for phase in (self.warm_up, self.online):
            env = ShardedEnv(pool, SlurmEnv, self.recipe.episodes)
            phase.env = phase.episodes.env = cast(Counting, env)
        self.validation = ShardedEnv(pool, SlurmEnv, len(VALIDATION_SEEDS))

    def figure(self) -> float:
        """Return the mean change of the mean JCT against sizes as asked, in percent, over the validation workloads."""
        jct = mean_jct(greedy(self.agent.policy), VALIDATION_SEEDS, self.validation)
        return 100.0 * float(np.log(jct / self.asked).mean())

    def described(self) -> Mapping[str, Any]:
        """Return the columns that the policy sees."""
        return {"columns": OPTION_COLUMNS}


def greedy(policy: nn.Module) -> Act:
    """Return what takes the best action of a policy in each episode."""

    def act(env: SlurmEnv) -> Integers:
        with torch.no_grad():
            logits = policy(torch.from_numpy(env.observe())).numpy()
        return np.asarray(np.where(env.mask(), logits, -np.inf).argmax(axis=1))

    return act


def _normalise(policy: nn.Module, seed: int) -> None:
    """Set the mean and the scale of the columns from what the first steps of some episodes show."""
    if not isinstance(policy, Choosing):
        return
    env, rng = SlurmEnv(SHOWN), np.random.default_rng([seed, 4])
    env.reset([int(one) for one in rng.integers(1_000_000, size=env.n)])
    rows = []
    for _ in range(40):
        rows.append(env.observe()[env.mask()[:, :-1]])
        env.step(ByRule(by_price)(env))
    seen = np.concatenate(rows)
    deviation = seen.std(axis=0)
    policy.scorer.mean.copy_(torch.from_numpy(seen.mean(axis=0)))
    policy.scorer.scale.copy_(torch.from_numpy(np.where(deviation > 1e-3, deviation, 1.0)))


def mean_jct(act: Act, seeds: Sequence[int], env: SlotEnv | None = None) -> NDArray[np.float64]:
    """Return the mean job completion time of each episode in units of its mean run time, `(n_seeds,)`.

    The episodes are played on `env`, of as many rows as seeds, or on a new environment.
    """
    env = env or SlurmEnv(len(seeds))
    env.reset(seeds)
    is_over = np.zeros(env.n, np.bool_)
    while not is_over.all():
        is_over |= env.step(act(env)).done
    return of_rows(env, _mean_jct_now)


def _mean_jct_now(env: SlurmEnv) -> NDArray[np.float64]:
    return np.array([episode.jct_s.sum() / episode.unit_s for episode in env.episodes if episode is not None])


class _Teaching:
    """A rule as the warm-up calls it."""

    def __init__(self, scorer: StepScorer) -> None:
        self.rule = ByRule(scorer)

    def __call__(self, env: SlotEnv) -> Integers:
        return of_rows(env, self.rule)
