"""Delay scheduling: gangs are offered free GPUs, and decline a placement spread too far until their timer ends.

The tier of a gang is relative to the best placement it could ever have: the fewest nodes under as few leaves as
possible, then one leaf, then any. Where nodes or leaves differ in size, even the idle cluster can offer no better.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.planning import tuning
from advisor.sim.compiled import callable_by_compiled, compiled, lent
from advisor.sim.execution import LEAF_TIER, NODE_TIER, SPINE_TIER, set_timer, start
from advisor.sim.gang_placement import pick, pick_anywhere, pick_leaf
from advisor.sim.links import best_gbps, slowest_gbps
from advisor.sim.profiles import inflation
from advisor.sim.state import NONE, PENDING, State

# What a shape lacked earlier in this pass.
_NOT_CLOSE, _NOT_LEAF, _NOT_ANY = 1, 2, 4
# Two instants this close are one.
_SAME_S = 1e-6

callable_by_compiled(tuning.best_wait_s)
tuned_timer_s = compiled(tuning.timer_s)


class GangPatience(NamedTuple):
    """The waits of gangs; tiers are `NODE_TIER` and `LEAF_TIER`."""

    declined_s: NDArray[np.float64]  # (n_jobs,): for how long a gang has had a place and declined it, since it ran
    spent_s: NDArray[np.float64]  # (n_jobs,): for how long it did before
    declining: NDArray[np.int8]  # (n_jobs,): whether it has one since the last pass
    pass_time: NDArray[np.float64]  # (1,): of the last pass
    reached: NDArray[np.int8]  # (n_jobs,): the tier it started at, -1 before
    gang_class: NDArray[np.int32]  # (n_jobs,)
    rate_per_s: NDArray[np.float64]  # (n_classes, 2, n_stretches), as of `tuning.rates`
    fixed_s: NDArray[np.float64]  # (2,) by tier; NaN: the rates decide
    least_inflation: NDArray[np.float64]  # (1,): a place that costs less is accepted at once
    longest_s: NDArray[np.float64]  # (1,): tuned timers let no gang decline for longer in all
    best_tier: NDArray[np.int8]  # (n_shapes,): what a shape has on the idle cluster
    missing: NDArray[np.int8]  # (n_shapes,): room to work in


@compiled
def offer(s: State, p: GangPatience, rows: NDArray[np.int32], now: float) -> None:
    """Offer the free GPUs to pending jobs in the order of `rows`; a job that declines blocks no other."""
    s = lent(s)
    p = lent(p)
    p.missing[:] = 0
    passed_s = now - p.pass_time[0]
    p.pass_time[0] = now
    for row in rows:
        if p.declining[row] == 1:
            p.declined_s[row] += passed_s
            p.declining[row] = 0
    declined = taken = False
    for row in rows:
        job = s.jobs[row]
        if s.tally[0]["gpus_free"] == 0:
            break
        if job["phase"] != PENDING or not _offered(s, p, row):
            continue
        tier = tier_of_pick(s, row)
        left_s = timer_s(s, p, row, tier) - p.declined_s[row]
        if left_s <= _SAME_S:
            p.reached[row] = tier
            job["watch_time"] = np.inf
            start(s, row, now)
            taken = declined
        else:
            declined = True
            p.declining[row] = 1
            job["watch_time"] = now + left_s
            set_timer(s, row)
    if taken:
        _forget_places(s, p, rows)


@compiled
def _forget_places(s: State, p: GangPatience, rows: NDArray[np.int32]) -> None:
    """Stop the clocks of gangs whose last offered placement went to a later job."""
    for row in rows:
        if p.declining[row] == 1 and not _offered(s, p, row):
            p.declining[row] = 0
            s.jobs[row]["watch_time"] = np.inf
            set_timer(s, row)


@compiled
def best_tiers(s: State, p: GangPatience, rows: NDArray[np.int32]) -> None:
    """Compute the best tier of every shape of jobs, while the cluster is idle."""
    s = lent(s)
    p = lent(p)
    p.missing[:] = 0
    for row in rows:
        if _offered(s, p, row):
            p.best_tier[s.jobs[row]["shape"]] = tier_of_pick(s, row)


@compiled
def timer_s(s: State, p: GangPatience, row: int, tier: int) -> float:
    """Return how long a gang declines the picked nodes at a tier; 0: it accepts."""
    job = s.jobs[row]
    best_tier = p.best_tier[job["shape"]]
    if tier <= best_tier:
        return 0.0
    cost = picked_inflation(s, row, tier == SPINE_TIER)
    least = p.least_inflation[0]
    run_s = job["believed_s"] * job["left_s"] / job["work_s"]
    longest_s = 0.0
    for better in range(best_tier, tier):
        wait_s = p.fixed_s[better]
        if np.isnan(wait_s):
            there = 1.0 if better == NODE_TIER else picked_inflation(s, row, False)
            rates = p.rate_per_s[p.gang_class[row], better]
            wait_s = tuned_timer_s(rates, run_s, cost, there, least, p.longest_s[0] - p.spent_s[row])
        elif cost < least:
            wait_s = 0.0
        longest_s = max(longest_s, wait_s)
    return longest_s


@compiled
def _offered(s: State, p: GangPatience, row: int) -> bool:
    """Pick the closest free placement of a job; return False if there is none."""
    job = s.jobs[row]
    shape, gpus = job["shape"], job["gpus"]
    missing = p.missing[shape]
    if missing & _NOT_ANY or gpus > s.tally[0]["gpus_free"]:
        return False
    crosses = False
    if not missing & _NOT_CLOSE:
        if pick(s, row, gpus):
            if tier_of_pick(s, row) == NODE_TIER:
                return True
            crosses = True
        else:
            p.missing[shape] |= _NOT_CLOSE
    if not missing & _NOT_LEAF:
        if pick_leaf(s, row, gpus):
            return True
        p.missing[shape] |= _NOT_LEAF
    if crosses:
        return pick(s, row, gpus)
    if pick_anywhere(s, row, gpus):
        return True
    p.missing[shape] |= _NOT_ANY
    return False


@compiled
def tier_of_pick(s: State, row: int) -> int:
    """Return the tier of the picked nodes, relative to the best tier that the gang could have."""
    return _tier_of(s, row, s.pick_nodes[: s.tally[0]["picked"]])


@compiled
def tier_held(s: State, row: int) -> int:
    """Return the tier of the nodes of a running gang, relative to the best tier that it could have."""
    job = s.jobs[row]
    return _tier_of(s, row, s.held_nodes[job["pool"] : job["pool"] + job["span"]])


@compiled
def _tier_of(s: State, row: int, nodes: NDArray[np.int32]) -> int:
    job = s.jobs[row]
    fewest = -(-job["best_nodes"] // s.rules[0]["leaf_nodes"])
    if _leaves_of(s, nodes) > fewest:
        return SPINE_TIER
    return NODE_TIER if len(nodes) <= job["best_nodes"] else LEAF_TIER


@compiled
def _leaves_of(s: State, nodes: NDArray[np.int32]) -> int:
    """Count the leaves of nodes, `(n_nodes,)`; the nodes of a leaf are adjacent."""
    count = 0
    before = NONE
    for node in nodes:
        leaf = s.nodes[node]["leaf"]
        if leaf != before:
            count += 1
            before = leaf
    return count


@compiled
def picked_inflation(s: State, row: int, crosses: bool) -> float:
    """Return the inflation of a gang on the picked nodes, beside the gangs that use its links now.

    Unless `crosses`, the gang counts as alone on its links: only a placement on other leaves is in question.
    """
    if s.rules[0]["is_ideal"]:
        return 1.0
    job = s.jobs[row]
    profile = s.profiles[job["profile"]]
    nodes = s.pick_nodes[: s.tally[0]["picked"]]
    speed = np.inf
    for node in nodes:
        speed = min(speed, s.type_speed[job["profile"], s.nodes[node]["gpu_type"]])
    here = slowest_gbps(s, nodes, 0.0, True, 1) if crosses else min(s.rules[0]["nic_gbps"], s.rules[0]["node_gbps"])
    best = best_gbps(s, job["best_nodes"])
    return inflation(profile, job["gpus"], max(len(nodes), 2), here / speed, max(job["best_nodes"], 2), best / speed)


@compiled
def sensitivities(s: State, rows: NDArray[np.int32], inflations: NDArray[np.float64]) -> None:
    """Compute the inflation of gangs that span one node more than needed, on two leaves, `(n_rows,)`.

    The uplink is that of the leaf with the smaller half of the nodes, used by no other gang.
    """
    s = lent(s)
    inflations[:] = 1.0
    rules = s.rules[0]
    if rules["is_ideal"]:
        return
    for place in range(len(rows)):
        job = s.jobs[rows[place]]
        if job["gpus"] == 1:
            continue
        fewest = job["best_nodes"]
        best = best_gbps(s, fewest)
        carried = rules["leaf_nodes"] * rules["nic_gbps"] / rules["oversubscription"] / ((fewest + 1) // 2)
        here = min(rules["nic_gbps"], carried)
        speed = job["reference_speed"]
        profile = s.profiles[job["profile"]]
        inflations[place] = inflation(profile, job["gpus"], fewest + 1, here / speed, max(fewest, 2), best / speed)
