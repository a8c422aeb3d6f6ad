"""Training runs as they are asked for, by options of a command or by a file of runs, one or many of them at once."""

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor.cli.compare import seeds_of
from advisor.errors import ConfigError
from advisor.sim.study.engines import Engine, run_tasks
from advisor.text import escaped
from tools.train.imitation import Recipe, deterministic, recipe_of
from tools.train.training import Report, TrainingRun, draw_curves, read_checkpoint, read_description, train

Setting = Literal["published", "slurm", "places", "sites"]
WARM: Final = "warm-up alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeBook:
    """What can be trained in a setting: recipes by name, and the teachers of the warm-up.

    The first recipe and the first teacher are the defaults. `figure` names what validations measure, and `begin` makes
    a run of a recipe, a teacher and a seed.
    """

    recipes: Mapping[str, Recipe]
    teachers: Sequence[str]
    figure: str
    begin: Callable[[Recipe, str, int], TrainingRun]

    def recipe(self, name: str | None = None, changes: Iterable[str] = ()) -> Recipe:
        """Return a named recipe with fields changed, each as NAME=JSON."""
        name = name or next(iter(self.recipes))
        if name not in self.recipes:
            raise ConfigError(f"no recipe {name}; there are {', '.join(self.recipes)}")
        return _changed(self.recipes[name], changes)

    def policies(self, run: Path) -> list[tuple[str, str]]:
        """Return the names and files of what a run made; the warm-up alone is judged where it is that of a recipe."""
        described = read_description(run)
        recipe = recipe_of(described["recipe"])
        # What follows a warm-up does not change it: the first recipe with the same one names it.
        alike = {field: getattr(recipe, field) for field in ("updates", "warm_updates", "warm_decay", "lr", "discount")}
        warm = [
            (f"{WARM}, {name}, {_updates(recipe, named)}, taught by {described['teacher']}", "warm.pt")
            for name, named in self.recipes.items()
            if recipe.warm_updates and replace(named, **alike) == recipe
        ][:1]
        return warm + ([(self.name_of(described), "policy.pt")] if recipe.updates else [])

    def runs_of(self, name: str, runs: Iterable[Path]) -> list[Path]:
        """Return the runs that learnt what a row names."""
        return [run for run in runs if (name, "policy.pt") in self.policies(run)]

    def name_of(self, described: Mapping[str, Any]) -> str:
        """Return the name of what a run learnt: the recipe, and how it differs from it."""
        recipe = asdict(recipe_of(described["recipe"]))
        changes = {
            name: {field: value for field, value in recipe.items() if value != asdict(named)[field]}
            for name, named in self.recipes.items()
        }
        name, changed = min(changes.items(), key=lambda item: len(item[1]))
        parts = [name, ", ".join(f"{field}={value}" for field, value in changed.items())] if changed else [name]
        teacher = described["teacher"]
        return ", ".join([*parts, *([f"taught by {teacher}"] if teacher != self.teachers[0] else [])])


def book_of(setting: Setting) -> RecipeBook:
    """Return the recipes of a setting; its program is imported when it is asked for."""
    match setting:
        case "published":
            from tools.train.dl2_published import BOOK as PUBLISHED

            return PUBLISHED
        case "slurm":
            from tools.train.dl2 import BOOK as SIZES

            return SIZES
        case "places":
            from tools.train.marl import BOOK as PLACES

            return PLACES
        case "sites":
            from tools.train.metarl import BOOK as SITES

            return SITES


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run of one seed in one setting."""

    setting: Setting
    recipe: Recipe
    teacher: str
    seed: int

    def __post_init__(self) -> None:
        """Check the teacher."""
        if self.teacher not in (known := book_of(self.setting).teachers):
            raise ConfigError(f"no teacher {self.teacher}; there are {', '.join(known)}")


def planned_run(
    setting: Setting,
    seed: int,
    *,
    recipe: str | None = None,
    teacher: str | None = None,
    changes: Iterable[str] = (),
) -> PlannedRun:
    """Return a run as it is asked for; raises `ConfigError` for what its setting does not have."""
    book = book_of(setting)
    chosen = book.recipe(recipe, changes)
    return PlannedRun(setting=setting, recipe=chosen, teacher=teacher or book.teachers[0], seed=seed)


def begun(planned: PlannedRun, folder: Path) -> TrainingRun:
    """Return the run that a folder holds, a new one if it holds none; another run is an error."""
    deterministic()
    checkpoint = folder / "run.ckpt"
    if not checkpoint.exists():
        return book_of(planned.setting).begin(planned.recipe, planned.teacher, planned.seed)
    run: TrainingRun = read_checkpoint(checkpoint)
    if (run.recipe, run.teacher, run.seed) != (planned.recipe, planned.teacher, planned.seed):
        raise ConfigError(f"{folder} holds another run")
    return run


def complete(planned: PlannedRun, folder: Path, report: Report) -> TrainingRun:
    """Train a run to its end, from its checkpoint if there is one, and draw its curve."""
    run = begun(planned, folder)
    train(run, folder, report)
    draw_curves(folder / "curve.svg", [run.points], label=book_of(planned.setting).figure, lines=[])
    return run


class _Row(BaseModel):
    """Runs that differ in nothing but the seed; they go to the folders NAME-SEED."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    setting: Setting = "published"
    recipe: str | None = None
    teacher: str | None = None
    changes: dict[str, Any] = Field(default={}, alias="set")
    seeds: str = "1-1"


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: list[_Row]


