"""Starts real Slurm clusters of fake GPU nodes, as root on a Debian machine."""

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import NoReturn

from tools.stage.live_cluster import LiveCluster
from tools.stage.mixed_queue import mixed_queue
from tools.stage.record import record
from tools.stage.roots import RELEASES, LiveSlurmError, open_root


def main() -> int:
    """Run one command and return the exit status."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, _stop)
    try:
        match options.command:
            case "bootstrap":
                root = open_root(options.release)
                print(f"Slurm {root.version} is ready in {root.path}")
            case "record":
                for path in record(options.release, options.out):
                    print(path)
            case _:
                _start(options)
    except LiveSlurmError as err:
        print(f"stage: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def _start(options: argparse.Namespace) -> None:
    """Keep a cluster until a signal ends it."""
    with LiveCluster(
        options.release,
        topology=options.topology,
        node_count=options.nodes,
        scheduler_parameters=options.scheduler_parameters,
        start_slurmd=not options.no_slurmd,
    ) as cluster:
        if options.mixed_queue:
            mixed_queue(cluster)
        for name in ("PATH", "SLURM_CONF"):
            print(f"export {name}={shlex.quote(cluster.env[name])}")
        print(f"# Slurm {cluster.version} runs until Ctrl-C; use the two lines above in another terminal.", flush=True)
        signal.pause()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.stage",
        description="Real Slurm clusters of fake GPU nodes, for tests. Needs root; 22.05 also needs Debian 12 with the"
        " packages slurm-wlm and munge, the other releases need debootstrap and a Debian mirror.",
        epilog="Root filesystems are kept in $SADVISE_SLURM_CACHE, by default ~/.cache/sadvise/slurm.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start a cluster and keep it until Ctrl-C")
    bootstrap = commands.add_parser("bootstrap", help="only fetch a release and keep it for later")
    recording = commands.add_parser("record", help="write a release's answers about a mixed queue into a folder")
    for command in (start, bootstrap, recording):
        command.add_argument("--release", choices=list(RELEASES), required=True, help="the Slurm release")
    start.add_argument("--topology", choices=["tree", "flat", "block"], default="tree", help="default: %(default)s")
    start.add_argument(
        "--nodes", type=int, default=8, help="number of nodes with eight GPUs each, default: %(default)s"
    )
    start.add_argument("--scheduler-parameters", default="", metavar="LIST", help="added to SchedulerParameters")
    start.add_argument(
        "--no-slurmd", action="store_true", help="nodes that never register: nothing runs, reads are real"
    )
    start.add_argument("--mixed-queue", action="store_true", help="fill it with jobs of every request form")
    recording.add_argument("--out", type=Path, required=True, help="the folder that takes the answers")
    return parser


def _stop(_signal: int, _frame: object) -> NoReturn:
    """End as Ctrl-C does, so that the cluster is stopped on the way out."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
