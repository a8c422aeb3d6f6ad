"""Draws the jobs that both clusters get, from a seed."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tools.stage.arrivals import (
    HALF,
    PAIR,
    RANGE,
    SMALL,
    SPREAD,
    USERS,
    WHOLE,
    GpuRequest,
    gap_s,
    on_one_node,
    on_some_nodes,
)

MINUTE_S: Final = 60.0
NODES: Final = 8
GPUS_PER_NODE: Final = 8
GPUS: Final = NODES * GPUS_PER_NODE
# A system user that every Debian has, and that submits nothing but attacks.
ATTACKER: Final = "backup"
# A job that arrives stands behind those that wait, as it would by age; slurmctld itself ages jobs in steps of a minute,
# which come at other instants on each cluster, and only with slurmdbd.
POINTS_PER_S: Final = 10
# Work that arrives, as a multiple of what the GPUs can do meanwhile: first a queue is made, then it is kept.
FIRST_LOAD: Final = 3.5
FIRST_RATIO: Final = 0.25
# Of a given number of jobs, this share makes the queue.
FIRST_JOBS_RATIO: Final = 0.5
LOAD: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinRequest:
    """A job as both clusters get it: its options for sbatch, its limit, and the run time that it really has."""

    name: str
    submit_s: float  # from the start of the run
    user: str
    options: tuple[str, ...]
    gpus: int
    limit_s: float
    run_s: float

    @property
    def nice(self) -> int:
        """The nice value that puts it behind those that were submitted before."""
        return POINTS_PER_S * round(self.submit_s)

    def sbatch_options(self) -> tuple[str, ...]:
        """Return the options for sbatch, with name, limit and place in line; a nice of the options' own counts."""
        return (
            f"--job-name={self.name}",
            f"--time={self.limit_s / MINUTE_S:.0f}",
            f"--nice={self.nice}",
            *self.options,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinSort:
    """A sort of job: several of them arrive at once, and each runs for a share of its limit."""

    request: GpuRequest
    limits_min: tuple[int, ...]
    run_ratio: tuple[float, float]
    at_once: int = 1
    weight: int


SORTS: Final = (
    TwinSort(request=WHOLE, limits_min=(3, 4, 5), run_ratio=(0.2, 0.8), weight=4),
    TwinSort(request=SPREAD, limits_min=(3, 4), run_ratio=(0.2, 0.8), weight=1),
    TwinSort(request=RANGE, limits_min=(2,), run_ratio=(0.3, 0.9), weight=3),
    TwinSort(request=PAIR, limits_min=(2,), run_ratio=(0.3, 0.9), weight=3),
    TwinSort(request=SMALL, limits_min=(1, 2), run_ratio=(0.3, 0.9), at_once=4, weight=5),
    TwinSort(request=HALF, limits_min=(1, 2), run_ratio=(0.3, 0.9), at_once=2, weight=3),
)


def draw_requests(seed: int, arrivals_s: float) -> list[TwinRequest]:
    """Draw the jobs that arrive within a time, in the order of their submission; a queue comes first."""
    return _drawn(
        seed,
        goes_on=lambda instant_s, _: instant_s < arrivals_s,
        makes_queue=lambda instant_s, _: instant_s < FIRST_RATIO * arrivals_s,
    )


def draw_jobs(seed: int, count: int, run_scale: float) -> list[TwinRequest]:
    """Draw a number of jobs, in the order of their submission; a queue comes first.

    Run times are those of the sorts times `run_scale`; the limits stay.
    """
    drawn = _drawn(
        seed,
        goes_on=lambda _, jobs: jobs < count,
        makes_queue=lambda _, jobs: jobs < FIRST_JOBS_RATIO * count,
        run_scale=run_scale,
    )
    return drawn[:count]


def attack(number: int, gpus: int, submit_s: float, options: tuple[str, ...]) -> TwinRequest:
    """Return a job that outlasts the run, for some GPUs on whatever nodes have them; `options` give it its place."""
    request = on_one_node("attack", 1) if gpus == 1 else on_some_nodes("attack", gpus, 4)
    return TwinRequest(
        name=f"attack-{number:03d}",
        submit_s=submit_s,
        user=ATTACKER,
        options=(*request.options, *options),
        gpus=gpus,
        limit_s=240 * MINUTE_S,
        run_s=239 * MINUTE_S,
    )


def work_s(requests: Sequence[TwinRequest]) -> float:
    """Return the GPU seconds that jobs really use."""
    return sum(request.gpus * request.run_s for request in requests)


def _drawn(
    seed: int,
    *,
    goes_on: Callable[[float, int], bool],
    makes_queue: Callable[[float, int], bool],
    run_scale: float = 1.0,
) -> list[TwinRequest]:
    """Draw jobs while `goes_on`; both functions take the seconds and the number of jobs so far."""
    chance, requests, instant_s = random.Random(seed), list[TwinRequest](), 0.0
    while goes_on(instant_s, len(requests)):
        sort = chance.choices(SORTS, [sort.weight for sort in SORTS])[0]
        user = chance.choice(USERS)
        burst = [_draw(sort, user, len(requests) + number, instant_s, chance) for number in range(sort.at_once)]
        burst = [replace(request, run_s=round(request.run_s * run_scale, 1)) for request in burst]
        requests += burst
        load = FIRST_LOAD if makes_queue(instant_s, len(requests)) else LOAD
        instant_s += gap_s(chance, work_s(burst), GPUS, load)
    return requests


def _draw(sort: TwinSort, user: str, number: int, instant_s: float, chance: random.Random) -> TwinRequest:
    limit_s = chance.choice(sort.limits_min) * MINUTE_S
    return TwinRequest(
        name=f"{sort.request.name}-{number:03d}",
        submit_s=instant_s,
        user=user,
        options=sort.request.options,
        gpus=sort.request.gpus,
        limit_s=limit_s,
        run_s=round(limit_s * chance.uniform(*sort.run_ratio), 1),
    )
