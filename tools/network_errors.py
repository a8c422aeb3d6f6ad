"""How far the network model of the simulator is from measurements, tier by tier, as a page."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from advisor.sim.profiles import Profiles, inflation
from tools.pages.text import table
from tools.profile_data import Measurements, Spread
from tools.profile_errors import HALVED, Line, Shipped
from tools.profile_fit import CONTENTION_FROM, SPREADS_FROM, STEPS_FROM

# Largest gang of each data set that sat on one node.
ONE_NODE_GPUS: Mapping[str, int] = {"ElasticFlow": 8, "Pollux one node": 4, "Shockwave V100": 8, "Rubick one node": 8}
# The most nodes of a tier, and what is measured of it.
TIER_NODES = (
    (1, "one node, step"),
    (2, "2 nodes, inflation"),
    (4, "3-4 nodes, inflation"),
    (8, "5-8 nodes, inflation"),
)
OTHERS = "all others"
# Data sets that compare a gang with the same gang on one node; Gavel's compare with one GPU, which sends nothing.
OVER_ONE_NODE = ("Pollux nodes", "Rubick", "Chronus")
NODE_GBPS = (np.inf, 2400.0, 1200.0, 128.0, 64.0)
USUAL_GPUS, USUAL_NODES = 4, 2
LEAF_GBPS, SPINE_GBPS = 10.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """The relative speed that the simulator of Themis gives a gang over several machines, and over several racks."""

    machines: float
    racks: float


# As they stand in its sample workloads; inputs of a simulator, not measurements.
THEMIS: Mapping[str, Factors] = {
    "vgg16": Factors(machines=0.72, racks=0.52),
    "alexnet": Factors(machines=0.80, racks=0.64),
    "inception3": Factors(machines=0.98, racks=0.96),
    "resnet50": Factors(machines=0.98, racks=0.96),
    "resnet101": Factors(machines=0.98, racks=0.96),
}

HEAD = """\
<!-- Written by `python -m tools.fit_profiles`; do not edit. -->
# The network of the simulator

A gang waits for the slowest of its links. What that link gives to one node of the gang is the bandwidth in the
formulas of [profiles.md](profiles.md), which also says how much each model sends and how much of it is hidden. The
keys are those of the [cluster file](simulation.md).

    python -m tools.fit_profiles --data DIR --check   # work out the tables below again, exit 1 if they differ

| link | carries | beside other gangs | rests on |
|---|---|---|---|
| inside a node | `node_gbps`; 0: no limit | divided by pressure if `node_shared`, else not | assumption |
| NIC | `nic_gbps` | divided by pressure | measured, below |
| uplinks of a leaf | what its nodes send / `oversubscription` | divided evenly | assumption |
| spine | all uplinks / `spine_oversubscription` | divided in proportion to uplinks in use | assumption |

- Pressure is the `node_pressure` of a profile. An uplink is divided among the gangs that cross it, and the part of a
  gang among its nodes there. Where the uplinks in use carry more than the spine, each counts for as much less.
- `node_gbps` by the vendors' ratings: 2400 for an NVSwitch of A100 nodes (300 GB/s each way), not shared; 128 for
  PCIe 3.0 with 16 lanes (16 GB/s each way), shared. By default it is no limit.
- GPUs of one node send to each other what two nodes would. The run time in a trace is that on the best placement, so
  a gang alone on one node runs as the trace says whatever `node_gbps` is. It decides how much of that time counts as
  communication, what neighbours on a shared link cost, and what a place further apart is compared with.
- A gang over several nodes uses the links inside them, too. Jobs of one GPU send nothing.
"""

NODE = """\

## Inside a node

The profiles were fitted with nothing exposed on one node: what its GPUs wait for each other is part of the measured
step. A `node_gbps` counts the same traffic there, and a gang that is spread loses less by comparison. These are the
mean errors of the inflation over one node if its links gave so much; the nodes of Pollux have PCIe, those of Rubick
NVLink, those of Chronus are not described. No limit at all comes nearest, and is the default:

"""

TIERS = """\

## How far off, tier by tier

Errors are percentages of the step time or the inflation; for *NIC* they are differences of relative speeds. *Fitted*:
whether the profile of the model rests on these rows; where it does not, all data sets stand in one line. Links are as
in [profiles.md](profiles.md). The data sets do not say what their nodes hang on; they are taken to be under one leaf
with no other job on it.

"""

CROSS_CHECK = """\

## What was not measured

No data set has a gang behind an oversubscribed uplink or a spine, or gangs beside each other on one PCIe or NVSwitch.
How these are divided is an assumption. The simulator of Themis has factors for the same thing, the relative speed of a
gang over several machines and over several racks; they are inputs of that simulator, not measurements, and its links
are not stated. Ours are for {gpus} V100 on {nodes} nodes with {leaf:g} Gb/s, and with half of that behind an uplink:

