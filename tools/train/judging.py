"""What a judge does in any setting: plays rows on the same workloads, keeps what it played, and compares row by row.

Changes are paired by workload. Over the seeds of a training they are averaged within a workload first.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from advisor.domain.units import HOUR_S
from advisor.features.observe.graph import Floats
from advisor.files import replace_file
from advisor.sim.study.engines import Engine, run_tasks
from advisor.sim.study.statistics import LEAST_UNITS, RelativeChange
from advisor.stats import mean_interval

MEASURES: Final = ("mean_jct_s", "p99_jct_s")
Result = Mapping[str, Any]


class Task(Protocol):
    """One workload to play by one row.

    In `row` the name of the row stands before the first `/`, the seed of a training after it. `key` names the result in
    a store: it differs where the programs or the weights do.
    """

    @property
    def row(self) -> str:
        """What plays."""

    @property
    def seed(self) -> int:
        """The seed of the workload."""

    @property
    def key(self) -> str:
        """What names the result in a store."""


AnyTask = TypeVar("AnyTask", bound=Task)


def play_all(
    sets: Mapping[str, Sequence[AnyTask]],
    measured: Callable[[AnyTask], dict[str, Any]],
    store: Path,
    workers: int,
    tell: Callable[[str], None],
    engine: Engine = "local",
) -> dict[str, list[dict[str, Any]]]:
    """Play all tasks of some sets, those that the store lacks; return the results by set."""
    store.mkdir(parents=True, exist_ok=True)
    tasks = {task.key: task for of_set in sets.values() for task in of_set}
    missing = {key: task for key, task in tasks.items() if not (store / f"{key}.json").exists()}
    with closing(run_tasks(missing, measured, engine, workers, store)) as finished:
        for number, (key, figures) in enumerate(finished, start=1):
            replace_file(store / f"{key}.json", json.dumps(figures).encode())
            hours, cpu_s = figures["mean_jct_s"] / HOUR_S, figures["cpu_s"]
            tell(f"{number} of {len(missing)}: {tasks[key].row}, {hours:.2f} h, {cpu_s:.0f} s")
    return {
        name: [
            {"row": task.row, "seed": task.seed, **json.loads((store / f"{task.key}.json").read_text(encoding="utf-8"))}
            for task in of_set
        ]
        for name, of_set in sets.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The results of a set by the name of the row, then by workload, one for each seed of the training."""

    rows: Mapping[str, Mapping[int, Sequence[Result]]]

    @classmethod
    def of(cls, results: Iterable[Result]) -> "Played":
        """Return results by row and workload."""
        rows: dict[str, dict[int, list[Result]]] = {}
        for result in results:
            name = str(result["row"]).partition("/")[0]
            rows.setdefault(name, {}).setdefault(int(result["seed"]), []).append(result)
        return cls(rows=rows)

    def logs(self, name: str, measure: str = "mean_jct_s") -> Floats:
        """Return logarithms of what was measured of a row, `(n_workloads,)`, means over the seeds of the training."""
        of_row = self.rows[name].values()
        return np.array([np.mean([np.log(one[measure]) for one in of_seed]) for of_seed in of_row])

    def best(self, names: Iterable[str]) -> str:
        """Return the row with the least mean completion time among some."""
        return min((name for name in names if name in self.rows), key=lambda name: float(self.logs(name).mean()))

    def change(self, before: str, after: str, measure: str = "mean_jct_s") -> dict[str, float]:
        """Return the change from one row to another, ready for JSON."""
        return change_of(self.logs(before, measure), self.logs(after, measure))

    def mean(self, name: str, figure: str) -> float:
        """Return the mean of a figure over the workloads and seeds of a row."""
        return float(np.mean([one[figure] for of_seed in self.rows[name].values() for one in of_seed]))

    def hours(self, name: str) -> float:
        """Return the mean over workloads of the completion times of a row, in hours."""
        return float(np.exp(self.logs(name)).mean()) / HOUR_S

    def seeds(self, name: str) -> int:
        """Return how many seeds of the training a row has."""
        return max(map(len, self.rows[name].values()))


def change_of(before: Floats, after: Floats) -> dict[str, float]:
    """Return the mean change in percent with its 95 % interval, Student's on the logarithms, one for each workload.

    Of fewer than three workloads there is no interval: its ends are NaN.
    """
    mean, low, high = mean_interval(after - before)
    if len(before) < LEAST_UNITS:
        low = high = float("nan")
    percent, low, high = (100.0 * (float(np.exp(value)) - 1.0) for value in (mean, low, high))
    return {"percent": percent, "low": low, "high": high}


def figures_of(policy: str, sets: Mapping[str, Result]) -> Iterator[tuple[str, float]]:
    """Yield the changes of a policy's mean completion time against the best of the rivals, set by set, for its card."""
    for name, of_set in sets.items():
        for row in of_set["rows"]:
            if row["name"] == policy:
                change = row["against_rival"]["mean_jct_s"]
                for part in ("percent", "low", "high"):
                    yield f"mean JCT against {of_set['rival']}, {name}, {part}", change[part]


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
