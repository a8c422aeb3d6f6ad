"""A model of slurmctld: the loop of events, the main scheduling pass, and when backfill runs.

`docs/fidelity.md` describes what it omits and how much it differs from a real slurmctld.
"""

import numpy as np

from advisor.sim.backfill import backfill_pass, launch, mark_stale, switch_wait_ends, waits_for_switches
from advisor.sim.compiled import compiled, lent
from advisor.sim.execution import TIME_LIMIT, end, expired, next_instant, next_victim, preempt, set_timer
from advisor.sim.priority import charge, insert, priority_of, recalculate, reprioritise
from advisor.sim.queueing import DONE, FULL, PAUSED
from advisor.sim.slurm_placement import pick_now
from advisor.sim.slurm_state import Slurm
from advisor.sim.state import FUTURE, NONE, PENDING, State


@compiled
def run_slurm(s: State, m: Slurm, until: float) -> int:
    """Run until all jobs have ended (DONE), `until` (PAUSED), or the segments are full (FULL)."""
    s, m = lent(s), lent(m)
    tally, control = s.tally[0], m.control[0]
    while True:
        if len(s.segments) - tally["segments"] < tally["running"] + 2:
            return FULL
        now = _next_event(s, m)
        if now == np.inf:
            return DONE
        if now > until:
            tally["now"] = until
            return PAUSED
        tally["now"] = now
        while tally["timers"] > 0 and s.jobs[s.timers[0]]["timer"] <= now:
            _due(s, m, s.timers[0], now)
        _happen(s, m, now)
        _keep_priorities(s, m, now)
        while tally["arrived"] < len(s.jobs) and s.jobs[tally["arrived"]]["submit_time"] <= now:
            _submit(s, m, tally["arrived"], now)
            tally["arrived"] += 1
        if control["pass_time"] <= now:
            control["pass_time"] = np.inf
            control["last_pass_time"] = now
            main_pass(s, m, now)
        if control["backfill_due_time"] <= now:
            backfill_pass(s, m, now)


@compiled
def ask_for_pass(m: Slurm, now: float) -> None:
    """Request a main pass and backfill, as every change of the queue or the nodes does."""
    control = m.control[0]
    free = control["last_pass_time"] + control["batch_delay_s"]
    due = _on_grid(max(now, free), control["tick_phase_time"], control["tick_s"])
    control["pass_time"] = min(control["pass_time"], due)
    backfill = _on_grid(now, control["backfill_phase_time"], control["bf_interval_s"])
    if backfill <= control["backfill_time"]:
        backfill += control["bf_interval_s"]
    control["backfill_due_time"] = min(control["backfill_due_time"], backfill)


@compiled
def main_pass(s: State, m: Slurm, now: float) -> None:
    """Start jobs in the order of the line until one does not fit."""
    tested = 0
    place = 0
    while place < s.tally[0]["pending"] and tested < m.control[0]["queue_depth"]:
        row = m.line[place]
        tested += 1
        if not pick_now(s, m, row, now) or waits_for_switches(s, m, row, now):
            return
        launch(s, m, place, now)


@compiled
def _on_grid(instant: float, phase: float, step: float) -> float:
    """Return the first point of a grid at or after an instant; the instant itself if the grid has no step."""
    return instant if step <= 0.0 else np.ceil((instant - phase) / step - 1e-9) * step + phase


@compiled
def _next_event(s: State, m: Slurm) -> float:
    tally, control = s.tally[0], m.control[0]
    # A pass over an empty line still keeps the next one away.
    now = min(next_instant(s), control["pass_time"], control["backfill_due_time"])
    if tally["pending"] > 0:
        now = min(now, max(tally["now"], control["calc_time"] + control["calc_period_s"]))
    return now


@compiled
def _keep_priorities(s: State, m: Slurm, now: float) -> None:
    """Recalculate priorities as of the last full period; while no job is pending they are not needed."""
    control = m.control[0]
    periods = np.floor((now - control["calc_time"]) / control["calc_period_s"] + 1e-9)
    if periods >= 1.0:
        recalculate(s, m, control["calc_time"] + periods * control["calc_period_s"])
        if s.tally[0]["pending"] > 0 and reprioritise(s, m, now):
            # Slurm looks again in any case; over the same line and the same nodes it comes to the same end.
            ask_for_pass(m, now)


@compiled
def _submit(s: State, m: Slurm, row: int, now: float) -> None:
    job = s.jobs[row]
    if job["phase"] != FUTURE:
        s.tally[0]["ended"] += 1  # it can never fit
        return
    job["phase"] = PENDING
    job["since_time"] = now
    job["priority"] = priority_of(s, m, row, now)
    insert(s, m, row)
    watch_switches(s, m, row, now)
    ask_for_pass(m, now)


@compiled
def _due(s: State, m: Slurm, row: int, now: float) -> None:
    """Handle a job whose timer is due: it ends, or its wait for switches does."""
    how = expired(s, row)
    if how > 0:
        # What an ending job used since the last period is not charged: 22.05 was seen to leave it out.
        mark_stale(s, m, row)
        end(s, row, now, how)
        ask_for_pass(m, now)
        if how == TIME_LIMIT:
            m.control[0]["pass_time"] = now
        return
    s.jobs[row]["watch_time"] = np.inf
    set_timer(s, row)
    # Nothing wakes slurmctld when a wait ends: the next full pass or the next backfill sees it.
    ask_for_pass(m, now)
    control = m.control[0]
    control["pass_time"] = _on_grid(now, control["tick_phase_time"], control["sched_interval_s"])


@compiled
def watch_switches(s: State, m: Slurm, row: int, now: float) -> None:
    """Set the timer of a job to the end of its wait for few switches."""
    job = s.jobs[row]
    ends = switch_wait_ends(s, m, row)
    job["watch_time"] = ends if job["switches"] > 0 and ends > now else np.inf
    set_timer(s, row)


@compiled
def _happen(s: State, m: Slurm, now: float) -> None:
    """Apply failures and repairs of nodes; the jobs of a failed node are requeued and keep their age."""
    before = s.tally[0]["faults"]
    victim = next_victim(s, now)
    while victim != NONE:
        charge(s, m, victim, now)
        mark_stale(s, m, victim)
        preempt(s, victim, now)
        s.tally[0]["pending"] -= 1  # counted again as it is put into the line
        s.jobs[victim]["priority"] = priority_of(s, m, victim, now)
        insert(s, m, victim)
        victim = next_victim(s, now)
    if s.tally[0]["faults"] > before:
        ask_for_pass(m, now)
