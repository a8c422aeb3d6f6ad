"""Judges placement on sites of families that no training saw, undisturbed and after a change in the middle of a run.

All rows play the same workloads, so that changes are paired by workload; over the seeds of a training they are averaged
within a workload first. What is learnt at a site is learnt from run times alone, each night.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from advisor.domain.units import HOUR_S
from advisor.errors import ConfigError
from advisor.features.observe.graph import Floats
from advisor.features.observe.known_models import KnownModels
from advisor.features.observe.pointer import best_fit
from advisor.fit.performance_fit import Spreads
from advisor.predict.library import Library
from advisor.predict.served_places import SCORES
from advisor.predict.served_policy import held_policy
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.cell import digest_of, program_of
from advisor.sim.study.engines import run_on_cores
from tools.pages.text import table as markdown
from tools.train import TOOLS, checkpoints
from tools.train.places import rules
from tools.train.places.env import interference, tensors_of
from tools.train.places.judging import change_of
from tools.train.places.parts import Decision
from tools.train.places.rules import Decide, action_of
from tools.train.sites.actor_critic import LearningActor
from tools.train.sites.cluster import SiteCluster, prior_of, speeds_in_truth
from tools.train.sites.directed import Directed
from tools.train.sites.drawn import HELD_OUT, Change, DrawnSite, draw_site
from tools.train.sites.loop import Nightly, at_random
from tools.train.sites.network import SiteActor
from tools.train.sites.rules import cheapest_action
from tools.train.sites.training import ABLATIONS, RECIPE, greedy, learnt
from tools.train.verdicts import RecipeBook, in_percent, read_description

BOOK: Final = RecipeBook(recipes={"metarl": RECIPE}, ablations=ABLATIONS, teacher="cheapest")
RULES: Final = {
    "load balancing": rules.load_balancing,
    "best fit": best_fit,
    "Tetris": rules.tetris,
    "least interference": rules.least_interference,
}
MARL, SLURM, DEFAULT = "marl, frozen", "plain Slurm", "the advisor with delay timers"
ACTOR_CRITIC: Final = "actor-critic, random exploration"
NOT_META: Final = "no meta-learning"
RANDOM: Final = "random exploration"
DIRECTED: Final = "directed exploration"
NOT_ADAPTED: Final = "not adapted"
RULE_PRIOR, RULE_NIGHTLY = "the rule, not adapted", "the rule, adapted"
ORACLE: Final = "oracle of types, places and neighbours"
METARL: Final = "metarl"
# Those that the policy is to be better than; the others are parts of it, or see the truth.
RIVALS: Final = (*RULES, MARL, ACTOR_CRITIC, SLURM, DEFAULT)
FIRST: Final = 500
JOBS_UNDISTURBED: Final = 300
JOBS_CHANGED: Final = 800
# Without meta-learning nothing is known of how sites differ: each effect is as wide as any, and none is shared.
FLAT: Final = Spreads(
    type_effect=0.02, speed=1.0, place_scale=0.02, place=1.0, scale=0.02, own=1.0, other=1.0, family=0.3, misfit=0.1
)
MEASURES: Final = ("mean_jct_s", "p99_jct_s")


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


def actor_of(run: Path) -> SiteActor:
    """Return the network that a run trained."""
    actor = SiteActor()
    weights = checkpoints.read_weights(run / "policy.pt")
    actor.load_state_dict({name.removeprefix("network."): value for name, value in weights.items()})
    return actor


def measured(task: SiteTask) -> dict[str, Any]:
    """Play a workload and return what is measured of it."""
    torch.set_num_threads(1)
    began = time.process_time()
    site = task.site()
    extra: dict[str, float] = {}
    if task.row in (SLURM, DEFAULT):
        jct = _on_slurm(site, task.row)
    else:
        cluster, nightly = _begun(site, task)
        decide = _decide(cluster, task)
        explorer = Directed(cluster, decide, task.seed) if task.row == DIRECTED else None
        if nightly is not None:
            nightly.explorer = explorer
        rules.play(cluster, decide if explorer is None else explorer.decide)
        jct = cluster.jct_s
        extra = {"nights": nightly.nights if nightly else 0}
        if explorer is not None:
            extra |= {"tries": explorer.tries, "explored_ratio": explorer.explored_gpu_s / explorer.held_gpu_s()}
    after = _after(site)
    counted = jct[after] if len(after) else jct
    return {
        "mean_jct_s": float(counted.mean()),
        "p99_jct_s": float(np.percentile(counted, 99)),
        "first_jct_s": float(jct[after[:FIRST]].mean()) if len(after) else float("nan"),
        "types": len(site.gpu_types),
        "change": str(site.change),
        "cpu_s": time.process_time() - began,
        **extra,
    }


def _after(site: DrawnSite) -> np.ndarray:
    """Return the jobs that were submitted once a change had set in; none without one."""
    return np.flatnonzero(site.trace.jobs["submit_time"] >= site.change_time)


def _begun(site: DrawnSite, task: SiteTask) -> tuple[SiteCluster, Nightly | None]:
    """Return the cluster of a task before its first decision, and what adapts it each night."""
    if task.row == ORACLE:
        cluster = SiteCluster(site, speeds_in_truth(site, site.before), knows_places=True)
        # The oracle sees what changes at once.
        cluster.on_samples = _follow_truth
        return cluster, None
    spreads = FLAT if task.row == NOT_META else learnt()
    prior = prior_of(site, spreads)
    learns = task.row.partition("/")[0] in (METARL, RANDOM, DIRECTED, NOT_META, RULE_NIGHTLY) or task.row.startswith(
        "metarl, "
    )
    nightly = Nightly(prior=prior, seed=task.seed)
    cluster = SiteCluster(site, nightly.first(), shows_graph=task.row == MARL, takes_samples=learns)
    if not learns:
        return cluster, None
    cluster.on_samples = nightly
    return cluster, nightly


def _follow_truth(cluster: SiteCluster) -> None:
    site = cluster.site
    if cluster.now >= site.change_time and site.after is not site.before:
        cluster.learn(speeds_in_truth(site, site.after))


def _decide(cluster: SiteCluster, task: SiteTask) -> Decide:
    row = task.row.partition("/")[0]
    if row in RULES:
        return lambda decision: action_of(decision, RULES[row])
    if row in (RULE_PRIOR, RULE_NIGHTLY):
        return cheapest_action
    if row == MARL:
        return _marl(cluster)
    if task.run is None:
        raise ConfigError(f"no row {row}")
    actor = actor_of(task.run)
    if row == ACTOR_CRITIC:
        return LearningActor(actor, cluster, task.seed).decide()
    decide = greedy(actor, cluster)
    return at_random(decide, task.seed) if row == RANDOM else decide


@cache
def _marl_graph() -> Any:
    from advisor.predict.library import checked_content
    from advisor.predict.manifest import GRAPH
    from advisor.predict.onnx_model import TensorGraph

    held = held_policy(Library(Path("/nonexistent")), "marl@default-1")
    return TensorGraph(checked_content(held)[GRAPH], name=held.name)


def _marl(cluster: SiteCluster) -> Decide:
    """Return the decisions of the shipped policy `marl`, with the models that it knows."""
    known: KnownModels = interference()
    cluster.model_of = known.rows(list(cluster.site.trace.models))[cluster.site.trace.jobs["model"]]
    cluster.neighbours = known.neighbours
    from tools.train.places.network import Parts

    graph, parts = _marl_graph(), Parts()

    def decide(decision: Decision) -> int | None:
        tensors = tensors_of(decision, known.neighbours, parts)
        del tensors["leaf"]
        scores = graph.run(tensors | {"member": decision.graph.member})[SCORES]
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
    names = {run: BOOK.name_of(read_description(run)) for run in runs}
    whole = [run for run in runs if names[run] == METARL]
    blind = [run for run in runs if names[run] == "metarl, no outlook"]
    frozen = [run for run in runs if names[run] == "metarl, no adaptation"]
    others = [run for run in runs if run not in (*whole, *blind, *frozen)]
    for seed, change in chosen.tasks:

        def task(row: str, run: Path | None = None, seed: int = seed, change: Change = change) -> SiteTask:
            return SiteTask(seed=seed, change=change, row=row, run=run)

        yield from (task(row) for row in (*RULES, MARL, RULE_PRIOR, RULE_NIGHTLY))
        if change is Change.NONE:
            yield from (task(row) for row in (SLURM, DEFAULT))
        yield from (task(f"{METARL}/{read_description(run)['seed']}", run) for run in whole)
        yield from (task(row, run) for run in whole[:1] for row in (RANDOM, DIRECTED, NOT_ADAPTED, ORACLE))
        yield from (task(ACTOR_CRITIC, run) for run in blind[:1])
        yield from (task(NOT_META, run) for run in frozen[:1])
        yield from (task(names[run], run) for run in others)


def play_all(
    sets: Sequence[SiteSet], runs: Sequence[Path], store: Path, workers: int, tell: Callable[[str], None]
) -> Mapping[str, list[dict[str, Any]]]:
    """Play all tasks of some sets, those that the store lacks; return the results by set."""
    store.mkdir(parents=True, exist_ok=True)
    tasks = {task.key: task for chosen in sets for task in tasks_of(chosen, runs)}
    missing = {key: task for key, task in tasks.items() if not (store / f"{key}.json").exists()}
    for number, (key, figures) in enumerate(run_on_cores(missing, measured, workers), start=1):
        (store / f"{key}.json").write_text(json.dumps(figures), encoding="utf-8")
        hours, cpu_s = figures["mean_jct_s"] / HOUR_S, figures["cpu_s"]
        tell(f"{number} of {len(missing)}: {tasks[key].row}, {hours:.2f} h, {cpu_s:.0f} s")
    return {
        chosen.name: [
            {"row": task.row, "seed": task.seed, **json.loads((store / f"{task.key}.json").read_text(encoding="utf-8"))}
            for task in tasks_of(chosen, runs)
        ]
        for chosen in sets
    }


def judged(
    sets: Sequence[SiteSet], runs: Sequence[Path], store: Path, workers: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Return the rows of each set, with their changes against the best rival, ready for JSON."""
    played = play_all(sets, runs, store, workers, tell)
    results: dict[str, Any] = {}
    for chosen in sets:
        of_set = played[chosen.name]
        results[chosen.name] = _judged(of_set)
        for text, several in (("one GPU type", False), ("several GPU types", True)):
            part = [one for one in of_set if (one["types"] > 1) is several]
            if part:
                results[f"{chosen.name}, {text}"] = _judged(part)
        if len(chosen.changes) > 1:
            for change in chosen.changes:
                part = [one for one in of_set if one["change"] == change]
                if part:
                    results[f"{chosen.name}: {change}"] = _judged(part)
    return results


