"""Run a live cluster under arrivals for an hour with the daemon in mode apply, and check the outcome.

    python -m tools.live_hour --release 22.05 --minutes 60 --seed 1

Seeded jobs of tens of seconds to minutes arrive: gangs that accept several nodes, gangs over two nodes, small jobs, of
several users. `sadvise serve` runs with a short interval. At the end: every job has ended well or is in the queue; no
lease was out for longer than the delay booked for it, nor is more booked than the guard allows; slurmctld counted no
more requests than the budget allows; the daemon ended cleanly within 5 s; and after `sadvise revert --all` every
pending job has the fields it was submitted with. Prints a table, and exits with 1 if a check fails.

    python -m tools.live_hour --policy metarl --models DIR --minutes 60 --policy-minutes 20

runs a policy that places gangs in shadow beside the rules for as long, then in force, on nodes of two GPU types. Prints
also what `sadvise models compare` finds in the time in shadow, and checks that gangs started on the nodes named for
them. `python -m tools.stand_in_policy DIR` makes a policy for it by hand.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tools.live_hour.hour import hour_cluster, play, report
from tools.live_hour.policy_hour import shadow_then_apply
from tools.stage.daemon import log_end
from tools.stage.program import add_play, add_release, summed_up


def main() -> int:
    """Run the hour and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.live_hour", description=__doc__.splitlines()[0])
    add_release(parser)
    add_play(parser, minutes=60.0, interval_s=15.0)
    parser.add_argument("--policy", help="policy that places gangs: --minutes in shadow, then in force")
    parser.add_argument("--policy-minutes", type=float, default=10.0, help="in force, default: %(default)s")
    parser.add_argument("--models", type=Path, help="folder of models of the site that holds the policy")
    parser.add_argument("--folder", type=Path, help="empty folder that keeps the journal of --policy")
    args = parser.parse_args()
    if args.policy:
        return shadow_then_apply(
            args.release,
            args.policy,
            args.models,
            minutes=(args.minutes, args.policy_minutes),
            seed=args.seed,
            interval_s=args.interval,
            kept=args.folder,
        )
    with hour_cluster(args.release) as live, tempfile.TemporaryDirectory() as folder:
        hour = play(live, args.minutes, args.seed, args.interval, Path(folder))
        version = live.version
        end_of_log = log_end(Path(folder) / "log", 40)
    report(hour)
    if hour.faults:
        print(f"the daemon's log ends:\n{end_of_log}", file=sys.stderr)
    print(summed_up(f"Slurm {version}", args.minutes, args.seed, len(hour.faults)))
    return 1 if hour.faults else 0


if __name__ == "__main__":
    sys.exit(main())
