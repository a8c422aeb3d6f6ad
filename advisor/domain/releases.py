"""Holds the one table of differences between Slurm's releases, 22.05 to 26.05.

Use its traits by name, as in `config.traits.soft_limits`; release numbers are compared nowhere else. A difference that
a reader can detect in an answer, such as a field that a command lacks, needs no trait.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final

from advisor.domain.dataclass import dataclass

Version = tuple[int, int, int]

_PRINTED = re.compile(r"\d{1,3}\.\d{1,3}(?:\.[0-9A-Za-z.-]+)?")
# The point release is used only if it is a number: 25.05.4 and 25.05.4-1, not 25.05.x.
_NUMBERS = re.compile(r"(\d{1,3})\.(\d{1,3})(?!\d)(?:\.(\d{1,4})(?![0-9A-Za-z]))?")
_UNKNOWN_VERSION: Final[Version] = (0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a release can do and how it names things; the defaults are those of most releases.

    `first_version` is the first version with these traits, as year, month and point release.

    `soft_limits` is whether backfill can take TimeMin for a soft limit, `soft_limits_outlast_start` whether jobs
    behind a running job are planned with its soft limit too, not with its time limit. `backfill_by_slot` is whether
    backfill looks for a start up to the end of the next reservation, then up to the end of the one after it, and so
    on, and rounds the ends of reservations up, `open_gangs_fill_emptiest` whether a gang with `--gpus` and an open
    node count fills the emptiest of its nodes first; of both, releases between 22.05 and 24.11 were not observed.
    `backfill_by_own_ends` is whether a job is expected to start when the last job on its own nodes ends,
    `one_node_by_leaf` whether a job of one node goes to the leaf with the fewest usable nodes, and not to the first
    usable node of all; of both, releases between 24.11 and 26.05 were not observed.
    `hides_lone_tasks` is whether a job with `--ntasks=1` and more GPUs than a node has is accepted, shown as if it had
    left its tasks open, and never started; releases other than 22.05, 24.11 and 26.05 were not observed.
    `mincpus_cut_to_limit` is whether a job gets no more CPUs of a node than MaxCPUsPerNode where it asks for more with
    `--mincpus`, and else never starts; releases between 22.05 and 24.11 were not observed.
    `first_nodes_take_all` is whether a job with `--gpus` or `--gpus-per-task` on several nodes that differ can get so
    many GPUs of the first of them that none is left for the others, and does not start; releases between 22.05 and
    24.11 were not observed.
    `cpus_per_gpu_update_keeps_priority` is whether a job with `--cpus-per-gpu` has its old priority again once an
    update of it is reverted.

    `restricts_cores` is whether cores of a node can be kept for jobs with GPUs (RestrictedCoresPerGPU).
    `sharing_tells_exclusive` is whether a job that wants whole nodes for itself says so in what pyslurm gives as its
    sharing.
    `shows_powered_down` is whether cloud nodes that are powered down are shown without PrivateData=cloud.
    `default_priority_type` is "" where it is not known. `tested` is whether a live cluster or recorded answers of it
    are part of the tests.
    """

    first_version: Version
    soft_limits: bool = True
    soft_limits_outlast_start: bool = True
    backfill_by_slot: bool = True
    open_gangs_fill_emptiest: bool = True
    backfill_by_own_ends: bool = False
    one_node_by_leaf: bool = True
    hides_lone_tasks: bool = True
    mincpus_cut_to_limit: bool = False
    first_nodes_take_all: bool = False
    cpus_per_gpu_update_keeps_priority: bool = True
    restricts_cores: bool = True
    sharing_tells_exclusive: bool = True
    shows_powered_down: bool = True
    default_priority_type: str = "priority/multifactor"
    squeue_array_unique: bool = False
    tested: bool = False


TRAITS: Final = (
    Traits(
        first_version=(22, 5, 0),
        soft_limits=False,
        soft_limits_outlast_start=False,
        backfill_by_slot=False,
        open_gangs_fill_emptiest=False,
        hides_lone_tasks=False,
        mincpus_cut_to_limit=True,
        first_nodes_take_all=True,
        cpus_per_gpu_update_keeps_priority=False,
        restricts_cores=False,
        shows_powered_down=False,
        default_priority_type="priority/basic",
        squeue_array_unique=True,
        tested=True,
    ),
    Traits(
        first_version=(23, 2, 0),
        soft_limits=False,
        soft_limits_outlast_start=False,
        restricts_cores=False,
        default_priority_type="",
    ),
    Traits(first_version=(23, 11, 0), soft_limits_outlast_start=False, restricts_cores=False, default_priority_type=""),
    Traits(first_version=(24, 5, 0), soft_limits_outlast_start=False, default_priority_type=""),
    Traits(first_version=(24, 11, 0), soft_limits_outlast_start=False, tested=True),
    Traits(first_version=(25, 5, 0), soft_limits_outlast_start=False),
    Traits(first_version=(25, 5, 4)),
    Traits(first_version=(25, 11, 0), tested=True),
    Traits(
        first_version=(26, 5, 0),
        backfill_by_own_ends=True,
        one_node_by_leaf=False,
        hides_lone_tasks=False,
        sharing_tells_exclusive=False,
        tested=True,
    ),
)
# An unknown release is read like the newest one, without the features that an older one lacks.
UNKNOWN: Final = replace(
    TRAITS[-1],
    first_version=_UNKNOWN_VERSION,
    soft_limits=False,
    soft_limits_outlast_start=False,
    hides_lone_tasks=True,
    cpus_per_gpu_update_keeps_priority=False,
    restricts_cores=False,
    tested=False,
)


@lru_cache(maxsize=16)
def traits_of(version: str) -> Traits:
    """Return the traits of a version: those of the last row that is not newer, or else of the oldest row."""
    numbers = _numbers(version)
    if numbers == _UNKNOWN_VERSION:
        return UNKNOWN
    return next((row for row in reversed(TRAITS) if row.first_version <= numbers), TRAITS[0])


def first_with(has: Callable[[Traits], bool]) -> str:
    """Return the first version whose traits satisfy `has`, as Slurm writes it: 23.11, or 25.05.4."""
    year, month, point = next(row.first_version for row in TRAITS if has(row))
    return f"{year}.{month:02}.{point}" if point else f"{year}.{month:02}"


def same_release(version: str, other: str) -> bool:
    """Return whether two versions have the same year and month, or both are unknown."""
    return _numbers(version)[:2] == _numbers(other)[:2]


def is_tested(version: str) -> bool:
    """Return whether the release of a version is part of the tests."""
    traits = traits_of(version)
    return traits.tested and traits.first_version[:2] == _numbers(version)[:2]


def releases_tested() -> list[str]:
    """Return the releases that are part of the tests, oldest first, as Slurm writes them."""
    return [f"{row.first_version[0]}.{row.first_version[1]:02}" for row in TRAITS if row.tested]


def release_of(version: str) -> str:
    """Return the release of a version as Slurm writes it, such as 24.11; "" if the version is not known."""
    year, month, _ = _numbers(version)
    return f"{year}.{month:02}" if year else ""


def version_in(text: str) -> str:
    """Return the version in what a command prints for `--version` (`slurm-wlm 22.05.8`), "" where there is none."""
    match = _PRINTED.search(text)
    return match[0] if match else ""


def _numbers(version: str) -> Version:
    match = _NUMBERS.match(version)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else _UNKNOWN_VERSION
