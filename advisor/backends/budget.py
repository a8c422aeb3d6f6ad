"""Decides whether a request is sent to slurmctld: a share of its time for reads and changes together.

What a command costs was counted with sdiag on 22.05.8, 24.11.5 and 26.05.5 (docs/load.md); a live test counts again.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import inf
from typing import Final

from advisor.backends.process import Answer, FedCommands, Stream
from advisor.domain.dataclass import dataclass
from advisor.domain.load import Allowance, RateLimit
from advisor.domain.units import MINUTE_S, plural
from advisor.errors import BudgetSpentError
from advisor.settings import BudgetSettings

# What changes a job.
_UPDATE: Final = "REQUEST_UPDATE_JOB"
# The requests of one round before any change: sdiag, and the four of a snapshot.
ROUND_REQUESTS: Final = 5
# The requests of a batch of changes beside one for each: its jobs are read before and after, some of them twice.
BATCH_REQUESTS: Final = 6
# The most requests of one change.
CHANGE_REQUESTS: Final = 3
# The requests left after the reads of a round for which one change has room.
_LEAST_BATCH: Final = BATCH_REQUESTS + ROUND_REQUESTS + CHANGE_REQUESTS
# Assumed of a kind of request that slurmctld has not yet served.
_ASSUMED_S: Final = 0.001
# Of the rate at which slurmctld's rate limiter lets requests pass; other programs of this user need the rest.
_LIMIT_SHARE: Final = 0.5
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
# What pyslurm loads for one snapshot.
PYSLURM_SNAPSHOT: Final = (
    "REQUEST_JOB_INFO",
    "REQUEST_PARTITION_INFO",
    "REQUEST_NODE_INFO",
    "REQUEST_PARTITION_INFO",
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
            if words[:1] != ["update"]:
                return _UNCOUNTED
            # scontrol looks at the job before it changes a node range.
            looked_at = _SHOWN["job"] if words[-1].startswith("NumNodes=") else ()
            return (_UPDATE, *looked_at)
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
    """The share of slurmctld's time that requests take, by sdiag's means for each kind; for one thread.

    A round begins, and changes are sent, while the share is not used up. What a round and its batch of changes cost
    beyond it, later rounds wait for. Where slurmctld limits this user's requests, they stay within half of that rate.
    """

    def __init__(self, settings: BudgetSettings, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Take the settings and the clock, which counts on when the machine's clock is set."""
        self._monotonic = monotonic
        now = monotonic()
        share = settings.time_ratio
        self._time = _Bucket(size=share * MINUTE_S, per_s=share, held=share * MINUTE_S, filled_at=now)
        self._requests = _Bucket(size=inf, per_s=0.0, held=inf, filled_at=now)
        self._limit: RateLimit | None = None
        self._means_s: Mapping[str, float] = {}
        self._rpcs: Counter[str] = Counter()
        self._spent_s = 0.0

    @property
    def rpcs(self) -> Mapping[str, int]:
        """The requests sent since the start, by the names that sdiag counts them under."""
        return dict(self._rpcs)

    @property
    def spent_s(self) -> float:
        """The time that slurmctld took for them, in seconds, as far as sdiag's means tell."""
        return self._spent_s

    def adopt(self, settings: BudgetSettings) -> None:
        """Use other settings from now on; the requests sent so far still count."""
        self._fill()
        self._time.size, self._time.per_s = settings.time_ratio * MINUTE_S, settings.time_ratio
        self._fill()

    def learn(self, means_s: Mapping[str, float], limit: RateLimit | None, *, reading: int) -> None:
        """Use the means of sdiag from now on, and the limit of slurmctld on this user's requests.

        What this user has sent before the limit was known is not seen, so at first there is room for the `reading`
        requests of the round under way alone.
        """
        self._means_s = means_s
        if limit != self._limit:
            size, per_s = (inf, 0.0) if limit is None else (float(limit.size), limit.per_s * _LIMIT_SHARE)
            held = size if limit is None else min(size, float(reading))
            self._requests = _Bucket(size=size, per_s=per_s, held=held, filled_at=self._monotonic())
            self._limit = limit

    def take(self, requests: Sequence[str]) -> None:
        """Count the requests of a command; raises `BudgetSpentError`, and counts none, where slurmctld limits them."""
        self._fill()
        reason = self._limited(len(requests))
        if reason is not None:
            raise BudgetSpentError(f"slurmctld is not asked now: {reason}")
        cost_s = sum(map(self._cost_s, requests))
        self._requests.held -= len(requests)
        self._time.held -= cost_s
        self._spent_s += cost_s
        self._rpcs.update(requests)

    def against_round(self, requests: int = ROUND_REQUESTS) -> str | None:
        """Return why no round with a number of requests before its changes begins now; None if one can.

        A round that began too early would spend on its first commands what the others need. Under slurmctld's limiter
        it also leaves room for a change, if the bucket is large enough, so that reads do not keep reverts waiting.
        """
        self._fill()
        if self._time.held <= 0:
            wait_s = -self._time.held / self._time.per_s
            return f"it has spent its share of slurmctld's time (budget.time_ratio), with room again in {wait_s:.0f} s"
        return self._limited(max(requests, min(requests + _LEAST_BATCH, self._requests.size)))

    def room(self, wanted: int, *, returning: bool = False) -> Allowance:
        """Return how many changes of a batch can be sent; what is reverted is late already and waits for no share."""
        self._fill()
        # Both reads of a batch, and the next round's.
        requests = (self._requests.held - BATCH_REQUESTS - ROUND_REQUESTS) / CHANGE_REQUESTS
        affordable = inf if returning else self._time.held / self._cost_s(_UPDATE)
        changes = int(max(0.0, min(wanted, requests, affordable)))
        if changes == wanted:
            return Allowance(changes=wanted)
        limited = requests < affordable
        why = "slurmctld's rate limiter" if limited else "the share of slurmctld's time, budget.time_ratio,"
        return Allowance(changes=changes, text=f"budget: {why} leaves room for {changes} of {plural(wanted, 'change')}")

    def _fill(self) -> None:
        now = self._monotonic()
        self._time.fill(now)
        self._requests.fill(now)

    def _cost_s(self, request: str) -> float:
        return self._means_s.get(request, _ASSUMED_S)

    def _limited(self, requests: float) -> str | None:
        if requests <= self._requests.held:
            return None
        wait_s = (requests - self._requests.held) / self._requests.per_s
        return f"slurmctld limits the requests of this user (rl_enable), with room again in {wait_s:.0f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedCommands:
    """Slurm's commands within a budget: what does not fit is not sent, and raises `BudgetSpentError`."""

    commands: FedCommands
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

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Run a program that reads lines if the budget has room for all of them."""
        self.budget.take([request for line in lines for request in requests_of(program, line.split())])
        return self.commands.feed(program, lines)