"""


def network_page(profiles: Profiles, measured: Measurements, lines: Sequence[Line]) -> str:
    """Write the page; `lines` are the errors of all data sets."""
    cross_check = CROSS_CHECK.format(gpus=USUAL_GPUS, nodes=USUAL_NODES, leaf=LEAF_GBPS)
    tables = (tier_table(profiles, measured, lines), node_table(profiles, measured), themis_table(profiles))
    return "".join([HEAD, TIERS, tables[0], NODE, tables[1], cross_check, tables[2]])


def tier_table(profiles: Profiles, measured: Measurements, lines: Sequence[Line]) -> str:
    """Return the errors by tier and data set."""
    shipped = Shipped(profiles)
    errors: dict[tuple[int, str], list[float]] = defaultdict(list)
    for step in measured.steps:
        if 1 < step.gpus <= ONE_NODE_GPUS.get(step.source, 0):
            source = step.source if STEPS_FROM.get(step.model) == step.source else OTHERS
            errors[0, source].append(abs(shipped.step(step) / step.ratio - 1.0))
    for spread in measured.spreads:
        source = spread.source if SPREADS_FROM.get(spread.model) == spread.source else OTHERS
        tier = next(place for place, (most, _) in enumerate(TIER_NODES) if spread.nodes <= most)
        errors[tier, source].append(abs(shipped.spread(spread) / spread.ratio - 1.0))
    rows = []
    for (tier, source), found in sorted(errors.items(), key=lambda entry: (entry[0][0], entry[0][1] == OTHERS)):
        shown = (f"{error:.1%}" for error in (np.mean(found), np.median(found), np.max(found)))
        rows.append([TIER_NODES[tier][1], source, "no" if source == OTHERS else "yes", str(len(found)), *shown])
    for line in lines:
        if not line.model and line.source in (CONTENTION_FROM, HALVED):
            shown = (f"{error:.3f}" for error in (line.mean, line.median, line.most))
            rows.append(["NIC, two gangs", line.source, "yes", str(line.rows), *shown])
    return table(("tier", "data set", "fitted", "rows:", "mean:", "median:", "most:"), rows) + "\n"


def node_table(profiles: Profiles, measured: Measurements) -> str:
    """Return the mean errors of the inflation over one node by what the links inside a node give."""
    heads = ("no limit:" if np.isinf(gbps) else f"{gbps:g} Gb/s:" for gbps in NODE_GBPS)
    lines = []
    for source in OVER_ONE_NODE:
        rows = [
            row
            for row in measured.spreads
            if row.source == source and SPREADS_FROM.get(row.model) == source and row.best_nodes == 1
        ]
        errors = (np.mean(list(_node_errors(Shipped(profiles), rows, gbps))) for gbps in NODE_GBPS)
        lines.append([source, str(len(rows)), *(f"{error:.1%}" for error in errors)])
    return table(("data set", "rows:", *heads), lines) + "\n"


def _node_errors(shipped: Shipped, rows: Sequence[Spread], node_gbps: float) -> Iterator[float]:
    for row in rows:
        # One node sends what two would.
        limited = replace(row, gbps=min(row.gbps, node_gbps), best_nodes=2, best_gbps=node_gbps)
        yield abs(shipped.spread(limited) / row.ratio - 1.0)


def themis_table(profiles: Profiles) -> str:
    """Return the relative speeds of our profiles beside those of the simulator of Themis."""
    ours = {model: _relative_speeds(profiles, model) for model in THEMIS}
    rows = []
    for model, theirs in THEMIS.items():
        speeds = (theirs.machines, ours[model].machines, theirs.racks, ours[model].racks)
        rows.append([model, *(f"{speed:.2f}" for speed in speeds)])
    known = [pair for pair in combinations(THEMIS, 2) if THEMIS[pair[0]].racks != THEMIS[pair[1]].racks]
    counts = [
        sum(_same_order(THEMIS[a].machines, THEMIS[b].machines, ours[a].machines, ours[b].machines) for a, b in known),
        sum(_same_order(THEMIS[a].racks, THEMIS[b].racks, ours[a].racks, ours[b].racks) for a, b in known),
    ]
    agreement = (
        f"Of the {len(known)} pairs of models that Themis tells apart, ours stand in the same order in {counts[0]} "
        f"over machines and in {counts[1]} over racks."
    )
    heads = ("Themis, machines:", f"ours, {LEAF_GBPS:g} Gb/s:", "Themis, racks:", f"ours, {SPINE_GBPS:g} Gb/s:")
    return f"{table(('model', *heads), rows)}\n\n{agreement}\n"


def _relative_speeds(profiles: Profiles, model: str) -> Factors:
    profile = profiles.rows[profiles.names.index(model)]
    machines, racks = (
        1.0 / inflation(profile, USUAL_GPUS, USUAL_NODES, gbps, 1, np.inf) for gbps in (LEAF_GBPS, SPINE_GBPS)
    )
    return Factors(machines=machines, racks=racks)


def _same_order(first: float, second: float, ours_first: float, ours_second: float) -> bool:
    return (first < second) == (ours_first < ours_second)
