"""Tests look for the things of their machine in one place, and those that start machines or clusters say so."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests import needs

FOLDER: Final = Path(needs.__file__).parent
# Where a test may be left out because of its machine.
ONE_PLACE: Final = Path(needs.__file__)
LEAVING_OUT: Final = frozenset(["skip", "skipif", "importorskip"])
# Each starts daemons or a machine.
STARTERS: Final = frozenset(["LiveCluster", "ThrowawayMachine", "Twins", "controller"])


@cache
def trees() -> Mapping[Path, ast.Module]:
    """Return the modules of the tests, parsed."""
    return {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.rglob("*.py")) if path != ONE_PLACE
    }


def looks_for_itself(node: ast.AST) -> bool:
    """Return whether a part of a module leaves tests out, searches a program, or asks whether it is root."""
    match node:
        case (
            ast.Attribute(attr=name, value=ast.Name(id="pytest"))
            | ast.Attribute(attr=name, value=ast.Attribute(attr="mark", value=ast.Name(id="pytest")))
        ):
            return name in LEAVING_OUT
        case ast.Attribute(attr="which", value=ast.Name(id="shutil")):
            return True
        case ast.Compare(left=ast.Call(func=ast.Attribute(attr="geteuid" | "getuid")), comparators=[ast.Constant()]):
            return True
        case _:
            return False


def marks(tree: ast.Module) -> set[str]:
    """Return the names of the marks of all tests of a module."""
    found = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["pytestmark"]
    ]
    return {node.attr for value in found for node in ast.walk(value) if isinstance(node, ast.Attribute)}


def imported(tree: ast.Module) -> set[str]:
    """Return the names that a module imports from others."""
    return {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}


def test_only_one_place_looks_for_things_of_the_machine() -> None:
    found = [
        f"{path.relative_to(FOLDER)}:{node.lineno}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if looks_for_itself(node) and isinstance(node, ast.expr)
    ]

    assert found == [], "name the thing in tests/needs.py, and mark the test with pytest.mark.needs"


@pytest.mark.parametrize(
    "line",
    [
        "pytest.skip('no')",
        "@pytest.mark.skipif(True, reason='')\ndef test(): ...",
        "pytest.importorskip('torch')",
        "shutil.which('rpm')",
        "if os.geteuid() != 0: ...",
    ],
)
def test_a_look_at_the_machine_is_found(line: str) -> None:
    assert any(looks_for_itself(node) for node in ast.walk(ast.parse(line)))


def test_modules_that_start_clusters_are_live_and_others_that_start_machines_slow() -> None:
    unmarked = [
        str(path.relative_to(FOLDER))
        for path, tree in trees().items()
        if path.name.startswith("test_")
        if (path.parent == FOLDER / "live" and "live" not in marks(tree))
        or (imported(tree) & STARTERS and not marks(tree) & {"live", "slow"})
    ]

    assert unmarked == []


def test_marks_name_things_that_are_known() -> None:
    named = {
        (str(path.relative_to(FOLDER)), word.value)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.needs"
        for word in node.args
        if isinstance(word, ast.Constant)
    }

    assert {one for one in named if one[1] not in needs.THINGS} == set()
    assert named
