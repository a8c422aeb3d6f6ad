"""Draws the jobs that arrive after a snapshot, from those that arrived before it.

Stretches of an hour are taken from the recent past at random instants and joined: arrivals come in bursts as they did,
with the requests and run times that they had. The time of the day does not count.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.domain.units import HOUR_S
from advisor.sim.live.continuation import Arrivals
from advisor.sim.traces.trace import Trace

_STRETCH_S: Final = HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentJobs:
    """The jobs submitted from `begin_time` to `end_time`, with the run times that they had, in order."""

    trace: Trace
    begin_time: float
    end_time: float

    def __post_init__(self) -> None:
        if self.end_time <= self.begin_time:
            raise ValueError(f"from {self.begin_time} to {self.end_time} no job can be submitted")


def draw_arrivals(recent: RecentJobs, now: float, horizon_s: float, seed: int, draw: int) -> Arrivals:
    """Return the arrivals of one draw, in order of time; equal for equal seeds and draws."""
    rng = np.random.default_rng([seed, draw, 1])
    submitted = recent.trace.jobs["submit_time"]
    stretch_s = min(_STRETCH_S, recent.end_time - recent.begin_time)
    rows, times = [np.zeros(0, np.intp)], [np.zeros(0)]
    for offset_s in np.arange(0.0, horizon_s, stretch_s):
        begin = rng.uniform(recent.begin_time, recent.end_time - stretch_s)
        first, last = np.searchsorted(submitted, (begin, begin + stretch_s))
        rows.append(np.arange(first, last))
        times.append(now + offset_s + submitted[first:last] - begin)
    template, submit_time = np.concatenate(rows), np.concatenate(times)
    # A job that arrives with the snapshot would be in it.
    within = (now < submit_time) & (submit_time <= now + horizon_s)
    return Arrivals(template=template[within], submit_time=submit_time[within])
