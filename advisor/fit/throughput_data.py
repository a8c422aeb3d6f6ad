"""Reads step times that a site measured, in the form of Pollux's tables: a row for each placement and batch."""

import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import TraceError
from advisor.features.columns import Columns
from advisor.files import bounded, opened
from advisor.fit.fitted import Source, source_of

_ENDINGS = (".csv", ".csv.gz")
_LARGEST_COUNT = 10**6
# Far more than any measured table has.
_LARGEST_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes(Columns):
    """Measured step times; arrays `(n_rows,)`.

    `least` and `most` are the fewest and the most GPUs on a node. `batch` is per GPU; `batch_asked` is the batch that
    the file states, per GPU in a site's own files. `file` is an index of the files read.
    """

    model: NDArray[np.str_]
    cluster: NDArray[np.str_]
    gpus: NDArray[np.float64]
    nodes: NDArray[np.float64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]
    batch: NDArray[np.float64]
    batch_asked: NDArray[np.float64]
    step_s: NDArray[np.float64]
    file: NDArray[np.int64]

    def shapes(self) -> list[str]:
        """Return the placement of each row as text, without the order of its nodes."""
        counts = zip(self.gpus, self.nodes, self.least, self.most, strict=True)
        return ["/".join(f"{count:g}" for count in row) for row in counts]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlacement:
    """One measurement, as a row of a file states it."""

    gpus: int
    nodes: int
    least: int
    most: int
    batch: float
    batch_asked: float
    step_s: float


# The lines of a file below its header, with their numbers.
Lines = Sequence[tuple[int, Mapping[str, str]]]
RowsOf = Callable[[Path, Sequence[str], Lines], Iterator[MeasuredPlacement]]


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the files in `paths` and all CSV files of its folders, each once; raises `TraceError`."""
    files: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.name.endswith(_ENDINGS) and file.is_file())
            if not inside:
                raise TraceError(f"{path}: no .csv or .csv.gz file in this folder: name a folder of measurements")
        elif path.is_file():
            inside = [path]
        else:
            raise TraceError(f"{path}: there is no such file or folder: check the path")
        for file in inside:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def site_rows(file: Path, names: Sequence[str], lines: Lines) -> Iterator[MeasuredPlacement]:
    """Yield the measurements of a file that states placements or counts of nodes and GPUs; raises `TraceError`."""
    by_digits = "placement" in names
    wanted = ("placement",) if by_digits else ("num_nodes", "num_replicas")
    missing = [name for name in (*wanted, "local_bsz", "step_time") if name not in names]
    if missing:
        raise TraceError(
            f"{file}: column {missing[0]} is missing: it has to have placement (or num_nodes and num_replicas), "
            "local_bsz and step_time"
        )
    for number, line in lines:
        where = f"{file}: line {number}"
        if by_digits:
            on_node = gpus_on_nodes(where, line)
            gpus, nodes, least, most = sum(on_node), len(on_node), min(on_node), max(on_node)
        else:
            nodes, gpus = _count(where, line, "num_nodes"), _count(where, line, "num_replicas")
            if gpus < nodes:
                raise TraceError(f"{where}: {gpus} GPUs on {nodes} nodes: each node has to have one")
            # The file does not state the GPUs of each node; assume an even spread.
            least, most = gpus // nodes, math.ceil(gpus / nodes)
        batch, step_s = positive(where, line, "local_bsz"), positive(where, line, "step_time")
        yield MeasuredPlacement(
            gpus=gpus, nodes=nodes, least=least, most=most, batch=batch, batch_asked=batch, step_s=step_s
        )


def read_step_times(files: Sequence[Path], rows_of: RowsOf = site_rows) -> StepTimes:
    """Read files of measurements; `rows_of` reads the lines of each. Raises `TraceError`."""
    rows: list[MeasuredPlacement] = []
    models, clusters, numbers = [], [], []
    for number, file in enumerate(files):
        read = list(rows_of(file, *_lines(file)))
        if not read:
            raise TraceError(f"{file}: no measurement in it: every line is empty or could not run")
        rows += read
        models += [model_of(file)] * len(read)
        clusters += [file.resolve().parent.name] * len(read)
        numbers += [number] * len(read)
    columns = {
        name: np.array([getattr(row, name) for row in rows], dtype=np.float64)
        for name in ("gpus", "nodes", "least", "most", "batch", "batch_asked", "step_s")
    }
    return StepTimes(
        model=np.array(models, dtype=np.str_),
        cluster=np.array(clusters, dtype=np.str_),
        file=np.array(numbers, dtype=np.int64),
        **columns,
    )


def model_of(file: Path) -> str:
    """Return the model that a file measures: its name up to the first `-` or `.`."""
    return re.split(r"[-.]", file.name, maxsplit=1)[0]


def sources_of(files: Sequence[Path], measured: StepTimes) -> tuple[Source, ...]:
    """Return the name, digest and number of rows of each file."""
    return tuple(
        source_of(f"{file.resolve().parent.name}/{file.name}", file.read_bytes(), int((measured.file == number).sum()))
        for number, file in enumerate(files)
    )


def _text(file: Path) -> str:
    try:
        with gzip.open(file) if file.name.endswith(".gz") else opened(file) as stream:
            return bounded(stream, _LARGEST_BYTES).decode("utf-8-sig")
    except (OSError, EOFError, ValueError, zlib.error) as err:
        raise TraceError(f"{file}: cannot be read ({err}): it has to be CSV text, or gzip of it") from err


def _lines(file: Path) -> tuple[list[str], Lines]:
    """Return the names of the columns of a file, and its lines that are not empty."""
    reader = csv.DictReader(io.StringIO(_text(file)), strict=True)
    try:
        names = [name.strip() for name in reader.fieldnames or []]
        reader.fieldnames = names
        lines = [(reader.line_num, line) for line in reader if any(value for value in line.values())]
    except csv.Error as err:
        raise TraceError(f"{file}: line {reader.line_num} is not CSV: {err}") from err
    if not lines:
        raise TraceError(f"{file}: it holds no line below its header: a measurement is missing")
    return names, lines


def gpus_on_nodes(where: str, line: Mapping[str, str]) -> list[int]:
    """Return the GPUs on each node of a placement, one digit for each; raises `TraceError`."""
    digits = (line["placement"] or "").strip()
    if not re.fullmatch(r"[1-9]+", digits):
        raise TraceError(f"{where}: placement {digits!r} is not one digit from 1 to 9 for each node")
    return [int(digit) for digit in digits]


def finite(where: str, line: Mapping[str, str], name: str) -> float:
    """Return the number in a column; raises `TraceError` if it is none."""
    text = (line[name] or "").strip()
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise TraceError(f"{where}: {name} is {text!r}, which is no finite number")
    return number


def positive(where: str, line: Mapping[str, str], name: str) -> float:
    """Return the number in a column; raises `TraceError` unless it is above 0."""
    number = finite(where, line, name)
    # Beyond these bounds the inverse or a product could overflow.
    if not 1e-12 < number < 1e12:
        raise TraceError(f"{where}: {name} is {number:g}: it has to be a number above 0")
    return number


def _count(where: str, line: Mapping[str, str], name: str) -> int:
    number = positive(where, line, name)
    if number != int(number) or number > _LARGEST_COUNT:
        raise TraceError(f"{where}: {name} is {number:g}: it has to be a whole number")
    return int(number)
