"""The layout of `advisor` and `tools`: few modules in the root, no name for two things, and no circle of imports."""

import ast
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import advisor
from advisor.cli.app import BRANCHES
from tools.bench.__main__ import BENCHES
from tools.pages.page_experiment import summaries

pytestmark = pytest.mark.no_cover
ROOT = Path(advisor.__file__).parent
TOOLS = ROOT.parent / "tools"
MOST_IN_ROOT = 8

# Names that say how a module is used instead of naming what it holds.
VAGUE = frozenset(
    [
        "ahead",
        "brought",
        "dealing",
        "hold",
        "keeping",
        "knowing",
        "outfit",
        "promises",
        "remembering",
        "room",
        "serving",
        "standing",
        "stepping",
        "whole",
    ]
)


def modules(root: Path = ROOT) -> list[Path]:
    """Return the modules below a folder, without those that only make a folder a package or a program."""
    return [path for path in sorted(root.rglob("*.py")) if path.name not in ("__init__.py", "__main__.py")]


def commands() -> set[Path]:
    """Return the modules that are named after the command, the benchmark or the page that they hold."""
    pages = {name.replace("-", "_") for name in summaries()}
    return {
        *(path for path in (ROOT / "cli").glob("*.py") if path.stem.rstrip("_") in BRANCHES),
        *(path for path in (TOOLS / "bench").glob("*.py") if path.stem in BENCHES),
        *(path for path in (TOOLS / "pages").glob("*.py") if path.stem in pages),
    }


def repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, times in Counter(names).items() if times > 1)


@cache
def body_of(path: Path) -> Sequence[ast.stmt]:
    """Return the statements of a module."""
    return ast.parse(path.read_text()).body


def public_classes(path: Path) -> list[str]:
    return [item.name for item in body_of(path) if isinstance(item, ast.ClassDef) and not item.name.startswith("_")]


def test_few_modules_stand_in_the_root() -> None:
    in_root = [path.name for path in modules() if path.parent == ROOT]

    assert len(in_root) <= MOST_IN_ROOT, in_root


def test_a_module_name_occurs_once() -> None:
    named_after_commands = commands()

    names = [path.stem for root in (ROOT, TOOLS) for path in modules(root) if path not in named_after_commands]

    assert {"apply.py", "config.py", "import_.py", "pause.py", "soak.py"} <= {
        path.name for path in named_after_commands
    }
    assert repeated(names) == []


def test_a_public_class_name_occurs_once() -> None:
    paths = [path for root in (ROOT, TOOLS) for path in root.rglob("*.py")]

    names = [name for path in paths for name in public_classes(path)]

    assert len(names) > 500
    assert repeated(names) == []


def test_no_module_has_a_vague_name() -> None:
    assert sorted(path.stem for root in (ROOT, TOOLS) for path in modules(root) if path.stem in VAGUE) == []


def imported(path: Path, names: set[str]) -> set[str]:
    """Return the modules of `names` that a module imports when it is imported itself."""
    found: set[str] = set()
    for node in body_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside | ({node.module} if inside - names else set())
    return found & names


def circle_in(imports: Mapping[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, [] where none do."""
    sorter = TopologicalSorter(imports)
    try:
        sorter.prepare()
    except CycleError as err:
        return list(err.args[1])
    return []


@pytest.mark.parametrize("package", ["advisor", "tools"])
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    root = ROOT.parent
    paths = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (root / package).rglob("*.py")
    }

    imports = {name: imported(path, set(paths)) - {name} for name, path in paths.items()}

    assert sum(map(len, imports.values())) > 300
    assert circle_in(imports) == []


def test_a_circle_is_found() -> None:
    assert set(circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}
