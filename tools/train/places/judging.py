"""Judges the placement of gangs on clusters, topologies and workloads that no training and no choice of a policy saw.

All rows play the same workloads, so that changes are paired by workload; over the seeds of a training they are averaged
within a workload first.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

import numpy as np

from advisor.domain.units import HOUR_S
from advisor.features.observe.graph import Floats
from advisor.sim.cluster import Network
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.cell import digest_of, program_of
from advisor.sim.study.engines import run_on_cores
from advisor.sim.study.statistics import LEAST_UNITS
from advisor.stats import mean_interval
from tools.pages.text import table as markdown
from tools.train import TOOLS, checkpoints
from tools.train.learning import recipe_of
from tools.train.places import rules
from tools.train.places.env import begun, parted
from tools.train.places.network import Actor, Parts
from tools.train.places.parts import PartedCluster
from tools.train.places.training import ABLATIONS, RECIPE, greedy
from tools.train.places.workload import TRAINING, UNSEEN, Drawn, Scale, draw
from tools.train.verdicts import RecipeBook, in_percent, read_description

BOOK: Final = RecipeBook(recipes={"marl": RECIPE}, ablations=ABLATIONS, teacher="best-fit")
FREE: Final = "no cost of placement"
DEFAULT: Final = "the advisor with delay timers"
ONE_AGENT: Final = "marl, one agent"
RIVALS: Final = ("load balancing", "Tetris", "least interference")
TAUGHT_BY: Final = "best fit, least work first"
MEASURES: Final = ("mean_jct_s", "p99_jct_s", "wait_s", "overhead")


class Rows(Enum):
    """What plays a set beside the rules: one seed of the training, all, the advisor's default or ablations as well."""

    ONE = auto()
    SEEDS = auto()
    DEFAULT = auto()
    ABLATIONS = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """Workloads to judge on: how many, how large, under which topologies."""

    gpus: int
    agents: int
    workloads: int
    is_seen: bool
    rows: Rows = Rows.ONE
    jobs_per_gpu: float = 1.5

    @property
    def name(self) -> str:
        """What names the set."""
        agents = "1 agent" if self.agents == 1 else f"{self.agents} agents"
        return f"{self.gpus} GPUs, {agents}, {'seen' if self.is_seen else 'unseen'} topologies"

    @property
    def scale(self) -> Scale:
        """Where its workloads are drawn from."""
        return Scale(
            agents=(self.agents,),
            servers_each=(self.gpus // 8 // self.agents,),
            jobs_per_gpu=self.jobs_per_gpu,
            topologies=TRAINING if self.is_seen else UNSEEN,
        )

    @property
    def seeds(self) -> range:
        """The seeds of its workloads; no other set has them."""
        first = 6_000_000 + self.gpus * 100 + self.agents * 10 * 1000 + (0 if self.is_seen else 500)
        return range(first, first + self.workloads)


SETS: Final = (
    Set(gpus=1024, agents=4, workloads=30, is_seen=True, rows=Rows.ABLATIONS),
    Set(gpus=1024, agents=4, workloads=30, is_seen=False, rows=Rows.SEEDS),
    Set(gpus=1024, agents=1, workloads=30, is_seen=True, rows=Rows.DEFAULT),
    Set(gpus=1024, agents=16, workloads=30, is_seen=True, rows=Rows.SEEDS),
    *(Set(gpus=2048, agents=agents, workloads=8, is_seen=True) for agents in (1, 4, 16)),
    *(Set(gpus=4096, agents=agents, workloads=8, is_seen=True) for agents in (1, 4, 16)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One workload to play by one row: a rule by its name, or the weights that a run left in a folder."""

    scale: Scale
    seed: int
    row: str
    run: Path | None = None

    @property
    def key(self) -> str:
        """What names the result in a store: it differs where the programs or the weights do."""
        weights = b"" if self.run is None else (self.run / "policy.pt").read_bytes()
        return digest_of((repr((self.scale, self.seed, self.row)), weights, program_of(__name__, TOOLS)))


def actor_of(run: Path) -> Actor:
    """Return the network that a run trained."""
    actor = Actor(Parts.without(recipe_of(read_description(run)["recipe"]).left_out))
    weights = checkpoints.read_weights(run / "policy.pt")
    prefix = "network."
    actor.load_state_dict({name.removeprefix(prefix): value for name, value in weights.items()})
    return actor


def measured(task: Task) -> dict[str, float]:
    """Play a workload and return what is measured of it."""
    began = time.process_time()
    drawn = draw(task.seed, task.scale)
    if task.row == DEFAULT:
        figures = _by_the_advisor(drawn)
    else:
        cluster = _played(task, drawn)
        jobs = cluster.state.jobs
        figures = _figures(jobs, cluster.jct_s)
    return {**figures, "cpu_s": time.process_time() - began}


def _played(task: Task, drawn: Drawn) -> PartedCluster:
    if task.run is not None:
        cluster = begun(task.seed, task.scale, agents=1 if task.row == ONE_AGENT else None)
        rules.play(cluster, greedy(actor_of(task.run), cluster))
        return cluster
    if task.row == FREE:
        network = Network(nic_gbps=1e9, oversubscription=1.0, spine_oversubscription=1.0)
        drawn = replace(drawn, cluster=replace(drawn.cluster, network=network))
    cluster = parted(drawn)
    rules.play_by_rule(cluster, TAUGHT_BY if task.row == FREE else task.row)
    return cluster


def _by_the_advisor(drawn: Drawn) -> dict[str, float]:
    """Run the model of slurmctld under lifts and delay timers; what is believed is as far off as for the agents."""
    options = SimulationOptions(speeds="noisy=40")
    outcomes = simulate(drawn.trace, drawn.cluster, "lift+dally", options=options).outcomes
    return _figures(outcomes, outcomes["end_time"] - drawn.trace.jobs["submit_time"], drawn.trace.jobs["submit_time"])


def _figures(jobs: np.ndarray, jct_s: Floats, submit_time: Floats | None = None) -> dict[str, float]:
    submitted = jobs["submit_time"] if submit_time is None else submit_time
    return {
        "mean_jct_s": float(jct_s.mean()),
        "p99_jct_s": float(np.percentile(jct_s, 99)),
        "wait_s": float((jobs["start_time"] - submitted).mean()),
        "overhead": float(jobs["exposed_gpu_s"].sum() / jobs["held_gpu_s"].sum()),
    }


def tasks_of(chosen: Set, runs: Sequence[Path]) -> Iterator[Task]:
    """Yield what is to be played of a set: the rules, and runs of the whole recipe or of its ablations."""
    names = {run: BOOK.name_of(read_description(run)) for run in runs}
    whole = [run for run in runs if names[run] == "marl"]
    learned = {Rows.ONE: whole[:1], Rows.ABLATIONS: list(runs)}.get(chosen.rows, whole)
    for seed in chosen.seeds:
        for rule in (*rules.RULES, FREE, *((DEFAULT,) if chosen.rows is Rows.DEFAULT else ())):
            yield Task(scale=chosen.scale, seed=seed, row=rule)
        for run in learned:
            yield Task(scale=chosen.scale, seed=seed, row=f"{names[run]}/{read_description(run)['seed']}", run=run)
        for run in whole[:1] if chosen.agents > 1 else ():
            yield Task(scale=chosen.scale, seed=seed, row=ONE_AGENT, run=run)


def play_all(
    sets: Sequence[Set], runs: Sequence[Path], store: Path, workers: int, tell: Callable[[str], None]
) -> Mapping[str, list[dict[str, Any]]]:
    """Play all tasks of some sets, those that the store lacks; return the results by set."""
    store.mkdir(parents=True, exist_ok=True)
    tasks = {task.key: task for chosen in sets for task in tasks_of(chosen, runs)}
    missing = {key: task for key, task in tasks.items() if not (store / f"{key}.json").exists()}
    for number, (key, figures) in enumerate(run_on_cores(missing, measured, workers), start=1):
        (store / f"{key}.json").write_text(json.dumps(figures), encoding="utf-8")
        tell(f"{number} of {len(missing)}: {tasks[key].row}, {figures['mean_jct_s'] / 3600:.2f} h")
    return {
        chosen.name: [
            {"row": task.row, "seed": task.seed, **json.loads((store / f"{task.key}.json").read_text(encoding="utf-8"))}
            for task in tasks_of(chosen, runs)
        ]
        for chosen in sets
    }


def judged(
    sets: Sequence[Set], runs: Sequence[Path], store: Path, workers: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Return the rows of each set, with their changes against the best of the paper's rivals, ready for JSON."""
    played = play_all(sets, runs, store, workers, tell)
    return {chosen.name: _judged(chosen, played[chosen.name]) for chosen in sets}


def _judged(chosen: Set, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    by_row: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for result in results:
        name = str(result["row"]).partition("/")[0]
        by_row.setdefault(name, {}).setdefault(int(result["seed"]), []).append(result)
    logs = {name: _logs(of_row) for name, of_row in by_row.items()}
    rival = min(RIVALS, key=lambda name: logs[name]["mean_jct_s"].mean())
    return {
        "workloads": chosen.workloads,
        "rival": rival,
        "rows": [
            {
                "name": name,
                "seeds": max(len(of_seed) for of_seed in of_row.values()) if "marl" in name else 0,
                "hours": float(np.exp(logs[name]["mean_jct_s"]).mean()) / HOUR_S,
                "overhead": float(np.mean([one["overhead"] for of_seed in of_row.values() for one in of_seed])),
                "cpu_s": float(np.mean([one["cpu_s"] for of_seed in of_row.values() for one in of_seed])),
                "against_rival": {measure: change_of(logs[rival], logs[name], measure) for measure in MEASURES[:2]},
                "against_best_fit": change_of(logs[TAUGHT_BY], logs[name], "mean_jct_s"),
                "by_training_seed": _by_training_seed(name, results, logs[rival]["mean_jct_s"], chosen),
            }
            for name, of_row in by_row.items()
        ],
    }


def change_of(before: Mapping[str, Floats], after: Mapping[str, Floats], measure: str) -> dict[str, float]:
    """Return the mean change in percent with its 95 % interval, Student's on the logarithms, one for each workload.

    Of fewer than three workloads there is no interval: its ends are NaN.
    """
    mean, low, high = mean_interval(after[measure] - before[measure])
    if len(before[measure]) < LEAST_UNITS:
        low = high = float("nan")
    percent, low, high = (100.0 * (float(np.exp(value)) - 1.0) for value in (mean, low, high))
    return {"percent": percent, "low": low, "high": high}


def _logs(of_row: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[str, Floats]:
    """Return logarithms of what was measured, `(n_workloads,)` each: the mean over the seeds of the training."""
    return {
        measure: np.array([np.mean([np.log(one[measure]) for one in of_seed]) for of_seed in of_row.values()])
        for measure in MEASURES[:2]
    }


def _by_training_seed(name: str, results: Sequence[Mapping[str, Any]], rival: Floats, chosen: Set) -> list[float]:
    """Return the change of each seed of the training against the rival, in percent."""
    rows = sorted({str(result["row"]) for result in results if str(result["row"]).partition("/")[0] == name})
    if len(rows) < 2:
        return []
    changes = []
    for row in rows:
        of_seed = {int(one["seed"]): float(one["mean_jct_s"]) for one in results if one["row"] == row}
        logs = np.array([np.log(of_seed[seed]) for seed in chosen.seeds])
        changes.append(100.0 * (float(np.exp((logs - rival).mean())) - 1.0))
    return changes


def table(name: str, of_set: Mapping[str, Any]) -> str:
    """Return the rows of a set as a table in Markdown."""
    heads = (
        f"{name}, {of_set['workloads']} workloads",
        "seeds",
        "mean JCT",
        "overhead",
        "mean JCT",
        "p99 JCT",
        "mean JCT beside best fit",
    )
    rows = [
        [
            row["name"],
            str(row["seeds"] or ""),
            f"{row['hours']:.2f} h",
            f"{100.0 * row['overhead']:.1f} %",
            *(in_percent(row["against_rival"][measure]) for measure in MEASURES[:2]),
            in_percent(row["against_best_fit"]),
        ]
        for row in of_set["rows"]
    ]
    return f"Changes are against {of_set['rival']}.\n\n{markdown(heads, rows)}"
