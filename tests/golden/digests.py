"""What the goldens are made of: plans, simulated outcomes, and every document that a command prints as JSON."""

import contextlib
import functools
import hashlib
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from advisor.backends.snapshot_file import read_snapshot
from advisor.cli.main import main
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.forecast import NO_FORECASTS, Forecasts
from advisor.domain.memory import Memory
from advisor.domain.snapshot import Snapshot
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.library import Library
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import parse_cluster
from advisor.sim.policies import POLICIES
from advisor.sim.runner import simulate
from advisor.sim.sampling import fill
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.trace import Trace
from advisor.sim.trace_file import read_trace
from advisor.view.sentences import assumption, sentence
from tests.backends import recorded, recorded_pyslurm
from tests.golden import random_queues

FOLDER: Final = Path(__file__).parent
ROOT: Final = Path(__file__).parents[2]
DEMO: Final = ROOT / "advisor" / "demo"
RANDOM_QUEUES: Final = 300
IN_ONE_DIGEST: Final = 100
HOUR_S: Final = 3600.0
# Every job of a recorded queue is old enough to be touched by then.
LATER_S: Final = 2 * HOUR_S
FEW_JOBS: Final = 40


def digest(value: Any) -> str:
    """Return a short digest of a value that JSON can hold; numbers count to six digits, for CPUs differ beyond."""
    text = json.dumps(_rounded(value), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return f"{value:.6g}"
        case dict():
            return {key: _rounded(each) for key, each in value.items()}
        case list() | tuple():
            return [_rounded(each) for each in value]
        case _:
            return value


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenForecaster:
    """A forecaster that gives forecasts made elsewhere."""

    given: Forecasts

    def forecasts(self, snapshot: Snapshot) -> Forecasts:  # noqa: ARG002  (the protocol's)
        """Return them."""
        return self.given


def outcome(record: CycleRecord) -> Any:
    """Return what a cycle came to: the changes with their numbers and words, what refused them, and what is left."""
    return {
        "verdicts": [
            {
                "kind": change.kind,
                "action": {type(change.action).__name__: asdict(change.action)},
                "reason": change.reason,
                "text": sentence(change),
                "expected": {**change.expected.decides, "assumes": assumption(change)},
                "evidence": change.evidence,
                "revert_after_s": change.revert_after_s,
                "refused_by": change.refused_by,
            }
            for change in record.judged
        ],
        "left_alone": sorted(record.left_alone.items()),
    }


# The sentences are read from the same queues.
@functools.cache
def random_record(seed: int, limits: Limits | None = None) -> CycleRecord:
    """Plan for a queue drawn by a seed: by rules, with forecasts, with preemption, by turns."""
    rng = np.random.default_rng(seed)
    seen = random_queues.snapshot(rng)
    leases, waits = random_queues.leases(rng, seen), random_queues.waits(rng)
    believed = random_queues.forecasts(rng, seen) if seed % 2 else NO_FORECASTS
    preempts = seed % 5 == 0
    cycle = Cycle(
        planning=replace(PlanningSettings(), preempt=preempts),
        limits=replace(limits or Limits(), preempt_partitions="gpu,short" if preempts else ""),
        forecaster=GivenForecaster(given=believed),
    )
    return cycle.judge(seen, Memory(waits=waits, leases=leases))


def random_plans() -> Mapping[str, str]:
    """Return digests of the plans for random queues, a hundred to one."""
    return {
        f"seeds {first} to {first + IN_ONE_DIGEST - 1}": digest(
            [outcome(random_record(seed)) for seed in range(first, first + IN_ONE_DIGEST)]
        )
        for first in range(0, RANDOM_QUEUES, IN_ONE_DIGEST)
    }


def recorded_snapshots() -> Iterator[tuple[str, Snapshot]]:
    """Yield the queues that were recorded, as each reader shows them."""
    yield "demo", read_snapshot(DEMO / "snapshot.json")
    for release in recorded.LIVE_RELEASES:
        yield f"{release} text", recorded.printed_snapshot(release)
        yield f"{release} json", recorded.dumped_snapshot(release)
    yield "25.11 text", recorded.text_snapshot()
    yield "25.11 json", recorded.json_snapshot()
    yield "25.11 pyslurm", recorded_pyslurm.uncounted_snapshot()
    yield "25.11-tres text", recorded_pyslurm.text_snapshot()
    yield "25.11-tres pyslurm", recorded_pyslurm.counted_snapshot()


def later_snapshots() -> Iterator[tuple[str, Snapshot]]:
    """Yield the recorded queues once every job of them is old enough to be touched."""
    for name, seen in recorded_snapshots():
        last = max((job.submit_time for job in seen.jobs), default=0.0)
        yield name, replace(seen, taken_at=last + LATER_S)


def recorded_plans() -> Mapping[str, str]:
    """Return digests of the plans for recorded queues, by rules and by the models that ship."""
    found = {}
    models = ModelForecaster(Library(DEMO))
    for name, later in later_snapshots():
        found[f"{name}, rules"] = digest(outcome(Cycle().judge(later)))
        found[f"{name}, models"] = digest(outcome(Cycle(forecaster=models).judge(later)))
    return found


def traces() -> Iterator[tuple[str, Trace]]:
    """Yield the traces, short ones: a golden is compared in every run of the tests."""
    demo = read_trace(DEMO / "trace.csv")
    yield "first of demo", replace(demo, jobs=demo.jobs[:FEW_JOBS])
    yield "last of demo", replace(demo, jobs=demo.jobs[-FEW_JOBS:])


def simulated() -> Mapping[str, str]:
    """Return digests of the outcomes of every policy on every trace."""
    cluster = parse_cluster("nodes=4,gpus=4,leaf=2")
    found = {}
    for name, trace in traces():
        drawn = fill(trace, ["resnet50", "bert"], 0, gpus_per_node=4)
        for policy in POLICIES:
            run = simulate(drawn, cluster, policy, seed=0, options=SimulationOptions())
            found[f"{policy}, {name}"] = digest(run.outcomes.tolist())
    return found


DOCUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "recommend": ("recommend", "--demo", "--json"),
    "check": ("check", "--demo", "--json"),
    **{f"explain {job}": ("explain", str(job), "--demo", "--json") for job in (1, 9, 10, 11, 12, 16, 17, 20, 23)},
    "models list": ("models", "list", "--json"),
    "models show": ("models", "show", "run_time", "--json"),
    "config show": ("config", "show", "--json"),
    "simulate": ("simulate", "--demo", "--json"),
    "compare": (
        *("compare", str(DEMO / "trace.csv"), "--cluster", "nodes=4,gpus=4,leaf=2", "--jobs", str(FEW_JOBS)),
        *("--policy", "slurm", "--policy", "rules", "--policy", "las", "--seeds", "2", "--workers", "1", "--json"),
    ),
}


def sadvise(*arguments: str) -> str:
    """Return what a command prints."""
    before = sys.argv
    sys.argv = ["sadvise", *arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
            main()
    finally:
        sys.argv = before
    return printed.getvalue()


def documents() -> Mapping[str, str]:
    """Return digests of what commands print as JSON, without what differs from run to run."""
    printed: dict[str, str] = {}
    for name, argv in DOCUMENTS.items():
        # On a busy machine a trial of the plan can be late.
        patience = {"SADVISE_PLANNING__ROLLOUT_DEADLINE_S": "80"} if argv[0] == "recommend" else {}
        with patch.dict(os.environ, patience):
            printed[name] = sadvise(*argv).replace(str(ROOT), "ROOT")
    return {name: digest(_lasting(json.loads(text))) for name, text in printed.items()}


def _lasting(value: Any) -> Any:
    """Return a document without times, memory and the program's own version."""
    if isinstance(value, dict):
        dropped = ("version", "wall_s", "jobs_per_s", "peak_rss_mib", "cpu_s", "digest")
        return {key: _lasting(each) for key, each in value.items() if key not in dropped}
    return [_lasting(each) for each in value] if isinstance(value, list) else value
