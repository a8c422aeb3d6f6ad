"""Reads measured step times from CSV files as published with Pollux, with ElasticFlow and with Rubick."""

import csv
import gzip
import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.errors import TraceError
from advisor.features.columns import Columns
from advisor.files import bounded, opened
from advisor.fit.fitted import Source, source_of

FORMS = ("auto", "pollux", "elasticflow", "rubick")
# ElasticFlow states GPU counts only; its nodes had eight.
GPUS_PER_NODE = 8
# Rubick states no batch: one for the whole job, which stays as it is where the GPUs change. Its plans are programs of
# their own; this one is data parallelism without more.
RUBICK_BATCH, RUBICK_PLAN = 64.0, "ga"
_ENDINGS = (".csv", ".csv.gz")
_LARGEST_COUNT = 10**6
# Why a measurement is left out.
COULD_NOT_RUN, OTHER_PLAN = "could not run", "of another plan of execution"
# Far more than any measured table has.
_LARGEST_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes(Columns):
    """Measured step times; arrays `(n_rows,)`.

    `least` and `most` are the fewest and the most GPUs on a node. `batch` is per GPU; `batch_asked` is the batch that
    the file states: per GPU with Pollux, global with ElasticFlow and Rubick. `file` is an index of the files read.
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

    def __len__(self) -> int:
        return len(self.step_s)

    def shapes(self) -> list[str]:
        """Return the placement of each row as text, without the order of its nodes."""
        counts = zip(self.gpus, self.nodes, self.least, self.most, strict=True)
        return ["/".join(f"{count:g}" for count in row) for row in counts]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    gpus: int
    nodes: int
    least: int
    most: int
    batch: float
    batch_asked: float
    step_s: float


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


def read_measured(files: Sequence[Path], form: str, gpus_per_node: int = GPUS_PER_NODE) -> StepTimes:
    """Read files of one form, or, with `auto`, of the form that each header shows; raises `TraceError`."""
    return read_counted(files, form, gpus_per_node)[0]


def read_counted(
    files: Sequence[Path], form: str, gpus_per_node: int = GPUS_PER_NODE
) -> tuple[StepTimes, Counter[str]]:
    """Read files of one form, and count the measurements that are left out by reason; raises `TraceError`."""
    if form not in FORMS:
        raise TraceError(f"unknown format {form!r}: it is one of {', '.join(FORMS)}")
    rows: list[_Row] = []
    models, clusters, numbers = [], [], []
    left_out = Counter[str]()
    for number, file in enumerate(files):
        lines = list(_read(file, form, gpus_per_node))
        read = [line for line in lines if isinstance(line, _Row)]
        left_out.update(line for line in lines if isinstance(line, str))
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
    measured = StepTimes(
        model=np.array(models, dtype=np.str_),
        cluster=np.array(clusters, dtype=np.str_),
        file=np.array(numbers, dtype=np.int64),
        **columns,
    )
    return measured, left_out


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


def _read(file: Path, form: str, gpus_per_node: int) -> Iterator[_Row | str]:
    """Yield each measurement of a file, or the reason why it is left out."""
    reader = csv.DictReader(io.StringIO(_text(file)), strict=True)
    try:
        names = [name.strip() for name in reader.fieldnames or []]
        reader.fieldnames = names
        lines = [(reader.line_num, line) for line in reader if any(value for value in line.values())]
    except csv.Error as err:
        raise TraceError(f"{file}: line {reader.line_num} is not CSV: {err}") from err
    if not lines:
        raise TraceError(f"{file}: it holds no line below its header: a measurement is missing")
    if form == "auto":
        form = next((form for form, name in _MARKS.items() if name in names), "pollux")
    match form:
        case "elasticflow":
            yield from _elasticflow(file, names, lines, gpus_per_node)
        case "rubick":
            yield from _rubick(file, names, lines)
        case _:
            yield from _pollux(file, names, lines)


# The column that shows the form of a file.
_MARKS = {"elasticflow": "global_batch_size", "rubick": "exec_plan"}
Lines = list[tuple[int, dict[str, str]]]


def _pollux(file: Path, names: Sequence[str], lines: Lines) -> Iterator[_Row]:
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
            on_node = _on_node(where, line)
            gpus, nodes, least, most = sum(on_node), len(on_node), min(on_node), max(on_node)
        else:
            nodes, gpus = _count(where, line, "num_nodes"), _count(where, line, "num_replicas")
            if gpus < nodes:
                raise TraceError(f"{where}: {gpus} GPUs on {nodes} nodes: each node has to have one")
            # The file does not state the GPUs of each node; assume an even spread.
            least, most = gpus // nodes, math.ceil(gpus / nodes)
        batch, step_s = _positive(where, line, "local_bsz"), _positive(where, line, "step_time")
        yield _Row(gpus=gpus, nodes=nodes, least=least, most=most, batch=batch, batch_asked=batch, step_s=step_s)


def _on_node(where: str, line: Mapping[str, str]) -> list[int]:
    """Return the GPUs on each node of a placement."""
    digits = (line["placement"] or "").strip()
    if not re.fullmatch(r"[1-9]+", digits):
        raise TraceError(f"{where}: placement {digits!r} is not one digit from 1 to 9 for each node")
    return [int(digit) for digit in digits]


def _rubick(file: Path, names: Sequence[str], lines: Lines) -> Iterator[_Row | str]:
    missing = [name for name in ("exec_plan", "placement", "iter_time") if name not in names]
    if missing:
        raise TraceError(f"{file}: column {missing[0]} is missing: it has to have exec_plan, placement and iter_time")
    for number, line in lines:
        where = f"{file}: line {number}"
        if (line["exec_plan"] or "").strip() != RUBICK_PLAN:
            yield OTHER_PLAN
            continue
        if not _number(where, line, "iter_time"):
            yield COULD_NOT_RUN
            continue
        on_node, step_s = _on_node(where, line), _positive(where, line, "iter_time")
        yield _Row(
            gpus=sum(on_node), nodes=len(on_node), least=min(on_node), most=max(on_node), batch_asked=RUBICK_BATCH,
            batch=RUBICK_BATCH / sum(on_node), step_s=step_s,
        )  # fmt: skip


def _elasticflow(file: Path, names: Sequence[str], lines: Lines, gpus_per_node: int) -> Iterator[_Row | str]:
    sizes = [name for name in names if re.fullmatch(r"[1-9]\d{0,5}", name)]
    if "global_batch_size" not in names or not sizes:
        raise TraceError(f"{file}: its header has to be global_batch_size and numbers of GPUs, as 1,2,4")
    for number, line in lines:
        where = f"{file}: line {number}"
        batch = _positive(where, line, "global_batch_size")
        for name in sizes:
            if not (line[name] or "").strip():
                yield COULD_NOT_RUN
                continue
            rate = _number(where, line, name)
            if rate < 0.0:
                raise TraceError(f"{where}: {rate:g} iterations/s on {name} GPUs: it cannot be negative")
            if rate == 0.0:
                yield COULD_NOT_RUN
            else:
                gpus = int(name)
                nodes = math.ceil(gpus / gpus_per_node)
                yield _Row(
                    gpus=gpus,
                    nodes=nodes,
                    least=gpus // nodes,
                    most=math.ceil(gpus / nodes),
                    batch=batch / gpus,
                    batch_asked=batch,
                    step_s=1.0 / rate,
                )


def _number(where: str, line: Mapping[str, str], name: str) -> float:
    text = (line[name] or "").strip()
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise TraceError(f"{where}: {name} is {text!r}, which is no finite number")
    return number


def _positive(where: str, line: Mapping[str, str], name: str) -> float:
    number = _number(where, line, name)
    # Beyond these bounds the inverse or a product could overflow.
    if not 1e-12 < number < 1e12:
        raise TraceError(f"{where}: {name} is {number:g}: it has to be a number above 0")
    return number


def _count(where: str, line: Mapping[str, str], name: str) -> int:
    number = _positive(where, line, name)
    if number != int(number) or number > _LARGEST_COUNT:
        raise TraceError(f"{where}: {name} is {number:g}: it has to be a whole number")
    return int(number)
