"""Publishes a trained policy for sizes as a model that is served, with what it gains on episodes of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.features.price import PRICE
from advisor.features.steps import OPTION_COLUMNS
from advisor.fit.publish import publish_graph
from advisor.predict.manifest import POLICY, Entry
from advisor.sim.study.statistics import CellName, mean_over_cells
from tools.train import checkpoints
from tools.train.export import Rows, Training, card_of, exported
from tools.train.learning import Agent, recipe_of
from tools.train.networks import Choosing, PerOption
from tools.train.slurm.env import ByRule, SlurmEnv
from tools.train.slurm.scorers import as_asked, by_gain, by_price
from tools.train.slurm.training import Act, greedy, mean_jct
from tools.train.verdicts import read_description

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
    agent.policy.load_state_dict(checkpoints.read_weights(run / name))
    if not isinstance(agent.policy, Choosing):
        raise TypeError(f"{run}: its network does not score options")
    return agent.policy.scorer


def judged(run: Path, seeds: Sequence[int]) -> Judged:
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
    network, found = network_of(run), judged(run, TEST_SEEDS)
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
        Training(
            text=text,
            data={
                "training": "drawn workloads, seeds below 1,000,000 (tools/train/slurm/workload.py)",
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
