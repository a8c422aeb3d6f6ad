"""Measures how many ended jobs a policy needs to know a site: completion times by the number learnt from."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from advisor.sim.study.cell import digest_of, program_of
from advisor.sim.study.engines import run_on_cores
from tools.pages.text import table as markdown
from tools.train import TOOLS
from tools.train.places.rules import play
from tools.train.sites.cluster import SiteCluster, prior_of
from tools.train.sites.directed import Directed
from tools.train.sites.drawn import HELD_OUT, draw_site
from tools.train.sites.judging import DIRECTED, METARL, RANDOM, actor_of
from tools.train.sites.loop import Nightly, at_random
from tools.train.sites.training import greedy, learnt

COUNTS: Final = (0, 32, 64, 128, 256, 480)
JOBS: Final = 500
JUDGED_ON: Final = 250
SITES: Final = 16
FIRST_SEED: Final = 7_200_000
# What is learnt from the last count is the final knowledge; a count suffices where completion times are as near to it.
NEAR: Final = 1.05
ROWS: Final = (METARL, RANDOM, DIRECTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningTask:
    """One site, and how its placements explore while it is learnt."""

    seed: int
    row: str
    run: Path

    @property
    def key(self) -> str:
        """What names the result in a store."""
        weights = (self.run / "policy.pt").read_bytes()
        return digest_of((repr(("learning", self.seed, self.row, COUNTS)), weights, program_of(__name__, TOOLS)))


def learning_curve(task: LearningTask) -> dict[str, Any]:
    """Learn a site on one workload; return the mean completion times of another by what was known after each count."""
    torch.set_num_threads(1)
    began = time.process_time()
    actor = actor_of(task.run)
    site = draw_site(task.seed, HELD_OUT, jobs=JOBS)
    nightly = Nightly(prior=prior_of(site, learnt()), seed=task.seed, keep_at=COUNTS[1:])
    first = nightly.first()
    cluster = SiteCluster(site, first)
    cluster.on_samples = nightly
    decide = greedy(actor, cluster)
    if task.row == RANDOM:
        decide = at_random(decide, task.seed)
    if task.row == DIRECTED:
        nightly.explorer = Directed(cluster, decide, task.seed)
        decide = nightly.explorer.decide
    play(cluster, decide)
    other = draw_site(task.seed + 500_000, HELD_OUT, of_site=task.seed, jobs=JUDGED_ON)
    known = {0: first, **nightly.kept}
    jct_s = []
    for count in COUNTS:
        judged = SiteCluster(other, known[max(reached for reached in known if reached <= count)])
        jct_s.append(float(play(judged, greedy(actor, judged)).mean()))
    return {"jct_s": jct_s, "types": len(site.gpu_types), "cpu_s": time.process_time() - began}


def learning_curves(run: Path, store: Path, workers: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return the mean completion times by count for each way to explore, relative to nothing learnt, ready for JSON."""
    store.mkdir(parents=True, exist_ok=True)
    tasks = [LearningTask(seed=FIRST_SEED + number, row=row, run=run) for number in range(SITES) for row in ROWS]
    missing = {task.key: task for task in tasks if not (store / f"{task.key}.json").exists()}
    for number, (key, figures) in enumerate(run_on_cores(missing, learning_curve, workers), start=1):
        (store / f"{key}.json").write_text(json.dumps(figures), encoding="utf-8")
        tell(f"{number} of {len(missing)}: learning, {missing[key].row}")
    curves: dict[str, list[list[float]]] = {}
    for task in tasks:
        figures = json.loads((store / f"{task.key}.json").read_text(encoding="utf-8"))
        curves.setdefault(task.row, []).append(figures["jct_s"])
    return {row: _summed_up(of_row) for row, of_row in curves.items()}


def _summed_up(curves: Sequence[Sequence[float]]) -> dict[str, Any]:
    logs = np.log(np.array(curves))
    relative = logs - logs[:, :1]
    mean = np.exp(relative.mean(axis=0))
    near = [count for count, value in zip(COUNTS, mean, strict=True) if value <= NEAR * mean[-1]]
    return {
        "percent": [100.0 * (float(value) - 1.0) for value in mean],
        "half_percent": [
            100.0 * 2.0 * float(column.std(ddof=1)) / len(relative) ** 0.5 if len(relative) > 1 else float("nan")
            for column in relative.T
        ],
        "suffices": min(near),
        "sites": len(curves),
    }


def learning_table(results: dict[str, Any]) -> str:
    """Return the curves as a table in Markdown."""
    heads = (
        "mean JCT by the number of ended jobs, against none",
        *map(str, COUNTS[1:]),
        "within 5 % of the last after",
    )
    lines = [
        [
            row,
            *(
                f"{value:+.1f} % ± {half:.1f}"
                for value, half in zip(one["percent"][1:], one["half_percent"][1:], strict=True)
            ),
            str(one["suffices"]),
        ]
        for row, one in results.items()
    ]
    return markdown(heads, lines)
