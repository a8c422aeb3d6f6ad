"""DL2 in its published setting: recipes, training, and the judge of what was trained."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from advisor.sim.study.statistics import CellName, RelativeChange, difference_of_figures
from tools.pages.page_text import table as markdown
from tools.train.dl2_env import PublishedEnv, job_times
from tools.train.dl2_rules import TEACHERS, Mending, SlotRule
from tools.train.dl2_setting import Published
from tools.train.imitation import Agent, Architecture, Explorer, Method, Recipe, WarmUp, recipe_of
from tools.train.improvement import ActorCritic, Clipped, on_policy
from tools.train.judging import base_of, beside, in_percent, numbers
from tools.train.runs import WARM, RecipeBook
from tools.train.slots import Integers, SlotEnv
from tools.train.training import TrainingRun, draw_curves, read_curve, read_description, read_weights

# Training episodes have seeds below a million.
VALIDATION_SEEDS: Final = range(1_000_000, 1_000_016)
TEST_SEEDS: Final = range(2_000_000, 2_000_040)
# The paper's recipe, the same with the discount that the authors' code has in effect and a faster rate, and ours.
RECIPES: Final[Mapping[str, Recipe]] = {
    "published": Recipe(),
    "undiscounted": Recipe(discount=0.0, lr=3e-4),
    "ours": Recipe(
        method=Method.CLIPPED,
        network=Architecture.SHARED,
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


class PublishedRun(TrainingRun):
    """A run in the published setting."""

    def __init__(self, setting: Published, recipe: Recipe, teacher: str, seed: int, every: tuple[int, int]) -> None:
        """Begin a run of a seed; `every` as in `TrainingRun`."""
        self.setting = setting
        env = PublishedEnv(setting, recipe.episodes)
        agent = Agent(env, recipe, seed)
        rule = _Acting(TEACHERS[teacher](setting, seed))
        online: ActorCritic | Clipped
        if recipe.method is Method.CLIPPED:
            online = Clipped(agent, env, recipe, seed, explorer(recipe))
        else:
            online = ActorCritic(agent, env, setting.jobs, recipe, seed, explorer(recipe))
        warm_up = WarmUp(agent, PublishedEnv(setting, recipe.episodes), rule, recipe, seed)
        super().__init__(agent, warm_up, online, recipe=recipe, teacher=teacher, seed=seed, every=every)

    def figure(self) -> float:
        """Return the mean JCT in slots over the validation traces."""
        return float(jct(self.setting, self.agent, VALIDATION_SEEDS, self.seed).mean())

    def described(self) -> Mapping[str, Any]:
        """Return the setting."""
        return {"setting": asdict(self.setting)}


def _begin(recipe: Recipe, teacher: str, seed: int) -> PublishedRun:
    every = (1000, 1000) if recipe.method is Method.ACTOR_CRITIC else (500, 10)
    return PublishedRun(Published(), recipe, teacher, seed, every)


BOOK: Final = RecipeBook(
    recipes=RECIPES, teachers=tuple(TEACHERS), figure="mean JCT in slots, validation", begin=_begin
)


def jct(
    setting: Published, agent: Agent, seeds: Sequence[int], seed: int, *, greedy: bool = False
) -> NDArray[np.float64]:
    """Return the JCT of jobs under a policy that samples, as published, or takes the best `(n_seeds, n_jobs)`."""
    rng = np.random.default_rng([seed, 3])
    return job_times(setting, lambda env: agent.act(env, rng, greedy=greedy), seeds)


def explorer(recipe: Recipe) -> Explorer:
    """Return the exploration of a recipe."""
    return cast(Explorer, Mending(recipe.explore)) if recipe.explore else on_policy


def read_policy(
    folder: Path, name: str = "policy.pt", *, setting: Published | None = None
) -> tuple[Agent, dict[str, Any]]:
    """Return the agent of a finished run, and the description of the run."""
    described = read_description(folder)
    recipe = recipe_of(described["recipe"])
    agent = Agent(PublishedEnv(setting or Published(), 1), recipe, 0)
    agent.policy.load_state_dict(read_weights(folder / name))
    return agent, described


class _Acting:
    """A rule as the warm-up calls it."""

    def __init__(self, teacher: SlotRule) -> None:
        self.teacher = teacher

    def __call__(self, env: SlotEnv) -> Integers:
        assert isinstance(env, PublishedEnv)  # noqa: S101
        return self.teacher.act(env)


RULES: Final = ("drf", "fifo", "srtf", "tetris", "optimus", "optimus-fitted", "optimus-5", "optimus-10")
# The published margins, in percent.
TARGETS: Final = {"drf": -44.1, "optimus-5": -17.5}
Figures = Mapping[CellName, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy or rule; `figures` holds the mean JCT of each trace, by seed of the training."""

    name: str
    figures: Figures
    seeds: int

    @property
    def mean(self) -> float:
        """The mean over all traces and seeds, in slots."""
        return float(np.mean(list(self.figures.values())))


