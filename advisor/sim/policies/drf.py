"""DRF: dominant resource fairness among jobs, as in the baseline that DL2's authors released.

The dominant share of a job is max over GPUs, CPUs and memory of what it holds over what the cluster has. All jobs
start from nothing, and the one with the lowest share is served next: first with its `gpus_min`, then GPU by GPU up to
its `gpus_max`; ties go to the first submitted. A rigid job is so served as a whole gang.

Source: Ghodsi et al., NSDI 2011, there among users; among jobs as in the code released with DL2 (arXiv 1909.06040).
Our interpretation: what does not fit is skipped, where the released code stops at the first failure; every 20 minutes
(DL2's slot) all GPUs are dealt out again, which can preempt or resize running jobs, and in the rounds between, jobs
start on what is free; a job that keeps its size keeps its place.
"""

import numpy as np

from advisor.sim.policies.rounds import RoundPolicy, RoundView, deal

SLOT_S = 1200.0


def decide(view: RoundView) -> None:
    """Deal out all GPUs at the end of a slot, and the free ones at any other time."""
    is_slot_end = view.ends_slice(SLOT_S)
    rows = view.active if is_slot_end else view.pending
    if not len(rows):
        return
    gpus = view.gpus if is_slot_end else view.gpus_free
    jobs = view.jobs
    minimum = jobs["gpus_min"][rows]
    share = view.shares_per_gpu(rows).max(axis=1).tolist()
    sizes = deal(minimum, jobs["gpus_max"][rows], gpus, lambda place, size: -size * share[place])
    # Placement can leave more room than the count says, or less: all are tried, in the order of submission.
    unserved = np.maximum(jobs["held"][rows], minimum)
    view.serve(rows, np.where(sizes > 0, sizes, unserved), may_preempt=is_slot_end)


POLICY = RoundPolicy(
    name="drf", summary="dominant resource fairness: the lowest dominant share first", make=lambda: decide
)
