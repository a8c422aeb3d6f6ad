"""Sample the columns that a trace lacks: models, time limits, sizes, node counts, checkpoints, arrays, users.

Recorded values do not change. A column is missing if every job holds its default; models are sampled for single
jobs. Every column has a random stream of its own, seeded with the seed and the name of the column, so that sampling
one more column leaves the others unchanged. docs/traces.md shows the tables.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import MOST
from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S
from advisor.sim.traces.trace import TRACE_DTYPE, Trace

# Weights of a model among jobs of 1, of 2 to 4, of 5 to 8 and of more GPUs; a model that is not named here has
# `OTHER_WEIGHTS`. Profiles of one model, such as resnet18 and resnet18/64, share its weight alike. Ours: small vision
# and recommendation models on few GPUs, language models on many.
SIZE_EDGES: Final = (2, 5, 9)
OTHER_WEIGHTS: Final = (1.0, 1.0, 1.0, 1.0)
MODEL_WEIGHTS: Final[Mapping[str, tuple[float, float, float, float]]] = {
    "resnet18": (4.0, 2.0, 0.5, 0.0),
    "cifar10": (4.0, 2.0, 0.5, 0.0),
    "mobilenetv3": (3.0, 1.0, 0.5, 0.0),
    "cyclegan": (3.0, 1.0, 0.0, 0.0),
    "a3c": (2.0, 1.0, 0.0, 0.0),
    "graphsage": (2.0, 1.0, 0.0, 0.0),
    "ncf": (2.0, 1.0, 0.0, 0.0),
    "recommendation": (2.0, 1.0, 0.5, 0.0),
    "lm": (2.0, 2.0, 0.5, 0.0),
    "transformer": (2.0, 2.0, 1.0, 0.5),
    "resnet50": (3.0, 4.0, 4.0, 2.0),
    "inception3": (1.0, 1.0, 1.0, 0.5),
    "vgg16": (1.0, 2.0, 1.0, 0.5),
    "vgg19": (1.0, 1.0, 1.0, 0.5),
    "yolov3": (1.0, 2.0, 1.0, 0.5),
    "deepspeech2": (0.5, 1.0, 2.0, 1.0),
    "vit": (1.0, 2.0, 3.0, 2.0),
    "bert": (1.0, 2.0, 4.0, 4.0),
    "roberta": (0.5, 1.0, 2.0, 2.0),
    "transformerxl": (0.5, 1.0, 2.0, 2.0),
    "dlrm": (0.0, 0.5, 1.0, 1.0),
    "t5": (0.0, 0.5, 2.0, 3.0),
    "gpt2": (0.5, 1.0, 3.0, 4.0),
    "llama7": (0.0, 0.5, 2.0, 4.0),
    "llama30": (0.0, 0.0, 0.5, 3.0),
}

# Time limit over run time at the quantiles below, for run times from 0, 60, 600, ... seconds on. Measured on completed
# GPU jobs of DRAC's Graham (`graham_gpu_jobs_until_2021-06-14.csv.gz`, see docs/traces.md), every account counting
# once. The top tenth is left out: default limits of jobs that end within seconds.
LIMIT_QUANTILES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
LIMIT_EDGES_S: Final = (MINUTE_S, 10 * MINUTE_S, HOUR_S, 4 * HOUR_S, DAY_S)
LIMIT_RATIOS: Final = (
    (40.00, 40.00, 427.12, 1393.55, 10800.00, 14400.00),
    (1.04, 3.73, 73.80, 164.46, 387.69, 1205.58),
    (1.33, 2.09, 3.41, 18.81, 40.42, 186.68),
    (1.00, 1.50, 1.99, 4.45, 8.96, 30.91),
    (1.00, 1.08, 1.28, 1.86, 2.99, 5.82),
    (1.01, 1.02, 1.22, 1.56, 2.16, 3.85),
)
# The longest limit in the same table; a job that runs longer still gets its run time.
LONGEST_LIMIT_S: Final = 28 * DAY_S
# Limits are rounded up to the step of the first bound they do not exceed. Ours, after the shares of whole quarters,
# hours and days that the same command prints.
LIMIT_STEPS_S: Final = ((4 * HOUR_S, 900.0), (2 * DAY_S, HOUR_S), (np.inf, DAY_S))

# The 22 usual values of a time limit, in hours.
USUAL_LIMITS_H: Final = (0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 18, 20, 24, 36, 48, 72, 96, 120, 144, 168)

# Ends of a range of sizes as multiples of what a job asks. Ours.
SMALLEST_RATIOS: Final = (0.25, 0.5, 1.0)
LARGEST_RATIOS: Final = (1, 2, 4)

# Jobs of at least an hour write checkpoints, and how often. Ours.
CHECKPOINT_FROM_S: Final = HOUR_S
CHECKPOINT_INTERVALS_S: Final = (600.0, 1800.0, 3600.0)

# Only jobs of one user with equal requests can be an array, each submitted this soon after the one before. Ours.
BURST_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """The shares of requests of each kind.

    Shares of gangs are of jobs of 2 GPUs and more. `elastic`: gangs that declare a range of sizes. `open_nodes`: rigid
    gangs that leave their node count open. `several_below_8` and `several_at_8`: rigid gangs of fewer than 8 and of 8
    GPUs that ask for several nodes though one would hold them. `checkpoint`: jobs of an hour and more that resume from
    a checkpoint. `array`: submissions that are arrays. `usual_limit`: time limits that are the nearest of the 22 usual
    values; the others are round numbers. `interactive`: jobs that somebody waits for, all of them on one node.
    """

    elastic: float
    open_nodes: float
    several_below_8: float
    several_at_8: float
    checkpoint: float
    array: float
    usual_limit: float
    interactive: float = 0.0


# Of 398 public job scripts (docs/traces.md). None asks for a range of sizes. 5 to 22 of 273 gangs leave the node count
# open: 0.05 lies between. A word for checkpoints stands in 9.4 % of the scripts with limits of an hour and more.
# `usual_limit` of the limits on purpose, and others by chance, make the 81 % of the scripts.
USUAL: Final = Requests(
    elastic=0.0,
    open_nodes=0.05,
    several_below_8=0.04,
    several_at_8=0.2,
    checkpoint=0.094,
    array=0.058,
    usual_limit=0.64,
)
# Ours, from before the scripts were counted: how much more gangs could gain if users left more open.
OPEN: Final = Requests(
    elastic=0.3,
    open_nodes=0.3,
    several_below_8=0.0,
    several_at_8=0.0,
    checkpoint=0.5,
    array=0.0,
    usual_limit=0.0,
)
INTERACTIVE: Final = replace(USUAL, interactive=0.05)
REQUESTS: Final[Mapping[str, Requests]] = {"usual": USUAL, "open": OPEN, "interactive": INTERACTIVE}
# Interactive jobs are drawn from those of one node with a time limit up to this. Ours.
LONGEST_INTERACTIVE_S: Final = 8 * HOUR_S

# Columns in which the tasks of one array differ; and those that belong to a user, drawn or not.
_OF_TASK: Final = frozenset({"job_id", "submit_time", "run_time_s", "recorded_start_time", "array_id"})
_OF_USER: Final = frozenset({"user", "account"})

# Users follow a Zipf distribution. The exponent is that of the 20 busiest accounts in the table above; 4 is ours.
USER_COUNT: Final = 20
USER_EXPONENT: Final = 1.45
ACCOUNT_COUNT: Final = 4


def fill(
    trace: Trace,
    profiles: Sequence[str],
    seed: int,
    *,
    gpus_per_node: int = 8,
    requests: Requests = USUAL,
) -> Trace:
    """Sample the missing columns of a trace and list them in `sampled`; equal arguments give equal traces.

    `profiles` are the models to choose from; without any, models stay unknown. `gpus_per_node` determines the fewest
    nodes that a job can request. A column of which `requests` has no share stays missing.
    """
    jobs = trace.jobs.copy()
    filled = replace(trace, jobs=jobs)
    sampled: list[str] = []
    if profiles and np.any(jobs["model"] < 0):
        filled = _with_models(filled, tuple(profiles), seed)
        sampled.append("model")
    if np.all(np.isinf(jobs["time_limit_s"])):
        jobs["time_limit_s"] = _time_limits_s(jobs["run_time_s"], seed, requests.usual_limit)
        sampled.append("time_limit_s")
    if requests.elastic and np.all((jobs["gpus_min"] == jobs["gpus"]) & (jobs["gpus_max"] == jobs["gpus"])):
        _sample_sizes(jobs, seed, requests.elastic)
        sampled += ["gpus_min", "gpus_max"]
    lacks_nodes = not np.any(jobs["nodes_min"]) and not np.any(jobs["nodes_max"])
    if lacks_nodes:
        _sample_nodes(jobs, gpus_per_node, seed, requests)
        sampled += ["nodes_min", "nodes_max"]
    if requests.checkpoint and not np.any(jobs["checkpoint_interval_s"]):
        jobs["checkpoint_interval_s"] = _checkpoint_intervals_s(
            jobs["run_time_s"], _stream(seed, "checkpoint_interval_s"), requests.checkpoint
        )
        sampled.append("checkpoint_interval_s")
    filled, named = _with_names(filled, seed)
    sampled += named
    # A source that has node counts has arrays, if there were any.
    if requests.array and lacks_nodes and not np.any(jobs["array_id"]):
        _sample_arrays(jobs, frozenset(sampled), _stream(seed, "array_id"), requests.array)
        sampled.append("array_id")
    if requests.interactive and not np.any(jobs["interactive"]):
        _sample_interactive(jobs, gpus_per_node, _stream(seed, "interactive"), requests.interactive)
        sampled.append("interactive")
    if not sampled:
        return trace
    note = trace.note
    if trace.seed not in (None, seed):
        note = "; ".join(
            part for part in (note, f"{', '.join(trace.sampled)} drawn before from seed {trace.seed}") if part
        )
    return replace(filled, sampled=tuple(dict.fromkeys((*trace.sampled, *sampled))), seed=seed, note=note)


def _stream(seed: int, column: str) -> np.random.Generator:
    """Return the random stream of one column."""
    return np.random.default_rng([seed, zlib.crc32(column.encode())])


def _with_models(trace: Trace, profiles: tuple[str, ...], seed: int) -> Trace:
    """Assign a profile to every job without a model, by its number of GPUs."""
    jobs = trace.jobs
    draws = _stream(seed, "model").random(len(jobs))
    bases = [name.partition("/")[0] for name in profiles]
    weights = np.array([np.divide(MODEL_WEIGHTS.get(base, OTHER_WEIGHTS), bases.count(base)) for base in bases])
    # A size that no given profile has a weight for takes any of them.
    weights[:, weights.sum(axis=0) == 0] = 1.0
    reached = np.cumsum(weights, axis=0) / weights.sum(axis=0)  # (n_profiles, n_sizes)
    sizes = np.searchsorted(SIZE_EDGES, jobs["gpus"], side="right")
    chosen = np.zeros(len(jobs), dtype=np.int64)
    for size in range(reached.shape[1]):
        of_size = sizes == size
        chosen[of_size] = np.searchsorted(reached[:, size], draws[of_size], side="right")
    names = [profiles[min(row, len(profiles) - 1)] for row in chosen.tolist()]
    known = [trace.models[code] if code >= 0 else "" for code in jobs["model"].tolist()]
    models, codes = _table([own or drawn for own, drawn in zip(known, names, strict=True)])
    jobs["model"] = codes
    return replace(trace, models=models)


def _time_limits_s(run_time_s: NDArray[np.float64], seed: int, usual_share: float) -> NDArray[np.float64]:
    """Draw time limits as users request them: too long, and usual values or round numbers."""
    draws = _stream(seed, "time_limit_s").random(len(run_time_s)) * LIMIT_QUANTILES[-1]
    bands = np.searchsorted(LIMIT_EDGES_S, run_time_s, side="right")
    asked_s = np.zeros(len(run_time_s))
    for band, ratios in enumerate(LIMIT_RATIOS):
        of_band = bands == band
        # Between quantiles the logarithm is linear, for the ratios go over orders of magnitude.
        factor = np.exp(np.interp(draws[of_band], LIMIT_QUANTILES, np.log(ratios)))
        asked_s[of_band] = run_time_s[of_band] * factor
    asked_s = np.maximum(np.minimum(asked_s, LONGEST_LIMIT_S), run_time_s)
    limits_s = asked_s.copy()
    lower_s = 0.0
    for upper_s, step_s in LIMIT_STEPS_S:
        within = (asked_s > lower_s) & (asked_s <= upper_s)
        limits_s[within] = np.ceil(asked_s[within] / step_s) * step_s
        lower_s = upper_s
    usual_s = np.multiply(USUAL_LIMITS_H, HOUR_S)
    is_usual = (_stream(seed, "usual limit").random(len(run_time_s)) < usual_share) & (asked_s <= usual_s[-1])
    above = np.minimum(np.searchsorted(usual_s, asked_s), len(usual_s) - 1)
    below = np.maximum(above - 1, 0)
    takes_below = (usual_s[below] >= run_time_s) & (asked_s * asked_s < usual_s[below] * usual_s[above])
    return np.where(is_usual, usual_s[np.where(takes_below, below, above)], limits_s)


def _sample_sizes(jobs: NDArray[np.void], seed: int, share: float) -> None:
    """Let some jobs of several GPUs declare the sizes that they can run at."""
    elastic = (jobs["gpus"] >= 2) & (_stream(seed, "elastic").random(len(jobs)) < share)
    smallest = _stream(seed, "gpus_min").choice(SMALLEST_RATIOS, len(jobs))
    largest = _stream(seed, "gpus_max").choice(LARGEST_RATIOS, len(jobs))
    gpus = jobs["gpus"]
    jobs["gpus_min"] = np.where(elastic, np.maximum(1, np.floor(gpus * smallest)), gpus)
    jobs["gpus_max"] = np.where(elastic, np.minimum(gpus * largest, MOST), gpus)


def _sample_nodes(jobs: NDArray[np.void], gpus_per_node: int, seed: int, requests: Requests) -> None:
    """Let some gangs leave their node count open, some ask for more nodes than they need, the others for the fewest."""
    gpus = jobs["gpus"]
    # A fixed node count would contradict a range of sizes.
    rigid = (gpus >= 2) & (jobs["gpus_min"] == jobs["gpus_max"])
    fixed = rigid & (_stream(seed, "nodes_max").random(len(jobs)) >= requests.open_nodes)
    nodes = -(-gpus // gpus_per_node)
    share = np.where(gpus < 8, requests.several_below_8, np.where(gpus == 8, requests.several_at_8, 0.0))
    # Nearly all of those in the scripts ask for two nodes.
    several = (nodes == 1) & (gpus % 2 == 0) & (_stream(seed, "several nodes").random(len(jobs)) < share)
    nodes = np.where(several, 2, nodes)
    jobs["nodes_min"] = np.where(fixed, nodes, 0)
    jobs["nodes_max"] = np.where(fixed, nodes, 0)


def _checkpoint_intervals_s(
    run_time_s: NDArray[np.float64], stream: np.random.Generator, share: float
) -> NDArray[np.float64]:
    draws = stream.random(len(run_time_s))
    interval_s = stream.choice(CHECKPOINT_INTERVALS_S, len(run_time_s))
    return np.where((run_time_s >= CHECKPOINT_FROM_S) & (draws < share), interval_s, 0.0)


def _sample_arrays(jobs: NDArray[np.void], sampled: frozenset[str], stream: np.random.Generator, share: float) -> None:
    """Make arrays of jobs that one user submitted together with equal requests, until they are a share of submissions.

    The tasks of an array get the drawn columns of its first task, and the longest of their drawn limits.
    """
    drawn = sorted(sampled - _OF_USER)
    fixed = [name for name in TRACE_DTYPE.names or () if name not in _OF_TASK.union(drawn)]
    alike = np.unique(jobs[fixed], return_inverse=True)[1]
    order = np.lexsort((jobs["submit_time"], alike))
    starts = np.ones(len(jobs), dtype=bool)
    starts[1:] = (np.diff(alike[order]) != 0) | (np.diff(jobs["submit_time"][order]) > BURST_S)
    bursts = np.split(order, np.flatnonzero(starts)[1:])
    several = [burst for burst in bursts if len(burst) > 1]
    count = min(len(several), round(share * len(bursts)))
    for place in stream.permutation(len(several))[:count].tolist():
        tasks = several[place]
        # Job ids begin at 0, and 0 is no array.
        jobs["array_id"][tasks] = jobs["job_id"][tasks].min() + 1
        for name in drawn:
            values = jobs[name][tasks]
            jobs[name][tasks] = values.max() if name == "time_limit_s" else values[0]


def _sample_interactive(jobs: NDArray[np.void], gpus_per_node: int, stream: np.random.Generator, share: float) -> None:
    """Mark jobs as interactive until they are a share of all jobs; none follows another of its user at once."""
    order = np.lexsort((jobs["submit_time"], jobs["user"]))
    user, submit_time = jobs["user"][order], jobs["submit_time"][order]
    follows = np.zeros(len(jobs), dtype=bool)
    follows[order[1:]] = (np.diff(user) == 0) & (np.diff(submit_time) <= BURST_S)
    fits = (jobs["gpus"] == 1) | ((jobs["nodes_max"] == 1) & (jobs["gpus"] > 0) & (jobs["gpus"] <= gpus_per_node))
    fits &= (jobs["time_limit_s"] <= LONGEST_INTERACTIVE_S) & (jobs["array_id"] == 0) & ~follows
    rows = np.flatnonzero(fits)
    jobs["interactive"][stream.permutation(rows)[: round(share * len(jobs))]] = 1


def _with_names(trace: Trace, seed: int) -> tuple[Trace, list[str]]:
    """Return the trace with users and accounts, and which of the two were drawn."""
    drawn = []
    if _is_unnamed(trace.users, trace.jobs["user"]):
        trace = _with_users(trace, seed)
        drawn.append("user")
    if _is_unnamed(trace.accounts, trace.jobs["account"]):
        trace = _with_accounts(trace, seed)
        drawn.append("account")
    return trace, drawn


def _with_users(trace: Trace, seed: int) -> Trace:
    weights = np.arange(1, USER_COUNT + 1) ** -USER_EXPONENT
    ranks = _stream(seed, "user").choice(USER_COUNT, len(trace.jobs), p=weights / weights.sum())
    users, trace.jobs["user"] = _table([f"user{rank + 1:02d}" for rank in ranks.tolist()])
    return replace(trace, users=users)


def _with_accounts(trace: Trace, seed: int) -> Trace:
    """Assign every user to one account."""
    of_user = _stream(seed, "account").integers(ACCOUNT_COUNT, size=len(trace.users))
    names = [f"account{of_user[user] + 1}" for user in trace.jobs["user"].tolist()]
    accounts, trace.jobs["account"] = _table(names)
    return replace(trace, accounts=accounts)


def _is_unnamed(names: tuple[str, ...], codes: NDArray[np.int32]) -> bool:
    return all(not names[code] for code in np.unique(codes).tolist())


def _table(names: list[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return the names in use, sorted, and the code of each."""
    table = tuple(sorted(set(names)))
    code_of = {name: code for code, name in enumerate(table)}
    return table, np.array([code_of[name] for name in names], dtype=np.int32)
