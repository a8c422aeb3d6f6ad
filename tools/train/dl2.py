"""DL2: trains and publishes the policy that sizes elastic jobs on Slurm, and trains those of the published setting.

python -m tools.train.dl2 slurm --seed 1 --out DIR
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, cast

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import nn

from advisor.features.steps import OPTION_COLUMNS, PRICE
from advisor.fit.publish import publish_graph
from advisor.predict.manifest import POLICY, Entry
from advisor.sim.study.statistics import CellName, mean_over_cells
from tools.train import dl2_rules, training_commands
from tools.train.dl2_published import RECIPES
from tools.train.imitation import Agent, Architecture, Method, Recipe, Rule, WarmUp, recipe_of
from tools.train.improvement import Clipped, Counting, on_policy
from tools.train.networks import Choosing, PerOption
from tools.train.policy_graph import CardText, Rows, card_of, exported
from tools.train.runs import RecipeBook, planned_run
from tools.train.size_env import ByRule, SlurmEnv
from tools.train.sizer import as_asked, by_gain, by_price
from tools.train.slots import Integers
from tools.train.training import TrainingRun, read_description, read_weights

# Training episodes have seeds below a million.
VALIDATION_SEEDS: Final = range(1_000_000, 1_000_032)
# Episodes whose first steps set the mean and the scale of the columns.
SHOWN: Final = 32
TEACHER: Final = "price"
RECIPE: Final = Recipe(
    method=Method.CLIPPED,
    network=Architecture.OPTIONS,
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


class SizeRun(TrainingRun):
    """A run on drawn workloads of the model of slurmctld."""

    begins_again = True

    def __init__(self, recipe: Recipe, teacher: str, seed: int, every: tuple[int, int] = (200, 6)) -> None:
        """Begin a run of a seed; `every` as in `TrainingRun`."""
        env = SlurmEnv(recipe.episodes)
        agent = Agent(env, recipe, seed)
        _normalise(agent.policy, seed)
        rule = cast(Rule, ByRule(by_price))
        warm_up = WarmUp(agent, SlurmEnv(recipe.episodes), rule, recipe, seed)
        online = Clipped(agent, cast(Counting, env), recipe, seed, on_policy)
        super().__init__(agent, warm_up, online, recipe=recipe, teacher=teacher, seed=seed, every=every)
        self.asked = mean_jct(ByRule(as_asked), VALIDATION_SEEDS)

    def figure(self) -> float:
        """Return the mean change of the mean JCT against sizes as asked, in percent, over the validation workloads."""
        jct = mean_jct(greedy(self.agent.policy), VALIDATION_SEEDS)
        return 100.0 * float(np.log(jct / self.asked).mean())

    def described(self) -> Mapping[str, Any]:
        """Return the columns that the policy sees."""
        return {"columns": OPTION_COLUMNS}


BOOK: Final = RecipeBook(
    recipes={"dl2": RECIPE},
    teachers=(TEACHER,),
    figure="mean JCT against sizes as asked, %",
    begin=SizeRun,
)


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


def mean_jct(act: Act, seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the mean job completion time of each episode in units of its mean run time, `(n_seeds,)`."""
    env = SlurmEnv(len(seeds))
    env.reset(seeds)
    is_over = np.zeros(env.n, np.bool_)
    while not is_over.all():
        is_over |= env.step(act(env)).done
    return np.array([episode.jct_s.sum() / episode.unit_s for episode in env.episodes if episode is not None])


