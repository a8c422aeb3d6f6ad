"""Episodes of the published setting, many side by side in arrays, without a loop over episodes or jobs."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tools.train.dl2_setting import Published, drawn, epochs_per_slot, length_epochs
from tools.train.slots import Bools, Floats32, Integers, SlotStep

Floats = NDArray[np.float64]
# A job is done when less than this share of it is left: sums of floats do not end at 1.
_DONE = 1e-9
_FULL = 1 << 20


class PublishedEnv:
    """`n` clusters in which a policy grants workers and parameter servers, task by task, from zero in each slot.

    Job arrays are `(n, n_jobs + 1)` in order of arrival; the last column is a job that never exists, at which empty
    places of the window point. Nodes are `(n, n_nodes)`.

    An observation `(window, n_features)` holds the jobs of the window in order of arrival, zeros in empty places: the
    model (one-hot), the slots since arrival as `log(1 + d) / log(1 + 100)`, the epochs left as
    `log(1 + e) / log(1 + the most epochs of a job)`, the amount of the dominant resource over that of a node, divided
    by the cap, and the workers and parameter servers in this slot, divided by the cap.

    Empty slots, in which no job is there, are skipped. `jct` `(n, n_jobs)` is in slots, NaN until the job is done;
    the slot in which a job ends counts by the part that it needs.
    """

    def __init__(self, setting: Published, n: int) -> None:
        """Make the arrays; `reset` begins the episodes."""
        self.setting, self.n, self.n_actions = setting, n, setting.n_actions
        jobs, nodes, j = setting.jobs, setting.nodes, setting.window
        self._rows = np.arange(n)
        self._speeds = epochs_per_slot(setting)
        self.worker_gpus = np.array([model.worker_gpus for model in setting.models])
        shape = (n, jobs + 1)
        self.arrival_slot, self.kind = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.epochs, self.left = np.ones(shape), np.zeros(shape)
        self.workers, self.servers = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.active, self.jct = np.zeros(shape, np.bool_), np.full((n, jobs), np.nan)
        self.free_cpus = np.full((n, nodes), setting.node_cpus, np.int16)
        self.free_gpus = np.full((n, nodes), setting.node_gpus, np.int16)
        self.slot = np.zeros(n, np.int64)
        self.fresh = np.ones(n, np.bool_)
        self.window = np.full((n, j), jobs, np.int64)
        self._features = np.zeros((n, j, setting.n_features), np.float32)
        self._mask = np.zeros((n, self.n_actions), np.bool_)
        self._log_most = float(np.log1p(length_epochs(setting).max() * (1.0 + setting.spread_ratio)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The window and the columns of a job."""
        return self._features.shape[1:]

    def reset(self, seeds: Sequence[int], rows: Integers | None = None) -> None:
        """Begin the episodes of some seeds, in these rows or in all."""
        rows = self._rows if rows is None else rows
        if not len(rows):
            return
        episodes = [drawn(self.setting, seed) for seed in seeds]
        self.arrival_slot[rows, :-1] = [jobs.arrival_slot for jobs in episodes]
        self.kind[rows, :-1] = [jobs.kind for jobs in episodes]
        self.epochs[rows, :-1] = [jobs.epochs for jobs in episodes]
        self.left[rows, :-1] = 1.0
        self.jct[rows] = np.nan
        self.slot[rows] = 0
        self._begin_slot(rows)

    def observe(self) -> Floats32:
        """Return the observations `(n, window, n_features)`."""
        return self._features.copy()

    def mask(self) -> Bools:
        """Return the legal actions `(n, n_actions)`."""
        return self._mask.copy()

    def reward_now(self) -> Floats:
        """Return the reward of the slot if it ended with the tasks granted so far `(n,)`."""
        speed = self._speeds[self.kind, self.servers, self.workers]
        return np.asarray((np.minimum(speed / self.epochs, self.left) * self.active).sum(axis=1))

    def step(self, action: Integers) -> SlotStep:
        """Grant what the actions ask for; end the slots that stopped or in which a task did not fit.

        Raises ValueError for an action that the mask does not allow.
        """
        if not self._mask[self._rows, action].all():
            raise ValueError("an action is not legal")
        jobs = self.setting.jobs
        stop = action == self.n_actions - 1
        column = np.minimum(action // 3, self.setting.window - 1)
        part = action % 3
        job = np.where(stop, jobs, self.window[self._rows, column])
        placed = self._grant(job, ~stop & (part != 1), ~stop & (part != 0))
        self.fresh[:] = False
        self._note(job, column, placed)
        ended = ~placed | ~self._mask[:, :-1].any(axis=1)
        touched = np.where(placed, job, jobs)
        reward = np.zeros(self.n, np.float32)
        gained = np.zeros((self.n, jobs + 1), np.float32)
        done = np.zeros(self.n, np.bool_)
        rows = np.flatnonzero(ended)
        if len(rows):
            gained[rows] = self._run_slot(rows)
            reward[rows] = gained[rows].sum(axis=1)
            over = (self.left[rows, :-1] <= 0.0).all(axis=1) | (self.slot[rows] >= self.setting.most_slots)
            done[rows] = over
            if not over.all():
                self._begin_slot(rows[~over])
        return SlotStep(slot_ended=ended, reward=reward, done=done, touched=touched, gained=gained)

    def _grant(self, job: Integers, worker: Bools, server: Bools) -> Bools:
        """Place the tasks; where one does not fit, none is placed. Return whether a task was placed `(n,)`."""
        setting, rows = self.setting, self._rows
        gpus = self.worker_gpus[self.kind[rows, job]].astype(np.int16)
        worker_node, worker_fits = self._place(worker, setting.worker_cpus, gpus)
        _, server_fits = self._place(server & (worker_fits | ~worker), setting.server_cpus, np.zeros_like(gpus))
        undo = worker & server & worker_fits & ~server_fits
        if undo.any():
            self.free_cpus[rows[undo], worker_node[undo]] += np.int16(setting.worker_cpus)
            self.free_gpus[rows[undo], worker_node[undo]] += gpus[undo]
        worker_fits &= ~undo
        self.workers[rows, job] += worker_fits
        self.servers[rows, job] += server_fits
        return worker_fits | server_fits

    def _place(self, wanted: Bools, cpus: int, gpus: NDArray[np.int16]) -> tuple[Integers, Bools]:
        """Take the resources of a task from its node; return the nodes and whether the task fits `(n,)`."""
        rows = self._rows
        free = self.free_cpus + self.free_gpus
        free[(self.free_cpus < cpus) | (self.free_gpus < gpus[:, None])] = -1
        node = free.argmax(axis=1)
        fits = wanted & (self.free_cpus[rows, node] >= cpus) & (self.free_gpus[rows, node] >= gpus)
        self.free_cpus[rows, node] -= fits * np.int16(cpus)
        self.free_gpus[rows, node] -= fits * gpus
        return node, fits

    def _note(self, job: Integers, column: Integers, placed: Bools) -> None:
        """Bring observation and mask up to date with grants; jobs at both caps leave the window."""
        cap = self.setting.cap
        rows = np.flatnonzero(placed)
        job, column = job[rows], column[rows]
        workers, servers = self.workers[rows, job], self.servers[rows, job]
        self._features[rows, column, -3:] = self._counts(self.kind[rows, job], workers, servers)
        no_worker, no_server = workers >= cap, servers >= cap
        self._mask[rows, 3 * column] &= ~no_worker
        self._mask[rows, 3 * column + 1] &= ~no_server
        self._mask[rows, 3 * column + 2] &= ~(no_worker | no_server)
        leaves = rows[no_worker & no_server]
        if len(leaves):
            self._fill_window(leaves)

    def _run_slot(self, rows: Integers) -> Floats:
        """Train all jobs for one slot; return the share of each job that was trained `(n_rows, n_jobs + 1)`."""
        speed = self._speeds[self.kind[rows], self.servers[rows], self.workers[rows]]
        could = speed / self.epochs[rows]
        left = self.left[rows]
        gained = np.minimum(could, left) * self.active[rows]
        left = left - gained
        ends = self.active[rows] & (left < _DONE)
        left[ends] = 0.0
        self.left[rows] = left
        at, job = np.nonzero(ends)
        row = rows[at]
        part = gained[at, job] / could[at, job]
        self.jct[row, job] = self.slot[row] - self.arrival_slot[row, job] + part
        self.slot[rows] += 1
        return np.asarray(gained)

    def _begin_slot(self, rows: Integers) -> None:
        """Take all tasks away, admit the jobs that arrived, and give each job its starter bundle."""
        setting = self.setting
        unfinished = self.left[rows, :-1] > 0.0
        earliest = np.where(unfinished, self.arrival_slot[rows, :-1], _FULL).min(axis=1)
        self.slot[rows] = np.maximum(self.slot[rows], earliest)
        active = unfinished & (self.arrival_slot[rows, :-1] <= self.slot[rows, None])
        self.active[rows, :-1] = active
        self.free_cpus[rows] = setting.node_cpus
        self.free_gpus[rows] = setting.node_gpus
        self.workers[rows] = 0
        self.servers[rows] = 0
        self.fresh[rows] = True
        if setting.starter:
            self._give_starters(rows, active)
        self._fill_window(rows)

    def _give_starters(self, rows: Integers, active: Bools) -> None:
        """Give one worker and one parameter server to each job, in order of arrival, on the least loaded nodes.

        While there are empty nodes the least loaded one is the next empty one, so that the first jobs need no search.
        """
        setting = self.setting
        rank = active.cumsum(axis=1) - 1  # (n_rows, n_jobs)
        at, job = np.nonzero(active & (2 * rank + 1 < setting.nodes))
        row, node = rows[at], 2 * rank[at, job]
        self.free_cpus[row, node] -= np.int16(setting.worker_cpus)
        self.free_gpus[row, node] -= self.worker_gpus[self.kind[row, job]].astype(np.int16)
        self.free_cpus[row, node + 1] -= np.int16(setting.server_cpus)
        self.workers[row, job] = 1
        self.servers[row, job] = 1
        for place in range(setting.nodes // 2, int(rank.max(initial=-1)) + 1):
            job = np.full(self.n, setting.jobs)
            at, jobs = np.nonzero(active & (rank == place))
            job[rows[at]] = jobs
            has = job < setting.jobs
            self._grant(job, has, has)

    def _fill_window(self, rows: Integers) -> None:
        """Point the window at the earliest jobs that can still be given a task; rebuild observation and mask."""
        setting, j = self.setting, self.setting.window
        workers, servers, active = self.workers[rows, :-1], self.servers[rows, :-1], self.active[rows, :-1]
        eligible = active & ((workers < setting.cap) | (servers < setting.cap))
        order = np.argsort(~eligible, axis=1, kind="stable")[:, :j]
        job = np.where(np.take_along_axis(eligible, order, axis=1), order, setting.jobs)
        if job.shape[1] < j:
            job = np.pad(job, ((0, 0), (0, j - job.shape[1])), constant_values=setting.jobs)
        self.window[rows] = job
        row = rows[:, None]
        there = job < setting.jobs
        workers, servers = self.workers[row, job], self.servers[row, job]
        can = np.stack([workers < setting.cap, servers < setting.cap, np.zeros_like(there)], axis=2)
        can[:, :, 2] = can[:, :, 0] & can[:, :, 1]
        self._mask[rows, :-1] = (can & there[:, :, None]).reshape(len(rows), -1)
        self._mask[rows, -1] = True
        self._features[rows] = self._columns(row, job) * there[:, :, None]

    def _columns(self, row: Integers, job: Integers) -> Floats32:
        """Return the columns of jobs `(n_rows, window, n_features)`."""
        setting = self.setting
        kind = self.kind[row, job]
        columns = np.zeros((*job.shape, setting.n_features), np.float32)
        np.put_along_axis(columns, kind[:, :, None], 1.0, axis=2)
        columns[:, :, -5] = np.log1p(self.slot[row] - self.arrival_slot[row, job]) / np.log1p(100.0)
        columns[:, :, -4] = np.log1p(self.left[row, job] * self.epochs[row, job]) / self._log_most
        columns[:, :, -3:] = self._counts(kind, self.workers[row, job], self.servers[row, job])
        return columns

    def _counts(self, kind: Integers, workers: Integers, servers: Integers) -> Floats:
        """Return the dominant resource, the workers and the parameter servers of jobs `(..., 3)`."""
        setting = self.setting
        cpus = setting.worker_cpus * workers + setting.server_cpus * servers
        gpus = self.worker_gpus[kind] * workers
        amount = np.maximum(cpus / setting.node_cpus, gpus / setting.node_gpus)  # in nodes
        return np.stack([amount, workers, servers], axis=-1) / setting.cap


def job_times(setting: Published, act: Callable[[PublishedEnv], Integers], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the JCT of each job in slots `(n_seeds, n_jobs)`, the episodes of all seeds side by side.

    Episodes that are over begin again until the last is; only their first run counts. A job that is not done after
    `most_slots` counts the time until then.
    """
    env = PublishedEnv(setting, len(seeds))
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