def _judged(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    by_row: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for result in results:
        name = str(result["row"]).partition("/")[0]
        by_row.setdefault(name, {}).setdefault(int(result["seed"]), []).append(result)
    logs = {name: _logs(of_row) for name, of_row in by_row.items()}
    rivals = [name for name in RIVALS if name in by_row]
    rival = min(rivals, key=lambda name: float(logs[name]["mean_jct_s"].mean()))
    regrets = {name: _regret(of_row, by_row.get(ORACLE)) for name, of_row in by_row.items()}
    return {
        "workloads": len(next(iter(by_row.values()))),
        "rival": rival,
        "rows": [
            {
                "name": name,
                "is_rival": name in RIVALS,
                "seeds": max(map(len, of_row.values())) if name.startswith(METARL) else 0,
                "hours": float(np.exp(logs[name]["mean_jct_s"]).mean()) / HOUR_S,
                "against_rival": {measure: change_of(logs[rival], logs[name], measure) for measure in MEASURES},
                "against_rule": change_of(logs[RULE_PRIOR], logs[name], "mean_jct_s"),
                "regret_h": regrets[name],
                "cpu_s": float(np.mean([one["cpu_s"] for of_seed in of_row.values() for one in of_seed])),
            }
            for name, of_row in by_row.items()
        ],
    }


def _logs(of_row: Mapping[int, Sequence[Mapping[str, Any]]]) -> dict[str, Floats]:
    return {
        measure: np.array([np.mean([np.log(one[measure]) for one in of_seed]) for of_seed in of_row.values()])
        for measure in MEASURES
    }


def _regret(
    of_row: Mapping[int, Sequence[Mapping[str, Any]]], oracle: Mapping[int, Sequence[Mapping[str, Any]]] | None
) -> float | None:
    """Return by how many hours the first jobs after a change take longer than under the oracle, on average."""
    if oracle is None:
        return None
    differences = [
        np.mean([one["first_jct_s"] for one in of_seed]) - oracle[seed][0]["first_jct_s"]
        for seed, of_seed in of_row.items()
    ]
    mean = float(np.mean(differences)) / HOUR_S
    return None if np.isnan(mean) else mean


def table(name: str, of_set: Mapping[str, Any]) -> str:
    """Return the rows of a set as a table in Markdown."""
    has_regret = any(row["regret_h"] is not None for row in of_set["rows"])
    heads = [
        f"{name}, {of_set['workloads']} workloads",
        "seeds",
        "mean JCT",
        f"mean JCT against {of_set['rival']}",
        "p99 JCT",
        "mean JCT against the rule, not adapted",
        *(["regret of the first 500"] if has_regret else []),
    ]
    lines = [
        [
            row["name"],
            str(row["seeds"] or ""),
            f"{row['hours']:.2f} h",
            *(in_percent(row["against_rival"][measure]) for measure in MEASURES),
            in_percent(row["against_rule"]),
            *([f"{row['regret_h']:.2f} h"] if has_regret else []),
        ]
        for row in of_set["rows"]
    ]
    return markdown(heads, lines)


def fewer(chosen: SiteSet, workloads: int | None) -> SiteSet:
    """Return a set with so few workloads at most."""
    return chosen if workloads is None else replace(chosen, workloads=min(chosen.workloads, workloads))
