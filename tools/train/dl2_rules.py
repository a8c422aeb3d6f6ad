"""The schedulers that DL2 learns from and is compared with, as rules over the arrays of the environment.

Each chooses one action per episode and call among the jobs of the window; a rule that should see all jobs runs on a
setting whose window is `jobs`. A slot ends when a task does not fit, as in the published code. Ties go to the earliest
job. Job-aware exploration stands with them: in bad states an action is replaced, with some probability, by one that
mends them.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tools.train.dl2_env import PublishedEnv
from tools.train.dl2_setting import Published, epochs_of, epochs_per_slot, step_factors, step_terms
from tools.train.slots import Bools, Integers

Floats = NDArray[np.float64]
_WORKER, _SERVER, _BUNDLE = 0, 1, 2


class SlotRule(Protocol):
    """A rule that chooses an action in each episode."""

    def act(self, env: PublishedEnv) -> Integers:
        """Return legal actions `(n,)`."""
        ...


class Drf:
    """Dominant resource fairness: the job with the least dominant share gets a worker, then a parameter server."""

    def act(self, env: PublishedEnv) -> Integers:
        """Return the actions."""
        workers, servers, kind = _window(env)
        can = _allowed(env)
        pair_open = (workers > servers) & can[:, :, _SERVER]
        setting = env.setting
        cpus = (setting.worker_cpus * workers + setting.server_cpus * servers) / setting.node_cpus
        share = np.maximum(cpus, env.worker_gpus[kind] * workers / setting.node_gpus)
        has_pair_open = _any(pair_open)
        part = np.where(has_pair_open, _SERVER, _WORKER)
        column = np.where(has_pair_open, pair_open.argmax(axis=1), _least(share, can[:, :, _WORKER]))
        return _action(env, column, part, ~(has_pair_open | _any(can[:, :, _WORKER])))


class InOrder:
    """One job after the other gets worker and parameter server in pairs up to its cap, the least `cost` first.

    `cost` gives numbers `(n, window)`.
    """

    def __init__(self, cost: Callable[[PublishedEnv], Floats]) -> None:
        """Order jobs by `cost`."""
        self.cost = cost

    def act(self, env: PublishedEnv) -> Integers:
        """Return the actions."""
        can = _allowed(env)[:, :, _BUNDLE]
        return _action(env, _least(self.cost(env), can), np.full(env.n, _BUNDLE), ~_any(can))


def arrival(env: PublishedEnv) -> Floats:
    """Return the place of each job in the order of arrival."""
    return np.broadcast_to(np.arange(env.setting.window, dtype=np.float64), env.window.shape)


def slots_left(env: PublishedEnv) -> Floats:
    """Return the slots that each job still needs with the reference number of tasks."""
    reference = min(env.setting.reference_tasks, env.setting.cap)
    row = np.arange(env.n)[:, None]
    kind = env.kind[row, env.window]
    speed = epochs_per_slot(env.setting)[kind, reference, reference]
    return np.asarray(env.left[row, env.window] * env.epochs[row, env.window] / speed)


def tetris_cost(env: PublishedEnv) -> Floats:
    """Return the weighted work left minus the fit to the free resources, smaller is better.

    The weight is the mean of the one over the mean of the other. The published code adds the second term, which puts
    long jobs first; we subtract it, as the original Tetris does.
    """
    setting, row = env.setting, np.arange(env.n)[:, None]
    gpus = env.worker_gpus[env.kind[row, env.window]] / setting.node_gpus
    cpus = (setting.worker_cpus + setting.server_cpus) / setting.node_cpus
    free_cpus = env.free_cpus.mean(axis=1)[:, None] / setting.node_cpus
    free_gpus = env.free_gpus.mean(axis=1)[:, None] / setting.node_gpus
    there = env.window < setting.jobs
    fit = (cpus * free_cpus + gpus * free_gpus) * there
    work = (cpus + gpus) * slots_left(env) * there
    weight = fit.sum(axis=1) / np.maximum(work.sum(axis=1), 1e-9)
    return np.asarray(weight[:, None] * work - fit)


class MarginalGain:
    """Greedy: the task that shortens some job the most, by remaining epochs over speed; stops when none does.

    `speeds` `(n_models, cap + 1, cap + 1)` is what it believes. `error` multiplies the present speed and that with one
    more worker by 1 + error or 1 - error, a fair coin each time a job is looked at, as in the published code; the speed
    with one more parameter server has no error there. A job is looked at when a slot begins and when it got a task; one
    whose best task is at its cap gets no more in this slot.
    """

    def __init__(self, setting: Published, *, error: float = 0.0, speeds: Floats | None = None, seed: int = 0) -> None:
        """Believe the true speeds unless others are given."""
        self.error = error
        self.speeds = epochs_per_slot(setting) if speeds is None else speeds
        self.rng = np.random.default_rng(seed)
        self.gain: Floats = np.zeros((0, 0))
        self.part: Integers = np.zeros((0, 0), np.int64)
        self.seen: Integers = np.zeros((0, 0), np.int64)

    def act(self, env: PublishedEnv) -> Integers:
        """Return the actions."""
        if self.gain.shape != env.epochs.shape:
            self.gain = np.zeros(env.epochs.shape)
            self.part, self.seen = np.zeros(env.epochs.shape, np.int64), np.zeros(env.epochs.shape, np.int64)
        self._look(env)
        row = np.arange(env.n)
        gain = np.where(env.window < env.setting.jobs, self.gain[row[:, None], env.window], -np.inf)
        # The best task of a job may be at its cap.
        part = self.part[row[:, None], env.window]
        can = np.take_along_axis(_allowed(env), part[:, :, None], axis=2)[:, :, 0]
        gain = np.where(can, gain, -np.inf)
        column = gain.argmax(axis=1)
        return _action(env, column, part[row, column], gain[row, column] <= 0.0)

    def _look(self, env: PublishedEnv) -> None:
        """Estimate the gains of jobs whose tasks changed, and of all jobs in a new slot."""
        tasks = env.workers + env.servers * (env.setting.cap + 1)
        row, job = np.nonzero(env.active & (env.fresh[:, None] | (tasks != self.seen)))
        self.seen[row, job] = tasks[row, job]
        kind, workers, servers = env.kind[row, job], env.workers[row, job], env.servers[row, job]
        more_workers = np.minimum(workers + 1, env.setting.cap)
        more_servers = np.minimum(servers + 1, env.setting.cap)
        left = env.left[row, job] * env.epochs[row, job]
        coins = 1.0 + self.error * self.rng.choice([-1.0, 1.0], size=(2, len(row)))
        with np.errstate(divide="ignore", invalid="ignore"):
            now_s = left / (self.speeds[kind, servers, workers] * coins[0])
            by_worker = now_s - left / (self.speeds[kind, servers, more_workers] * coins[1])
            by_server = now_s - left / self.speeds[kind, more_servers, workers]
        # Without a worker or a parameter server a job does not train, and the one that is missing comes first.
        by_worker = np.where(workers == 0, np.inf, np.where(servers == 0, -np.inf, by_worker))
        by_server = np.where(workers == 0, -np.inf, np.where(servers == 0, np.inf, by_server))
        server_is_better = by_server >= by_worker
        self.gain[row, job] = np.where(server_is_better, by_server, by_worker)
        self.part[row, job] = np.where(server_is_better, _SERVER, _WORKER)


def fitted_speeds(setting: Published, *, seed: int = 0, noise: float = 0.05, points: int = 10) -> Floats:
    """Return speeds from a fit of the model of a step to measurements with noise `(n_models, cap + 1, cap + 1)`.

    Each model is measured at random pairs of numbers of tasks, with uniform noise; least squares, weighted by the time.
    """
    rng = np.random.default_rng(seed)
    true = epochs_per_slot(setting)
    fitted = np.zeros_like(true)
    tasks = np.arange(1, setting.cap + 1)
    grid = step_terms(tasks[:, None], np.broadcast_to(tasks[None, :], (setting.cap, setting.cap)))
    for kind in range(len(setting.models)):
        pairs = rng.integers(1, setting.cap + 1, size=(points, 2))
        speed = true[kind, pairs[:, 0], pairs[:, 1]] * rng.uniform(1.0 - noise, 1.0 + noise, points)
        step_s = epochs_of(setting, kind, np.ones(1)) / speed
        terms = step_terms(pairs[:, 0], pairs[:, 1]) / step_s[:, None]
        factors = np.linalg.lstsq(terms, np.ones(points), rcond=None)[0]
        factors = np.maximum(factors, 0.01 * step_factors(setting, kind))
        fitted[kind, 1:, 1:] = epochs_of(setting, kind, grid @ factors)
    return fitted


TEACHERS: Final[Mapping[str, Callable[[Published, int], SlotRule]]] = {
    "drf": lambda setting, seed: Drf(),  # noqa: ARG005
    "fifo": lambda setting, seed: InOrder(arrival),  # noqa: ARG005
    "srtf": lambda setting, seed: InOrder(slots_left),  # noqa: ARG005
    "tetris": lambda setting, seed: InOrder(tetris_cost),  # noqa: ARG005
    "optimus": lambda setting, seed: MarginalGain(setting, seed=seed),
    "optimus-5": lambda setting, seed: MarginalGain(setting, error=0.05, seed=seed),
    "optimus-10": lambda setting, seed: MarginalGain(setting, error=0.10, seed=seed),
    "optimus-fitted": lambda setting, seed: MarginalGain(setting, speeds=fitted_speeds(setting, seed=seed), seed=seed),
}


def _window(env: PublishedEnv) -> tuple[Integers, Integers, Integers]:
    row = np.arange(env.n)[:, None]
    return env.workers[row, env.window], env.servers[row, env.window], env.kind[row, env.window]


def _allowed(env: PublishedEnv) -> Bools:
    """Return what the mask allows `(n, window, 3)`."""
    return env.mask()[:, :-1].reshape(env.n, env.setting.window, 3)


def _any(can: Bools) -> Bools:
    return np.asarray(can.any(axis=1))


def _least(cost: Floats, can: Bools) -> Integers:
    return np.asarray(np.where(can, cost, np.inf).argmin(axis=1))


def _action(env: PublishedEnv, column: Integers, part: Integers, stop: Bools) -> Integers:
    return np.asarray(np.where(stop, env.n_actions - 1, 3 * column + part))


# From the paper: more than ten times as many of one kind of task as of the other.
MOST_RATIO: Final = 10


class Mending:
    """The paper's rules: a job without the one kind of task gets it, and one with ten times more of one the other."""

    def __init__(self, chance: float) -> None:
        """Mend with this probability."""
        self.chance = chance

    def __call__(self, env: PublishedEnv, action: Integers, rng: np.random.Generator) -> Integers:
        """Return the actions, some of them replaced; the first bad job of the window is mended."""
        workers, servers, _ = _window(env)
        there = env.window < env.setting.jobs
        wants_server = there & ((servers == 0) & (workers > 0) | (workers > MOST_RATIO * servers))
        wants_worker = there & ((workers == 0) & (servers > 0) | (servers > MOST_RATIO * workers))
        part = np.where(wants_server, _SERVER, _WORKER)
        allowed = np.take_along_axis(_allowed(env), part[:, :, None], axis=2)[:, :, 0]
        can, row = (wants_server | wants_worker) & allowed, np.arange(env.n)
        column = can.argmax(axis=1)
        mends = (rng.random(env.n) < self.chance) & can[row, column]
        return np.asarray(np.where(mends, 3 * column + part[row, column], action))
