"""Judges placement on sites of families that no training saw, undisturbed and after a change in the middle of a run.

What is learnt at a site is learnt from run times alone, each night.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from advisor.domain.units import HOUR_S
from advisor.errors import ConfigError
from advisor.features.observe.graph import Floats
from advisor.features.observe.known_models import KnownModels
from advisor.predict.library import Library, checked_content
from advisor.predict.manifest import GRAPH
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.served_policy import SCORES, held_policy
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.cell import digest_of, program_of
from advisor.sim.study.engines import Engine
from tools.pages.page_text import table as markdown
from tools.train import TOOLS, gang_rules
from tools.train.drawn_sites import HELD_OUT, Change, DrawnSite, draw_site
from tools.train.gang_rules import Decide, action_of, cheapest_action, play
from tools.train.judging import MEASURES, Played, Result, in_percent, play_all
from tools.train.learnt_site import LearntSite, Nightly, prior_of, speeds_in_truth
from tools.train.marl import interference, tensors_of_graph
from tools.train.metarl import BOOK, actor_of, greedy, learnt
from tools.train.parted_cluster import GangDecision
from tools.train.training import read_description

RULES: Final = ("load balancing", "best fit", "Tetris", "least interference")
MARL, SLURM, DEFAULT = "marl, frozen", "plain Slurm", "the advisor with delay timers"
NOT_ADAPTED: Final = "not adapted"
RULE_PRIOR, RULE_NIGHTLY = "the rule, not adapted", "the rule, adapted"
ORACLE: Final = "oracle of types, places and neighbours"
METARL: Final = "metarl"
# Those that the policy is to be better than; the others are parts of it, or see the truth.
RIVALS: Final = (*RULES, MARL, SLURM, DEFAULT)
FIRST: Final = 500
JOBS_UNDISTURBED: Final = 300
JOBS_CHANGED: Final = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSet:
    """Workloads to judge on: how many, and what changes in the middle of them."""

    name: str
    changes: tuple[Change, ...]
    workloads: int
    first_seed: int

    @property
    def tasks(self) -> Iterator[tuple[int, Change]]:
        """Yield the seed and the change of each workload."""
        for number in range(self.workloads):
            yield self.first_seed + number, self.changes[number % len(self.changes)]


SETS: Final = (
    SiteSet(name="undisturbed", changes=(Change.NONE,), workloads=30, first_seed=7_000_000),
    SiteSet(
        name="changed",
        changes=(Change.MODELS, Change.LOAD, Change.TYPES, Change.NETWORK, Change.GRADUAL),
        workloads=30,
        first_seed=7_100_000,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteTask:
    """One workload to play by one row; `run` is the folder of a trained policy."""

    seed: int
    change: Change
    row: str
    run: Path | None = None

    @property
    def key(self) -> str:
        """What names the result in a store: it differs where the programs or the weights do."""
        weights = b"" if self.run is None else (self.run / "policy.pt").read_bytes()
        return digest_of((repr((self.seed, str(self.change), self.row)), weights, program_of(__name__, TOOLS)))

    def site(self) -> DrawnSite:
        """Return the site."""
        jobs = JOBS_UNDISTURBED if self.change is Change.NONE else JOBS_CHANGED
        return draw_site(self.seed, HELD_OUT, self.change, jobs=jobs)


def measured(task: SiteTask) -> dict[str, Any]:
    """Play a workload and return what is measured of it."""
    torch.set_num_threads(1)
    began = time.process_time()
    site = task.site()
    if task.row in (SLURM, DEFAULT):
        jct = _on_slurm(site, task.row)
    else:
        cluster = _begun(site, task)
        jct = play(cluster, _decide(cluster, task))
    after = np.flatnonzero(site.trace.jobs["submit_time"] >= site.change_time)
    counted = jct[after] if len(after) else jct
    return {
        "mean_jct_s": float(counted.mean()),
        "p99_jct_s": float(np.percentile(counted, 99)),
        "first_jct_s": float(jct[after[:FIRST]].mean()) if len(after) else float("nan"),
        "types": len(site.gpu_types),
        "change": str(site.change),
        "cpu_s": time.process_time() - began,
    }


def _begun(site: DrawnSite, task: SiteTask) -> LearntSite:
    """Return the cluster of a task before its first decision."""
    if task.row == ORACLE:
        cluster = LearntSite(site, speeds_in_truth(site, site.before), knows_places=True)
        # The oracle sees what changes at once.
        cluster.on_samples = _follow_truth
        return cluster
    prior = prior_of(site, learnt())
    learns = task.row == RULE_NIGHTLY or task.row.startswith(METARL)
    nightly = Nightly(prior=prior, seed=task.seed)
    cluster = LearntSite(site, nightly.first(), shows_graph=task.row == MARL, takes_samples=learns)
    if learns:
        cluster.on_samples = nightly
    return cluster


def _follow_truth(cluster: LearntSite) -> None:
    site = cluster.site
    if cluster.now >= site.change_time and site.after is not site.before:
        cluster.learn(speeds_in_truth(site, site.after))


def _decide(cluster: LearntSite, task: SiteTask) -> Decide:
    if task.row in RULES:
        next_server = gang_rules.RULES[task.row][0]
        return lambda decision: action_of(decision, next_server)
    if task.row in (RULE_PRIOR, RULE_NIGHTLY):
        return cheapest_action
    if task.row == MARL:
        return _marl(cluster)
    if task.run is None:
        raise ConfigError(f"no row {task.row}")
    return greedy(actor_of(task.run), cluster)


@cache
def _marl_graph() -> TensorGraph:
    held = held_policy(Library(Path("/nonexistent")), "marl@default-1")
    return TensorGraph(checked_content(held)[GRAPH], name=held.name)


def _marl(cluster: LearntSite) -> Decide:
    """Return the decisions of the shipped policy `marl`, with the models that it knows."""
    known: KnownModels = interference()
    cluster.model_of = known.rows(list(cluster.site.trace.models))[cluster.site.trace.jobs["model"]]
    cluster.neighbours = known.neighbours
    graph = _marl_graph()

    def decide(decision: GangDecision) -> int | None:
        scores = graph.run(tensors_of_graph(decision, known.neighbours))[SCORES]
        legal = np.append(decision.choice.legal, decision.can_wait or not decision.choice.legal.any())
        if decision.choice.chosen:
            legal[-1] = False
        # One agent, to which nothing can be forwarded.
        given = np.append(scores[: cluster.size], scores[-1])
        best = int(np.where(legal, given, -np.inf).argmax())
        return None if best == cluster.size else best

    return decide


def _on_slurm(site: DrawnSite, row: str) -> Floats:
    """Run the model of slurmctld, plain or under lifts and delay timers."""
    options = SimulationOptions(speeds="noisy=40")
    policy = "slurm" if row == SLURM else "lift+dally"
    run = simulate(site.trace, site.cluster, policy, options=options, profiles=site.before)
    return np.asarray(run.outcomes["end_time"] - site.trace.jobs["submit_time"])


def tasks_of(chosen: SiteSet, runs: Sequence[Path]) -> Iterator[SiteTask]:
    """Yield what is to be played of a set."""
    described = {run: read_description(run) for run in runs}
    for seed, change in chosen.tasks:

        def task(row: str, run: Path | None = None, seed: int = seed, change: Change = change) -> SiteTask:
            return SiteTask(seed=seed, change=change, row=row, run=run)

        yield from (task(row) for row in (*RULES, MARL, RULE_PRIOR, RULE_NIGHTLY))
        if change is Change.NONE:
            yield from (task(row) for row in (SLURM, DEFAULT))
        yield from (task(f"{BOOK.name_of(one)}/{one['seed']}", run) for run, one in described.items())
        yield from (task(row, run) for run in BOOK.runs_of(METARL, runs)[:1] for row in (NOT_ADAPTED, ORACLE))


def judged(
    sets: Sequence[SiteSet],
    runs: Sequence[Path],
    store: Path,
    workers: int,
    tell: Callable[[str], None],
    engine: Engine = "local",
) -> dict[str, Any]:
    """Return the rows of each set, with their changes against the best rival, ready for JSON."""
    tasks = {chosen.name: list(tasks_of(chosen, runs)) for chosen in sets}
    played = play_all(tasks, measured, store, workers, tell, engine)
    results: dict[str, Any] = {}
    for chosen in sets:
        of_set = played[chosen.name]
        parts = {
            chosen.name: of_set,
            f"{chosen.name}, one GPU type": [one for one in of_set if one["types"] == 1],
            f"{chosen.name}, several GPU types": [one for one in of_set if one["types"] > 1],
        }
        if len(chosen.changes) > 1:
            parts |= {
                f"{chosen.name}: {change}": [one for one in of_set if one["change"] == change]
                for change in chosen.changes
            }
        results |= {name: _judged(part) for name, part in parts.items() if part}
    return results


def _judged(results: Sequence[Result]) -> dict[str, Any]:
    played = Played.of(results)
    rival = played.best(RIVALS)
    return {
        "workloads": len(next(iter(played.rows.values()))),
        "rival": rival,
        "rows": [
            {
                "name": name,
                "is_rival": name in RIVALS,
                "seeds": played.seeds(name) if name.startswith(METARL) else 0,
                "hours": played.hours(name),
                "against_rival": {measure: played.change(rival, name, measure) for measure in MEASURES},
                "against_rule": played.change(RULE_PRIOR, name),
                "regret_h": _regret(of_row, played.rows.get(ORACLE)),
                "cpu_s": played.mean(name, "cpu_s"),
            }
            for name, of_row in played.rows.items()
        ],
    }


def _regret(of_row: Mapping[int, Sequence[Result]], oracle: Mapping[int, Sequence[Result]] | None) -> float | None:
    """Return by how many hours the first jobs after a change take longer than under the oracle, on average."""
    if oracle is None:
        return None
    differences = [
        np.mean([one["first_jct_s"] for one in of_seed]) - oracle[seed][0]["first_jct_s"]
        for seed, of_seed in of_row.items()
    ]
    mean = float(np.mean(differences)) / HOUR_S
    return None if np.isnan(mean) else mean


def table(results: Mapping[str, Any]) -> str:
    """Return the changes of the mean JCT from the best rival, row by row and set by set, as a table in Markdown."""
    sets = {
        name: {row["name"]: row for row in of_set["rows"]}
        for name, of_set in results.items()
        # One kind of change has few workloads: the JSON has them.
        if ": " not in name
    }
    heads = (f"{name}, {results[name]['workloads']} workloads, against {results[name]['rival']}:" for name in sets)
    rows = []
    for name in dict.fromkeys(name for rows_by_name in sets.values() for name in rows_by_name):
        own = [rows_by_name.get(name) for rows_by_name in sets.values()]
        rows.append([name, *("" if row is None else in_percent(row["against_rival"]["mean_jct_s"]) for row in own)])
    return markdown(("mean JCT", *heads), rows)
