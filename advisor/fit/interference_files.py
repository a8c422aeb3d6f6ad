"""Reads measured pairs of jobs: on a GPU in the form of Gavel's tables, of gangs on nodes in that of DeepShare's."""

import csv
import gzip
import io
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.errors import ConfigError
from advisor.files import opened
from advisor.fit.fitted import Source, source_of
from advisor.fit.interference_profile import with_saturation
from advisor.predict.interference_items import PROFILE, SETTINGS, Floats, Items, JobPairs, Rows, Shared, name_key

# Far more than any measured table has.
LARGEST_BYTES = 256 * 2**20
Row = Mapping[str, str]
# Why a side of a pair is no measured speed.
DID_NOT_RUN, EXTRAPOLATED = "of pairs that did not run", "extrapolated, not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """One side of a measured pair; numbers are NaN where not given."""

    group: str = ""
    model: str = ""
    variant: str = ""
    batch: float = math.nan
    gpus: float = 1.0
    nodes: float = 1.0
    steps_per_s: float = math.nan
    gpu_busy: float = math.nan
    memory_busy: float = math.nan
    memory: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpeed:
    """The speed of a job beside another, over its speed alone."""

    mine: MeasuredJob
    other: MeasuredJob
    speed: float


# The sides of the rows of a table; a text is the reason why a side is left out.
Sides = Iterator[MeasuredSpeed | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeSpeeds:
    """Measured relative speeds, row by row; rows with the same number in `pair` `(n_rows,)` are of the same pair."""

    shared: Shared
    pairs: JobPairs
    speed: Floats
    pair: Rows

    def __len__(self) -> int:
        return len(self.speed)

    def take(self, rows: Rows) -> "RelativeSpeeds":
        """Return these rows, in this order."""
        return RelativeSpeeds(
            shared=self.shared, pairs=self.pairs.take(rows), speed=self.speed[rows], pair=self.pair[rows]
        )

    def alone(self) -> "RelativeSpeeds":
        """Return the same rows without the jobs that none of them names, and with the pairs renumbered."""
        used, place = np.unique(np.concatenate([self.pairs.mine, self.pairs.other]), return_inverse=True)
        return RelativeSpeeds(
            shared=self.shared,
            pairs=JobPairs(items=self.pairs.items.take(used), mine=place[: len(self)], other=place[len(self) :]),
            speed=self.speed,
            pair=np.unique(self.pair, return_inverse=True)[1].astype(np.intp),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form of table: the columns that identify it, the resource that its jobs share, and the reader of its rows.

    `singles` are the columns of the table of its jobs alone; none where it has no such table.
    """

    name: str
    columns: tuple[str, ...]
    shared: Shared
    sides: Callable[["PairTable"], "Sides"]
    singles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTable:
    """The rows of a file, and of the file of jobs alone if that is another."""

    path: Path
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    singles: tuple[Row, ...] = ()


