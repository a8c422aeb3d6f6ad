"""A training run: a warm-up and what follows, in steps between validations, with checkpoints and its learning curve.

A checkpoint is the whole state of a run in Python's own format, which can run code when it is read: read only your own.
"""

import csv
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from advisor.errors import ConfigError
from tools.train.imitation import Agent, Recipe, WarmUp, deterministic
from tools.train.improvement import ActorCritic, Clipped


def write_checkpoint(path: Path, state: object) -> None:
    """Write a state so that a reader sees the old file or the new one, and never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def read_checkpoint(path: Path) -> Any:
    """Return a state."""
    return torch.load(path, weights_only=False)


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a policy; reading them runs no code."""
    weights: dict[str, torch.Tensor] = torch.load(path, weights_only=True)
    return weights


class CurvePoint(NamedTuple):
    """One validation; `best` is the least figure so far."""

    phase: str
    updates: int
    episodes: int
    loss: float
    figure: float
    best: float
    cpu_s: float


def write_curve(folder: Path, points: Sequence[CurvePoint]) -> None:
    """Write `curve.csv`, in place of the one there."""
    with (folder / "curve.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(CurvePoint._fields)
        rows.writerows([value if isinstance(value, str) else f"{value:.6g}" for value in point] for point in points)


def read_curve(path: Path) -> list[CurvePoint]:
    """Return the points of a curve."""
    with path.open(newline="", encoding="utf-8") as stream:
        return [
            CurvePoint(
                row["phase"],
                int(row["updates"]),
                int(row["episodes"]),
                *(float(row[name]) for name in CurvePoint._fields[3:]),
            )
            for row in csv.DictReader(stream)
        ]


def draw_curves(
    path: Path, curves: Sequence[Sequence[CurvePoint]], *, label: str, lines: Sequence[tuple[str, float]]
) -> None:
    """Draw the figures of some runs one over the other, with horizontal lines to compare them with, as SVG."""
    import matplotlib as mpl

    mpl.use("Agg")
    # The same curves give the same bytes.
    mpl.rcParams["svg.hashsalt"] = "curves"
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for number, points in enumerate(curves, start=1):
        axes.plot(range(len(points)), [point.figure for point in points], linewidth=1.0, label=f"run {number}")
    ends = [sum(point.phase == "warm-up" for point in points) for points in curves]
    if ends and min(ends) > 0:
        axes.axvline(ends[0] - 0.5, color="0.7", linewidth=0.8)
        axes.annotate("warm-up ends", (ends[0] - 0.5, axes.get_ylim()[1]), fontsize=7, va="top")
    for name, value in lines:
        axes.axhline(value, color="0.3", linestyle="--", linewidth=0.8)
        axes.annotate(name, (0.6, value), xycoords=axes.get_yaxis_transform(), fontsize=7, va="bottom")
    axes.set_xlabel("validation")
    axes.set_ylabel(label)
    axes.legend(fontsize=7)
    figure.savefig(path, format="svg", metadata={"Date": None})


class TrainingRun(ABC):
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
        self.points: list[CurvePoint] = []
        self.best = float("inf")
        self.cpu_s = 0.0

    @abstractmethod
    def figure(self) -> float:
        """Validate the policy, and return what is to be low."""

    @abstractmethod
    def described(self) -> Mapping[str, Any]:
        """Return what sets the run apart, beside its recipe, its teacher and its seed."""

    @property
    def is_warm(self) -> bool:
        """Whether the warm-up is over."""
        return self.warm_up.updates >= self.recipe.warm_updates

    @property
    def is_over(self) -> bool:
        """Whether all updates are made."""
        return self.is_warm and self.online.updates >= self.recipe.updates

    def advance(self) -> CurvePoint:
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
        self.points.append(CurvePoint(name, phase.updates, episodes, phase.loss, figure, self.best, self.cpu_s))
        return self.points[-1]


Report = Callable[[TrainingRun, CurvePoint], None]


def train(run: TrainingRun, folder: Path, report: Report) -> None:
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
            write_checkpoint(folder / "warm.pt", run.agent.policy.state_dict())
        if warmed or (point.phase == "online" and point.figure <= min([*online, _warm_figure(run)])):
            write_checkpoint(folder / "policy.pt", run.agent.policy.state_dict())
        write_checkpoint(folder / "run.ckpt", run)
        write_curve(folder, run.points)
        report(run, point)


def read_description(run: Path) -> dict[str, Any]:
    """Return the description of a run; raises `ConfigError` for a folder that holds none."""
    return read_results(run / "run.json")


def read_results(file: Path) -> dict[str, Any]:
    """Return what a program here wrote as JSON; raises `ConfigError` if it cannot be read."""
    try:
        held: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise ConfigError(f"{file}: cannot be read: {err}: name what a run or a judge wrote") from err
    return held


def _warm_figure(run: TrainingRun) -> float:
    return next((seen.figure for seen in reversed(run.points) if seen.phase == "warm-up"), float("inf"))
