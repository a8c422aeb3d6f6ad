"""What a judge says of trained policies in any setting: their names, changes as numbers, and tables of them."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from advisor.errors import ConfigError
from advisor.sim.study.statistics import RelativeChange
from tools.train.learning import Recipe, recipe_of

WARM: Final = "warm-up alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeBook:
    """The recipes of a setting by name, what each ablation changes, and the teacher that goes without saying."""

    recipes: Mapping[str, Recipe]
    ablations: Mapping[str, Mapping[str, Any]]
    teacher: str

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
        without = next((part for part, fields in self.ablations.items() if dict(fields) == changed), None)
        parts = [name] if not changed else [name, f"no {without}" if without else _spelled(changed)]
        teacher = described["teacher"]
        return ", ".join([*parts, *([f"taught by {teacher}"] if teacher != self.teacher else [])])


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


def base_of(name: str, names: Iterable[str]) -> str | None:
    """Return the whole recipe that the name of a row departs from, where there is a row of it."""
    whole, comma, _ = name.partition(", ")
    return whole if comma and whole in names else None


def numbers(change: RelativeChange | None) -> dict[str, float] | None:
    """Return a change, ready for JSON."""
    return {"percent": change.percent, "low": change.low, "high": change.high} if change else None


def in_percent(change: Mapping[str, float]) -> str:
    """Return a change as a page shows it."""
    if change["low"] == change["high"] == 0.0:
        return "the same"
    if math.isnan(change["low"]):
        return f"{change['percent']:+.1f} %"
    return f"{change['percent']:+.1f} % ({change['low']:+.1f} to {change['high']:+.1f})"


def beside(name: str | None, change: Mapping[str, float] | None) -> str:
    """Return the change of a row from the one that it is set beside; empty where there is none."""
    return f"{in_percent(change)}, against {name}" if name and change else ""


def _updates(recipe: Recipe, named: Recipe) -> str:
    """Return the length of a warm-up, and how its rate departs from that of the recipe."""
    rate = "" if recipe.warm_decay == named.warm_decay else " at a decreasing rate"
    return f"{recipe.warm_updates} updates{rate}"


def _spelled(changed: Mapping[str, Any]) -> str:
    return ", ".join(f"{field}={value}" for field, value in changed.items())
