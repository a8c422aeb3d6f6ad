"""A cell of a sweep: one trace under one policy and one seed, and the digest under which its result is kept.

A trace can be run in copies that are perturbed, and the facts that it lacks are drawn.

The digest is also that of the files that decide the outcome: imported sources, and C and data beside them.
"""

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

import advisor
from advisor.domain.dataclass import dataclass
from advisor.errors import AdvisorError, SimulationError
from advisor.predict.library import shipped_folder
from advisor.predict.manifest import FILE_NAME
from advisor.sim.study.result import RunResult, result_of
from advisor.sim.traces.sampling import REQUESTS, USUAL, Requests, fill
from advisor.sim.traces.trace import Trace

if TYPE_CHECKING:
    from advisor.sim.cluster import Cluster
    from advisor.sim.run_outcome import Run
    from advisor.sim.runner import SimulationOptions


# Runs a cell of a sweep; everything else is reached from its imports.
START = "advisor.sim.study.cell"
_DATA = frozenset({".c", ".csv", ".h", ".json", ".toml"})
LONGEST_SHIFT_S: Final = 300.0
_STREAM: Final = 300

Progress = Callable[[float], None]
Simulate = Callable[["Cell", Progress | None], "Run"]
# Runs cells, the second argument being how many runs were done before; returns the results in the same order.
RunCells = Callable[[Sequence["Cell"], int], list[RunResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a sweep; the facts that `trace` does not hold are drawn with the seed, as `requests` names them."""

    trace: Trace
    cluster: "Cluster"
    policy: str
    seed: int
    options: "SimulationOptions"
    requests: str = "usual"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerturbedTrace:
    """A copy of a trace that differs in nothing of importance, to show how much of a difference is chance.

    On a busy queue the start of one job decides those of many others, so that a policy that hardly does anything still
    changes the waits of single users. The same jobs submitted up to five minutes later or earlier show how much. `row`
    `(n_jobs,)` is the row in the original trace of each job of the copy.
    """

    trace: Trace
    row: NDArray[np.intp]

    def in_original_order(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values of the jobs of the copy, `(..., n_jobs)`, in the order of the original trace."""
        ordered = np.empty_like(values)
        ordered[..., self.row] = values
        return ordered


def perturbed(trace: Trace, repeat: int, seed: int) -> PerturbedTrace:
    """Return a copy of a trace whose jobs are submitted up to `LONGEST_SHIFT_S` later, at random.

    Jobs that one user submits at the same time stay together, and the order of the jobs of a user stays, so that job
    arrays and dependencies are what they were.
    """
    jobs = trace.jobs.copy()
    pair = np.stack([jobs["user"].astype(np.float64), jobs["submit_time"]], axis=1)
    submissions, submission_of_job = np.unique(pair, axis=0, return_inverse=True)
    rng = np.random.default_rng([_STREAM, seed, repeat])
    shifted = submissions[:, 1] + rng.uniform(0.0, LONGEST_SHIFT_S, len(submissions))
    # Submissions are sorted by user and time, and so are their new times.
    shifted = shifted[np.lexsort((shifted, submissions[:, 0]))]
    jobs["submit_time"] = shifted[submission_of_job.reshape(-1)]
    row = np.lexsort((jobs["job_id"], jobs["submit_time"]))
    return PerturbedTrace(trace=replace(trace, jobs=jobs[row]), row=row)


def drawn(trace: Trace, cluster: "Cluster", seed: int, requests: Requests = USUAL) -> Trace:
    """Return the trace with its missing facts drawn at random, as `fill` does."""
    from advisor.sim.profiles import NEUTRAL, load_profiles

    profiles = tuple(name for name in load_profiles().names if name != NEUTRAL)
    most = max(group.gpus for group in cluster.nodes)
    return fill(trace, profiles, seed, gpus_per_node=most, requests=requests)


def simulate_drawn(cell: Cell, progress: Progress | None) -> "Run":
    """Simulate a cell whose trace holds every fact, recorded or drawn."""
    # The engine is loaded where a simulation runs, not where its results are read.
    from advisor.sim.runner import simulate

    return simulate(cell.trace, cell.cluster, cell.policy, seed=cell.seed, options=cell.options, progress=progress)


def simulate_cell(cell: Cell, progress: Progress | None) -> "Run":
    """Draw the facts that the trace of a cell lacks, and simulate the cell."""
    trace = drawn(cell.trace, cell.cluster, cell.seed, REQUESTS[cell.requests])
    return simulate_drawn(replace(cell, trace=trace), progress)


def run_cell(cell: Cell, simulate: Simulate, progress: Progress | None = None) -> RunResult:
    """Run a cell; the message of an error names the cell."""
    try:
        return result_of(simulate(cell, progress))
    except AdvisorError as err:
        raise SimulationError(f"{cell.trace.name}, {cell.policy}, seed {cell.seed}: {err}") from err


def keys_of(cells: Sequence[Cell], *, program: str | None = None) -> list[str]:
    """Return one digest per cell of everything that decides its outcome; the name of the trace does not count.

    `program` identifies the simulator: by default the digest of the sources, data files and models of this program.
    """
    program = program_of() if program is None else program
    digests: dict[int, str] = {}
    for cell in cells:
        # A trace is long and stands in many cells.
        if id(cell.trace) not in digests:
            digests[id(cell.trace)] = digest_of(replace(cell.trace, name="", note=""))
    return [
        digest_of((program, digests[id(cell.trace)], cell.cluster, cell.policy, cell.seed, cell.options, cell.requests))
        for cell in cells
    ]


def digest_of(value: object) -> str:
    """Return a digest of a value made of dataclasses, arrays, mappings, sequences and plain values."""
    digest = hashlib.sha256()
    for part in _parts(value):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: object) -> Iterator[bytes]:
    """Yield bytes that differ for different values: every part includes its type or an end mark."""
    match value:
        case np.ndarray():
            yield f"array {value.dtype.descr} {value.shape}:".encode()
            yield np.ascontiguousarray(value).tobytes()
        case Mapping():
            yield b"{"
            for key in sorted(value, key=repr):
                yield from _parts((key, value[key]))
            yield b"}"
        case str() | bytes():
            yield ascii(value).encode()
        case Sequence():
            yield b"["
            for item in value:
                yield from _parts(item)
                yield b","
            yield b"]"
        case _ if is_dataclass(value):
            yield f"{type(value).__name__}(".encode()
            for field in fields(value):
                yield f"{field.name}=".encode()
                yield from _parts(getattr(value, field.name))
            yield b")"
        case _:
            yield ascii(value).encode()


def program_digest(root: Path, models: Path, *others: Path, start: str = START) -> str:
    """Return a digest of the sources, data files and models that decide what the module `start` computes.

    `root` is the folder of the package, `models` the folder of the models shipped with it, `others` are packages that
    lie beside it.
    """
    files = deciding_files(root, *others, start=start)
    contents = {str(path.relative_to(root.parent)): path.read_bytes() for path in files}
    manifest = models / FILE_NAME
    return digest_of((contents, manifest.read_bytes() if manifest.is_file() else b""))


@cache
def program_of(start: str = START, *others: Path) -> str:
    """Return the version of this program and its digest, as `program_digest` does."""
    root = Path(advisor.__file__).parent
    return f"{advisor.__version__} {program_digest(root, shipped_folder(), *others, start=start)}"


def deciding_files(*packages: Path, start: str = START) -> list[Path]:
    """Return the sources that the module `start` imports, directly or not, and the data files in their folders.

    `packages` are the folders of the packages to look in. Imports are read from the sources and nothing is imported.
    Imports inside functions count, imports under `if TYPE_CHECKING` do not.
    """
    sources = deciding_sources(*packages, start=start)
    folders = {source.parent for source in sources.values()}
    data = {path for folder in folders for path in folder.iterdir() if path.suffix in _DATA}
    return sorted({*sources.values(), *data})


def deciding_sources(*packages: Path, start: str = START) -> dict[str, Path]:
    """Return the source of every module that `start` imports, directly or not, by the name of the module."""
    sources: dict[str, Path] = {}
    to_read = [start]
    while to_read:
        module = to_read.pop()
        source = _source_of(module, packages)
        if source is not None and module not in sources:
            sources[module] = source
            package = module if source.name == "__init__.py" else module.rpartition(".")[0]
            to_read += _imported(source.read_bytes(), package)
    return sources


def _source_of(module: str, packages: Iterable[Path]) -> Path | None:
    """Return the file of a module; None for a name that is not a module of these packages."""
    package, *names = module.split(".")
    candidates = [
        candidate
        for root in packages
        if root.name == package
        for candidate in (root.joinpath(*names, "__init__.py"), root.joinpath(*names).with_suffix(".py"))
    ]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _imported(content: bytes, package: str) -> Iterator[str]:
    """Yield the names that a source in `package` imports, and the packages that they are in.

    `from a import b` yields `a.b` too, which can be a module or another name.
    """
    for node in _executed(ast.parse(content)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) + 1 - node.level]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            names = [f"{source}.{alias.name}" for alias in node.names]
        for name in names:
            # Importing a module runs the packages above it.
            yield from accumulate(name.split("."), "{}.{}".format)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements under a node, except those that only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for statement in child.orelse:
                yield statement
                yield from _executed(statement)
            continue
        yield child
        yield from _executed(child)