def read_table(path: Path) -> PairTable:
    """Read a table, .csv or .csv.gz; raises `ConfigError`."""
    try:
        with opened(path) as stream:
            content = stream.read(LARGEST_BYTES + 1)
        if content[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
                content = packed.read(LARGEST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as err:
        raise ConfigError(f"{path}: cannot be read: {getattr(err, 'strerror', None) or err}") from err
    if len(content) > LARGEST_BYTES:
        raise ConfigError(f"{path}: is larger than {LARGEST_BYTES // 2**20} MiB, which no table of pairs is")
    try:
        lines = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        header, rows = tuple(lines.fieldnames or ()), tuple(lines)
    except (UnicodeDecodeError, csv.Error) as err:
        raise ConfigError(f"{path}: is no table of comma-separated values: {err}") from err
    if not rows:
        raise ConfigError(f"{path}: holds no rows: give a table with a header and measured pairs")
    return PairTable(path=path, header=header, rows=rows)


def read_files(files: Sequence[Path]) -> tuple[dict[Shared, list[MeasuredSpeed]], tuple[Source, ...]]:
    """Read files of measured pairs and of jobs alone, whose columns determine their form; raises `ConfigError`."""
    header_by_file = {file: read_table(file).header for file in files}
    alone_by_form: dict[str, Path] = {}
    sides: dict[Shared, list[MeasuredSpeed]] = {Shared.GPU: [], Shared.NODE: []}
    sources = []
    for file, header in header_by_file.items():
        for form in FORMS:
            if form.singles and set(form.singles) <= set(header):
                alone_by_form[form.name] = file
                sources.append(source_of(file.name, file.read_bytes(), len(read_table(file).rows)))
    for file, header in header_by_file.items():
        if file not in alone_by_form.values():
            form = form_of(file, header)
            speeds = read_sides(file, form, alone_by_form.get(form.name))
            sides[form.shared] += speeds
            sources.append(source_of(file.name, file.read_bytes(), len(speeds)))
    return sides, tuple(sources)


def form_of(path: Path, header: Sequence[str]) -> Form:
    """Return the form whose columns are all in a header; raises `ConfigError`."""
    for form in FORMS:
        if set(form.columns) <= set(header):
            return form
    names = ", ".join(form.name for form in FORMS)
    raise ConfigError(f"{path}: its columns are of none of the known forms of pairs: {names}")


def read_sides(path: Path, form: Form, singles: Path | None = None) -> list[MeasuredSpeed]:
    """Read the measured pairs of a file as one speed per side; raises `ConfigError`."""
    return read_counted(path, form, singles)[0]


def read_counted(path: Path, form: Form, singles: Path | None = None) -> tuple[list[MeasuredSpeed], Counter[str]]:
    """Read the measured pairs of a file, and count the sides that are left out by reason; raises `ConfigError`."""
    table = read_table(path)
    if missing := [name for name in form.columns if name not in table.header]:
        raise ConfigError(f"{path}: column {missing[0]} is missing: the form {form.name} needs it")
    if singles is not None:
        alone = read_table(singles)
        if not form.singles:
            raise ConfigError(f"{singles}: the form {form.name} takes no table of jobs alone")
        if missing := [name for name in form.singles if name not in alone.header]:
            raise ConfigError(f"{singles}: column {missing[0]} is missing: jobs alone of the form {form.name} need it")
        table = PairTable(path=path, header=table.header, rows=table.rows, singles=alone.rows)
    sides = list(form.sides(table))
    return (
        [side for side in sides if isinstance(side, MeasuredSpeed)],
        Counter(side for side in sides if isinstance(side, str)),
    )


def measured(sides: Sequence[MeasuredSpeed], shared: Shared) -> RelativeSpeeds:
    """Return speeds as arrays in which equal jobs are one, with profiles from the speeds of all jobs alone."""
    jobs = sorted({job for side in sides for job in (side.mine, side.other)}, key=repr)
    place = {job: row for row, job in enumerate(jobs)}
    mine = np.array([place[side.mine] for side in sides], np.intp)
    other = np.array([place[side.other] for side in sides], np.intp)
    names = {
        _identity(job): number for number, job in enumerate(sorted(jobs, key=lambda job: (_identity(job), repr(job))))
    }
    identity = np.array([names[_identity(job)] for job in jobs], np.intp)
    low, high = np.minimum(identity[mine], identity[other]), np.maximum(identity[mine], identity[other])
    _, pair = np.unique(low * (len(jobs) + 1) + high, return_inverse=True)
    return RelativeSpeeds(
        shared=shared,
        pairs=JobPairs(items=items_of(jobs), mine=mine, other=other),
        speed=np.array([side.speed for side in sides], np.float64),
        pair=pair.astype(np.intp),
    )


def _identity(job: MeasuredJob) -> str:
    """Return a text that identifies a job, without its measurements alone."""
    return repr((job.group, name_key(job.model), job.variant, job.batch, job.gpus, job.nodes))


def items_of(jobs: Sequence[MeasuredJob]) -> Items:
    """Return jobs as arrays, with profiles computed from all of them."""
    settings = np.array([[job.batch, job.gpus, job.nodes] for job in jobs], np.float64).reshape(-1, len(SETTINGS))
    with np.errstate(divide="ignore"):
        settings = np.log2(settings)
    settings[~np.isfinite(settings)] = np.nan
    profile = np.full((len(jobs), len(PROFILE)), np.nan)
    profile[:, PROFILE.index("gpu_busy")] = [job.gpu_busy for job in jobs]
    profile[:, PROFILE.index("memory_busy")] = [job.memory_busy for job in jobs]
    profile[:, PROFILE.index("memory")] = [job.memory for job in jobs]
    items = Items(
        group=tuple(name_key(job.group) for job in jobs),
        model=tuple(name_key(job.model) for job in jobs),
        variant=tuple(job.variant for job in jobs),
        settings=settings,
        profile=profile,
    )
    return with_saturation(items, np.array([job.steps_per_s for job in jobs], np.float64))


def number(table: PairTable, line: int, column: str, *, most: float = math.inf, empty: float | None = None) -> float:
    """Read a number of at least 0; `empty` is the value of an empty cell. Raises `ConfigError`."""
    text = (table.rows[line].get(column) or "").strip()
    if not text and empty is not None:
        return empty
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= most or math.isinf(value):
        raise ConfigError(f"{table.path}: line {line + 2}: {column} is {text!r}: give a number of at least 0")
    return value


def text(table: PairTable, line: int, column: str) -> str:
    """Read a name; raises `ConfigError` if the cell is empty."""
    value = (table.rows[line].get(column) or "").strip()
    if not value:
        raise ConfigError(f"{table.path}: line {line + 2}: {column} is empty: give a name")
    return value


def _gavel(table: PairTable) -> Sides:
    for line in range(len(table.rows)):
        alone = [number(table, line, f"isolated{side}") for side in "12"]
        beside = [number(table, line, f"colocated{side}") for side in "12"]
        jobs = [
            MeasuredJob(
                group=text(table, line, "gpu_type"),
                model=text(table, line, f"model{side}"),
                batch=number(table, line, f"batch_size{side}", empty=math.nan),
                steps_per_s=speed,
            )
            for side, speed in zip("12", alone, strict=True)
        ]
        if min(alone) > 0:
            yield from both_sides(jobs, [with_it / without for with_it, without in zip(beside, alone, strict=True)])
        else:
            yield from (DID_NOT_RUN, DID_NOT_RUN)


def both_sides(jobs: Sequence[MeasuredJob], speeds: Sequence[float]) -> Sides:
    """Return the two sides of a pair; tables record one that did not run as speed 0 on both sides."""
    if max(speeds) > 0:
        yield MeasuredSpeed(mine=jobs[0], other=jobs[1], speed=speeds[0])
        yield MeasuredSpeed(mine=jobs[1], other=jobs[0], speed=speeds[1])
    else:
        yield from (DID_NOT_RUN, DID_NOT_RUN)


def _deepshare(table: PairTable) -> Sides:
    alone = _deepshare_alone(table)
    for line in range(len(table.rows)):
        mine, other = (_deepshare_job(table, line, side, alone) for side in ("", "corunner_"))
        if number(table, line, "extrapolated", empty=0.0) == 0.0:
            yield MeasuredSpeed(mine=mine, other=other, speed=number(table, line, "throughput_ratio"))
        else:
            yield EXTRAPOLATED


def _deepshare_job(
    table: PairTable, line: int, side: str, alone: Mapping[tuple[str, float, float], float] | None = None
) -> MeasuredJob:
    model = text(table, line, f"{side}model")
    gpus, nodes = (number(table, line, f"{side}{column}") for column in ("gpus", "nodes"))
    speed = (alone or {}).get((name_key(model), gpus, nodes), math.nan)
    return MeasuredJob(model=model, gpus=gpus, nodes=nodes, steps_per_s=speed)


def _deepshare_alone(table: PairTable) -> dict[tuple[str, float, float], float]:
    """Return the samples per second of jobs alone, by model, GPUs and nodes, without extrapolated rows."""
    singles = PairTable(path=table.path, header=(), rows=table.singles)
    jobs = [_deepshare_job(singles, line, "") for line in range(len(singles.rows))]
    return {
        (name_key(job.model), job.gpus, job.nodes): number(singles, line, "samples_per_s")
        for line, job in enumerate(jobs)
        if number(singles, line, "extrapolated", empty=0.0) == 0.0
    }


GPU_PAIRS = Form(
    name="gavel",
    columns=(
        "gpu_type", "model1", "batch_size1", "model2", "batch_size2", "isolated1", "isolated2", "colocated1",
        "colocated2",
    ),
    shared=Shared.GPU,
    sides=_gavel,
)  # fmt: skip
GANG_PAIRS = Form(
    name="deepshare",
    columns=("model", "gpus", "nodes", "corunner_model", "corunner_gpus", "corunner_nodes", "throughput_ratio"),
    shared=Shared.NODE,
    sides=_deepshare,
    singles=("model", "gpus", "nodes", "samples_per_s"),
)
FORMS = (GPU_PAIRS, GANG_PAIRS)
