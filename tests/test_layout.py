"""The layout of the package: few modules in its root, and no name that stands for two things."""

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import advisor
from advisor.cli.app import BRANCHES

ROOT = Path(advisor.__file__).parent
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


def modules() -> list[Path]:
    """Return the modules of the package, without those that only make a folder a package."""
    return [path for path in sorted(ROOT.rglob("*.py")) if path.name != "__init__.py"]


def commands() -> set[Path]:
    """Return the modules of the command line that are named after the command that they hold."""
    return {path for path in (ROOT / "cli").glob("*.py") if path.stem.rstrip("_") in BRANCHES}


def repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, times in Counter(names).items() if times > 1)


def public_classes(path: Path) -> list[str]:
    body = ast.parse(path.read_text()).body
    return [item.name for item in body if isinstance(item, ast.ClassDef) and not item.name.startswith("_")]


def test_few_modules_stand_in_the_root() -> None:
    in_root = [path.name for path in modules() if path.parent == ROOT]

    assert len(in_root) <= MOST_IN_ROOT, in_root


def test_a_module_name_occurs_once() -> None:
    named_after_commands = commands()

    assert {"apply.py", "config.py", "import_.py", "pause.py"} <= {path.name for path in named_after_commands}
    assert repeated(path.stem for path in modules() if path not in named_after_commands) == []


def test_a_public_class_name_occurs_once() -> None:
    names = [name for path in [*modules(), *ROOT.rglob("__init__.py")] for name in public_classes(path)]

    assert len(names) > 300
    assert repeated(names) == []


def test_no_module_has_a_vague_name() -> None:
    assert sorted(path.stem for path in modules() if path.stem in VAGUE) == []
