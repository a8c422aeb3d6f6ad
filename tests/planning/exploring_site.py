"""A site whose performance model is known, with gangs that send from some of its servers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Reason
from advisor.domain.gang import GpuScope
from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.memory import Memory
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.features.observe.graph import Floats, Neighbours, Rows
from advisor.features.observe.known_models import KnownModels
from advisor.features.observe.site_speeds import SiteSpeeds
from advisor.features.observe.subspaces import Subspace, Subspaces
from advisor.settings import PlanningSettings
from tests.builders import (
    DAY_S,
    HOUR_S,
    LEAVES,
    TAKEN_AT,
    make_gang,
    make_hints,
    make_job,
    make_nodes,
    make_partition,
    make_snapshot,
    make_topology,
)
from tests.planning.test_gang_nodes import LastFirst, Places

MODELS = ("bert", "gpt2")
EXPLORING = PlanningSettings(name_nodes=True, explore_ratio=0.05)
# Four GPUs on each of two nodes.
HALVES = make_gang(4, scope=GpuScope.NODE, nodes_min=2, nodes_max=2, tasks=2, cpus=2)
# What the policy chooses below, seen so often that nothing is left to learn of it.
WELL_KNOWN = Subspaces(seen={"gpt2|one leaf|half|other": Subspace(count=5000, squared=0.5)}, total=5000)


def site_speeds(
    added: float | Floats = 0.05, variance: float | Floats = 0.0004, *, subspaces: Subspaces = WELL_KNOWN
) -> SiteSpeeds:
    """Return tables of two models; `added` and `variance` hold for all pairs where they are numbers."""
    rows = len(MODELS) + 1
    return SiteSpeeds(
        models=MODELS,
        gpu_types=("a100",),
        log_speed=np.zeros((rows, 2)),
        speed_variance=np.full((rows, 2), 0.01),
        place_weight=np.ones(rows),
        neighbours=Neighbours.of(np.broadcast_to(np.asarray(added, np.float64), (rows, rows)).copy()),
        added_variance=np.broadcast_to(np.asarray(variance, np.float64), (rows, rows)).copy(),
        subspaces=subspaces,
    )


def codes(names: Sequence[str]) -> Rows:
    """Return the rows of models by name, -1 for those that are not known."""
    return np.array([MODELS.index(name) if name in MODELS else -1 for name in names], np.intp)


def known(speeds: SiteSpeeds) -> KnownModels:
    """Return the models that are known by name."""
    return KnownModels(codes=codes, neighbours=speeds.neighbours, speeds=speeds)


def resident(job_id: int = 8, nodes: Sequence[str] = ("n01", "n02"), model: str = "bert", **fields: Any) -> Job:
    """Return a gang that has run on half of two nodes for a day."""
    values: dict[str, Any] = {"user": "bob", "gang": HALVES, "hints": make_hints(model), **fields}
    return make_job(
        job_id,
        running_on=nodes,
        started_ago_s=DAY_S,
        submitted_ago_s=DAY_S,
        time_limit_s=2 * DAY_S,
        **values,
    )


def pending(job_id: int = 1, **fields: Any) -> Job:
    """Return a gang that wants half of two nodes for an hour."""
    values: dict[str, Any] = {"time_limit_s": HOUR_S, "hints": make_hints("gpt2"), "gang": HALVES, **fields}
    return make_job(job_id, **values)


def queue(*jobs: Job, leaves: Mapping[str, Sequence[str]] = LEAVES, taken_at: float = TAKEN_AT) -> Snapshot:
    """Return some jobs on nodes under two leaf switches."""
    nodes = make_nodes([name for names in leaves.values() for name in names], [job for job in jobs if job.allocation])
    partition = make_partition(nodes=[node.name for node in nodes])
    return make_snapshot(jobs, nodes, partitions=[partition], topology=make_topology(leaves), taken_at=taken_at)


def planned(
    snapshot: Snapshot,
    speeds: SiteSpeeds | None = None,
    *,
    planning: PlanningSettings = EXPLORING,
    leases: Sequence[Lease] = (),
    policy: Places | None = None,
) -> CycleRecord:
    """Return the cycle of a policy that points to the last legal server."""
    models = known(site_speeds() if speeds is None else speeds)
    cycle = Cycle(planning=planning, policy=LastFirst() if policy is None else policy, models=models)
    return cycle.judge(snapshot, Memory(leases=tuple(leases)))


def tried(record: CycleRecord) -> list[Recommendation]:
    """Return the changes that name a place to try, refused ones as well."""
    return [change for change in record.judged if change.reason is Reason.EXPLORE_PLACE]


def without_speeds(snapshot: Snapshot, planning: PlanningSettings) -> CycleRecord:
    """Return the cycle where no performance model is known."""
    models = replace(known(site_speeds()), speeds=None)
    return Cycle(planning=planning, policy=LastFirst(), models=models).judge(snapshot)
