"""Sample the columns that a trace lacks: models, time limits, sizes, node counts, checkpoints, users.

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

from advisor.domain.gang import MOST
from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S
from advisor.sim.traces.trace import Trace

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

# Share of jobs of 2 GPUs and more that declare a range of sizes, and its ends as multiples of what they ask. Ours.
ELASTIC_SHARE: Final = 0.3
SMALLEST_RATIOS: Final = (0.25, 0.5, 1.0)
LARGEST_RATIOS: Final = (1, 2, 4)

# Share of rigid jobs of 2 GPUs and more that leave their node count open; the others ask for the fewest nodes. Ours.
OPEN_NODES_SHARE: Final = 0.3

# Share of jobs of at least an hour that write checkpoints, and how often. Ours.
CHECKPOINT_SHARE: Final = 0.5
CHECKPOINT_FROM_S: Final = HOUR_S
CHECKPOINT_INTERVALS_S: Final = (600.0, 1800.0, 3600.0)

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
    elastic_share: float = ELASTIC_SHARE,
) -> Trace:
    """Sample the missing columns of a trace and list them in `sampled`; equal arguments give equal traces.

    `profiles` are the models to choose from; without any, models stay unknown. `gpus_per_node` determines the fewest
    nodes that a job can request, and `elastic_share` how many jobs of several GPUs declare a range of sizes.
    """
    jobs = trace.jobs.copy()
    filled = replace(trace, jobs=jobs)
    sampled: list[str] = []
    if profiles and np.any(jobs["model"] < 0):
        filled = _with_models(filled, tuple(profiles), seed)
        sampled.append("model")
    if np.all(np.isinf(jobs["time_limit_s"])):
        jobs["time_limit_s"] = _time_limits_s(jobs["run_time_s"], _stream(seed, "time_limit_s"))
        sampled.append("time_limit_s")
    if np.all((jobs["gpus_min"] == jobs["gpus"]) & (jobs["gpus_max"] == jobs["gpus"])):
        _sample_sizes(jobs, seed, elastic_share)
        sampled += ["gpus_min", "gpus_max"]
    if not np.any(jobs["nodes_min"]) and not np.any(jobs["nodes_max"]):
        _sample_nodes(jobs, gpus_per_node, _stream(seed, "nodes_max"))
        sampled += ["nodes_min", "nodes_max"]
    if not np.any(jobs["checkpoint_interval_s"]):
        jobs["checkpoint_interval_s"] = _checkpoint_intervals_s(
            jobs["run_time_s"], _stream(seed, "checkpoint_interval_s")
        )
        sampled.append("checkpoint_interval_s")
    if _is_unnamed(trace.users, jobs["user"]):
        filled = _with_users(filled, seed)
        sampled.append("user")
    if _is_unnamed(trace.accounts, jobs["account"]):
        filled = _with_accounts(filled, seed)
        sampled.append("account")
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


def _time_limits_s(run_time_s: NDArray[np.float64], stream: np.random.Generator) -> NDArray[np.float64]:
    """Draw time limits as users request them: too long, and in round numbers."""
    draws = stream.random(len(run_time_s)) * LIMIT_QUANTILES[-1]
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
    return limits_s


def _sample_sizes(jobs: NDArray[np.void], seed: int, share: float) -> None:
    """Let some jobs of several GPUs declare the sizes that they can run at."""
    elastic = (jobs["gpus"] >= 2) & (_stream(seed, "elastic").random(len(jobs)) < share)
    smallest = _stream(seed, "gpus_min").choice(SMALLEST_RATIOS, len(jobs))
    largest = _stream(seed, "gpus_max").choice(LARGEST_RATIOS, len(jobs))
    gpus = jobs["gpus"]
    jobs["gpus_min"] = np.where(elastic, np.maximum(1, np.floor(gpus * smallest)), gpus)
    jobs["gpus_max"] = np.where(elastic, np.minimum(gpus * largest, MOST), gpus)


def _sample_nodes(jobs: NDArray[np.void], gpus_per_node: int, stream: np.random.Generator) -> None:
    """Let some jobs of several GPUs leave their node count open, and the others ask for the fewest nodes."""
    # A fixed node count would contradict a range of sizes.
    rigid = (jobs["gpus"] >= 2) & (jobs["gpus_min"] == jobs["gpus_max"])
    fixed = rigid & (stream.random(len(jobs)) >= OPEN_NODES_SHARE)
    fewest = -(-jobs["gpus"] // gpus_per_node)
    jobs["nodes_min"] = np.where(fixed, fewest, 0)
    jobs["nodes_max"] = np.where(fixed, fewest, 0)


def _checkpoint_intervals_s(run_time_s: NDArray[np.float64], stream: np.random.Generator) -> NDArray[np.float64]:
    draws = stream.random(len(run_time_s))
    interval_s = stream.choice(CHECKPOINT_INTERVALS_S, len(run_time_s))
    return np.where((run_time_s >= CHECKPOINT_FROM_S) & (draws < CHECKPOINT_SHARE), interval_s, 0.0)


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
