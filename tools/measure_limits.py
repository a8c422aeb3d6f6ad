"""How much more time users ask for than their jobs take, and how jobs spread over users, from a Slurm job table.

    python -m tools.measure_limits graham_gpu_jobs_until_2021-06-14.csv.gz

Reads the columns state, elapsed_s, time_limit_s and account_id. Prints the quantiles of limit over run time of
completed jobs by run time, every account counting once however many jobs it has, and the exponent of the Zipf
distribution that its busiest accounts follow. `advisor/sim/sampling.py` holds what this printed.
"""

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.errors import AdvisorError, TraceError
from advisor.sim.text_file import opened_text

BANDS_S = (0.0, 60.0, 600.0, 3600.0, 14400.0, 86400.0, np.inf)
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
BUSIEST = 20
# Among the steps that a limit may be a multiple of.
STEPS_S = (900, 3600, 86400)

COLUMNS = ("state", "elapsed_s", "time_limit_s", "account_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """A table of jobs, each field `(n_jobs,)`."""

    completed: NDArray[np.bool_]
    run_time_s: NDArray[np.float64]
    limit_s: NDArray[np.float64]
    account: NDArray[np.str_]


def main() -> None:
    """Read the table, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure_limits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="job table as CSV, plain or gzip")
    try:
        jobs = read_jobs(parser.parse_args().file)
    except AdvisorError as err:
        sys.exit(f"error: {err}")
    print(f"{len(jobs.account)} jobs, {np.count_nonzero(jobs.completed)} completed")
    print(
        f"{'run time s':<16}{'jobs':>7}{'accounts':>10}" + "".join(f"{f'q{quantile:g}':>10}" for quantile in QUANTILES)
    )
    for low, high in pairwise(BANDS_S):
        chosen = jobs.completed & (jobs.run_time_s >= low) & (jobs.run_time_s < high)
        ratios, accounts = jobs.limit_s[chosen] / jobs.run_time_s[chosen], jobs.account[chosen]
        row = "".join(f"{ratio:>10.2f}" for ratio in account_quantiles(ratios, accounts, QUANTILES))
        print(f"{f'{low:g}-{high:g}':<16}{len(ratios):>7}{len(set(accounts)):>10}{row}")
    for step_s in STEPS_S:
        print(f"limits that are multiples of {step_s} s: {np.mean(jobs.limit_s % step_s == 0):.2f}")
    print(f"longest limit: {jobs.limit_s.max():g} s")
    print(f"Zipf exponent of the {BUSIEST} busiest accounts: {zipf_exponent(jobs.account, BUSIEST):.2f}")


def read_jobs(path: Path) -> Jobs:
    """Read a job table; raises `TraceError` where a column is missing."""
    with opened_text(path) as stream:
        rows = list(csv.DictReader(stream))
    missing = [column for column in COLUMNS if not rows or column not in rows[0]]
    if missing:
        raise TraceError(f"{path}: column {missing[0]} is missing: give a table with {', '.join(COLUMNS)}")
    return Jobs(
        completed=np.array([row["state"] == "COMPLETED" for row in rows]),
        run_time_s=np.array([float(row["elapsed_s"]) for row in rows]),
        limit_s=np.array([float(row["time_limit_s"]) for row in rows]),
        account=np.array([row["account_id"] for row in rows]),
    )


def account_quantiles(
    ratios: NDArray[np.float64], accounts: NDArray[np.str_], quantiles: Sequence[float]
) -> list[float]:
    """Return quantiles of ratios in which the jobs of every account weigh 1 together."""
    if not len(ratios):
        return [float("nan")] * len(quantiles)
    jobs_of = Counter(accounts.tolist())
    order = np.argsort(ratios)
    weights = np.array([1.0 / jobs_of[account] for account in accounts[order].tolist()])
    reached = np.cumsum(weights) / weights.sum()
    places = np.minimum(np.searchsorted(reached, quantiles), len(ratios) - 1)
    return [float(ratio) for ratio in ratios[order][places]]


def zipf_exponent(accounts: NDArray[np.str_], busiest: int) -> float:
    """Return the slope of log jobs over log rank among the busiest accounts, as a positive number."""
    jobs = np.array([count for _, count in Counter(accounts.tolist()).most_common(busiest)], dtype=np.float64)
    return -float(np.polyfit(np.log(np.arange(1, len(jobs) + 1)), np.log(jobs), 1)[0])


if __name__ == "__main__":
    main()
