"""Environments in worker processes: the rows of one environment are split, and the shards play at the same time."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from advisor.errors import SimulationError
from advisor.sim.study.engines import become_worker
from tools.train.slots import Bools, Floats32, Integers, SlotEnv, SlotStep

Held = dict[int, Any]
Call = tuple[Callable[..., Any], tuple[Any, ...]]
Make = Callable[[int], SlotEnv]
Value = TypeVar("Value", bound=np.generic)


class Workers:
    """Processes that hold environments under a number, and call functions on them."""

    def __init__(self, count: int) -> None:
        """Start `count` processes; they end with this one."""
        context = get_context("spawn")
        self._ends: list[Connection] = []
        self._held = 0
        for _ in range(count):
            ours, theirs = context.Pipe()
            context.Process(target=_serve, args=(theirs,), daemon=True).start()
            theirs.close()
            self._ends.append(ours)

    def __len__(self) -> int:
        """Return the number of processes."""
        return len(self._ends)

    def number(self) -> int:
        """Return a number under which no environment is held yet."""
        self._held += 1
        return self._held

    def ask(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Call a function in each of some processes at the same time, and return what they return.

        Raises what a function raised, and `SimulationError` where a process died.
        """
        try:
            for worker, call in calls.items():
                self._ends[worker].send(call)
            answers = {worker: self._ends[worker].recv() for worker in calls}
        except (EOFError, OSError) as err:
            raise SimulationError("a worker died, most likely for want of memory: try fewer --workers") from err
        for _, error in answers.values():
            if error is not None:
                raise error
        return {worker: value for worker, (value, _) in answers.items()}

    def close(self) -> None:
        """End the processes."""
        for end in self._ends:
            end.close()


class ShardedEnv:
    """An environment of `n` episodes whose rows are split among workers; equal to the bit to `make(n)`.

    That holds where the rows of `make` do not depend on each other. A pickle of it is `make(n)`, so that a checkpoint
    can go on with any number of workers.
    """

    def __init__(self, workers: Workers, make: Make, n: int) -> None:
        """Make a shard in each worker that gets rows."""
        self.n, self._make, self._workers, self._number = n, make, workers, workers.number()
        shards = np.array_split(np.arange(n), len(workers))
        self._shards = [rows for rows in shards if len(rows)]
        shape, self.n_actions = self._of_all(_build, [(make, len(rows)) for rows in self._shards])[0]
        self._shape = tuple(shape)
        self._observation = np.zeros((n, *self._shape), np.float32)
        self._mask = np.zeros((n, self.n_actions), np.bool_)

    def __reduce__(self) -> tuple[Make, tuple[int]]:
        return self._make, (self.n,)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return self._shape

    def reset(self, seeds: Sequence[int], rows: Integers | None = None) -> None:
        """Begin new episodes, in the given rows or in all."""
        rows = np.arange(self.n) if rows is None else rows
        calls: dict[int, Call] = {}
        for shard, own in enumerate(self._shards):
            mine = np.flatnonzero((rows >= own[0]) & (rows <= own[-1]))
            if len(mine):
                calls[shard] = _reset, (self._number, [seeds[at] for at in mine.tolist()], rows[mine] - own[0])
        for shard, seen in self._workers.ask(calls).items():
            self._see(shard, seen)

    def observe(self) -> Floats32:
        """Return the observations `(n, *shape)`."""
        return self._observation.copy()

    def mask(self) -> Bools:
        """Return the legal actions `(n, n_actions)`."""
        return self._mask.copy()

    def step(self, action: Integers) -> SlotStep:
        """Take one action in each episode."""
        answers = self._of_all(_step, [(action[own],) for own in self._shards])
        for shard, (_, seen) in enumerate(answers):
            self._see(shard, seen)
        return SlotStep(*(np.concatenate(parts) for parts in zip(*(step for step, _ in answers), strict=True)))

    def of_shards(self, function: Callable[[Any], NDArray[Value]]) -> NDArray[Value]:
        """Return what a function of an environment gives for the shards, one after the other."""
        return np.concatenate(self._of_all(_of_shard, [(function,)] * len(self._shards)))

    def _of_all(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        answers = self._workers.ask({shard: (function, (self._number, *own)) for shard, own in enumerate(arguments)})
        return [answers[shard] for shard in range(len(arguments))]

    def _see(self, shard: int, seen: tuple[Floats32, Bools]) -> None:
        rows = self._shards[shard]
        self._observation[rows], self._mask[rows] = seen


def of_rows(env: SlotEnv, function: Callable[[Any], NDArray[Value]]) -> NDArray[Value]:
    """Return what a function gives for an environment, which may be one in shards."""
    return env.of_shards(function) if isinstance(env, ShardedEnv) else function(env)


def _serve(end: Connection) -> None:
    """Answer calls until the other end is closed."""
    become_worker()
    held: Held = {}
    with suppress(EOFError, OSError):
        while True:
            function, arguments = cast(Call, end.recv())
            try:
                end.send((function(held, *arguments), None))
            except Exception as err:
                end.send((None, err))


def _build(held: Held, number: int, make: Make, n: int) -> tuple[tuple[int, ...], int]:
    env = held[number] = make(n)
    return env.shape, env.n_actions


def _reset(held: Held, number: int, seeds: Sequence[int], rows: Integers) -> tuple[Floats32, Bools]:
    env: SlotEnv = held[number]
    env.reset(seeds, rows)
    return env.observe(), env.mask()


def _step(held: Held, number: int, action: Integers) -> tuple[SlotStep, tuple[Floats32, Bools]]:
    env: SlotEnv = held[number]
    step = env.step(action)
    return step, (env.observe(), env.mask())


def _of_shard(held: Held, number: int, function: Callable[[SlotEnv], NDArray[Value]]) -> NDArray[Value]:
    return function(held[number])
