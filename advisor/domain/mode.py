"""Defines the modes of the daemon: observe a job, recommend changes to it, or apply them."""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job


class Mode(StrEnum):
    """The modes, most careful first."""

    OBSERVE = "observe"  # the job is forecast and learned from; nothing is proposed for it
    RECOMMEND = "recommend"  # recommendations are written down
    APPLY = "apply"  # what no rule refuses is applied


_CAREFUL_FIRST = tuple(Mode)


@lru_cache(maxsize=64)
def _modes(key: str, text: str) -> Mapping[str, Mode]:
    """Parse `name=mode, name=mode`; raises `ValueError` for anything else."""
    modes: dict[str, Mode] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, mode = (part.strip() for part in entry.partition("="))
        if not (name and equals and mode in _CAREFUL_FIRST):
            raise ValueError(f"{key} must be name=mode pairs with the modes {', '.join(Mode)}")
        if name in modes:
            raise ValueError(f"{key} must name {name} once")
        modes[name] = Mode(mode)
    return modes


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """How far the daemon can go, by partition and account; the most careful mode of a job is used."""

    default: Annotated[Mode, "mode of all other partitions and accounts: observe, recommend or apply"] = Mode.OBSERVE
    partitions: Annotated[str, 'modes of partitions, such as "gpu=apply, debug=observe"'] = ""
    accounts: Annotated[str, 'modes of accounts, such as "vision=apply, theory=recommend"'] = ""

    def __post_init__(self) -> None:
        for name in ("partitions", "accounts"):
            _modes(name, getattr(self, name))

    def of(self, job: Job) -> Mode:
        """Return the mode of a job: the most careful one configured for its partitions and its account.

        A partition without a mode counts with the default if another partition of the job has one.
        """
        partitions, accounts = _modes("partitions", self.partitions), _modes("accounts", self.accounts)
        modes = [partitions.get(name, self.default) for name in job.partitions if partitions]
        if not any(name in partitions for name in job.partitions):
            modes = []
        if job.account in accounts:
            modes.append(accounts[job.account])
        return min(modes, key=_CAREFUL_FIRST.index, default=self.default)

    def of_partition(self, partition: str) -> Mode:
        """Return the mode of the jobs of one partition whose account has no mode."""
        return _modes("partitions", self.partitions).get(partition, self.default)

    def accounts_below(self, mode: Mode) -> frozenset[str]:
        """Return the accounts with a more careful mode than another."""
        modes = _modes("accounts", self.accounts)
        return frozenset(name for name in modes if _CAREFUL_FIRST.index(modes[name]) < _CAREFUL_FIRST.index(mode))

    @property
    def farthest(self) -> Mode:
        """The farthest of all configured modes, including the default."""
        named = (*_modes("partitions", self.partitions).values(), *_modes("accounts", self.accounts).values())
        return max((self.default, *named), key=_CAREFUL_FIRST.index)


# A person at the terminal can change every job.
EVERYTHING = Modes(default=Mode.APPLY)
