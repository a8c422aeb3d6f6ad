"""Tetris: what fits best and has little work left goes first.

    score = demand . free - w * demand * remaining time,  w = mean(first term) / mean(second term)

Demand and free are vectors of GPUs, CPUs and memory, as shares of the cluster; in the second term the demand is the sum
of its shares, which makes the term the work left. The job with the highest score starts, and so on; running jobs are
left alone.

Source: Grandl et al., SIGCOMM 2014; scores as in the baseline released with DL2 (arXiv 1909.06040), where the best job
gets up to its `gpus_max`. That code adds the second term, which puts long jobs first; we subtract it, as shortest
remaining time first is meant. Our interpretation: the free resources are those of the whole cluster and not of one
node, as a gang can need several; a job that the placement refuses is passed over; an elastic job is judged at the size
asked.
"""

import numpy as np

from advisor.sim.policies.rounds import RoundPolicy, RoundView


def decide(view: RoundView) -> None:
    """Start pending jobs until none fits."""
    rows = view.pending
    if not len(rows) or view.gpus_free == 0:
        return
    jobs = view.jobs
    shapes = jobs["shape"][rows]
    demand = view.shares_per_gpu(rows) * jobs["gpus"][rows][:, None]
    work = demand.sum(axis=1) * view.remaining_s(rows)
    weight = (demand @ view.shares_free()).mean() / max(work.mean(), 1e-12)
    waits = np.ones(len(rows), np.bool_)
    while waits.any():
        score = np.where(waits, demand @ view.shares_free() - weight * work, -np.inf)
        best = int(score.argmax())
        if view.start(int(rows[best]), int(jobs["gpus_max"][rows[best]])):
            waits[best] = False
        else:
            waits &= (shapes != shapes[best]) | (jobs["gpus_min"][rows] < jobs["gpus_min"][rows[best]])


POLICY = RoundPolicy(
    name="tetris", summary="best fit and least work left first, not preemptive (Tetris)", make=lambda: decide
)
