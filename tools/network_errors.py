"""Writes the page on the errors of the network model of the simulator, tier by tier."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np

from advisor.sim.profiles import Profiles, inflation
from tools.data.profile_data import MeasuredSpread, Measurements
from tools.pages.page_text import table
from tools.profile_errors import HALVED, ErrorLine, Shipped
from tools.profile_fit import CONTENTION_FROM, SPREADS_FROM, STEPS_FROM

TEMPLATE = Path(__file__).parent / "templates" / "network.md"
# The largest gang of each data set on one node.
ONE_NODE_GPUS: Mapping[str, int] = {"ElasticFlow": 8, "Pollux one node": 4, "Shockwave V100": 8, "Rubick one node": 8}
# The most nodes of a tier, and its title.
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


# The relative speed of a gang over several machines, and over several racks, in the sample workloads of the simulator
# of Themis: inputs of a simulator, not measurements.
THEMIS: Mapping[str, tuple[float, float]] = {
    "vgg16": (0.72, 0.52),
    "alexnet": (0.80, 0.64),
    "inception3": (0.98, 0.96),
    "resnet50": (0.98, 0.96),
    "resnet101": (0.98, 0.96),
}


def network_page(profiles: Profiles, measured: Measurements, lines: Sequence[ErrorLine]) -> str:
    """Write the page; `lines` are the errors of all data sets."""
    return TEMPLATE.read_text(encoding="utf-8").format(
        tiers=tier_table(profiles, measured, lines),
        nodes=node_table(profiles, measured),
        themis=themis_table(profiles),
        gpus=USUAL_GPUS,
        link_nodes=USUAL_NODES,
        leaf=LEAF_GBPS,
    )


def tier_table(profiles: Profiles, measured: Measurements, lines: Sequence[ErrorLine]) -> str:
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
    for (tier, source), own in sorted(errors.items(), key=lambda entry: (entry[0][0], entry[0][1] == OTHERS)):
        shown = (f"{error:.1%}" for error in (np.mean(own), np.median(own), np.max(own)))
        rows.append([TIER_NODES[tier][1], source, "no" if source == OTHERS else "yes", str(len(own)), *shown])
    for line in lines:
        if not line.model and line.source in (CONTENTION_FROM, HALVED):
            shown = (f"{error:.3f}" for error in (line.mean, line.median, line.most))
            rows.append(["NIC, two gangs", line.source, "yes", str(line.rows), *shown])
    return table(("tier", "data set", "fitted", "rows:", "mean:", "median:", "most:"), rows)


def node_table(profiles: Profiles, measured: Measurements) -> str:
    """Return the mean errors of the inflation over one node, by the bandwidth inside a node."""
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
    return table(("data set", "rows:", *heads), lines)


def _node_errors(shipped: Shipped, rows: Sequence[MeasuredSpread], node_gbps: float) -> Iterator[float]:
    for row in rows:
        # A gang on one node has the traffic of two nodes.
        limited = replace(row, gbps=min(row.gbps, node_gbps), best_nodes=2, best_gbps=node_gbps)
        yield abs(shipped.spread(limited) / row.ratio - 1.0)


def themis_table(profiles: Profiles) -> str:
    """Return the relative speeds of our profiles beside those of the simulator of Themis."""
    ours = {model: _relative_speeds(profiles, model) for model in THEMIS}
    rows = [
        [model, *(f"{speed:.2f}" for both in zip(theirs, ours[model], strict=True) for speed in both)]
        for model, theirs in THEMIS.items()
    ]
    known = [(a, b) for a, b in combinations(THEMIS, 2) if THEMIS[a] != THEMIS[b]]
    machines, racks = (
        sum((THEMIS[a][tier] < THEMIS[b][tier]) == (ours[a][tier] < ours[b][tier]) for a, b in known)
        for tier in range(2)
    )
    agreement = (
        f"Of the {len(known)} pairs of models that Themis tells apart, ours stand in the same order in {machines} "
        f"over machines and in {racks} over racks."
    )
    heads = ("Themis, machines:", f"ours, {LEAF_GBPS:g} Gb/s:", "Themis, racks:", f"ours, {SPINE_GBPS:g} Gb/s:")
    return f"{table(('model', *heads), rows)}\n\n{agreement}\n"


def _relative_speeds(profiles: Profiles, model: str) -> list[float]:
    profile = profiles.rows[profiles.names.index(model)]
    return [1.0 / inflation(profile, USUAL_GPUS, USUAL_NODES, gbps, 1, np.inf) for gbps in (LEAF_GBPS, SPINE_GBPS)]