def draw(setting: Published, runs: Sequence[Path], picture: Path) -> None:
    """Draw the validations of some runs beside DRF and Optimus on the traces of validation."""
    everyone = replace(setting, window=setting.jobs)
    lines = [
        (name, float(job_times(everyone, TEACHERS[name](everyone, 0).act, VALIDATION_SEEDS).mean()))
        for name in ("drf", "optimus-5", "optimus")
    ]
    curves = [read_curve(run / "curve.csv") for run in runs]
    draw_curves(picture, curves, label="mean JCT in slots, validation", lines=lines)


def judged(setting: Published, runs: Sequence[Path], seeds: Sequence[int], *, greedy: bool = False) -> dict[str, Any]:
    """Return the rows with what they are compared with, ready for JSON."""
    everyone = replace(setting, window=setting.jobs)
    rules = {name: job_times(everyone, TEACHERS[name](everyone, 0).act, seeds).mean(axis=1) for name in RULES}
    rows = [Row(name=name, figures=_figures({0: means}, seeds), seeds=0) for name, means in rules.items()]
    played: dict[str, dict[int, NDArray[np.float64]]] = {}
    teacher_of: dict[str, str] = {}
    for run in runs:
        for name, file in BOOK.policies(run):
            agent, described = read_policy(run, file, setting=setting)
            seed = int(described["seed"])
            teacher_of[name] = described["teacher"]
            if seed not in played.setdefault(name, {}):
                played[name][seed] = jct(setting, agent, seeds, seed, greedy=greedy).mean(axis=1)
    rows += [Row(name=name, figures=_figures(by, seeds), seeds=len(by)) for name, by in played.items()]
    compared = [_compared(row, rules, seeds, rows, teacher_of.get(row.name)) for row in rows]
    return {"traces": len(seeds), "jobs": setting.jobs, "rows": compared}


def table(results: Mapping[str, Any]) -> str:
    """Return the results as a table in Markdown."""
    heads = (f"{results['traces']} traces", "seeds", "mean JCT, slots", "against DRF", "against Optimus, 5 % error")
    rows = []
    for row in results["rows"]:
        against = ("" if row["name"] == rule else in_percent(row[rule]) for rule in TARGETS)
        rows.append(
            [
                row["name"],
                str(row["seeds"] or ""),
                f"{row['mean_jct']:.2f}",
                *against,
                beside(row["beside"], row["change"]),
            ]
        )
    return markdown((*heads, "beside"), rows)


def _compared(
    row: Row,
    rules: Mapping[str, NDArray[np.float64]],
    seeds: Sequence[int],
    rows: Iterable[Row],
    teacher: str | None,
) -> dict[str, Any]:
    """Compare a row with DRF, with Optimus, and with what it departs from: its teacher or the whole recipe."""
    against = {name: _paired(_alike(rules[name], row.figures, seeds), row.figures) for name in TARGETS}
    rows_by_name = {one.name: one for one in rows}
    other = teacher if row.name.startswith(WARM) else base_of(row.name, rows_by_name)
    change = None
    if other is not None and other in rules:
        change = _paired(_alike(rules[other], row.figures, seeds), row.figures)
    elif other is not None:
        base = rows_by_name[other]
        change = _paired(base.figures, {cell: row.figures[cell] for cell in row.figures if cell in base.figures})
    return {
        "name": row.name,
        "seeds": row.seeds,
        "mean_jct": row.mean,
        "by_seed": _by_seed(row),
        **{name: numbers(value) for name, value in against.items()},
        "beside": other,
        "change": numbers(change),
    }


def _figures(by_seed: Mapping[int, NDArray[np.float64]], seeds: Sequence[int]) -> Figures:
    return {
        CellName(trace=str(trace), seed=seed): float(value)
        for seed, means in by_seed.items()
        for trace, value in zip(seeds, means, strict=True)
    }


def _alike(means: NDArray[np.float64], figures: Figures, seeds: Sequence[int]) -> Figures:
    """Return the figures of a rule under the seeds of a policy."""
    of_trace = {str(trace): float(value) for trace, value in zip(seeds, means, strict=True)}
    return {cell: of_trace[cell.trace] for cell in figures}


def _paired(a: Figures, b: Figures) -> RelativeChange:
    return difference_of_figures(a, b, seed=0)


def _by_seed(row: Row) -> dict[str, float]:
    seeds = sorted({cell.seed for cell in row.figures})
    return {str(seed): float(np.mean([v for cell, v in row.figures.items() if cell.seed == seed])) for seed in seeds}
