"""Plays a window of a trace on several live clusters at once: the same jobs are submitted in the same second."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from advisor.sim.traces.trace import Trace
from tools.live.arm import Arm

POLL_S: Final = 0.05
Tell = Callable[[float], None]


def play(arms: Sequence[Arm], trace: Trace, *, within_s: float, tell: Tell | None) -> float:
    """Submit the jobs as they are due and run until all have ended everywhere; return how long that took.

    A burst takes the machine a while, so the trace gets the instants at which jobs really were submitted.

    `tell` receives the number of jobs that have ended, over all clusters. Jobs that have not ended within `within_s`
    are named as faults of their arms.
    """
    zero_time = time.time()
    for arm in arms:
        arm.zero_time = zero_time
    due = list(range(len(trace)))[::-1]
    with ThreadPoolExecutor(len(arms)) as pool:
        while (now := time.time() - zero_time) < within_s and any(arm.ended < len(trace) for arm in arms):
            # One at a time, so that in a burst of submissions jobs whose work is done still end.
            is_due = bool(due) and trace.jobs["submit_time"][due[-1]] <= now
            if is_due:
                row = due.pop()
                list(pool.map(lambda arm, row=row: arm.submit(row), arms))
                trace.jobs["submit_time"][row] = time.time() - zero_time
            list(pool.map(lambda arm: arm.step(time.time() - zero_time), arms))
            if tell is not None:
                tell(sum(arm.ended for arm in arms))
            if not is_due:
                time.sleep(POLL_S)
    for arm in arms:
        if arm.ended < len(trace):
            arm.faults.append(f"{arm.name}: {len(trace) - arm.ended} jobs have not ended within {within_s:.0f} s")
    return time.time() - zero_time
