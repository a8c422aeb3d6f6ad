"""Job-aware exploration: in bad states an action is replaced, with some probability, by one that mends them."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tools.train.published.env import PublishedEnv
from tools.train.slots import Bools, Integers

# From the paper: more than ten times as many of one kind of task as of the other.
MOST_RATIO: Final = 10

_WORKER, _SERVER, _BUNDLE = 0, 1, 2


class AsInPaper:
    """The paper's rules: a job without the one kind of task gets it, and one with ten times more of one the other."""

    def __init__(self, chance: float) -> None:
        """Mend with this probability."""
        self.chance = chance

    def __call__(self, env: PublishedEnv, action: Integers, rng: np.random.Generator) -> Integers:
        """Return the actions, some of them replaced; the first bad job of the window is mended."""
        workers, servers, there = _window(env)
        wants_server = there & ((servers == 0) & (workers > 0) | (workers > MOST_RATIO * servers))
        wants_worker = there & ((workers == 0) & (servers > 0) | (servers > MOST_RATIO * workers))
        part = np.where(wants_server, _SERVER, _WORKER)
        can = (wants_server | wants_worker) & _can(env, part)
        return _replaced(env, action, can, part, rng.random(env.n) < self.chance)


class AsInCode:
    """The rules of the published code: balance between jobs, jobs without tasks, and the ratio of a job's tasks.

    Its rule that forces a kind of action with less than 0.1 % of all grants is left out: it has never applied here.
    """

    def __init__(self, chance: float) -> None:
        """Mend with this probability where the code mends half of the time or always."""
        self.chance = chance

    def __call__(self, env: PublishedEnv, action: Integers, rng: np.random.Generator) -> Integers:
        """Return the actions, some of them replaced."""
        workers, servers, there = _window(env)
        acts = rng.random(env.n) < self.chance
        tasks = workers + servers
        most = np.where(there, tasks, 0).max(axis=1)
        least = np.where(there, tasks, np.iinfo(np.int64).max)
        unbalanced = most > rng.uniform(3.0, 5.0, env.n) * np.maximum(least.min(axis=1), 1)
        bundle_or_worker = np.where(rng.random(env.n) < 0.5, _BUNDLE, _WORKER)[:, None]
        ratio = rng.uniform(3.0, 7.0, env.n)[:, None]
        coin = rng.random((env.n, 1)) < 0.5
        server_or_bundle = np.where(rng.random((env.n, 1)) < 0.99, _SERVER, _BUNDLE)
        empty = np.where((workers == 0) & (servers == 0), bundle_or_worker, np.where(workers == 0, _WORKER, _SERVER))
        has_none = there & ((workers == 0) | (servers == 0))
        too_many_servers = there & (servers > workers * ratio) & coin
        too_many_workers = there & (workers >= 2 * servers) & coin
        served_least = (tasks == least.min(axis=1)[:, None]) & unbalanced[:, None] & there
        part = np.broadcast_to(bundle_or_worker, workers.shape)
        for bad, wanted in ((too_many_workers, server_or_bundle), (has_none, empty)):
            part = np.where(bad & ~served_least, wanted, part)
        bad = served_least | has_none | too_many_servers | too_many_workers
        return _replaced(env, action, bad & _can(env, part), part, acts)


def _window(env: PublishedEnv) -> tuple[Integers, Integers, Bools]:
    row = np.arange(env.n)[:, None]
    return env.workers[row, env.window], env.servers[row, env.window], env.window < env.setting.jobs


def _can(env: PublishedEnv, part: Integers) -> Bools:
    allowed = env.mask()[:, :-1].reshape(env.n, env.setting.window, 3)
    return np.asarray(np.take_along_axis(allowed, part[:, :, None], axis=2)[:, :, 0])


def _replaced(env: PublishedEnv, action: Integers, can: Bools, part: Integers, acts: NDArray[np.bool_]) -> Integers:
    column = can.argmax(axis=1)
    mends = acts & can[np.arange(env.n), column]
    return np.asarray(np.where(mends, 3 * column + part[np.arange(env.n), column], action))
