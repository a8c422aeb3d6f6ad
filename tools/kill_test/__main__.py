"""Kills the advisor with kill -9 at every write step against a live slurmctld, and checks every restart.

    python -m tools.kill_test --release 22.05 --kills 500 --seed 1

After each kill the journal is opened as by a new process: the file is whole, every field of every pending job holds
what its user left there or what an open lease says, and after reconciling nothing is unknown, and no job asks for a
longer limit than the lift that it has was given for. At the end everything is taken back, and every pending job is as
its user left it. Exits with 1 and the first fault otherwise.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tools.kill_test.kill_play import KillPlay, KillTally, kill_cluster
from tools.kill_test.points import ALL_POINTS
from tools.stage.program import add_release, print_faults
from tools.stage.watch import talking_to


def main() -> int:
    """Run the play and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.kill_test", description=__doc__.splitlines()[0])
    add_release(parser)
    parser.add_argument("--kills", type=int, default=500, help="kills to survive, default: %(default)s")
    parser.add_argument("--restarts", type=int, default=3, help="restarts of slurmctld between, default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    args = parser.parse_args()
    began = time.monotonic()
    with kill_cluster(args.release) as live, tempfile.TemporaryDirectory() as folder, talking_to(live):
        tally = KillPlay(live, Path(folder) / "journal.sqlite", args.seed).run(args.kills, restarts=args.restarts)
        version = live.version
    report(tally)
    print(
        f"Slurm {version}, seed {args.seed}: {sum(tally.kills.values())} kills, {len(tally.faults)} faults, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if tally.faults else 0


def report(tally: KillTally) -> None:
    """Print what was found after the kills at each fault point, what else happened, and every fault."""
    print(f"{'killed':<44}{'kills':>7}{'intents':>9}{'in effect':>11}{'returns':>9}")
    for point in ALL_POINTS:
        counts = (tally.kills, tally.intents, tally.took_effect, tally.returns)
        kills, intents, in_effect, returns = (count[point] for count in counts)
        print(f"{point:<44}{kills:>7}{intents:>9}{in_effect:>11}{returns:>9}")
    print("; ".join(f"{event} {count}" for event, count in sorted(tally.events.items())))
    for refusal in tally.refused:
        print(f"refused to people: {refusal}")
    print_faults(tally.faults)


if __name__ == "__main__":
    sys.exit(main())
