"""Runs two identical live clusters on the same jobs, one of them with the daemon, and checks the promises on delay.

    python -m tools.live_twins --release 22.05 --minutes 10 --seed 1 [--adversary]

Both clusters get the same jobs of several users in the same second; a job's run time is the same on both. `sadvise
serve` runs in mode apply on one of them, with a bound on added delay of minutes. With `--adversary` a job that
outlasts the run, of a quarter of all GPUs or of one, is submitted to both right after each change that can delay a job.

At the end: the jobs of the advised cluster did not start later on average, beyond chance; no job that can be delayed
started later than its bound after the start that was planned for it as submitted; no change was still out two rounds
after its job had started or its time was over; lifts and delay timers occurred; every job ended well. A job that still
waits counts with the time so far. Prints tables, and exits with 1 if a check fails. `--policy none` runs no daemon: the
differences are then the noise of the method, which `--tolerance` allows for. `--policy lift` runs, in place of the
daemon, a script that lifts short work by its time limits; the checks are the daemon's, and left out. With `--keep` the
folder gets pair.jsonl.xz: what the advised cluster showed every few seconds, and the jobs of both.

With `--jobs` a number of jobs arrives, and the run ends once all have ended. With `--lateness` the daemon's bound on
lateness is one of minutes, and plain Slurm is run beside the cluster every minute: no job that is not late starts
before one that the daemon holds to be late, except by backfill. `python -m tools.live_twins.pairs` sums up pairs.
"""

import argparse
import sys
from pathlib import Path
from typing import get_args

from advisor.settings import Fairness
from tools.live_twins.both_clusters import Twin, Twins
from tools.live_twins.checks import faults
from tools.live_twins.twin_actors import AttackPlace, KeptSnapshots
from tools.live_twins.twin_jobs import GPUS
from tools.live_twins.twin_report import keep_jobs, keep_run, report
from tools.live_twins.twin_run import TwinOptions, play
from tools.stage.end import log_end
from tools.stage.program import add_play, add_release, kept_folder, print_faults, summed_up


def main() -> int:
    """Run the twins and print the tables."""
    args = _parser().parse_args()
    options = TwinOptions(
        policy=args.policy,
        minutes=args.minutes,
        seed=args.seed,
        adversary=args.adversary,
        attack_gpus=tuple(args.attack_gpus),
        interval_s=args.interval,
        bound_s=args.bound,
        tolerance_s=args.tolerance,
        fairness=args.fairness,
        jobs=args.jobs,
        run_scale=args.run_scale,
        lateness_s=args.lateness,
    )
    print(options)
    with kept_folder(args.keep) as folder, Twins(args.release) as twins:
        past = None if args.keep is None or args.without_snapshots else KeptSnapshots(twins, args.keep)
        outcome = play(twins, options, Path(folder), past)
        version = twins.clusters[Twin.ADVISED].version
        if args.keep is not None:
            keep_jobs(twins.pairs, outcome.known, args.keep / "jobs.jsonl")
            keep_run(options, outcome, version, args.keep / "run.json")
        if past is not None:
            past.pack(args.keep / "jobs.jsonl", args.keep / "pair.jsonl.xz")
        end_of_log = log_end(Path(folder) / "log", 20)
    found = [*outcome.faults, *(faults(outcome.facts) if args.policy == "default" else ())]
    if args.adversary and not outcome.attacks:
        found.append("no change was attacked")
    report(outcome)
    print_faults(found)
    if outcome.faults:
        print("the daemon's log ends:\n" + end_of_log, file=sys.stderr)
    print(summed_up(f"Slurm {version}", args.minutes, args.seed, len(found)))
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tools.live_twins", description=description)
    add_release(parser)
    add_play(parser, minutes=10.0, interval_s=3.0)
    parser.add_argument(
        "--policy",
        choices=("default", "lift", "none"),
        default="default",
        help="lift: a script that lifts short work; none: nothing",
    )
    parser.add_argument(
        "--adversary",
        nargs="?",
        type=AttackPlace,
        const=AttackPlace.BETWEEN,
        help="submit a long job right after each change: right behind the changed job as submitted, or with `last`"
        " behind all jobs",
    )
    parser.add_argument(
        "--attack-gpus",
        type=int,
        nargs="+",
        default=[GPUS // 4, 1],
        help="GPUs that attacks ask for in turn, default: a quarter of all, and one",
    )
    parser.add_argument("--bound", type=float, default=180.0, help="guard.max_added_delay_s, default: %(default)s")
    parser.add_argument(
        "--fairness", choices=get_args(Fairness), default="trade", help="guard.fairness, default: %(default)s"
    )
    parser.add_argument(
        "--tolerance", type=float, default=30.0, help="seconds of noise against plain, default: %(default)s"
    )
    parser.add_argument("--jobs", type=int, help="number of jobs; the run ends once all of them have ended")
    parser.add_argument(
        "--run-scale", type=float, default=1.0, help="with --jobs: run times by this factor, default: %(default)s"
    )
    parser.add_argument(
        "--lateness",
        type=float,
        help="guard.max_lateness_s, with plain Slurm run beside the cluster every minute; default: that of the daemon",
    )
    parser.add_argument("--keep", type=Path, help="new folder for run.json, journal, log, jobs and pair.jsonl.xz")
    parser.add_argument("--without-snapshots", action="store_true", help="keep no pair.jsonl.xz")
    return parser


if __name__ == "__main__":
    sys.exit(main())
