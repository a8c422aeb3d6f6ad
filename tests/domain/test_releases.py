"""What is known of Slurm's releases, and that it stands in one table only."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import advisor
from advisor.domain.releases import (
    TRAITS,
    UNKNOWN,
    first_with,
    is_tested,
    releases_tested,
    same_release,
    traits_of,
    version_in,
)

PACKAGE = Path(advisor.__file__).parent
THE_TABLE = "domain/releases.py"
# A release that decides nothing, by the module that names it.
ALLOWED = {
    "sim/slurm/slurm_cluster.py": ["26.05"],  # the version that the simulated Slurm has
}

RELEASE_IN_TEXT = re.compile(r"(?<![\d.])2\d\.(?:0[1-9]|1[0-2])(?!\d)")
# What holds a release or a version of Slurm, as a variable, an attribute, or a function that returns one.
HOLDS_A_RELEASE = re.compile(r"release(_of)?|slurm_version|first_version")


@pytest.mark.parametrize(
    ("version", "first_version"),
    [
        ("22.05.8", (22, 5, 0)),
        ("24.11", (24, 11, 0)),
        ("25.05.3", (25, 5, 0)),
        ("25.05.4-1", (25, 5, 4)),
        ("25.08.1", (25, 5, 4)),
        ("27.11.0", (26, 5, 0)),
        ("21.08.8", (22, 5, 0)),
        ("", UNKNOWN.first_version),
        ("unknown", UNKNOWN.first_version),
    ],
)
def test_version_has_the_traits_of_the_last_row_that_is_not_newer(
    version: str, first_version: tuple[int, int, int]
) -> None:
    assert traits_of(version).first_version == first_version


# Versions of equal traits, and whether they know soft limits, keep them for running jobs, keep the priority of jobs
# with --cpus-per-gpu, and say in the sharing that a job is exclusive.
BEHAVIOUR = [
    (("20.11.9", "22.05", "22.05.8", "22.05.11"), (False, False, False, True)),
    (("23.02.7",), (False, False, True, True)),
    (("23.11.0", "23.11.4", "24.05.3", "24.11.5"), (True, False, True, True)),
    (("25.05", "25.05.0-0rc1", "25.05.3", "25.05.3-1", "25.05.x"), (True, False, True, True)),
    (("25.05.4", "25.05.4-1", "25.05.4.1", "25.05.10", "25.08.1"), (True, True, True, True)),
    (("25.11.0", "25.11.7"), (True, True, True, True)),
    (("26.05.0-0rc1", "26.05.5", "27.11.1"), (True, True, True, False)),
    (("", "unknown"), (False, False, False, False)),
]


@pytest.mark.parametrize(
    ("version", "behaviour"), [(version, behaviour) for versions, behaviour in BEHAVIOUR for version in versions]
)
def test_release_behaves_as_it_was_seen_to(version: str, behaviour: tuple[bool, ...]) -> None:
    traits = traits_of(version)

    assert behaviour == (
        traits.soft_limits,
        traits.soft_limits_outlast_start,
        traits.cpus_per_gpu_update_keeps_priority,
        traits.sharing_tells_exclusive,
    )


@pytest.mark.parametrize(
    ("versions", "priority_type", "squeue_array_unique"),
    [
        (("20.11.9", "22.05.8"), "priority/basic", True),
        (("23.02.7", "23.11.4", "24.05.3"), "", False),
        (("24.11.5", "25.05.3", "25.05.4", "25.11.7"), "priority/multifactor", False),
        (("26.05.5", "27.11.1", "unknown"), "priority/multifactor", False),
    ],
)
def test_release_names_things_its_own_way(
    versions: tuple[str, ...], priority_type: str, squeue_array_unique: bool
) -> None:
    for traits in map(traits_of, versions):
        assert (traits.default_priority_type, traits.squeue_array_unique) == (priority_type, squeue_array_unique)


def test_rows_are_in_order_of_time() -> None:
    assert [row.first_version for row in TRAITS] == sorted({row.first_version for row in TRAITS})


def test_soft_limits_are_in_every_release_after_the_first_that_has_them() -> None:
    def first_and_later(values: list[bool]) -> bool:
        return values == sorted(values)

    assert first_with(lambda traits: traits.soft_limits) == "23.11"
    assert first_with(lambda traits: traits.soft_limits_outlast_start) == "25.05.4"
    assert first_and_later([row.soft_limits for row in TRAITS])
    assert first_and_later([row.soft_limits_outlast_start for row in TRAITS])


@pytest.mark.parametrize("version", ["", "unknown"])
def test_unknown_release_is_trusted_with_nothing_that_an_older_one_lacks(version: str) -> None:
    traits = traits_of(version)

    assert not (traits.soft_limits or traits.soft_limits_outlast_start or traits.cpus_per_gpu_update_keeps_priority)


@pytest.mark.parametrize(
    ("version", "tested"),
    [
        ("22.05.8", True),
        ("26.05.0-0rc1", True),
        ("25.05.4", False),
        ("22.08.1", False),
        ("27.11.1", False),
        ("21.08.8", False),
        ("", False),
    ],
)
def test_release_beside_a_tested_one_is_not_tested(version: str, tested: bool) -> None:
    assert is_tested(version) is tested


def test_releases_tested_are_named_as_slurm_names_them() -> None:
    assert releases_tested() == ["22.05", "24.11", "25.11", "26.05"]


@pytest.mark.parametrize(
    ("version", "other", "same"),
    [
        ("25.11.7", "25.11", True),
        ("25.11.7", "25.11.2-1", True),
        ("25.11.7", "25.05.7", False),
        ("25.11.7", "24.11.7", False),
        ("25.11.7", "", False),
        ("", "x", True),
    ],
)
def test_point_releases_are_of_the_same_release(version: str, other: str, same: bool) -> None:
    assert same_release(version, other) is same
    assert same_release(other, version) is same


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("slurm-wlm 22.05.8\n", "22.05.8"),
        ("slurm 25.11.7", "25.11.7"),
        ("slurm 26.05.0-0rc1", "26.05.0-0rc1"),
        ("", ""),
    ],
)
def test_version_is_found_in_what_commands_print(text: str, version: str) -> None:
    assert version_in(text) == version


def test_no_module_but_the_table_knows_release_numbers() -> None:
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}

    uses = {name: list(release_uses(path.read_text())) for name, path in modules.items() if name != THE_TABLE}

    assert {name: used for name, used in uses.items() if used} == ALLOWED


@pytest.mark.parametrize(
    ("source", "used"),
    [
        ("config.release >= (23, 11)", ["config.release >= (23, 11)", "(23, 11)"]),
        ("OLD = (25, 5, 4)", ["(25, 5, 4)"]),
        ("around.release > newest", ["around.release > newest"]),
        ("release_of(version) == other", ["release_of(version) == other"]),
        ("release[0] < year", ["release[0] < year"]),
        ("slurm_version.split('.')", ["slurm_version.split"]),
        ("config.slurm_version in known", ["config.slurm_version in known"]),
        ("traits.first_version < other", ["traits.first_version < other"]),
        ("version.startswith('22.05')", ["22.05"]),
        ("f'Slurm before 25.05.4 {plans}'", ["Slurm before 25.05.4 "]),
        ("'''Slurm 22.05 did so.'''", []),
        ("def f():\n  '''Slurm 22.05 did so.'''\n  return 1", []),
        ("config.traits.soft_limits", []),
        ("sqlite3.sqlite_version_info >= (3, 37)", []),
        ("header.version > 3", []),
        ("config.slurm_version or 'unknown'", []),
        ("'4.2205 s'", []),
    ],
)
def test_use_of_a_release_number_is_seen(source: str, used: list[str]) -> None:
    assert list(release_uses(source)) == used


def release_uses(source: str) -> Iterator[str]:
    """Yield what in a module names, compares or takes apart a release of Slurm, docstrings and comments aside."""
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        match node:
            case ast.Tuple() if _is_release(node):
                yield ast.unparse(node)
            case ast.Constant(value=str(text)) if RELEASE_IN_TEXT.search(text) and id(node) not in docstrings:
                yield text
            case ast.Compare() if any(map(_holds_a_release, [node.left, *node.comparators])):
                yield ast.unparse(node)
            case ast.Attribute() if _holds_a_release(node.value):
                yield ast.unparse(node)


def _is_release(node: ast.Tuple) -> bool:
    numbers = [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, int)]
    return len(numbers) == len(node.elts) in {2, 3} and 20 <= numbers[0] < 40 and 1 <= numbers[1] <= 12


def _holds_a_release(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return HOLDS_A_RELEASE.fullmatch(name) is not None
        case ast.Subscript(value=value) | ast.Call(func=value):
            return _holds_a_release(value)
        case _:
            return False
