"""Ways in which one user submits the same work to get more than the others, as rewritten traces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.units import HOUR_S, MINUTE_S
from advisor.sim.traces.trace import Trace

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

# The parts of a job, and by how much a first limit is too short.
PARTS: Final = 8
# Jobs with a shorter limit are submitted as they are.
_SHORTEST_S: Final = HOUR_S
_ACCOUNTS: Final = 10
_ACCOUNTS_OF_PLAYER: Final = 4
_NICE: Final = 1000
_DECOYS: Final = 2
_DECOY_S: Final = 30.0
# The nodes of the demo's cluster.
_GPUS_PER_NODE: Final = 8
_CPUS_PER_NODE: Final = 128
_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts:
    """The jobs of one user; `piece` is the row of the honest job, `after` the row of the part that a part waits for.

    Both are `(n_parts,)`; -1 is none: a part of no piece is of no use to the user.
    """

    jobs: NDArray[np.void]
    piece: Rows
    after: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to submit the jobs of one user, which it receives as rows of a trace."""

    summary: str
    parts: Callable[[NDArray[np.void]], JobParts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submissions:
    """A trace in which one user plays; `piece` is the row in the honest trace of each job, -1 for none."""

    trace: Trace
    piece: Rows
    submit_time: Floats  # of the pieces

    def done_s(self, end_time: Floats) -> Floats:
        """Return the time from the submission of each piece of work to the end of its last part, `(n_pieces,)`."""
        useful = self.piece != _NONE
        last = np.full(len(self.submit_time), -np.inf)
        np.maximum.at(last, self.piece[useful], end_time[useful])
        return np.asarray(last - self.submit_time)


def honest(trace: Trace) -> Submissions:
    """Return a trace as it is."""
    return Submissions(trace=trace, piece=np.arange(len(trace)), submit_time=trace.jobs["submit_time"].copy())


def submitted(trace: Trace, user: int, strategy: str) -> Submissions:
    """Return a trace in which a user submits by a strategy."""
    own = np.flatnonzero(trace.jobs["user"] == user)
    parts = STRATEGIES[strategy].parts(trace.jobs[own])
    jobs, piece = parts.jobs.copy(), np.where(parts.piece == _NONE, _NONE, own[parts.piece])
    others = np.delete(np.arange(len(trace)), own)
    # Strategies count on from the home of the user.
    jobs["account"] %= len(trace.accounts)
    jobs["job_id"] = np.arange(len(jobs)) + trace.jobs["job_id"].max() + 1
    waits = parts.after != _NONE
    jobs["dependency"][waits] = len(trace.dependencies) + np.arange(int(waits.sum()))
    dependencies = tuple(f"afterany:{job_id}" for job_id in jobs["job_id"][parts.after[waits]].tolist())
    rows, pieces = np.concatenate([trace.jobs[others], jobs]), np.concatenate([others, piece])
    order = np.lexsort((rows["job_id"], rows["submit_time"]))
    return Submissions(
        trace=replace(trace, jobs=rows[order], dependencies=trace.dependencies + dependencies),
        piece=pieces[order],
        submit_time=trace.jobs["submit_time"].copy(),
    )


def with_accounts(trace: Trace) -> Trace:
    """Return a trace with accounts to play with: where there are too few, users are dealt to ten of equal shares."""
    if len(trace.accounts) >= _ACCOUNTS_OF_PLAYER:
        return trace
    jobs = trace.jobs.copy()
    jobs["account"] = jobs["user"] % _ACCOUNTS
    return replace(trace, jobs=jobs, accounts=tuple(f"account{number}" for number in range(_ACCOUNTS)))


def _as_they_are(own: NDArray[np.void]) -> JobParts:
    rows = np.arange(len(own))
    return JobParts(jobs=own.copy(), piece=rows, after=np.full(len(own), _NONE))


def _split(own: NDArray[np.void]) -> JobParts:
    """Submit the parts of each job side by side."""
    count = np.where(_is_long(own), PARTS, 1)
    piece = np.repeat(np.arange(len(own)), count)
    jobs = own[piece]
    jobs["run_time_s"] /= count[piece]
    jobs["time_limit_s"] = np.where(
        count[piece] > 1, _whole_minutes(jobs["time_limit_s"] / count[piece]), jobs["time_limit_s"]
    )
    return JobParts(jobs=jobs, piece=piece, after=np.full(len(jobs), _NONE))


def _exclusive(own: NDArray[np.void]) -> JobParts:
    """Ask for one GPU of each node, and for nodes of one's own, where a job fills its nodes."""
    parts = _as_they_are(own)
    fills = (own["gpus"] > 0) & (own["gpus"] % _GPUS_PER_NODE == 0)
    nodes = own["gpus"] // _GPUS_PER_NODE
    _count_as(parts.jobs, fills, nodes)
    for name in ("nodes_min", "nodes_max"):
        parts.jobs[name] = np.where(fills, nodes, own[name])
    parts.jobs["exclusive"] = np.where(fills, 1, own["exclusive"])
    return parts


def _cpus(own: NDArray[np.void]) -> JobParts:
    """Ask for one GPU, and for the CPUs of all that are used, where a job runs on a part of a node."""
    parts = _as_they_are(own)
    fits = (own["gpus"] > 1) & (own["gpus"] <= _GPUS_PER_NODE)
    _count_as(parts.jobs, fits, np.ones(len(own), np.int32))
    parts.jobs["cpus"] = np.where(fits, own["gpus"] * (_CPUS_PER_NODE // _GPUS_PER_NODE), own["cpus"])
    return parts


def _count_as(jobs: NDArray[np.void], which: NDArray[np.bool_], gpus: NDArray[np.int32]) -> None:
    for name in ("gpus", "gpus_min", "gpus_max"):
        jobs[name] = np.where(which, gpus, jobs[name])


def _chain(own: NDArray[np.void]) -> JobParts:
    """Submit the parts of each job one after another, each from the checkpoint of the one before."""
    parts = _split(own)
    follows = np.diff(parts.piece, prepend=_NONE) == 0
    return replace(parts, after=np.where(follows, np.arange(len(parts.piece)) - 1, _NONE))


def _short(own: NDArray[np.void]) -> JobParts:
    """Ask for short limits, and submit what is killed again from its start with twice the limit."""
    piece, limit_s = [], []
    for row, (job, is_long) in enumerate(zip(own, _is_long(own), strict=True)):
        asked_s, next_s = float(job["time_limit_s"]), float(job["time_limit_s"])
        if is_long:
            next_s = float(_whole_minutes(asked_s / PARTS))
        while next_s < min(asked_s, float(job["run_time_s"])):
            piece.append(row)
            limit_s.append(next_s)
            next_s *= 2.0
        piece.append(row)
        limit_s.append(min(next_s, asked_s))
    rows = np.array(piece, np.intp)
    jobs = own[rows]
    jobs["time_limit_s"] = limit_s
    follows = np.diff(rows, prepend=_NONE) == 0
    return JobParts(jobs=jobs, piece=rows, after=np.where(follows, np.arange(len(rows)) - 1, _NONE))


def _accounts(own: NDArray[np.void]) -> JobParts:
    """Take the accounts of the user in turn."""
    return _spread(_as_they_are(own))


def _spread(parts: JobParts) -> JobParts:
    parts.jobs["account"] += np.arange(len(parts.jobs), dtype=np.int32) % _ACCOUNTS_OF_PLAYER
    return parts


def _nice(own: NDArray[np.void]) -> JobParts:
    """Raise the nice of the longer half."""
    parts = _as_they_are(own)
    parts.jobs["nice"] += np.where(own["time_limit_s"] > np.median(own["time_limit_s"]), _NICE, 0).astype(np.int32)
    return parts


def _hints(own: NDArray[np.void]) -> JobParts:
    """Declare a range of GPUs and frequent checkpoints."""
    parts = _as_they_are(own)
    parts.jobs["gpus_min"], parts.jobs["gpus_max"] = np.minimum(1, own["gpus"]), 8 * own["gpus"]
    parts.jobs["checkpoint_interval_s"] = MINUTE_S
    return parts


def _decoys(own: NDArray[np.void]) -> JobParts:
    """Submit jobs that end at once beside each job, with the same request."""
    piece = np.repeat(np.arange(len(own)), 1 + _DECOYS)
    is_decoy = np.arange(len(piece)) % (1 + _DECOYS) > 0
    jobs = own[piece]
    jobs["run_time_s"][is_decoy] = _DECOY_S
    return JobParts(jobs=jobs, piece=np.where(is_decoy, _NONE, piece), after=np.full(len(piece), _NONE))


def _is_long(own: NDArray[np.void]) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(own["time_limit_s"]) & (own["time_limit_s"] > _SHORTEST_S))


def _whole_minutes(seconds: Floats | float) -> Floats:
    """Round up, as Slurm does with limits."""
    return np.asarray(np.ceil(np.asarray(seconds) / MINUTE_S) * MINUTE_S)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "split": Strategy(summary=f"each job as {PARTS} jobs side by side, of the same width", parts=_split),
    "exclusive": Strategy(summary="one GPU a node and --exclusive, for jobs that fill their nodes", parts=_exclusive),
    "cpus": Strategy(summary="one GPU and the CPUs of all that are used, for jobs within a node", parts=_cpus),
    "chain": Strategy(summary=f"each job as {PARTS} jobs one after another, with checkpoints", parts=_chain),
    "short": Strategy(
        summary=f"limits {PARTS} times too short, doubled when killed, without checkpoints", parts=_short
    ),
    "accounts": Strategy(summary=f"{_ACCOUNTS_OF_PLAYER} accounts in turn", parts=_accounts),
    "both": Strategy(summary="split and accounts", parts=lambda own: _spread(_split(own))),
    "nice": Strategy(summary=f"nice {_NICE} on the longer half of one's own jobs", parts=_nice),
    "hints": Strategy(summary="lies about GPUs and checkpoints", parts=_hints),
    "decoys": Strategy(summary=f"{_DECOYS} jobs of {_DECOY_S:g} s beside each, to mislead forecasts", parts=_decoys),
}
