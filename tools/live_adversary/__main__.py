"""Plays a random adversary, an honest twin with the same final work, and honest users on live clusters with the daemon.

    python -m tools.live_adversary --minutes 60 --release 22.05 --release 26.05 --seed 1 [--json]

The releases run beside each other. `sadvise serve` runs in mode apply. The adversary submits jobs and acts on them at
random, as users can: size, limit and nodes that grow, best once the job is lifted, or shrink, holds, requeues, single
jobs for an array, array parts, hints, -x, -w, --exclusive, -c, --mem, dependencies, nice. Its twin submits in the same
second, openly, what that job is in the end; other users keep a queue. A fifth of the pairs is honest on both sides.

Advantage is how much sooner the adversary's work begins, the time between runs of a requeued job counted against it.
Pairs of which one side started before the adversary was done, or before the round after its job grew, are listed
apart: what starts within that window is what SECURITY.md allows. Exits with 1 if the adversary starts sooner than its
twin beyond noise, over all tricks, those that grow, or by one; if something of ours is left after `sadvise revert
--all`, run at random moments with the daemon stopped or killed; or if another user's job waits beyond the bound on
lateness.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.live_adversary.adversary_play import LATENESS_S, AdversaryPlay, AdversaryRun, adversary_cluster
from tools.live_adversary.verdict import PairKind, TrickRow, gains, rows_of
from tools.stage.program import add_play, kept_folder, print_faults, summed_up
from tools.stage.roots import RELEASES


def main() -> int:
    """Play on each release, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.live_adversary", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--release", choices=list(RELEASES), action="append", help="again for more; default: 22.05")
    add_play(parser, minutes=60.0, interval_s=5.0)
    parser.add_argument("--keep", type=Path, help="new folder for journals and logs of the daemon")
    parser.add_argument("--json", action="store_true", help="print one document in place of the tables")
    args = parser.parse_args()
    releases: list[str] = args.release or ["22.05"]
    with ThreadPoolExecutor(len(releases)) as pool:
        runs = list(
            pool.map(lambda release: played(release, args.minutes, args.interval, args.seed, args.keep), releases)
        )
    rows = rows_of([outcome for run in runs for outcome in run.outcomes])
    faults = [*(f"{run.release}: {fault}" for run in runs for fault in run.faults), *gains(rows)]
    if args.json:
        print(json.dumps(document(runs, rows, faults), indent=1))
    else:
        report(runs, rows)
        print_faults(faults)
        print(summed_up(f"Slurm {', '.join(run.version for run in runs)}", args.minutes, args.seed, len(faults)))
    return 1 if faults else 0


def played(release: str, minutes: float, interval_s: float, seed: int, keep: Path | None) -> AdversaryRun:
    """Play on one release."""
    with kept_folder(keep and keep / release) as folder, adversary_cluster(release) as live:
        return AdversaryPlay(live, seed, interval_s, Path(folder)).run(minutes)


def report(runs: Sequence[AdversaryRun], rows: Sequence[TrickRow]) -> None:
    """Print the advantage by trick, then what else each run shows."""
    print("seconds by which the adversary's work begins before its twin's, with the 95 % interval of the mean")
    print(f"{'trick':<34}{'pairs':>7}{'mean':>9}{'low':>9}{'high':>9}")
    for row in rows:
        print(f"{row.name:<34}{row.pairs:>7}{row.mean_s:>9.1f}{row.low_s:>9.1f}{row.high_s:>9.1f}")
    print()
    columns = [_facts(run) for run in runs]
    print(f"{'':<58}" + "".join(f"{run.version or run.release:>12}" for run in runs))
    for name in columns[0]:
        print(f"{name:<58}" + "".join(f"{column[name]:>12}" for column in columns))
    for text, count in sum((run.refused for run in runs), Counter[str]()).most_common(8):
        print(f"refused by Slurm {count} times: {text}")


def _facts(run: AdversaryRun) -> dict[str, object]:
    kinds = Counter(outcome.kind for outcome in run.outcomes)
    window = [outcome for outcome in run.outcomes if outcome.kind is PairKind.WINDOW]
    return {
        "pairs": len(run.outcomes),
        **{f"  {kind}": kinds[kind] for kind in PairKind},
        "GPU-hours by limit of those within the window": round(sum(outcome.gpu_hours for outcome in window), 1),
        "commands of the adversary": run.commands,
        "honest jobs": run.honest_jobs,
        **{f"lifts, {name}": run.lifted[name] for name in ("adversary", "twin", "honest")},
        "lifts lost for more, or for a requeue": run.lost.total(),
        "  of the adversary": run.lost["adversary"],
        "times that all was taken back": run.reverts,
        "  in more than one attempt": run.reverts_again,
        "  changes taken back so": run.reverted,
        "  jobs left alone since": run.left_alone,
        "jobs of others whose start without advice is known": run.judged_jobs,
        f"  later than {LATENESS_S:g} s, or twice its wait, after it": run.later,
        "longest time without a round, s": round(run.longest_pause_s),
        "  latest after that bound, s": round(run.latest_s),
        "held to be late by the daemon": run.late,
        "  passed by a job that was not": run.passed,
    }


def document(runs: Sequence[AdversaryRun], rows: Sequence[TrickRow], faults: Sequence[str]) -> dict[str, Any]:
    """Return all of it for `--json`."""
    return {
        "rows": [asdict(row) for row in rows],
        "runs": [{"release": run.release, "version": run.version, **_facts(run)} for run in runs],
        "pairs": [{"release": run.release, **asdict(outcome)} for run in runs for outcome in run.outcomes],
        "faults": list(faults),
    }


if __name__ == "__main__":
    sys.exit(main())
