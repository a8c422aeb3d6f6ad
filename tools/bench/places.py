"""Time and memory of a policy that places gangs: one gang on a large cluster, from the facts to its servers.

    python -m tools.bench places [--servers 512] [--policy marl]

Half of the GPUs are held by gangs of 2 to 64 GPUs. A gang asks for 8 to 64 GPUs. Its time is that of the graph of the
cluster, and of every run of the policy, on one thread. Memory is what this process holds more than before.
"""

import argparse
import resource
import sys
import time
from typing import Final

import numpy as np

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.features.observe.graph import Residents, Servers, crossing, graph_of
from advisor.features.observe.known_models import KnownModels
from advisor.features.observe.pointer import AgentView, Choice, Gang, choose_all, interference_of
from advisor.features.observe.report import report_of
from advisor.features.observe.scored_chooser import ScoredChooser
from advisor.features.observe.site_speeds import ServerOutlook
from advisor.features.policy import Decider, Policy, models_of
from advisor.predict.interference import InterferenceForecaster
from advisor.predict.library import Library
from advisor.predict.neighbours import models_known_to
from advisor.predict.served_policy import open_policy

SIZES: Final = (8, 16, 32, 64)
GANGS: Final = 50
LEAF_SERVERS: Final = 16
GPUS: Final = 8


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--servers", type=int, default=512, help="servers of 8 GPUs, 16 or more, default %(default)s")
    parser.add_argument("--policy", default="marl", help="default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    if options.servers < LEAF_SERVERS:
        print(f"bench places: --servers {options.servers}: at least {LEAF_SERVERS}", file=sys.stderr)
        return 1
    try:
        measure(options.policy, options.servers)
    except ModelError as err:
        print(f"bench places: {err}", file=sys.stderr)
        return 1
    return 0


def measure(name: str, count: int) -> None:
    """Print what a policy takes for gangs on some servers; raises `ModelError` where it is none, or fails."""
    before_mib, library = _peak_mib(), Library()
    policy = open_policy(library, name)
    if Lever.NODE_LIST not in policy.levers:
        raise ModelError(f"policy {policy.name} places no gangs")
    in_use = models_known_to(InterferenceForecaster.from_bundle(library.load("interference")))
    models = models_of(policy, in_use)
    servers, residents = busy_cluster(count, len(models.neighbours.added))
    print(f"{count} servers, {GPUS * count:,} GPUs, {len(residents.gpus):,} gangs there")
    for gpus in SIZES:
        ms = 1e3 * np.array([place_s(policy, servers, residents, models, gpus, seed) for seed in range(GANGS)])
        print(f"gang of {gpus:2} GPUs: {np.median(ms):.1f} ms, at most {ms.max():.1f} ms, {GANGS} gangs")
    print(f"memory: {_peak_mib() - before_mib:.0f} MiB more than before the policy was opened")


def busy_cluster(servers: int, models: int) -> tuple[Servers, Residents]:
    """Return a cluster half of whose GPUs are held, and the gangs that hold them."""
    rng = np.random.default_rng(0)
    free = np.full(servers, GPUS)
    gang: list[int] = []
    server: list[int] = []
    held: list[int] = []
    gpus: list[int] = []
    nodes: list[int] = []
    while free.sum() > GPUS * servers // 2:
        size = int(rng.choice((2, 4, 8, 16, 32, 64)))
        left = size
        parts: list[tuple[int, int]] = []
        for row in rng.permutation(servers).tolist():
            took = int(min(free[row], left))
            if took:
                parts.append((row, took))
                left -= took
            if not left:
                break
        for row, took in sorted(parts):
            gang.append(len(gpus))
            server.append(row)
            held.append(took)
            free[row] -= took
        gpus.append(size - left)
        nodes.append(len(parts))
    residents = Residents(
        gang=np.array(gang),
        server=np.array(server),
        held=np.array(held),
        gpus=np.array(gpus),
        nodes=np.array(nodes),
        model=rng.integers(models, size=len(gpus)),
        left_s=rng.exponential(3600.0, len(gpus)),
    )
    leaf = np.arange(servers) // LEAF_SERVERS
    return Servers(gpus=np.full(servers, GPUS), free=free, is_up=np.ones(servers, np.bool_), leaf=leaf), residents


def place_s(policy: Policy, servers: Servers, residents: Residents, models: KnownModels, gpus: int, seed: int) -> float:
    """Return the time to choose the servers of a gang, in seconds."""
    rng, neighbours = np.random.default_rng(seed), models.neighbours
    began = time.perf_counter()
    gang = Gang(
        gpus=gpus,
        fewest_nodes=-(-gpus // GPUS),
        model=int(rng.integers(len(neighbours.added))),
        leaf_inflation=1.1,
        spine_inflation=float(rng.uniform(1.2, 3.0)),
        run_s=float(rng.exponential(7200.0)),
        wait_s=0.0,
    )
    choice = Choice(
        gang=gang,
        usable=servers.free.copy(),
        leaf=servers.leaf,
        leaf_crossing=crossing(servers, residents, residents.crosses(servers.leaf)),
        interference=interference_of(gang, servers, residents, neighbours),
        chosen=[],
        taken=[],
        outlook=_outlook(models, gang, servers, residents),
    )

    def view() -> AgentView:
        return AgentView(
            graph=graph_of(servers, residents, neighbours),
            report=report_of(servers, residents, 16, 256),
            neighbours=neighbours,
        )

    decider = Decider(policy=policy)
    choose_all(choice, ScoredChooser(decider, view))
    if decider.fault:
        raise ModelError(decider.fault)
    return time.perf_counter() - began


def _outlook(models: KnownModels, gang: Gang, servers: Servers, residents: Residents) -> ServerOutlook | None:
    """Return what a performance model says of servers of two GPU types, half of the leaves each; None without one."""
    if models.speeds is None:
        return None
    types = (servers.leaf % 2).astype(np.intp)
    return models.speeds.outlook(gang.model, gang.run_s, types, servers, residents)


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
