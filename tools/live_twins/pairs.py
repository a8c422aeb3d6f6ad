"""Sums up pairs of live clusters that were kept: the mean difference of waits over the pairs, with its 95 % interval.

    python -m tools.live_twins.pairs FOLDER...

Each folder is what `python -m tools.live_twins --keep FOLDER` left. A pair counts as one observation, whatever the
number of its jobs. Late beyond the bound is held against the plain cluster: a job that started later there than its
start on it and the bound together, and by how much at most. Late known is by plain Slurm beside the cluster, as the
daemon saw it; of those, others that were not late must not start before them from a place above. Exits with 1 if one
did, or if the interval is not below 0.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.stats import mean_interval
from tools.live_twins.both_clusters import Pair, Twin, line_of
from tools.live_twins.twin_report import pair_of_row
from tools.stage.lateness import LatenessBound, LateRun, WaitingLine
from tools.stage.watch import leases_of, touched

_ROW: Final = "{:<12}{:>6}{:>9}{:>9}{:>9}{:>12}{:>11}{:>11}{:>11}{:>11}{:>13}{:>12}{:>8}"
_COLUMNS: Final = (
    "pair", "jobs", "changes", "plain", "advised", "difference", "p99 plain", "p99 adv.", "max plain", "max adv.",
    "late beyond", "late known", "passed",
)  # fmt: skip
_LEGEND: Final = """\
waits in seconds; late beyond: jobs later than on the live plain cluster by more than the bound (by how much at most);
late known: jobs that the daemon held to be late; passed: jobs not late that stood above one and started before it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPair:
    """A pair of clusters that was kept; waits `(n_jobs,)` in seconds, of the jobs that started on both."""

    name: str
    version: str
    jobs: int
    changes: int
    plain_s: NDArray[np.float64]
    advised_s: NDArray[np.float64]
    beyond_s: NDArray[np.float64]  # `(n_late,)`, by how much jobs were later than the bound
    late_run: LateRun

    @property
    def difference_s(self) -> float:
        """The mean difference of waits; below 0 the advised jobs waited less."""
        return float((self.advised_s - self.plain_s).mean())

    @property
    def ratio(self) -> float:
        """The mean difference of waits as a share of the mean wait on the plain cluster."""
        return self.difference_s / float(self.plain_s.mean())


def read_kept(folder: Path) -> KeptPair:
    """Read what a run has kept."""
    run: dict[str, Any] = json.loads((folder / "run.json").read_text())
    rows = [json.loads(line) for line in (folder / "jobs.jsonl").read_text().splitlines()]
    pairs = [pair_of_row(row) for row in rows]
    leases = leases_of(folder / "journal.sqlite")
    bound = LatenessBound.of(run["options"]["lateness_s"])
    line = WaitingLine(
        jobs=line_of(pairs),
        leases=leases,
        rounds=run["rounds"],
        known={row["advised_job_id"]: row["known_plain_starts"] for row in rows},
        bound=bound,
    )
    return kept(folder.name, run["version"], pairs, len(touched(leases)), bound, line.late_run(run["until"]))


def kept(
    name: str, version: str, pairs: Sequence[Pair], changes: int, bound: LatenessBound, late_run: LateRun
) -> KeptPair:
    """Return the figures of the jobs of a pair of clusters."""
    starts = [
        (pair.submit_time, pair.stay[Twin.PLAIN].start_time, pair.stay[Twin.ADVISED].start_time)
        for pair in pairs
        if all(stay.start_time is not None for stay in pair.stay.values())
    ]
    submit_time, plain, advised = np.array(starts, dtype=np.float64).reshape(-1, 3).T
    beyond_s = advised - bound.due_times(plain, submit_time)
    return KeptPair(
        name=name,
        version=version,
        jobs=len(pairs),
        changes=changes,
        plain_s=plain - submit_time,
        advised_s=advised - submit_time,
        beyond_s=beyond_s[beyond_s > 0.0],
        late_run=late_run,
    )


def main() -> int:
    """Print the table."""
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tools.live_twins.pairs", description=description)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    found = [read_kept(folder) for folder in parser.parse_args().folders]
    print(_LEGEND)
    print(_ROW.format(*_COLUMNS))
    for pair in found:
        print(_row(pair))
    high_s = _summary("mean difference of waits, s", [pair.difference_s for pair in found])
    _summary("as a share of the plain wait, %", [100.0 * pair.ratio for pair in found])
    print(f"Slurm {', '.join(sorted({pair.version for pair in found}))}, {len(found)} pairs")
    passed = sum(len(pair.late_run.passed) for pair in found)
    return 0 if high_s < 0.0 and not passed else 1


def _summary(name: str, values: Sequence[float]) -> float:
    """Print a mean with its interval, and return the upper bound."""
    mean, low, high = mean_interval(values)
    print(f"{name}: {mean:+.1f} (95 % {low:+.1f} to {high:+.1f})")
    return high


def _row(pair: KeptPair) -> str:
    waits = pair.plain_s, pair.advised_s
    most_s = float(pair.beyond_s.max(initial=0.0))
    return _ROW.format(
        pair.name,
        pair.jobs,
        pair.changes,
        *(f"{wait_s.mean():.1f}" for wait_s in waits),
        f"{pair.difference_s:+.1f}",
        *(f"{np.percentile(wait_s, 99):.0f}" for wait_s in waits),
        *(f"{wait_s.max():.0f}" for wait_s in waits),
        f"{len(pair.beyond_s)} ({most_s:.0f})",
        f"{len(pair.late_run.late)}",
        f"{len(pair.late_run.passed)}",
    )


if __name__ == "__main__":
    sys.exit(main())
