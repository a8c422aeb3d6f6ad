"""Decides whether a request is sent to slurmctld: a budget shared by reads and changes.

What a command costs was counted with sdiag on 22.05.8, 24.11.5 and 26.05.5 (docs/load.md); a live test counts again.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from advisor.backends.process import Answer, Commands, Stream
from advisor.domain.units import MINUTE_S
from advisor.errors import BudgetSpentError
from advisor.settings import CHANGE_REQUESTS, ROUND_REQUESTS, BudgetSettings

# What changes jobs, by its first word.
_CHANGES: Final[Mapping[str, str]] = {"update": "REQUEST_UPDATE_JOB", "requeue": "REQUEST_JOB_REQUEUE"}
_WRITES: Final = frozenset(_CHANGES.values())
_READ_BACK: Final = 2
_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "config": ("REQUEST_BUILD_INFO", "REQUEST_PING"),
    "topology": ("REQUEST_TOPO_INFO",),
    "node": ("REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO"),
    "partition": ("REQUEST_PARTITION_INFO",),
    "reservation": ("REQUEST_RESERVATION_INFO",),
    "assoc_mgr": ("REQUEST_ASSOC_MGR_INFO",),
    "job": ("REQUEST_JOB_INFO_SINGLE", "REQUEST_FED_INFO"),
}
_PLAIN: Final[Mapping[str, tuple[str, ...]]] = {
    "sinfo": ("REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO"),
    "sdiag": ("REQUEST_STATS_INFO",),
    "sprio": ("REQUEST_PRIORITY_FACTORS",),
    # It asks slurmdbd.
    "sacctmgr": (),
}
_PYSLURM_CHILD: Final = "pyslurm_child.py"
# The cost of a command that was not counted.
_UNCOUNTED: Final = ("UNCOUNTED",) * 4
# What pyslurm loads for one snapshot; for the partitions it asks for the configuration too.
PYSLURM_SNAPSHOT: Final = (
    "REQUEST_JOB_INFO",
    "REQUEST_PARTITION_INFO",
    "REQUEST_NODE_INFO",
    "REQUEST_PARTITION_INFO",
    "REQUEST_BUILD_INFO",
)


def requests_of(program: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the requests that a command sends to slurmctld, by the names that sdiag counts them under."""
    if "--version" in arguments:
        return ()
    if any(argument.endswith(_PYSLURM_CHILD) for argument in arguments):
        return PYSLURM_SNAPSHOT
    as_json = any(argument.startswith("--json") for argument in arguments)
    match program:
        case "squeue":
            jobs = "REQUEST_JOB_INFO_SINGLE" if _names_one_job(arguments) else "REQUEST_JOB_INFO"
            return (jobs,) if as_json else (jobs, "REQUEST_PARTITION_INFO")
        case "scontrol":
            words = [argument for argument in arguments if not argument.startswith("-")]
            if words[:1] == ["ping"]:
                # One to each slurmctld of the cluster, of which one acts.
                return ("REQUEST_PING",)
            if words[:1] == ["show"]:
                return _SHOWN.get(words[1] if len(words) > 1 else "", _UNCOUNTED)
            change = _CHANGES.get(words[0] if words else "")
            return _UNCOUNTED if change is None else (change,)
        case _:
            return _PLAIN.get(program, _UNCOUNTED)


def _names_one_job(arguments: Sequence[str]) -> bool:
    named = arguments[arguments.index("-j") + 1 :][:1] if "-j" in arguments else ()
    return any("," not in ids for ids in named)


@dataclass(slots=True)
class _Bucket:
    """A token bucket, which fills with time up to its capacity."""

    size: float
    per_s: float
    held: float
    filled_at: float

    def fill(self, now: float) -> None:
        """Add the tokens for the time since the last call; none if the clock was set back."""
        self.held = min(self.size, self.held + max(0.0, now - self.filled_at) * self.per_s)
        self.filled_at = now


class RpcBudget:
    """The budget of requests to slurmctld; for one thread.

    Every request takes a token; a change takes one of its own kind as well, and is not sent if no token is left to read
    it back. `against_change` also leaves room for the next read of the cluster.
    """

    def __init__(self, settings: BudgetSettings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._monotonic = monotonic
        now = monotonic()
        burst, writes = float(settings.burst), float(settings.writes_per_minute)
        self._all = _Bucket(size=burst, per_s=settings.rpcs_per_minute / MINUTE_S, held=burst, filled_at=now)
        self._writes = _Bucket(size=writes, per_s=writes / MINUTE_S, held=writes, filled_at=now)
        self._rpcs: Counter[str] = Counter()

    @property
    def rpcs(self) -> Mapping[str, int]:
        """The requests sent since the start, by the names that sdiag counts them under."""
        return dict(self._rpcs)

    def adopt(self, settings: BudgetSettings) -> None:
        """Use other settings from now on; the requests sent so far still count."""
        self._fill()
        self._settings = settings
        writes = float(settings.writes_per_minute)
        self._all.size, self._all.per_s = float(settings.burst), settings.rpcs_per_minute / MINUTE_S
        self._writes.size, self._writes.per_s = writes, writes / MINUTE_S
        self._fill()

    def take(self, requests: Sequence[str]) -> None:
        """Take the tokens of a command; raises `BudgetSpentError`, and takes none, if too few are left."""
        self._fill()
        writes = sum(1 for request in requests if request in _WRITES)
        reason = self._lacking(len(requests) + (_READ_BACK if writes else 0), writes)
        if reason is not None:
            raise BudgetSpentError(f"slurmctld is not asked now: {reason}")
        self._all.held -= len(requests)
        self._writes.held -= writes
        self._rpcs.update(requests)

    def against_round(self, requests: int = ROUND_REQUESTS) -> str | None:
        """Return why the budget does not cover the maximum of requests that a round sends before its changes.

        None if it does. A round that began without it would spend on its first commands what the others need.
        """
        self._fill()
        return self._lacking(requests, 0)

    def against_change(self) -> str | None:
        """Return why the budget does not cover a change (read, change, read back); None if it does."""
        self._fill()
        reason = self._lacking(CHANGE_REQUESTS + self._settings.kept_for_reads, 1)
        return None if reason is None else f"budget: {reason}"

    def against_return(self) -> str | None:
        """Return why the budget does not cover a revert, which costs as much as a change."""
        return self.against_change()

    def _fill(self) -> None:
        now = self._monotonic()
        self._all.fill(now)
        self._writes.fill(now)

    def _lacking(self, requests: int, writes: int) -> str | None:
        if writes > self._writes.held:
            return f"{self._settings.writes_per_minute} changes were sent within a minute (budget.writes_per_minute)"
        if requests > self._all.held:
            wait_s = (requests - self._all.held) / self._all.per_s
            return f"it has had its share of requests (budget.rpcs_per_minute), with room again in {wait_s:.0f} s"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedCommands:
    """Slurm's commands within a budget: what does not fit is not sent, and raises `BudgetSpentError`."""

    commands: Commands
    budget: RpcBudget = field(repr=False)

    @property
    def cluster(self) -> str | None:
        """The cluster that the commands address."""
        return self.commands.cluster

    def ask(self, program: str, *arguments: str) -> Answer:
        """Run a command if the budget has room for it."""
        self.budget.take(requests_of(program, arguments))
        return self.commands.ask(program, *arguments)

    def stream(self, program: str, *arguments: str, variables: Mapping[str, str]) -> Stream:
        """Run a command if the budget has room for it, and return its output in chunks."""
        self.budget.take(requests_of(program, arguments))
        return self.commands.stream(program, *arguments, variables=variables)
