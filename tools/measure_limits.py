"""Measure the ratio of time limits to run times, and the distribution of jobs over users, from a Slurm job table.

    python -m tools.measure_limits graham_gpu_jobs_until_2021-06-14.csv.gz

Reads the jobs that ended in a table of DRAC's. Prints the quantiles of limit over run time of completed jobs by run
time, with equal weight for each account, and the exponent of the Zipf distribution of its busiest accounts.
`advisor/sim/traces/sampling.py` holds the figures printed.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.errors import AdvisorError
from tools.evaluation.drac_tables import read_tables

BANDS_S = (0.0, 60.0, 600.0, 3600.0, 14400.0, 86400.0, np.inf)
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
BUSIEST = 20
# Limits are often multiples of these.
STEPS_S = (900, 3600, 86400)


def main() -> None:
    """Read the table and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure_limits", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="job table as CSV, plain or gzip")
    try:
        ended = read_tables([parser.parse_args().file]).ended
    except AdvisorError as err:
        sys.exit(f"error: {err}")
    completed = np.array([state == "COMPLETED" for state in ended.state])
    limit_s, accounts = ended.jobs.limit_s, np.array(ended.jobs.user)
    print(f"{len(ended)} jobs, {np.count_nonzero(completed)} completed")
    print(
        f"{'run time s':<16}{'jobs':>7}{'accounts':>10}" + "".join(f"{f'q{quantile:g}':>10}" for quantile in QUANTILES)
    )
    for low, high in pairwise(BANDS_S):
        chosen = completed & (ended.run_s >= low) & (ended.run_s < high)
        quantiles = account_quantiles(limit_s[chosen] / ended.run_s[chosen], accounts[chosen], QUANTILES)
        row = "".join(f"{ratio:>10.2f}" for ratio in quantiles)
        print(f"{f'{low:g}-{high:g}':<16}{np.count_nonzero(chosen):>7}{len(set(accounts[chosen])):>10}{row}")
    for step_s in STEPS_S:
        print(f"limits that are multiples of {step_s} s: {np.mean(limit_s % step_s == 0):.2f}")
    print(f"longest limit: {limit_s.max():g} s")
    print(f"Zipf exponent of the {BUSIEST} busiest accounts: {zipf_exponent(accounts, BUSIEST):.2f}")


def account_quantiles(
    ratios: NDArray[np.float64], accounts: NDArray[np.str_], quantiles: Sequence[float]
) -> list[float]:
    """Return quantiles of ratios, in which the jobs of each account together weigh 1."""
    if not len(ratios):
        return [float("nan")] * len(quantiles)
    _, account, jobs = np.unique(accounts, return_inverse=True, return_counts=True)
    order = np.argsort(ratios)
    weights = 1.0 / jobs[account[order]]
    reached = np.cumsum(weights) / weights.sum()
    places = np.minimum(np.searchsorted(reached, quantiles), len(ratios) - 1)
    return [float(ratio) for ratio in ratios[order][places]]


def zipf_exponent(accounts: NDArray[np.str_], busiest: int) -> float:
    """Return the slope of log jobs over log rank among the busiest accounts, as a positive number."""
    jobs = np.sort(np.unique(accounts, return_counts=True)[1])[::-1][:busiest]
    return -float(np.polyfit(np.log(np.arange(1, len(jobs) + 1)), np.log(jobs), 1)[0])


if __name__ == "__main__":
    main()
