"""The one table of what differs between Slurm's releases, 22.05 to 26.05."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Release = tuple[int, int]

# Slurm's releases by year and month; a point release changes nothing that stands here.
OLDEST: Final[Release] = (22, 5)
NEWEST: Final[Release] = (26, 5)
UNKNOWN_RELEASE: Final[Release] = (0, 0)

_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.[0-9A-Za-z.-]+)?")


# One release speaks several versions of JSON: from v0.0.42 on, and before.
SWITCHES_IN_JSON: Final = ("required_switches", "minimum_switches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a release can do and how it names things.

    `scontrol_json` is whether nodes and partitions come as JSON from scontrol; squeue has JSON in every release.
    `switches_in_json` is whether the job JSON carries required switches. `sharing_tells_exclusive` is
    whether a job that wants whole nodes for itself says so in what JSON and pyslurm give as its sharing.
    `default_priority_type` is "" where it is not known. `tested` is whether a live cluster or recorded answers of it
    are part of the tests.
    """

    release: Release
    scontrol_json: bool = True
    switches_in_json: bool = True
    sharing_tells_exclusive: bool = True
    default_priority_type: str = ""
    squeue_lacks: tuple[str, ...] = ("Exclusive", "CronJob")
    squeue_array_unique: bool = False
    tested: bool = False


_MULTIFACTOR = "priority/multifactor"

TRAITS: Final[Mapping[Release, Traits]] = {
    traits.release: traits
    for traits in (
        Traits(
            release=(22, 5),
            scontrol_json=False,
            switches_in_json=False,
            default_priority_type="priority/basic",
            squeue_lacks=("ExcNodes", "Exclusive", "CronJob"),
            squeue_array_unique=True,
            tested=True,
        ),
        # What squeue of the untested releases has is not known for sure; it names what it lacks when asked.
        Traits(release=(23, 2)),
        Traits(release=(23, 11)),
        Traits(release=(24, 5)),
        Traits(release=(24, 11), default_priority_type=_MULTIFACTOR, tested=True),
        Traits(release=(25, 5), default_priority_type=_MULTIFACTOR),
        Traits(release=(25, 11), default_priority_type=_MULTIFACTOR, tested=True),
        Traits(
            release=(26, 5),
            default_priority_type=_MULTIFACTOR,
            sharing_tells_exclusive=False,
            squeue_lacks=(),
            tested=True,
        ),
    )
}


def traits_of(release: Release) -> Traits:
    """Return the traits of a release, or of the last one before it; an unknown release is taken for the newest."""
    if release == UNKNOWN_RELEASE:
        return TRAITS[NEWEST]
    earlier = [known for known in TRAITS if known <= release]
    return TRAITS[max(earlier, default=OLDEST)]


def version_in(text: str) -> str:
    """Return the version in what a command prints for `--version` (`slurm-wlm 22.05.8`), "" where there is none."""
    match = _VERSION.search(text)
    return match[0] if match else ""


def release_of(version: str) -> Release:
    """Return the release of a version, (0, 0) where it is unknown."""
    match = _VERSION.match(version)
    return (int(match[1]), int(match[2])) if match else UNKNOWN_RELEASE
