"""The files of the package that decide the outcome of a simulation: imported sources, and C and data beside them."""

import ast
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

# Runs a cell of a sweep; everything else is reached from its imports.
START = "advisor.sim.cell"
_DATA = frozenset({".c", ".csv", ".h", ".json", ".toml"})


def deciding_files(root: Path) -> list[Path]:
    """Return the sources that `START` imports, directly or not, and the data files in their folders.

    `root` is the folder of the package `advisor`. Imports are read from the sources and nothing is imported. Imports
    inside functions count, imports under `if TYPE_CHECKING` do not.
    """
    sources = deciding_sources(root)
    folders = {source.parent for source in sources.values()}
    data = {path for folder in folders for path in folder.iterdir() if path.suffix in _DATA}
    return sorted({*sources.values(), *data})


def deciding_sources(root: Path) -> dict[str, Path]:
    """Return the source of every module that `START` imports, directly or not, by the name of the module."""
    sources: dict[str, Path] = {}
    to_read = [START]
    while to_read:
        module = to_read.pop()
        source = _source_of(module, root)
        if source is not None and module not in sources:
            sources[module] = source
            package = module if source.name == "__init__.py" else module.rpartition(".")[0]
            to_read += _imported(source.read_bytes(), package)
    return sources


def _source_of(module: str, root: Path) -> Path | None:
    """Return the file of a module; None for a name that is not a module of this package."""
    package, *names = module.split(".")
    if package != root.name:
        return None
    path = root.joinpath(*names)
    candidates = (path / "__init__.py", path.with_suffix(".py"))
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
