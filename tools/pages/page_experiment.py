"""An experiment: what is simulated on what, as a TOML file of this folder describes it, and its runs."""

import argparse
import re
import shlex
import tomllib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from advisor.cli.progress import progress_bar
from advisor.errors import SimulationError
from advisor.sim.policies import POLICIES
from advisor.sim.runner import SimulationOptions, known_policy
from advisor.sim.study.cell import Cell, Simulate, drawn, simulate_drawn
from advisor.sim.study.result import RunResult
from advisor.sim.study.sweep import run_sweep
from advisor.sim.traces.sampling import REQUESTS
from tools.data.simulated_traces import Workload, data_folder, read_workload

FOLDER: Final = Path(__file__).parent
PROG: Final = "python -m tools.pages"
BATCH: Final = "batch"
# A cycle of the advisor takes milliseconds, and more the more jobs are pending: whole traces would take hours.
SLOW: Final = (
    *("rules", "rules-rollout", "forecast", "forecast-noisy", "forecast-oracle", "oracle-rollout"),
    *("price", "dl2", "marl", "metarl", "lift+dally", "lift+sizes"),
)
# Keys of a description that are no options.
FIXED: Final = ("page", "output", "summary")

Group = TypeVar("Group", bound=Hashable)


def _load_ratio(load: Any) -> Any:
    return None if load == BATCH else load


Load = Annotated[PositiveFloat | None, BeforeValidator(_load_ratio)]


class Experiment(BaseModel):
    """A description; what a page has no use for is left out of its file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    page: Literal["results", "dally", "holds"]
    summary: str
    # Where the page is kept, from the root of the checkout; empty: it is printed.
    output: str = ""
    # Published traces by name, and how many of their first jobs are run, 0 for all.
    traces: tuple[str, ...] = ()
    first_jobs: Annotated[int, Field(ge=0)] = 0
    # Arrivals of the drawn workload: a load, or all jobs at once; and its jobs.
    loads: tuple[Load, ...] = ()
    jobs: PositiveInt = 1
    # The first is compared with the others; empty: all.
    policies: tuple[str, ...] = ()
    # What is compared over all traces beside the mean JCT, with the users whose jobs take longer; empty: nothing.
    over_all: tuple[str, ...] = ()
    # The settings of slurm.conf of which each trace takes the best, as one more policy; empty: none.
    tuned: tuple[str, ...] = ()
    seeds: PositiveInt = 1
    requests: Literal["usual", "open", "interactive"] = "usual"
    # Of leaf uplinks; and what a node can send, in Gb/s.
    oversubscription: tuple[Annotated[float, Field(ge=1.0)], ...] = ()
    nic: PositiveFloat = 100.0
    max_switch_wait_s: PositiveFloat | None = None

    @property
    def policy_names(self) -> list[str]:
        """The policies, each once; raises `SimulationError` for one that is not known."""
        return list(dict.fromkeys(known_policy(name).name for name in self.policies or POLICIES))

    @property
    def cut(self) -> str:
        """Which of a trace's jobs are run, as pages say it; empty for all."""
        return f"first {self.first_jobs:,}" if self.first_jobs else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTask(Generic[Group]):
    """A run, and what its result is grouped by."""

    group: Group
    cell: Cell


def described(name: str) -> dict[str, Any]:
    """Read the description of an experiment."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def summaries() -> Mapping[str, str]:
    """Map every experiment to what it shows."""
    return {path.stem: described(path.stem)["summary"] for path in sorted(FOLDER.glob("*.toml"))}


def add_options(parser: argparse.ArgumentParser, description: Mapping[str, Any]) -> None:
    """Make an option of every key that a description holds."""
    for key, value in description.items():
        if key not in FIXED:
            parser.add_argument(f"--{key.replace('_', '-')}", default=_text(value), help="default: %(default)s")


def experiment_of(description: Mapping[str, Any], options: argparse.Namespace) -> Experiment:
    """Return an experiment with the values of its options; raises `SimulationError` for one that cannot be."""
    given = {key: value if key in FIXED else _value(getattr(options, key), value) for key, value in description.items()}
    try:
        experiment = Experiment(**given)
    except ValidationError as err:
        fault = err.errors()[0]
        option = str(fault["loc"][0]).replace("_", "-")
        raise SimulationError(f"--{option} {fault['input']}: {fault['msg'].lower()}") from err
    for policy in experiment.policies:
        known_policy(policy)
    return experiment


def command_of(name: str, description: Mapping[str, Any], options: argparse.Namespace) -> str:
    """Return the command that makes a page again, with the options that differ from the description."""
    given = {key: getattr(options, key) for key in description if key not in FIXED}
    changed = [(key, text) for key, text in given.items() if text != _text(description[key])]
    return shlex.join(
        [*PROG.split(), name, *(word for key, text in changed for word in (f"--{key.replace('_', '-')}", text))]
    )


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(text: str, default: Any) -> Any:
    if text == _text(default):
        return default
    # A comma before OPTION= stands within a policy.
    return [word.strip() for word in re.split(r",(?![a-z-]+=)", text)] if isinstance(default, list) else text


def published(experiment: Experiment, data: Path | None) -> list[Workload]:
    """Read the whole traces of an experiment."""
    folder = data_folder(data)
    return [read_workload(folder, name) for name in experiment.traces]


def first_of(experiment: Experiment, data: Path | None) -> list[Workload]:
    """Read the first jobs of the traces of an experiment, each on the nodes of the whole trace."""
    return [workload.first(experiment.first_jobs or len(workload.trace)) for workload in published(experiment, data)]


def cells_of(workload: Workload, policies: Sequence[str], experiment: Experiment) -> Iterator[Cell]:
    """Yield the runs of a published trace; what it leaves open is drawn once for all policies of a seed."""
    cluster = workload.cluster()
    for seed in range(experiment.seeds):
        trace = drawn(workload.trace, cluster, seed, REQUESTS[experiment.requests])
        for policy in policies:
            yield Cell(trace=trace, cluster=cluster, policy=policy, seed=seed, options=SimulationOptions())


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Carries out runs: `store` keeps finished ones, as JSON, and `workers` run at once."""

    store: Path | None
    workers: int

    def results(
        self, tasks: Sequence[PageTask[Group]], simulate: Simulate = simulate_drawn
    ) -> dict[Group, list[RunResult]]:
        """Run everything, and return the results by group, in the order of the tasks."""
        # What takes longest first, so that no worker is left alone with it at the end.
        order = sorted(
            range(len(tasks)), key=lambda place: (tasks[place].cell.policy not in SLOW, -len(tasks[place].cell.trace))
        )
        cells = [tasks[place].cell for place in order]
        with progress_bar(len(cells), "runs") as progress:
            results = run_sweep(cells, store=self.store, workers=self.workers, simulate=simulate, progress=progress)
        result_by_place = dict(zip(order, results, strict=True))
        by_group: dict[Group, list[RunResult]] = {}
        for place, task in enumerate(tasks):
            by_group.setdefault(task.group, []).append(result_by_place[place])
        return by_group
