"""A training run: a warm-up and what follows, in steps between validations, with checkpoints to go on from."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from advisor.errors import ConfigError
from tools.train import checkpoints
from tools.train.clipped import Clipped
from tools.train.curves import Point, write_curve
from tools.train.learning import ActorCritic, Agent, Recipe, WarmUp, deterministic


class Run(ABC):
    """The state of a run: everything that is needed to go on.

    With `begins_again` episodes begin again at each step, so that a checkpoint holds none that are under way.
    """

    begins_again = False

    def __init__(
        self,
        agent: Agent,
        warm_up: WarmUp,
        online: ActorCritic | Clipped,
        *,
        recipe: Recipe,
        teacher: str,
        seed: int,
        every: tuple[int, int],
    ) -> None:
        """Begin a run of a seed; `every` counts updates between validations in the warm-up and after it."""
        self.agent, self.warm_up, self.online = agent, warm_up, online
        self.recipe, self.teacher, self.seed, self.every = recipe, teacher, seed, every
        self.points: list[Point] = []
        self.best = float("inf")
        self.cpu_s = 0.0

    @abstractmethod
    def figure(self) -> float:
        """Validate the policy, and return what is to be low."""

    @abstractmethod
    def described(self) -> Mapping[str, Any]:
        """Return what sets the run apart, beside its recipe, its teacher and its seed."""

    def spread(self, workers: int) -> None:
        """Play the episodes in some worker processes from here on; the weights stay the same."""
        raise ConfigError(f"{type(self).__name__} plays in one process: --workers {workers} would not be faster")

    @property
    def is_warm(self) -> bool:
        """Whether the warm-up is over."""
        return self.warm_up.updates >= self.recipe.warm_updates

    @property
    def is_over(self) -> bool:
        """Whether all updates are made."""
        return self.is_warm and self.online.updates >= self.recipe.updates

    def advance(self) -> Point:
        """Learn until the next validation, and validate."""
        began = time.process_time()
        is_warm, recipe = self.is_warm, self.recipe
        phase = self.online if is_warm else self.warm_up
        target, every = (recipe.updates, self.every[1]) if is_warm else (recipe.warm_updates, self.every[0])
        if self.begins_again:
            phase.episodes.begin(np.arange(phase.env.n))
        phase.advance(min(every, target - phase.updates))
        figure = self.figure()
        self.cpu_s += time.process_time() - began
        self.best = min(self.best, figure)
        episodes = phase.episodes.begun - phase.env.n
        name = "online" if is_warm else "warm-up"
        self.points.append(Point(name, phase.updates, episodes, phase.loss, figure, self.best, self.cpu_s))
        return self.points[-1]


Report = Callable[[Run, Point], None]


def train(run: Run, folder: Path, report: Report) -> None:
    """Train to the end. Each validation writes the checkpoint; the best policy after the warm-up is `policy.pt`.

    `warm.pt` is the policy at the end of the warm-up, which counts as the first of those to choose from.
    """
    deterministic()
    described = {**run.described(), "recipe": asdict(run.recipe), "teacher": run.teacher, "seed": run.seed}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    while not run.is_over:
        point = run.advance()
        online = [seen.figure for seen in run.points if seen.phase == "online"]
        warmed = point.phase == "warm-up" and run.is_warm
        if warmed:
            checkpoints.write(folder / "warm.pt", run.agent.policy.state_dict())
        if warmed or (point.phase == "online" and point.figure <= min([*online, _warm_figure(run)])):
            checkpoints.write(folder / "policy.pt", run.agent.policy.state_dict())
        checkpoints.write(folder / "run.ckpt", run)
        write_curve(folder, run.points)
        report(run, point)


def _warm_figure(run: Run) -> float:
    return next((seen.figure for seen in reversed(run.points) if seen.phase == "warm-up"), float("inf"))
