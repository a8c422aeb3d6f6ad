"""The columns of a trace: what a cell can hold, what an empty one means, and which rows contradict themselves."""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import MOST

Mask = NDArray[np.bool_]

LONGEST_S: Final = 1e12
_MOST_MIB: Final = 10**12
_ID_MOST: Final = 2**63 - 1
_NICE_MOST: Final = 2**31 - 1
# What is repeated of a wrong cell.
_SHOWN: Final = 40


class ColumnKind(StrEnum):
    """The kind of values of a column."""

    WHOLE = "whole"
    NUMBER = "number"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; `wanted` describes what a cell can hold, within `low` to `high` or equal to `special`.

    `default` is what an empty cell means; None where a cell must not be empty or takes it from `default_from`.
    """

    name: str
    kind: ColumnKind
    wanted: str
    default: float | None = None
    default_from: str | None = None
    low: float = 0
    high: float = LONGEST_S
    special: float | None = None

    @property
    def is_required(self) -> bool:
        """Whether every row must fill this column."""
        return self.kind is not ColumnKind.NAME and self.default is None and self.default_from is None


def _whole(name: str, high: int, *, low: int = 0, default: float | None = 0, default_from: str | None = None) -> Column:
    return Column(
        name=name,
        kind=ColumnKind.WHOLE,
        wanted=f"a whole number from {low} to {high}",
        low=low,
        high=high,
        default=default,
        default_from=default_from,
    )


def _seconds(
    name: str, default: float | None, *, low: float = 0.0, wanted: str = "of at least 0", special: float | None = None
) -> Column:
    return Column(
        name=name,
        kind=ColumnKind.NUMBER,
        wanted=f"a number of seconds {wanted}",
        low=low,
        default=default,
        special=special,
    )


def _name(name: str) -> Column:
    return Column(name=name, kind=ColumnKind.NAME, wanted="a name")


# The least number above 0.
_POSITIVE: Final = math.nextafter(0.0, 1.0)

COLUMNS: Final[Mapping[str, Column]] = {
    column.name: column
    for column in (
        _whole("job_id", _ID_MOST, default=None),
        _seconds("submit_time", None),
        _seconds("run_time_s", None, low=_POSITIVE, wanted="above 0"),
        _whole("gpus", MOST, default=None),
        _whole("gpus_min", MOST, default=None, default_from="gpus"),
        _whole("gpus_max", MOST, default=None, default_from="gpus"),
        _whole("nodes_min", MOST),
        _whole("nodes_max", MOST),
        _whole("cpus_per_gpu", MOST),
        _whole("memory_mib_per_gpu", _MOST_MIB),
        _seconds("time_limit_s", math.inf, low=_POSITIVE, wanted="above 0, or inf", special=math.inf),
        _seconds("time_min_s", 0.0),
        _name("gpu_type"),
        _name("model"),
        _name("user"),
        _name("account"),
        _name("qos"),
        _whole("switches", MOST),
        _seconds("switches_wait_s", 0.0),
        _whole("nice", _NICE_MOST, low=-_NICE_MOST),
        _seconds("checkpoint_interval_s", 0.0),
        _seconds("recorded_start_time", math.nan, special=math.nan),
        _name("partition"),
        _whole("array_id", _ID_MOST),
        _name("dependency"),
        _whole("array_limit", MOST),
        _seconds("begin_time", 0.0),
        _name("name"),
        _whole("cpus", MOST),
        _whole("memory_mib", _MOST_MIB),
        _whole("exclusive", 1),
        _name("features"),
        _name("required_nodes"),
        _name("excluded_nodes"),
        _name("reservation"),
        _whole("interactive", 1),
    )
}
REQUIRED: Final = tuple(name for name, column in COLUMNS.items() if column.is_required)

# What an empty name means; for the other two it is the code -1.
EMPTY_NAMES: Final[Mapping[str, str]] = {
    "user": "",
    "account": "",
    "qos": "normal",
    "partition": "",
    "dependency": "",
    "name": "",
    "features": "",
    "required_nodes": "",
    "excluded_nodes": "",
    "reservation": "",
}

# The field of `Trace` that holds the names of a column's codes.
NAMES_FIELD: Final[Mapping[str, str]] = {
    "gpu_type": "gpu_types",
    "model": "models",
    "user": "users",
    "account": "accounts",
    "qos": "qos",
    "partition": "partitions",
    "dependency": "dependencies",
    "name": "job_names",
    "features": "features",
    "required_nodes": "required_nodes",
    "excluded_nodes": "excluded_nodes",
    "reservation": "reservations",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A contradiction between two columns of a row; the message names `column`."""

    column: str
    message: str
    broken: Callable[[NDArray[np.void]], Mask]


RULES: Final[Sequence[Rule]] = (
    Rule(column="gpus_min", message="is above gpus", broken=lambda jobs: _mask(jobs["gpus_min"] > jobs["gpus"])),
    Rule(column="gpus_max", message="is below gpus", broken=lambda jobs: _mask(jobs["gpus_max"] < jobs["gpus"])),
    Rule(
        column="gpus_min",
        message="is below 1, but the job asks for GPUs",
        broken=lambda jobs: _mask((jobs["gpus_min"] == 0) & (jobs["gpus"] > 0)),
    ),
    Rule(
        column="gpus_max",
        message="is above 0, but the job asks for none",
        broken=lambda jobs: _mask((jobs["gpus"] == 0) & (jobs["gpus_max"] > 0)),
    ),
    Rule(
        column="nodes_min",
        message="is above gpus: every node holds at least one",
        broken=lambda jobs: _mask((jobs["gpus"] > 0) & (jobs["nodes_min"] > jobs["gpus"])),
    ),
    Rule(
        column="nodes_max",
        message="is below nodes_min",
        broken=lambda jobs: _mask((jobs["nodes_max"] != 0) & (jobs["nodes_max"] < jobs["nodes_min"])),
    ),
    Rule(
        column="time_min_s",
        message="is above time_limit_s",
        broken=lambda jobs: _mask(jobs["time_min_s"] > jobs["time_limit_s"]),
    ),
    Rule(
        column="recorded_start_time",
        message="is before submit_time",
        broken=lambda jobs: _mask(jobs["recorded_start_time"] < jobs["submit_time"]),
    ),
)


def out_of_bounds(column: Column, values: NDArray[np.generic]) -> Mask:
    """Mark the values that are out of a column's bounds, `(n,)`."""
    within = (values >= column.low) & (values <= column.high)  # type: ignore[operator]  # numbers of either kind
    if column.special is not None:
        within |= np.isnan(values) if math.isnan(column.special) else values == column.special
    return _mask(~within)


def not_wanted(column: Column, text: str) -> str:
    """Describe a cell that does not hold what its column requires."""
    if not text:
        return f"column {column.name} is empty: it wants {column.wanted}"
    shown = repr(text) if text.isprintable() and len(text) <= _SHOWN else ascii(text[:_SHOWN])
    return f"column {column.name}: {shown} is not {column.wanted}"


def spelled(number: float) -> str:
    """Format a number in the fewest characters that read back as the same number."""
    return repr(number).removesuffix(".0")


def _mask(values: NDArray[np.bool_]) -> Mask:
    return np.asarray(values, dtype=np.bool_)
