"""The page of what forecasts are worth: each lever without them, with the models in use, and with the truth."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import advisor
from advisor.sim.runner import SimulationOptions
from advisor.sim.study.comparison import by_policy, compare, mean_of
from advisor.sim.study.result import RunResult
from advisor.view.wording import change_in_words, shown
from tools.pages.experiment import Experiment, Runner, Task, cells_of, first_of
from tools.pages.forecasts import Differences, kept_share
from tools.pages.results import METRIC, over_all
from tools.pages.text import render, table

SLURM: Final = "slurm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A lever, the forecasts that it uses, and the policies that know nothing, what models say, and the truth."""

    name: str
    forecasts: str
    policies: tuple[str, str, str]


LEVERS: Final = (
    Lever(name="order", forecasts="run times", policies=("lift", "lift-forecast", "lift-oracle")),
    Lever(
        name="order and sizes",
        forecasts="run times, speeds (known from models without run times)",
        policies=("price-sizes", "price-forecast", "price-sizes-oracle"),
    ),
    Lever(
        name="order and nodes of gangs",
        forecasts="interference (known from models without run times)",
        policies=("lift", "lift+place", "lift+place-oracle"),
    ),
)
POLICIES: Final = tuple(dict.fromkeys((SLURM, *(policy for lever in LEVERS for policy in lever.policies))))


def make(experiment: Experiment, runner: Runner, command: str, data: Path | None) -> str:
    """Simulate, and return the page."""
    tasks = [
        Task(group=workload.trace.name, cell=cell)
        for workload in first_of(experiment, data)
        for cell in cells_of(workload, POLICIES, experiment.seeds, experiment.elastic_share)
    ]
    return page(runner.results(tasks), experiment, command)


def page(results: Mapping[str, Sequence[RunResult]], experiment: Experiment, command: str) -> str:
    """Return the page from the results by trace."""
    differences = {
        name: {difference.policy: difference for difference in compare(own, seed=0, metrics=(METRIC,))}
        for name, own in results.items()
    }
    heads = ("lever", "forecasts", "without:", "models in use:", "truth:", "kept of the truth's gain:")
    traces = (
        [
            name,
            shown(METRIC, mean_of(METRIC, by_policy(own)[SLURM])),
            *(change_in_words(differences[name][policy].change) for policy in POLICIES[1:]),
        ]
        for name, own in results.items()
    )
    text = render(
        "value",
        command=command,
        version=advisor.__version__,
        options=SimulationOptions(),
        jobs=experiment.first_jobs,
        elastic_percent=100.0 * experiment.elastic_share,
        overall=table(heads, _rows(results, differences)),
        traces=table(("trace", *(f"{policy}:" for policy in POLICIES)), traces),
    )
    return text + "\n"


def _rows(results: Mapping[str, Sequence[RunResult]], differences: Differences) -> Iterator[Sequence[str]]:
    everything = [result for own in results.values() for result in own]
    for lever in LEVERS:
        changes = [over_all(everything, SLURM, policy) for policy in lever.policies]
        kept = kept_share(differences, shipped=lever.policies[1], oracle=lever.policies[2])
        share = f"{kept.percent:.0f} % ({kept.low:.0f} to {kept.high:.0f})" if changes[2].high < 0.0 else "not clear"
        yield lever.name, lever.forecasts, *map(change_in_words, changes), share
