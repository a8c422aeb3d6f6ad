"""Dally with preemption: gangs that wait, or sit badly, preempt jobs that had more.

Every 5 minutes, lowest key first: a gang that waits gains the time until its victims would have ended by themselves;
one that sits badly gains what it runs shorter on the best place, if need be without any victim, and pays its own
restart. Run times are those of `--speeds`. Jobs are offered what is free in the order of their keys, too.

Published are the aim of preemption and its name (Dally, arXiv 2401.16492); key, victims, quantum and the rule of twice
the cost are our interpretation. A victim waits for as long as the gang runs that took its place, which counts as a
cost, too.
"""

from dataclasses import field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.units import HOUR_S
from advisor.sim.engine.tables import GangPatience, Integers, Reals
from advisor.sim.policies.dally import Dally, Rows, dally_policy
from advisor.sim.policies.engine_calls import make_room_close, pick, sensitivities, tier_held, tier_of_pick
from advisor.sim.policies.rounds import RoundView
from advisor.sim.state import RUNNING

Floats = NDArray[np.float64]

# How much the network counts in the key; the rest is the GPU-time had so far.
NETWORK_SHARE: Final = 0.5
# A victim's key is higher by this much at least.
KEY_MARGIN: Final = 0.1
# A job is stopped only after it has run for QUANTUM_S, and not again within APART_S.
QUANTUM_S: Final = 1200.0
APART_S: Final = HOUR_S
# What is gained is more than this many times what it costs.
GAIN_OVER_COST: Final = 2.0


def keys(done_s: Floats, held_s: Floats, attained_gpu_s: Floats) -> Floats:
    """Return the priority keys of jobs, lowest first to be served, `(n_jobs,)`.

    `done_s` is the run time on the best placement of what a job has done, `held_s` how long that took it: their
    ratio, 1 for a job that never ran, is small for a job that its places hurt.
    """
    ratio = np.divide(done_s, held_s, out=np.ones(len(done_s)), where=held_s > 0.0)
    most = attained_gpu_s.max(initial=0.0)
    attained = attained_gpu_s / most if most > 0.0 else np.zeros(len(done_s))
    key: Floats = np.clip(ratio, 0.0, 1.0) ** NETWORK_SHARE * attained ** (1.0 - NETWORK_SHARE)
    return key


def give_way(key: Floats, sensitivity: Floats, *, gang_key: float, gang_sensitivity: float) -> NDArray[np.bool_]:
    """Mark the running jobs that can stop for a gang, `(n_jobs,)`: by key, and no more sensitive than the gang."""
    can_go: NDArray[np.bool_] = (key > gang_key + KEY_MARGIN) & (sensitivity <= gang_sensitivity)
    return can_go


def stopping_cost_s(victims: int, run_s: float, restart_s: float) -> float:
    """Return the loss of the victims of a gang that runs for `run_s` in their place: a wait as long, and a restart.

    Stopping a job loses no work, as its state is saved first.
    """
    return victims * (run_s + restart_s)


def pays(gain_s: float, cost_s: float) -> bool:
    """Return whether a gain is worth the cost."""
    return gain_s > GAIN_OVER_COST * cost_s


ROUND_S: Final = 300.0
# Gangs looked at in a round.
DEPTH: Final = 32
# A job with this key is never preempted.
_SPARED: Final = -1.0


@dataclass(slots=True)
class DallyPreempt(Dally):
    """The policy, with its last round and when it stopped which job."""

    _round_time: float = -np.inf
    _stopped_time: Floats = field(default_factory=lambda: np.zeros(0))

    def make_room(self, view: RoundView, patience: GangPatience) -> None:
        """Preempt jobs, once in a round."""
        if not len(self._stopped_time):
            self._stopped_time = np.full(len(view.jobs), -np.inf)
        if view.now - self._round_time < ROUND_S:
            return
        self._round_time = view.now
        key, sensitive = self._keys(view), np.ones(len(view.jobs))
        inflations = np.empty(len(view.active))
        sensitivities(view.state, Integers(view.active.astype(np.int32)), Reals(inflations))
        sensitive[view.active] = inflations
        order = view.active[np.argsort(key[view.active], kind="stable")]
        could_gain = [row for row in order.tolist() if _could_gain(view, patience, row)]
        for row in could_gain[:DEPTH]:
            self._try(view, patience, row, key, sensitive)

    def in_order(self, view: RoundView, pending: Rows) -> Rows:
        """Return the pending jobs by their keys, lowest first."""
        return pending[np.argsort(self._keys(view)[pending], kind="stable")]

    def _keys(self, view: RoundView) -> Floats:
        """Return the keys of the active jobs, `(n_jobs,)`."""
        jobs = view.jobs[view.active]
        key_by_row = np.zeros(len(view.jobs))
        held_s = jobs["attained_gpu_s"] / jobs["gpus"]
        key_by_row[view.active] = keys(jobs["work_s"] - jobs["left_s"], held_s, jobs["attained_gpu_s"])
        return key_by_row

    def _try(self, view: RoundView, patience: GangPatience, row: int, key: Floats, sensitive: Floats) -> None:
        """Make room for a gang and start it there, if that pays."""
        jobs, gpus = view.jobs, int(view.jobs["gpus"][row])
        moves = bool(jobs["phase"][row] == RUNNING)
        if moves and view.now - max(self._stopped_time[row], jobs["since_time"][row]) < APART_S:
            return
        best_tier = patience.best_tier[jobs["shape"][row]]
        is_free = pick(view.state, row, gpus) and tier_of_pick(view.state, row) <= best_tier
        victims = np.zeros(0, np.intp) if is_free else self._victims(view, row, key, sensitive)
        # A gang that waits is offered a place that is free anyway.
        if not len(victims) and not (is_free and moves):
            return
        left_s = float(view.remaining_s(np.array([row]))[0])
        if moves:
            gain_s = left_s / jobs["rate"][row] - left_s - view.restart_s
        else:
            gain_s = float((view.remaining_s(victims) / jobs["rate"][victims]).max())
        if pays(gain_s, stopping_cost_s(len(victims), left_s, view.restart_s)):
            stopped = np.append(victims, row) if moves else victims
            self._stopped_time[stopped] = view.now
            view.stop(stopped)
            view.start(row, gpus)
            patience.reached[row] = best_tier
            self.learn(view, patience, row)

    def _victims(self, view: RoundView, row: int, key: Floats, sensitive: Floats) -> Rows:
        """Return the jobs to stop so that a gang gets its best place, never itself; none where that cannot be."""
        jobs, running = view.jobs, view.running
        can_go = give_way(key[running], sensitive[running], gang_key=key[row], gang_sensitivity=sensitive[row])
        can_go &= view.now - jobs["since_time"][running] >= QUANTUM_S
        can_go &= view.now - self._stopped_time[running] >= APART_S
        jobs["key"][running] = np.where(can_go, key[running], _SPARED)
        count = make_room_close(view.state, view.victims, row, key[row])
        return view.victims.rows[:count].astype(np.intp)


def _could_gain(view: RoundView, patience: GangPatience, row: int) -> bool:
    """Return whether a gang waits, or is slowed by its nodes and could have closer ones."""
    job = view.jobs[row]
    is_slowed = bool(job["rate"] < 1.0 - 1e-9)
    return job["phase"] != RUNNING or (is_slowed and tier_held(view.state, row) > patience.best_tier[job["shape"]])


POLICY = dally_policy(
    "dally+preempt", "dally, and preemption for gangs that the network hurts, every 5 min", DallyPreempt
)
