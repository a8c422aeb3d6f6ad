"""Runs whole episodes under a rule or a policy."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tools.train.published.env import PublishedEnv
from tools.train.published.setting import Published
from tools.train.slots import Integers


def job_times(
    setting: Published, act: Callable[[PublishedEnv], Integers], seeds: Sequence[int], *, env_seed: int = 0
) -> NDArray[np.float64]:
    """Return the JCT of each job in slots `(n_seeds, n_jobs)`, the episodes of all seeds side by side.

    Episodes that are over begin again until the last is; only their first run counts. A job that is not done after
    `most_slots` counts the time until then.
    """
    env = PublishedEnv(setting, len(seeds), seed=env_seed)
    env.reset(seeds)
    jct = np.full((len(seeds), setting.jobs), np.nan)
    over = np.zeros(len(seeds), np.bool_)
    while not over.all():
        done = env.step(act(env)).done
        rows = np.flatnonzero(done)
        if len(rows):
            first = rows[~over[rows]]
            unfinished = env.slot[first, None] - env.arrival_slot[first, :-1]
            jct[first] = np.where(np.isnan(env.jct[first]), unfinished, env.jct[first])
            over[rows] = True
            env.reset([seeds[int(row)] for row in rows], rows)
    return jct
