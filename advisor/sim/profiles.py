"""Job profiles: how fast a model trains at a size, on a placement, on a GPU type, and beside its neighbours.

The numbers are in `profiles.csv`, fitted to measurements; `docs/profiles.md` describes the meaning, the sources and
the error of every formula.
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import SimulationError

PROFILE_FILE = Path(__file__).with_name("profiles.csv")

# One row per model. Times are shares of a time of the same model: of the step on one GPU (serial, sync), or of the
# step without communication between nodes (overlap).
PROFILE_DTYPE = np.dtype(
    [
        ("serial_ratio", np.float64),  # of the step on one GPU, what more GPUs do not shorten
        ("sync_ratio", np.float64),  # of the step on one GPU, what each doubling of the GPUs adds
        ("traffic_gbps", np.float64),  # link speed at which two nodes of V100 communicate as long as they compute
        ("spread_exponent", np.float64),  # how that grows with the number of nodes; below 0 it shrinks
        ("overlap_ratio", np.float64),  # of the step, the communication that hides behind it
        ("gpu_need", np.float64),  # what a job brings to a GPU that it shares, for its own inflation
        ("gpu_pressure", np.float64),  # and for that of the other
        ("node_sensitivity", np.float64),  # share of the run time that 4 GPUs on 2 nodes wait for a 10 Gb/s network
        ("node_pressure", np.float64),  # what a NIC gives to this gang, in units of what it leaves to another
    ]
)

# The spread exponent counts up to here: no data set shows a steady growth of the traffic beyond.
MOST_NODES = 4.0

NEUTRAL = "neutral"
SPEED_PREFIX = "speed_"
MODEL, SOURCE = "model", "source"

# Other names for the same network, by letters and digits. VGG-19 is VGG-16 with three more convolutions.
ALIASES = {
    "bertbase": "bert",
    "bertbaseuncased": "bert",
    "gpt2medium": "gpt2",
    "imagenet": "resnet50",
    "inceptionv3": "inception3",
    "languagemodeling": "lm",
    "llama7b": "llama7",
    "llama30b": "llama30",
    "shufflenetv2x10": "shufflenetv2",
    "vgg19": "vgg16",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The known models: `rows` is `(n_profiles,)` of `PROFILE_DTYPE`, `type_speed` `(n_profiles, n_types)`.

    Speeds are those of one GPU relative to a V100.
    """

    names: tuple[str, ...]
    rows: NDArray[np.void]
    gpu_types: tuple[str, ...]
    type_speed: NDArray[np.float64]

    def codes(self, models: tuple[str, ...]) -> NDArray[np.int32]:
        """Map names of models to rows, `(n_models,)`; an unknown one maps to the neutral row."""
        row_of = {name: row for row, name in enumerate(self.names)}
        rows = [next((row_of[key] for key in _keys(name) if key in row_of), row_of[NEUTRAL]) for name in models]
        return np.array(rows, dtype=np.int32)


def load_profiles(file: Path = PROFILE_FILE) -> Profiles:
    """Read the table of profiles that ships with the package; its first row is the neutral one."""
    with file.open(newline="", encoding="utf-8") as lines:
        table = list(csv.DictReader(lines))
    fields = PROFILE_DTYPE.names or ()
    try:
        types = [column.removeprefix(SPEED_PREFIX) for column in table[0] if column.startswith(SPEED_PREFIX)]
        names = tuple(line[MODEL] for line in table)
        rows = np.array([tuple(float(line[field]) for field in fields) for line in table], PROFILE_DTYPE)
        speed = np.array([[float(line[SPEED_PREFIX + name]) for name in types] for line in table], np.float64)
    except (IndexError, KeyError, TypeError, ValueError) as err:
        raise SimulationError(f"{file}: not a table of profiles: {err!r}; install sadvise again") from err
    if names[0] != NEUTRAL or len(set(names)) != len(names):
        raise SimulationError(f"{file}: row {NEUTRAL!r} must be the first, and no name twice; install sadvise again")
    return Profiles(names=names, rows=rows, gpu_types=tuple(types), type_speed=speed)


def model_key(name: str, batch: str = "") -> str:
    """Return the name of a profile: lower-case letters and digits, then `/` and the batch size per GPU if it counts."""
    key = re.sub(r"[^a-z0-9]", "", name.lower())
    return f"{ALIASES.get(key, key)}/{batch}" if batch else ALIASES.get(key, key)


def _keys(name: str) -> Sequence[str]:
    """Return the keys to look up, best first: `ResNet-50 (batch size 64)` is `resnet50/64`, else `resnet50`."""
    bare, bracket, remark = name.partition("(")
    batch = re.search(r"batch size (\d+)", remark) if bracket else None
    return [model_key(bare, batch[1]), model_key(bare)] if batch else [model_key(bare)]


def step_s(profile: np.void, gpus: int) -> float:
    """Return the time per step at `gpus` GPUs on the best placement, same global batch, in steps of one GPU."""
    serial: float = profile["serial_ratio"]
    return float(serial + (1.0 - serial) / gpus + profile["sync_ratio"] * np.log2(gpus))


def exposed_s(profile: np.void, gpus: int, nodes: int, bandwidth_gbps: float) -> float:
    """Return the communication that the gang waits for, per unit of its run time without it; 0 on one node.

    `bandwidth_gbps` is what the slowest link gives to one node of the gang, divided by how fast the gang computes:
    by the speed of its GPU type relative to a V100 and, for a resized job, by `step_s(asked) / step_s(held)`.
    """
    if nodes <= 1:
        return 0.0
    spread = (min(nodes, MOST_NODES) / 2.0) ** profile["spread_exponent"]
    traffic_gbps = profile["traffic_gbps"] * spread * 2.0 * (gpus - 1.0) / gpus
    return float(max(0.0, traffic_gbps / max(bandwidth_gbps, 1e-9) - profile["overlap_ratio"]))


def inflation(
    profile: np.void,
    gpus: int,
    nodes: int,
    bandwidth_gbps: float,
    best_nodes: int,
    best_bandwidth_gbps: float,
) -> float:
    """Return the run time on this placement over that on the best one; 1 if the model runs faster when spread."""
    here = 1.0 + exposed_s(profile, gpus, nodes, bandwidth_gbps)
    best = 1.0 + exposed_s(profile, gpus, best_nodes, best_bandwidth_gbps)
    return float(max(1.0, here / best))


def gpu_share_inflation(mine: np.void, other: np.void) -> float:
    """Return the run time of a job that shares its GPU with another over its run time alone, at least 1."""
    return float(max(1.0, mine["gpu_need"] + other["gpu_pressure"]))
