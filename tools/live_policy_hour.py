"""Runs a policy that places gangs on a live cluster, in shadow beside the rules and then in force.

    python -m tools.live_policy_hour --policy metarl --models DIR --minutes 60 --policy-minutes 20

The nodes are of two GPU types; jobs sleep for as long on each: what a place changes is what the performance model
expects. Prints also what `sadvise models compare` finds in the time in shadow, and checks that gangs started on the
nodes named for them. `python -m tools.stand_in_policy DIR` makes a policy for it by hand.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from advisor.config import load_config
from advisor.domain.actions import Lever, NodeRange, SetNodeList
from advisor.domain.lease import Ending
from advisor.journal import SqliteJournal
from advisor.journal.views import RowQuery
from advisor.predict.library import Library
from advisor.predict.served_policy import held_policy
from advisor.site.shadow import EVENT
from tools.live_hour import NODES, Hour, HourLoad, play, report
from tools.stage import LiveCluster
from tools.stage.arrivals import GpuRequest
from tools.stage.daemon import PROGRAM, Table
from tools.stage.program import add_play, add_release, print_faults, print_figures

MINUTE_S: Final = 60.0
MOST: Final = 1_000_000
TYPES: Final = ("v100", "a100") * (NODES // 2)
# As at large sites, a job that fits waits for the next pass, in which time a round can name its nodes.
SCHEDULER: Final = "defer,batch_sched_delay=10,sched_interval=30,bf_interval=30"


def _declared(name: str, nodes: int, gpus_per_node: int, model: str) -> GpuRequest:
    """Return a request for as many GPUs of each node, by a job that declares its model."""
    return GpuRequest(
        name=name,
        options=(
            f"-N{nodes}",
            f"--gpus-per-node={gpus_per_node}",
            "--ntasks-per-node=1",
            f"--comment=sadvise: model={model}",
        ),
        gpus=nodes * gpus_per_node,
        nodes=NodeRange(low=nodes, high=nodes),
    )


WEIGHTS: Final = {
    _declared("pair", 2, 4, "bert"): 4,
    _declared("whole pair", 2, 8, "gpt2"): 2,
    _declared("three", 3, 4, "transformer"): 2,
    _declared("small", 1, 2, "resnet50"): 4,
}


@dataclass
class NamedPlaces:
    """The gangs for which nodes were named in force: on the named nodes, on others, or not seen to start."""

    where_named: int = 0
    elsewhere: int = 0
    unseen: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def main() -> int:
    """Run the policy in shadow, compare it with the rules, run it in force, and print all of that; 1 for a fault."""
    parser = argparse.ArgumentParser(prog="python -m tools.live_policy_hour", description=__doc__.splitlines()[0])
    add_release(parser)
    add_play(parser, minutes=60.0, interval_s=15.0)
    parser.add_argument("--policy", default="metarl", help="policy that places gangs, default: %(default)s")
    parser.add_argument("--policy-minutes", type=float, default=10.0, help="in force, default: %(default)s")
    parser.add_argument("--models", type=Path, help="folder of models of the site that holds the policy")
    parser.add_argument("--folder", type=Path, help="empty folder that keeps the journal")
    args = parser.parse_args()
    policy, models, seed, interval_s = args.policy, args.models, args.seed, args.interval
    site: Mapping[str, Table] = {} if models is None else {"forecasts": {"models": str(models)}}
    library = Library() if models is None else Library(models)
    held = held_policy(library, policy)
    live = LiveCluster(
        args.release, node_count=NODES, leaf_nodes=4, gpu_types=TYPES, shards={}, scheduler_parameters=SCHEDULER
    )
    with live, tempfile.TemporaryDirectory() as name:
        folder, began = args.folder or Path(name), time.monotonic()
        shadow = play(live, args.minutes, seed, interval_s, folder, _load(site, shadow=policy))
        shadow_s = time.monotonic() - began
        print(f"== {held.name} in shadow beside the rules for {shadow_s / MINUTE_S:.1f} min")
        report(shadow)
        if not (folder / "journal.sqlite").exists():
            return 1
        shadow.faults.extend(_print_shadow(folder))
        print(_compared(live, folder, held.entry.kind, held.entry.version))
        began = time.monotonic()
        applied = play(live, args.policy_minutes, seed + 1, interval_s, folder, _load(site, policy=policy))
        print(f"== {held.name} in force for {(time.monotonic() - began) / MINUTE_S:.1f} min")
        report(applied)
        places = _places(folder, applied)
        _print_places(places)
        version = live.version
    faults = [*shadow.faults, *applied.faults, *places.faults]
    print(f"Slurm {version}, {args.minutes:g} + {args.policy_minutes:g} minutes, seed {seed}: {len(faults)} faults")
    return 1 if faults else 0


def _load(site: Mapping[str, Table], **daemon: str) -> HourLoad:
    """Return what arrives at 60 % load, and the configuration with keys of the daemon."""
    return HourLoad(
        weights=WEIGHTS,
        limits=("00:10:00",),
        share=0.6,
        tables={
            **site,
            "daemon": daemon,
            "planning": {"name_nodes": True, "rollout_deadline_s": 0.0},
            "guard": {"min_job_age_s": 0.0},
        },
    )


def _print_shadow(folder: Path) -> list[str]:
    """Print what the audit holds of the shadow; return a fault if nodes were named in Slurm."""
    with SqliteJournal.read_only(folder / "journal.sqlite") as journal:
        rows = [row for row in journal.audit_after(0) if row.event == EVENT]
        sent = [change for change in journal.changes(RowQuery(most=MOST)) if change.lever == Lever.NODE_LIST]
    only = {words for row in rows for words in str(row.detail.get("only_shadow", "")).split("; ") if words}
    print(f"shadow: {len(rows)} rows of the audit; {len(only)} different changes that it alone proposes, such as:")
    for words in sorted(only)[:5]:
        print(f"  {words}")
    print(f"nodes named in Slurm meanwhile: {len(sent)}")
    return [f"{len(sent)} changes of node lists in shadow"] if sent else []


def _compared(live: LiveCluster, folder: Path, kind: str, version: str) -> str:
    argv = [sys.executable, *PROGRAM, "models", "compare", kind, version, "rules", "--rollout"]
    options = ("--cycles", str(MOST), "--config", str(folder / "sadvise.toml"))
    answer = subprocess.run([*argv, *options], env=live.env, capture_output=True, text=True, check=False)
    return f"$ sadvise models compare {kind} {version} rules --rollout\n{answer.stdout}{answer.stderr}"


def _places(folder: Path, hour: Hour) -> NamedPlaces:
    """Compare the nodes that were named with those on which recorded cycles show the gangs."""
    places, started = NamedPlaces(), dict[int, tuple[str, ...]]()
    config = load_config(folder / "sadvise.toml", {})
    with SqliteJournal.read_only(Path(config.journal.file)) as journal:
        for recorded in journal.recorded_cycles(journal.recorded_ids(MOST)):
            for job in recorded.snapshot.jobs:
                if job.allocation is not None and not job.is_pending:
                    started.setdefault(job.job_id, job.allocation.nodes)
    named = [(lease, lease.action.after) for lease in hour.leases if isinstance(lease.action, SetNodeList)]
    places.endings = Counter(str(lease.ending or lease.state) for lease, _ in named)
    last = {lease.job_id: (lease, names) for lease, names in sorted(named, key=lambda pair: pair[0].applied_time)}
    for job_id, (lease, names) in last.items():
        if lease.ending is not Ending.NO_LONGER_PENDING:
            continue
        nodes = started.get(job_id)
        if nodes is None:
            places.unseen += 1
        elif set(nodes) == set(names):
            places.where_named += 1
        else:
            places.elsewhere += 1
            places.faults.append(f"job {job_id} started on {', '.join(nodes)}, named were {', '.join(names)}")
    if not places.where_named:
        places.faults.append("no gang was seen to start on the nodes named for it")
    return places


def _print_places(places: NamedPlaces) -> None:
    rows = (
        ("gangs that started on the nodes named for them", places.where_named),
        ("gangs that started elsewhere with names", places.elsewhere),
        ("gangs that started and ended between rounds", places.unseen),
        *((f"  leases of names: {name}", count) for name, count in sorted(places.endings.items())),
    )
    print_figures(rows)
    print_faults(places.faults)


if __name__ == "__main__":
    sys.exit(main())
