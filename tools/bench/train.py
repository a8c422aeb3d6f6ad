"""Small steps per second of the training environments, in one process and in several.

    python -m tools.bench train [--episodes 64] [--seconds 5] [--workers 2]

Random legal actions, drawn in advance of the clock: the figure is that of the environment alone, with its observation,
its mask and the ends of its slots and episodes. With `--workers` the rows are also split among worker processes; a step
then takes the CPU time of the slowest worker and that of this process, so that the figure holds where cores are free.
Exit 1 where the published setting is below its target in one process.
"""

import argparse
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tools.train.dl2_env import PublishedEnv
from tools.train.dl2_setting import Published
from tools.train.shards import Make, ShardedEnv, Workers
from tools.train.size_env import SlurmEnv
from tools.train.slots import SlotEnv

TARGET_PER_S: Final = 50_000
MAKE: Final[Mapping[str, Make]] = {"published setting": partial(PublishedEnv, Published()), "on Slurm": SlurmEnv}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--episodes", type=int, default=64, help="episodes side by side, default %(default)s")
    parser.add_argument("--seconds", type=float, default=5.0, help="time to measure, default %(default)g")
    parser.add_argument("--workers", type=int, default=0, help="worker processes to compare with, default none")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    alone = 0.0
    for name, make in MAKE.items():
        steps_per_s = steps_per_second(make(options.episodes), options.seconds)
        alone = alone or steps_per_s
        print(f"{name}, {options.episodes} episodes: {steps_per_s:,.0f} small steps per CPU second")
        if options.workers:
            workers = Workers(options.workers)
            apart = steps_per_second(ShardedEnv(workers, make, options.episodes), options.seconds)
            workers.close()
            print(f"  in {options.workers} workers: {apart:,.0f}, {apart / steps_per_s:.2f} times as many")
    return 0 if alone >= TARGET_PER_S else 1


def steps_per_second(env: SlotEnv, seconds: float) -> float:
    """Return the small steps per CPU second; a slot of the published setting takes 50 of them on average."""
    n, rng = env.n, np.random.default_rng(0)
    env.reset(range(n))
    steps, spent_s, seed = 0, 0.0, n
    while spent_s < seconds:
        mask = env.mask()
        chance = rng.random(mask.shape) * mask
        chance[:, -1] = rng.random(n) < 0.02
        actions = np.where(mask[:, :-1].any(axis=1), chance.argmax(axis=1), env.n_actions - 1)
        own, shards = _cpu_s(env)
        done = env.step(actions).done
        env.observe()
        env.mask()
        rows = np.flatnonzero(done)
        if len(rows):
            env.reset(range(seed, seed + len(rows)), rows)
            seed += len(rows)
        own_after, shards_after = _cpu_s(env)
        spent_s += own_after - own + float((shards_after - shards).max(initial=0.0))
        steps += n
    return steps / spent_s


def _cpu_s(env: SlotEnv) -> tuple[float, NDArray[np.float64]]:
    """Return the CPU time so far of this process and of the workers."""
    shards = env.of_shards(_process_time) if isinstance(env, ShardedEnv) else np.zeros(0)
    return time.process_time(), shards


def _process_time(_: SlotEnv) -> NDArray[np.float64]:
    return np.array([time.process_time()])
