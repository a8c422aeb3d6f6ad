"""The bandwidth of a gang on a simulated cluster: inside a node, on its NICs, on the uplinks of a leaf, on the spine.

The bandwidth of a gang is what its slowest link gives to one of its nodes. Jobs divide the links inside a node (if
shared) and a NIC by pressure, an uplink evenly. Uplinks that together carry more than the spine are reduced in
proportion.
"""

import numpy as np
from numpy.typing import NDArray

from advisor.sim.compiled import compiled
from advisor.sim.profiles import contended_gbps
from advisor.sim.state import NONE, State


@compiled
def count_sender(s: State, nodes: NDArray[np.int32], pressure: float, crosses: bool, step: int) -> None:
    """Add a gang to the senders on its nodes, `(n_nodes,)` (`step` 1), or remove it from them (-1)."""
    before = NONE
    for place in range(len(nodes)):
        node = s.nodes[nodes[place]]
        node["inner_pressure"] = max(0.0, node["inner_pressure"] + step * pressure)
        if len(nodes) == 1:
            return
        node["pressure"] = max(0.0, node["pressure"] + step * pressure)
        # The nodes of a leaf are adjacent in the allocation of a job.
        if crosses and node["leaf"] != before:
            before = node["leaf"]
            _count_crossing(s, before, step)


@compiled
def slowest_gbps(s: State, nodes: NDArray[np.int32], own_pressure: float, crosses: bool, joining: int) -> float:
    """Return the bandwidth of each of `nodes`, `(n_nodes,)`, on a gang's slowest link, beside the jobs there now.

    Nodes of a leaf are adjacent. A gang that runs there has added `own_pressure` to its nodes, and `joining` is 0; for
    a placement that is only considered, these are 0 and 1.
    """
    rules = s.rules[0]
    least = rules["node_gbps"]
    if len(nodes) > 1:
        least = min(least, rules["nic_gbps"])
    uplink = np.inf
    loaded = s.tally[0]["loaded"]
    here = 0
    for place in range(len(nodes)):
        node = s.nodes[nodes[place]]
        if rules["node_shared"]:
            inner = contended_gbps(rules["node_gbps"], max(0.0, node["inner_pressure"] - own_pressure))
            least = min(least, inner)
        if len(nodes) > 1:
            least = min(least, contended_gbps(rules["nic_gbps"], max(0.0, node["pressure"] - own_pressure)))
        if not crosses:
            continue
        here += 1
        if place + 1 == len(nodes) or s.nodes[nodes[place + 1]]["leaf"] != node["leaf"]:
            leaf = s.leaves[node["leaf"]]
            if leaf["crossing"] == 0:
                loaded += leaf["nodes"]
            carried = leaf["nodes"] * rules["nic_gbps"] / rules["oversubscription"]
            uplink = min(uplink, carried / max(1, leaf["crossing"] + joining) / here)
            here = 0
    if crosses:
        least = min(least, uplink * spine_ratio(s, loaded))
    return float(least)


@compiled
def best_gbps(s: State, nodes: int) -> float:
    """Return the bandwidth of a gang alone on its best placement, on `nodes` nodes."""
    rules = s.rules[0]
    if nodes <= 1:
        return float(rules["node_gbps"])
    best = rules["nic_gbps"]
    # Beyond one leaf a gang alone has the uplinks to itself, as far as its leaves' nodes can load them.
    if nodes > rules["leaf_nodes"]:
        loaded = min(len(s.nodes), -(-nodes // rules["leaf_nodes"]) * rules["leaf_nodes"])
        best = best / rules["oversubscription"] * spine_ratio(s, loaded)
    return float(min(best, rules["node_gbps"]))


@compiled
def spine_ratio(s: State, loaded: int) -> float:
    """Return the share that the spine carries of the traffic of leaves with `loaded` nodes, at most 1."""
    return float(min(1.0, len(s.nodes) / s.rules[0]["spine_oversubscription"] / max(1, loaded)))


@compiled
def _count_crossing(s: State, row: int, step: int) -> None:
    leaf, tally = s.leaves[row], s.tally[0]
    if leaf["crossing"] == 0:
        tally["loaded"] += leaf["nodes"]
    leaf["crossing"] += step
    if leaf["crossing"] == 0:
        tally["loaded"] -= leaf["nodes"]
