"""Gandiva: jobs take turns on an overloaded cluster, and try out whether two of them run well on the same GPUs.

While the jobs ask for more GPUs than there are:
- at the end of a time slice those that wait longest go first, and push aside those that run longest;
- a job that still waits is put, by chance, on the GPUs of a running one that asks for as much. The pair is parted a
  round later if the sum of both speeds, each over the job's speed alone, is below 1.

At the end of a slice a gang that its place slows moves to its closest place if that has come free.

Source: Xiao et al., OSDI 2018; random pairs and the threshold as in the port of Gandiva in the code of Gavel (Narayanan
et al., OSDI 2020). Our interpretation: a slice is 20 minutes and ends for all jobs together, as a restart costs more
than Gandiva's suspend and resume and a gang needs its nodes at one moment; the speed alone of a job that never had
these GPUs for itself is taken to be that of its partner, over the best placement's; two models that ran badly together
are not paired again at that size; pairs are parted when the overload ends; under ideal execution, which knows no
slowdown on shared GPUs, none are made. A gang moves only to the fewest nodes under one leaf, and not while it shares.
Jobs are not grown into idle GPUs.
"""

from dataclasses import field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.sim.policies.engine_calls import pick, tier_held, tier_of_pick
from advisor.sim.policies.rounds import RoundPolicy, RoundView
from advisor.sim.state import NONE, PENDING

SLICE_S = 1200.0
LEAST_SUM = 1.0
# Up to rounding, a gang on its closest place, alone on its links, runs at 1.
SLOWED_BELOW = 1.0 - 1e-9

Rows = NDArray[np.intp]


class Match(NamedTuple):
    """Two models on the same GPUs."""

    gpus: int
    first: int
    second: int


@dataclass(slots=True)
class Gandiva:
    """The policy, with what it learned of pairs."""

    # What runs badly together.
    _bad: set[Match] = field(default_factory=set)
    # The guests of the last round that have to go.
    _failed: Rows = field(default_factory=lambda: np.zeros(0, np.intp))

    def __call__(self, view: RoundView) -> None:
        """Judge the pairs, change turns at the end of a slice, start the jobs that fit, and pair the rest."""
        is_overloaded = int(view.jobs["gpus"][view.active].sum()) > view.gpus
        self._part(view, is_overloaded)
        if view.ends_slice(SLICE_S):
            _move_closer(view)
        pending = _longest_first(view, view.pending)
        if not len(pending):
            return
        order, turns = pending, is_overloaded and view.ends_slice(SLICE_S)
        if turns:
            order = np.concatenate((pending, _longest_first(view, view.running)[::-1]))
        gpus = view.jobs["gpus"][order]
        view.serve(order, gpus, gpus, may_preempt=turns)
        if is_overloaded and not view.is_ideal:
            self._pair(view, pending)

    def _part(self, view: RoundView, is_overloaded: bool) -> None:
        """Separate the pairs whose trial failed, and all pairs if the cluster is not overloaded."""
        guests = view.running[view.jobs["is_guest"][view.running] == 1]
        view.stop(guests[np.isin(guests, self._failed) | (not is_overloaded)])
        self._failed = np.zeros(0, np.intp)

    def _pair(self, view: RoundView, pending: Rows) -> None:
        """Draw a host with the same request for every pending job, as long as there are any."""
        jobs = view.jobs
        hosts: dict[int, list[int]] = {}
        for row in view.running[jobs["partner"][view.running] == NONE].tolist():
            hosts.setdefault(int(jobs["shape"][row]), []).append(row)
        waiting = pending[(jobs["phase"][pending] == PENDING) & np.isin(jobs["shape"][pending], list(hosts))]
        pairs: dict[int, int] = {}
        for row, chance in zip(waiting.tolist(), view.problem.rng.random(len(waiting)).tolist(), strict=True):
            candidates = hosts[int(jobs["shape"][row])]
            if not candidates:
                continue
            drawn = int(chance * len(candidates))
            # If they are known not to match, the next round draws again.
            if _match(jobs, row, candidates[drawn]) not in self._bad:
                pairs[row] = candidates.pop(drawn)
        guests, partners = np.array(list(pairs), np.intp), np.array(list(pairs.values()), np.intp)
        alone = jobs["rate"][partners]
        view.share(guests, partners)
        is_bad = jobs["rate"][guests] + jobs["rate"][partners] < LEAST_SUM * alone
        self._failed = guests[is_bad]
        self._bad |= {_match(jobs, *pair) for pair in zip(self._failed, partners[is_bad], strict=True)}


def _move_closer(view: RoundView) -> None:
    """Move the gangs that their places slow, one after the other, each to its closest place where one is free."""
    jobs, running = view.jobs, view.running
    slowed = running[(jobs["rate"][running] < SLOWED_BELOW) & (jobs["partner"][running] == NONE)]
    for row in slowed.tolist():
        gpus = int(jobs["gpus"][row])
        if pick(view.state, row, gpus) and tier_of_pick(view.state, row) < tier_held(view.state, row):
            view.stop(np.array([row]))
            view.start(row, gpus)


def _longest_first(view: RoundView, rows: Rows) -> Rows:
    """Sort jobs by how long they have been waiting, or running, without a break."""
    return rows[np.argsort(view.jobs["since_time"][rows], kind="stable")]


def _match(jobs: NDArray[np.void], row: int, other: int) -> Match:
    first, second = sorted((int(jobs["profile"][row]), int(jobs["profile"][other])))
    return Match(gpus=int(jobs["gpus"][row]), first=first, second=second)


POLICY = RoundPolicy(
    name="gandiva", summary="time slices of 20 min and trial sharing of GPUs on overload (Gandiva)", make=Gandiva
)
