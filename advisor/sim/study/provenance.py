"""The files that decide the outcome of a simulation: imported sources, and C and data beside them."""

import ast
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

# Runs a cell of a sweep; everything else is reached from its imports.
START = "advisor.sim.study.cell"
_DATA = frozenset({".c", ".csv", ".h", ".json", ".toml"})


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
