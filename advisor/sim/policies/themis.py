"""Themis: finish-time fairness by auctions of GPU leases.

    rho = T_shared / T_ideal
    T_shared = time since submission + believed time left at the present size, or at the size asked while it waits
    T_ideal = believed run time * max(1, GPUs asked * active jobs / GPUs of the cluster)

T_ideal is the run time on an equal share of the cluster for every active job, and no shorter than alone at the size
asked. When the leases end, the fifth of the jobs with the highest rho bids for all GPUs: what a job bids for its
`gpus_min` is how much lower its rho is with them than without them for the length of a lease, per GPU; the highest bid
wins, then GPU after GPU goes to the winner whose rho one more lowers most. What they leave goes to the other jobs, the
highest rho first, in the same way.

Source: Mahajan et al., NSDI 2020, with its fairness knob f = 0.8, which offers to 1 - f of the jobs, and its leases of
20 minutes. Our interpretation: the published auction maximises the product of the values and takes hidden payments,
ours takes bids greedily and all bids are truthful; leases end for all jobs together, as a gang needs its nodes at one
moment, and until then jobs start, without preemption, on what is free; leftovers go by rho, not by chance; active jobs
are counted now, not over the life of a job.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from advisor.sim.policies.rounds import RoundPolicy, RoundView, deal

LEASE_S = 1200.0
OFFERED = 0.2

Rows = NDArray[np.intp]
Floats = NDArray[np.float64]


def decide(view: RoundView) -> None:
    """Auction all GPUs at the end of the leases, and the free ones at any other time."""
    is_lease_end = view.ends_slice(LEASE_S)
    rows = view.active if is_lease_end else view.pending
    if not len(rows):
        return
    ideal_s = ideal_time_s(view, rows)
    order = np.argsort(-shared_time_s(view, rows) / ideal_s, kind="stable")
    rows, ideal_s = rows[order], ideal_s[order]
    offered = int(np.ceil(OFFERED * len(rows)))
    # For a lease without GPUs a job is done a lease later.
    bids = LEASE_S / ideal_s / view.jobs["gpus_min"][rows]
    best = np.r_[np.argsort(-bids[:offered], kind="stable"), offered : len(rows)]
    rows, ideal_s = rows[best], ideal_s[best]
    sizes = _sizes(view, rows, ideal_s, offered, view.gpus if is_lease_end else view.gpus_free)
    view.serve(rows, sizes, may_preempt=is_lease_end)


def shared_time_s(view: RoundView, rows: Rows) -> Floats:
    """Return the believed completion time at the present sizes, `(n_rows,)`."""
    jobs = view.jobs
    size = np.where(jobs["held"][rows] > 0, jobs["held"][rows], jobs["gpus"][rows])
    return view.now - jobs["submit_time"][rows] + view.remaining_s(rows) / view.speedup(rows, size)


def ideal_time_s(view: RoundView, rows: Rows) -> Floats:
    """Return the believed run time on an equal share of the cluster, `(n_rows,)`."""
    jobs = view.jobs
    crowding = jobs["gpus"][rows] * len(view.active) / view.gpus
    ideal: Floats = jobs["believed_s"][rows] * np.maximum(1.0, crowding)
    return ideal


def _sizes(view: RoundView, rows: Rows, ideal_s: Floats, offered: int, gpus: int) -> NDArray[np.int64]:
    """Deal GPUs to the jobs that bid, then to the others, `(n_rows,)`.

    Placement can leave more room than the count says: a job that gets none can keep what it has, or take its minimum.
    """
    jobs = view.jobs
    minimum, maximum = jobs["gpus_min"][rows], jobs["gpus_max"][rows]
    if (minimum == maximum).all():
        return minimum.astype(np.int64)
    sizes = np.zeros(len(rows), np.int64)
    for part in (slice(0, offered), slice(offered, len(rows))):
        gain = _gain(view, rows[part], ideal_s[part])
        sizes[part] = deal(minimum[part], maximum[part], gpus - int(sizes.sum()), gain)
    return np.where(sizes > 0, sizes, np.maximum(jobs["held"][rows], minimum))


def _gain(view: RoundView, rows: Rows, ideal_s: Floats) -> Callable[[int, int], float]:
    """Return how much lower rho gets by one GPU more than a size, for the job in a place of `rows`, as a function."""
    least = view.jobs["gpus_min"][rows]
    counts = view.jobs["gpus_max"][rows] - least + 1
    first = np.r_[0, counts.cumsum()[:-1]]
    sizes = np.arange(counts.sum()) - np.repeat(first - least, counts)
    every = np.repeat(rows, counts)
    rho = np.repeat(view.remaining_s(rows) / ideal_s, counts) / view.speedup(every, sizes)
    start = (first - least).tolist()

    def gain(place: int, size: int) -> float:
        lower = float(rho[start[place] + size] - rho[start[place] + size + 1])
        return lower if lower > 0.0 else -np.inf

    return gain


POLICY = RoundPolicy(
    name="themis", summary="finish-time fairness: auctions of 20 min leases among the worst off", make=lambda: decide
)