KIND: Final = f"{POLICY}dl2"
# Episodes that neither training nor the choice of a checkpoint has seen.
TEST_SEEDS: Final = range(2_000_000, 2_000_064)
# Decisions on which a graph is compared with its network.
DECISIONS: Final = 10_000
_PARTS: Final = ("mean", "lower end of the 95 % interval", "upper end")
_LIMITS: Final = (
    "Trained on drawn workloads of 300 jobs; on published traces see docs/sizes.md.",
    "Sizes pending jobs alone, once, as their turn comes near; running jobs keep their GPUs.",
    "Knows neither QOS nor association limits, nor which users are delayed: the guard and the lifts do.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The change of the mean job completion time against sizes as asked, as logarithms of ratios `(n_episodes,)`."""

    policy: NDArray[np.float64]
    warm: NDArray[np.float64]
    price: NDArray[np.float64]
    gain: NDArray[np.float64]


def network_of(run: Path, name: str = "policy.pt") -> PerOption:
    """Return the network that a run trained."""
    agent = Agent(SlurmEnv(1), recipe_of(read_description(run)["recipe"]), 0)
    agent.policy.load_state_dict(read_weights(run / name))
    if not isinstance(agent.policy, Choosing):
        raise TypeError(f"{run}: its network does not score options")
    return agent.policy.scorer


def judged_run(run: Path, seeds: Sequence[int]) -> Judged:
    """Play test episodes with the policies of a run and with its rules."""
    acts: dict[str, Act] = {
        "policy": greedy(Choosing(network_of(run))),
        "warm": greedy(Choosing(network_of(run, "warm.pt"))),
        "price": ByRule(by_price),
        "gain": ByRule(by_gain),
    }
    asked = mean_jct(ByRule(as_asked), seeds)
    return Judged(**{name: np.log(mean_jct(act, seeds) / asked) for name, act in acts.items()})


def decisions_of(act: Act, seeds: Sequence[int], count: int) -> list[Rows]:
    """Return the options of the first decisions that a policy met in some episodes."""
    env = SlurmEnv(len(seeds))
    env.reset(seeds)
    decisions: list[Rows] = []
    while len(decisions) < count:
        observation, mask = env.observe(), env.mask()[:, :-1]
        decisions += [
            np.ascontiguousarray(seen[legal]) for seen, legal in zip(observation, mask, strict=True) if legal.any()
        ]
        done = np.flatnonzero(env.step(act(env)).done)
        if len(done):
            env.reset([int(row) + 3_000_000 + len(decisions) for row in done], done)
    return decisions


def publish_policy(run: Path, folder: Path, version: str, *, today: str) -> Entry:
    """Publish the policy of a run without putting it in use; raises `ModelError` as `publish_graph` does."""
    described = read_description(run)
    network, found = network_of(run), judged_run(run, TEST_SEEDS)
    made = exported(
        network,
        kind=KIND,
        columns=OPTION_COLUMNS,
        decisions=decisions_of(greedy(Choosing(network)), range(3_000_000, 3_000_032), DECISIONS),
        seed=described["seed"],
        parameters={"teacher": described["teacher"]},
    )
    text = (
        "Sizes elastic pending jobs as DL2 does: from the smallest size on, one more GPU or one more node's worth for "
        f"one job at a time, until it stops. Warmed up on `{described['teacher']}`, then clipped policy updates."
    )
    card = card_of(
        CardText(
            text=text,
            data={
                "training": "drawn workloads, seeds below 1,000,000 (tools/train/size_env.py)",
                "choice of the checkpoint": "32 drawn workloads from seed 1,000,000 on",
                "figures": f"{len(TEST_SEEDS)} drawn workloads from seed 2,000,000 on",
            },
            metrics={
                f"change of the mean JCT, {name}, % ({of})": value
                for name, changes in (
                    ("this policy against sizes as asked", found.policy),
                    ("after the warm-up against sizes as asked", found.warm),
                    (f"the rule price of {PRICE:g} against sizes as asked", found.price),
                    ("gain for each GPU (Optimus) against sizes as asked", found.gain),
                    (f"this policy against the rule price of {PRICE:g}", found.policy - found.price),
                )
                for of, value in zip(_PARTS, _interval(changes), strict=True)
            },
            limits=_LIMITS,
            settings={name: str(value) for name, value in described["recipe"].items()},
        )
    )
    return publish_graph(made, folder, version, today=today, card=card)


def _interval(changes: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean change and its 95 % interval in percent, from logarithms of ratios."""
    found = mean_over_cells(
        {CellName("drawn", episode): float(change) for episode, change in enumerate(changes)}, seed=0
    )
    mean, low, high = (100.0 * float(np.expm1(value)) for value in (found.mean, found.low, found.high))
    return mean, low, high


app = training_commands.program("Train DL2's policies.")


@app.command()
def published(
    out: training_commands.Folder,
    seed: training_commands.Seed = 1,
    recipe: Annotated[str, typer.Option(help=f"How to learn: {', '.join(RECIPES)}.")] = "published",
    teacher: Annotated[str, typer.Option(help=f"Teacher of the warm-up: {', '.join(dl2_rules.TEACHERS)}.")] = "drf",
    change: training_commands.Changes = None,
) -> None:
    """Train a policy for the published setting, and validate it on traces of its own."""
    with training_commands.one_line():
        planned = planned_run("published", seed, recipe=recipe, teacher=teacher, changes=change or [])
        training_commands.finish(planned, out, "{:6.3f} slots")


@app.command()
def slurm(
    out: training_commands.Folder,
    seed: training_commands.Seed = 1,
    change: training_commands.Changes = None,
) -> None:
    """Train a policy that sizes elastic jobs on Slurm, on drawn workloads."""
    with training_commands.one_line():
        planned = planned_run("slurm", seed, changes=change or [])
        training_commands.finish(planned, out, "{:+6.2f} % of as asked")


app.command()(training_commands.sweep)


@app.command()
def publish(
    run: training_commands.FinishedRun,
    models: training_commands.Models,
    version: training_commands.Version = "default-1",
    use: training_commands.Use = False,
) -> None:
    """Publish the policy of a run of `slurm` as policy-dl2, with its card."""
    training_commands.publish_as(partial(publish_policy, run), models, version, use=use)


if __name__ == "__main__":
    training_commands.start("tools.train.dl2")