def read_runs(file: Path, *, only: Sequence[str] = (), seeds: str | None = None) -> dict[str, PlannedRun]:
    """Return the runs of a file by the names of their folders, of all rows or of some, with other seeds if given.

    Raises `ConfigError` for a file that is wrong.
    """
    try:
        rows = _File.model_validate(tomllib.loads(file.read_text(encoding="utf-8"))).runs
    except ValidationError as err:
        first = err.errors()[0]
        raise ConfigError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from err
    except OSError as err:
        raise ConfigError(f"{file}: cannot be read: {err.strerror}") from err
    except ValueError as err:
        raise ConfigError(f"{file}: {err}") from err
    unknown = sorted(set(only) - {row.name for row in rows})
    if unknown:
        raise ConfigError(f"{file} has no row {unknown[0]}; there are {', '.join(row.name for row in rows)}")
    return {
        f"{row.name}-{seed}": _planned(row, seed)
        for row in rows
        if not only or row.name in only
        for seed in seeds_of(seeds or row.seeds)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended: with its least figure in validation, or with an error in one line."""

    figure: float
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    planned: PlannedRun
    folder: Path


def unfinished(runs: Mapping[str, PlannedRun], out: Path) -> dict[str, PlannedRun]:
    """Return the runs which are not over in their folders; raises `ConfigError` where a folder holds another run."""
    return {
        name: planned
        for name, planned in runs.items()
        if not (out / name / "run.ckpt").exists() or not begun(planned, out / name).is_over
    }


def run_campaign(
    runs: Mapping[str, PlannedRun], out: Path, *, engine: Engine = "local", workers: int = 1
) -> Iterator[tuple[str, RunEnd]]:
    """Train runs, `workers` at a time, each in its folder in `out`; yield the name and the end of each as it ends.

    A run that fails does not stop the others. All of them go on from their checkpoints when they are run again. Raises
    `SimulationError` where the engine fails.
    """
    jobs = {name: _Job(planned=planned, folder=out.resolve() / name) for name, planned in runs.items()}
    with closing(run_tasks(jobs, _run, engine, workers, out)) as finished:
        yield from finished


def _run(job: _Job) -> RunEnd:
    """Train a run to its end in another process."""
    try:
        run = complete(job.planned, job.folder, lambda *_: None)
    except Exception as err:
        return RunEnd(figure=float("nan"), error=f"{type(err).__name__}: {escaped(str(err))}")
    return RunEnd(figure=run.best)


def _planned(row: _Row, seed: int) -> PlannedRun:
    changes = [
        f"{field}={value if isinstance(value, str) else json.dumps(value)}" for field, value in row.changes.items()
    ]
    try:
        return planned_run(row.setting, seed, recipe=row.recipe, teacher=row.teacher, changes=changes)
    except ConfigError as err:
        raise ConfigError(f"{row.name}: {err}") from err


def _changed(chosen: Recipe, changes: Iterable[str]) -> Recipe:
    known = {field.name for field in fields(Recipe)}
    values: dict[str, Any] = {}
    for change in changes:
        field, _, value = change.partition("=")
        if field not in known:
            raise ConfigError(f"a recipe has no {field}")
        try:
            values[field] = value if field in {"method", "network"} else json.loads(value)
        except ValueError as err:
            raise ConfigError(f"{change}: no JSON after {field}=") from err
    try:
        return recipe_of({field: values.get(field, getattr(chosen, field)) for field in known})
    except ValueError as err:
        raise ConfigError(str(err)) from err


def _updates(recipe: Recipe, named: Recipe) -> str:
    """Return the length of a warm-up, and how its rate departs from that of the recipe."""
    rate = "" if recipe.warm_decay == named.warm_decay else " at a decreasing rate"
    return f"{recipe.warm_updates} updates{rate}"
