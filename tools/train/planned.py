"""Training runs as they are asked for: by options of a command, or by a file of runs."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor.cli.compare import seeds_of
from advisor.errors import ConfigError
from tools.train import checkpoints
from tools.train.curves import draw_curves
from tools.train.learning import Method, Recipe, deterministic, recipe_of
from tools.train.published.setting import Published
from tools.train.published.teachers import TEACHERS
from tools.train.published.training import ABLATIONS, RECIPES, Training
from tools.train.training import Report, Run, train

Setting = Literal["published", "slurm", "places", "sites"]
# Updates between validations, in the warm-up and after it.
EVERY: Final = {Method.ACTOR_CRITIC: (1000, 1000), Method.CLIPPED: (500, 10)}
LABELS: Final = {
    "published": "mean JCT in slots, validation",
    "slurm": "mean JCT against sizes as asked, %",
    "places": "mean JCT against best fit, %",
    "sites": "mean JCT against the rule, %",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run of one seed in one setting."""

    setting: Setting
    recipe: Recipe
    teacher: str
    seed: int

    def __post_init__(self) -> None:
        """Check the teacher."""
        if self.teacher not in (known := _teachers(self.setting)):
            raise ConfigError(f"no teacher {self.teacher}; there are {', '.join(known)}")


def recipe_for(
    setting: Setting, name: str | None = None, without: Iterable[str] = (), changes: Iterable[str] = ()
) -> Recipe:
    """Return a named recipe without some parts, and with fields changed, each as NAME=JSON."""
    recipes, ablations = _recipes(setting)
    name = name or next(iter(recipes))
    if name not in recipes:
        raise ConfigError(f"no recipe {name}; there are {', '.join(recipes)}")
    chosen = recipes[name]
    for part in without:
        if part not in ablations:
            raise ConfigError(f"no part {part}; there are {', '.join(ablations)}")
        chosen = replace(chosen, **ablations[part])
    return _changed(chosen, changes)


def _recipes(setting: Setting) -> tuple[Mapping[str, Recipe], Mapping[str, Mapping[str, Any]]]:
    """Return the recipes of a setting by name, and what each ablation changes."""
    if setting == "slurm":
        from tools.train.slurm.training import RECIPE

        return {"slurm": RECIPE}, ABLATIONS
    if setting == "places":
        from tools.train.places import training as places

        return {"marl": places.RECIPE}, places.ABLATIONS
    if setting == "sites":
        from tools.train.sites import training as sites

        return {"metarl": sites.RECIPE}, sites.ABLATIONS
    return RECIPES, ABLATIONS


def begun(planned: PlannedRun, folder: Path) -> Run:
    """Return the run that a folder holds, a new one if it holds none; another run is an error."""
    deterministic()
    checkpoint = folder / "run.ckpt"
    if checkpoint.exists():
        run: Run = checkpoints.read(checkpoint)
        if (run.recipe, run.teacher, run.seed) != (planned.recipe, planned.teacher, planned.seed):
            raise ConfigError(f"{folder} holds another run")
        return run
    if planned.setting == "slurm":
        from tools.train.slurm.training import Training as SlurmTraining

        return SlurmTraining(planned.recipe, planned.teacher, planned.seed)
    if planned.setting == "places":
        from tools.train.places.training import Training as PlacesTraining

        return PlacesTraining(planned.recipe, planned.teacher, planned.seed)
    if planned.setting == "sites":
        from tools.train.sites.training import SiteTraining

        return SiteTraining(planned.recipe, planned.teacher, planned.seed)
    every = EVERY[planned.recipe.method]
    return Training(Published(), planned.recipe, planned.teacher, planned.seed, every)


def complete(planned: PlannedRun, folder: Path, report: Report, *, workers: int = 1) -> Run:
    """Train a run to its end, from its checkpoint if there is one, and draw its curve."""
    run = begun(planned, folder)
    if workers > 1:
        run.spread(workers)
    train(run, folder, report)
    draw_curves(folder / "curve.svg", [run.points], label=LABELS[planned.setting], lines=[])
    return run


class _Row(BaseModel):
    """Runs that differ in nothing but the seed; they go to the folders NAME-SEED."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    setting: Setting = "published"
    recipe: str | None = None
    teacher: str | None = None
    without: list[str] = []
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


def _planned(row: _Row, seed: int) -> PlannedRun:
    changes = [
        f"{field}={value if isinstance(value, str) else json.dumps(value)}" for field, value in row.changes.items()
    ]
    try:
        recipe = recipe_for(row.setting, row.recipe, row.without, changes)
        teacher = row.teacher or default_teacher(row.setting)
        return PlannedRun(setting=row.setting, recipe=recipe, teacher=teacher, seed=seed)
    except ConfigError as err:
        raise ConfigError(f"{row.name}: {err}") from err


def default_teacher(setting: Setting) -> str:
    """Return the teacher of the warm-up unless another is named."""
    return {"published": "drf", "slurm": "price", "places": "best-fit", "sites": "cheapest"}[setting]


def _teachers(setting: Setting) -> Sequence[str]:
    if setting == "published":
        return tuple(TEACHERS)
    if setting in ("places", "sites"):
        return (default_teacher(setting),)
    from tools.train.slurm.training import TEACHERS as SLURM_TEACHERS

    return tuple(SLURM_TEACHERS)


def _changed(chosen: Recipe, changes: Iterable[str]) -> Recipe:
    known = {field.name for field in fields(Recipe)}
    values: dict[str, Any] = {}
    for change in changes:
        field, _, value = change.partition("=")
        if field not in known:
            raise ConfigError(f"a recipe has no {field}")
        try:
            values[field] = value if field in {"method", "network", "meta"} else json.loads(value)
        except ValueError as err:
            raise ConfigError(f"{change}: no JSON after {field}=") from err
    try:
        return recipe_of({field: values.get(field, getattr(chosen, field)) for field in known})
    except ValueError as err:
        raise ConfigError(str(err)) from err
