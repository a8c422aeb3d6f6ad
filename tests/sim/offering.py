"""Gangs that are offered what is free: a state, their patience, and what the network costs them."""

from typing import Any

import numpy as np

from advisor.domain.topology import LocalityTier
from advisor.planning.tuning import EDGES_S
from advisor.sim.cluster import Cluster
from advisor.sim.engine.tables import GangPatience, Integers
from advisor.sim.policies.engine_calls import offer
from advisor.sim.profiles import inflation
from advisor.sim.state import RUNNING, State
from tests.sim.building import make_state, make_trace, occupy, profile, submit

# Leaves of three nodes of 4 GPUs; a node sends 10 Gb/s, and a leaf a quarter of what its nodes do.
SIX = "nodes=6,gpus=4,leaf=3,nic_gbps=10,oversubscription=4"
NODE_S, LEAF_S = 600.0, 1800.0
SENSITIVE, INSENSITIVE = "gpt2", "resnet101"


def gang(gpus: int, **asked: Any) -> dict[str, Any]:
    return {"gpus": gpus, "nodes_max": 0, "model": SENSITIVE, "run_time_s": 10_000.0, **asked}


def state_of(*jobs: dict[str, Any], cluster: str | Cluster = SIX, in_use: tuple[int, ...] = ()) -> State:
    """Build a state with the jobs pending, and GPUs of the first nodes in use."""
    state = make_state(make_trace(jobs), cluster)
    for row in range(len(jobs)):
        submit(state, row, 0.0)
    occupy(state, [*in_use, *[0] * (len(state.nodes) - len(in_use))])
    return state


def patience_of(
    state: State,
    *,
    node_s: float = NODE_S,
    leaf_s: float = LEAF_S,
    mean_s: tuple[float, float] = (600.0, 1800.0),
    longest_s: float = 21_600.0,
    best_tier: int = LocalityTier.NODE,
) -> GangPatience:
    """Build the patience of gangs with fixed timers, or with tuned ones where these are NaN."""
    jobs, shapes = len(state.jobs), int(state.jobs["shape"].max()) + 1
    return GangPatience(
        declined_s=np.zeros(jobs),
        spent_s=np.zeros(jobs),
        declining=np.zeros(jobs, np.int8),
        pass_time=np.zeros(1),
        reached=np.full(jobs, -1, np.int8),
        gang_class=np.zeros(jobs, np.int32),
        edges_s=EDGES_S,
        rate_per_s=np.repeat(1.0 / np.array(mean_s), 8).reshape(2, 8),
        fixed_s=np.array([node_s, leaf_s]),
        least_inflation=np.array([1.05]),
        longest_s=np.array([longest_s]),
        best_tier=np.full(shapes, best_tier, np.int8),
        missing=np.zeros(shapes, np.int8),
    )


def tuned(state: State, **changed: Any) -> GangPatience:
    return patience_of(state, node_s=np.nan, leaf_s=np.nan, **changed)


def offer_all(state: State, patience: GangPatience, now: float) -> list[int]:
    """Offer what is free to all jobs in order, and return who runs."""
    offer(state, patience, Integers(np.arange(len(state.jobs), dtype=np.int32)), now)
    return np.flatnonzero(state.jobs["phase"] == RUNNING).tolist()


def held_by(state: State, row: int) -> dict[int, int]:
    job = state.jobs[row]
    places = slice(int(job["pool"]), int(job["pool"] + job["span"]))
    return dict(zip(state.held_nodes[places].tolist(), state.held_gpus[places].tolist(), strict=True))


def slower(gpus: int, nodes: int, gbps: float, best_nodes: int, best_gbps: float) -> float:
    """Return the inflation of the sensitive model by the formula of the profiles."""
    return float(inflation(profile(SENSITIVE), gpus, nodes, gbps, best_nodes, best_gbps))
