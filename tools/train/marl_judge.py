"""Judges the placement of gangs on clusters and workloads that no training and no choice of a policy saw."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from advisor.features.observe.graph import Floats
from advisor.sim.cluster import Network
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.cell import digest_of, program_of
from advisor.sim.study.engines import Engine
from tools.pages.page_text import table as markdown
from tools.train import TOOLS
from tools.train.drawn_gangs import TRAINING, UNSEEN, DrawnGangs, Scale, draw
from tools.train.gang_rules import RULES, play, play_by_rule
from tools.train.judging import MEASURES, Played, Result, in_percent, play_all
from tools.train.marl import BOOK, actor_of, begun, greedy, parted
from tools.train.parted_cluster import PartedCluster
from tools.train.training import read_description

FREE: Final = "no cost of placement"
DEFAULT: Final = "the advisor with delay timers"
ONE_AGENT: Final = "marl, one agent"
RIVALS: Final = ("load balancing", "Tetris", "least interference")
TAUGHT_BY: Final = "best fit, least work first"
# The columns of the page beside the rivals; the JSON has every row.
SHOWN: Final = (TAUGHT_BY, "best fit with patience, least work first", FREE, "marl", ONE_AGENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSet:
    """Workloads to judge on: how many, how large, under which topologies.

    Beside the rules one seed of the training plays, or all, and the advisor's default where asked for.
    """

    gpus: int
    agents: int
    workloads: int
    is_seen: bool
    has_seeds: bool = False
    has_default: bool = False
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
    GangSet(gpus=1024, agents=4, workloads=30, is_seen=True, has_seeds=True),
    GangSet(gpus=1024, agents=4, workloads=30, is_seen=False, has_seeds=True),
    GangSet(gpus=1024, agents=1, workloads=30, is_seen=True, has_seeds=True, has_default=True),
    GangSet(gpus=1024, agents=16, workloads=30, is_seen=True, has_seeds=True),
    *(GangSet(gpus=2048, agents=agents, workloads=8, is_seen=True) for agents in (1, 4, 16)),
    *(GangSet(gpus=4096, agents=agents, workloads=8, is_seen=True) for agents in (1, 4, 16)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangTask:
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


def measured(task: GangTask) -> dict[str, float]:
    """Play a workload and return what is measured of it."""
    began = time.process_time()
    drawn = draw(task.seed, task.scale)
    if task.row == DEFAULT:
        figures = _by_the_advisor(drawn)
    else:
        cluster = _played(task, drawn)
        figures = _figures(cluster.state.jobs, cluster.jct_s, cluster.state.jobs["submit_time"])
    return {**figures, "cpu_s": time.process_time() - began}


def _played(task: GangTask, drawn: DrawnGangs) -> PartedCluster:
    if task.run is not None:
        cluster = begun(task.seed, task.scale, agents=1 if task.row == ONE_AGENT else None)
        play(cluster, greedy(actor_of(task.run), cluster))
        return cluster
    if task.row == FREE:
        network = Network(nic_gbps=1e9, oversubscription=1.0, spine_oversubscription=1.0)
        drawn = replace(drawn, cluster=replace(drawn.cluster, network=network))
    cluster = parted(drawn)
    play_by_rule(cluster, TAUGHT_BY if task.row == FREE else task.row)
    return cluster


def _by_the_advisor(drawn: DrawnGangs) -> dict[str, float]:
    """Run the model of slurmctld under lifts and delay timers; what is believed is as far off as for the agents."""
    options = SimulationOptions(speeds="noisy=40")
    outcomes = simulate(drawn.trace, drawn.cluster, "lift+dally", options=options).outcomes
    submitted = drawn.trace.jobs["submit_time"]
    return _figures(outcomes, outcomes["end_time"] - submitted, submitted)


def _figures(jobs: np.ndarray, jct_s: Floats, submitted: Floats) -> dict[str, float]:
    return {
        "mean_jct_s": float(jct_s.mean()),
        "p99_jct_s": float(np.percentile(jct_s, 99)),
        "wait_s": float((jobs["start_time"] - submitted).mean()),
        "overhead": float(jobs["exposed_gpu_s"].sum() / jobs["held_gpu_s"].sum()),
    }


def tasks_of(chosen: GangSet, runs: Sequence[Path]) -> Iterator[GangTask]:
    """Yield what is to be played of a set: the rules, and one run or all."""
    described = {run: read_description(run) for run in runs}
    whole = BOOK.runs_of("marl", runs)
    learned = runs if chosen.has_seeds else whole[:1]
    for seed in chosen.seeds:
        for rule in (*RULES, FREE, *((DEFAULT,) if chosen.has_default else ())):
            yield GangTask(scale=chosen.scale, seed=seed, row=rule)
        for run in learned:
            yield GangTask(
                scale=chosen.scale, seed=seed, row=f"{BOOK.name_of(described[run])}/{described[run]['seed']}", run=run
            )
        for run in whole[:1] if chosen.agents > 1 else ():
            yield GangTask(scale=chosen.scale, seed=seed, row=ONE_AGENT, run=run)


def judged(
    sets: Sequence[GangSet],
    runs: Sequence[Path],
    store: Path,
    workers: int,
    tell: Callable[[str], None],
    engine: Engine = "local",
) -> dict[str, Any]:
    """Return the rows of each set, with their changes against the best of the paper's rivals, ready for JSON."""
    tasks = {chosen.name: list(tasks_of(chosen, runs)) for chosen in sets}
    results = play_all(tasks, measured, store, workers, tell, engine)
    return {chosen.name: _judged(chosen, results[chosen.name]) for chosen in sets}


def _judged(chosen: GangSet, results: Sequence[Result]) -> dict[str, Any]:
    played = Played.of(results)
    rival = played.best(RIVALS)
    return {
        "workloads": chosen.workloads,
        "rival": rival,
        "rows": [
            {
                "name": name,
                "seeds": played.seeds(name) if "marl" in name else 0,
                "hours": played.hours(name),
                "overhead": played.mean(name, "overhead"),
                "cpu_s": played.mean(name, "cpu_s"),
                "against_rival": {measure: played.change(rival, name, measure) for measure in MEASURES},
                "against_best_fit": played.change(TAUGHT_BY, name),
                "by_training_seed": _by_training_seed(name, results, played.logs(rival), chosen),
            }
            for name in played.rows
        ],
    }


def _by_training_seed(name: str, results: Sequence[Result], rival: Floats, chosen: GangSet) -> list[float]:
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


def table(results: Mapping[str, Any]) -> str:
    """Return the changes of the mean JCT from the best rival on each set as a table in Markdown."""
    heads = ("mean JCT against the best rival", "workloads:", "rival", *(f"{name}:" for name in SHOWN))
    rows = []
    for name, of_set in results.items():
        changes = {row["name"]: in_percent(row["against_rival"]["mean_jct_s"]) for row in of_set["rows"]}
        rows.append([name, str(of_set["workloads"]), of_set["rival"], *(changes.get(shown, "") for shown in SHOWN)])
    return markdown(heads, rows)
