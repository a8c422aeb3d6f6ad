"""The command that measures which faults the tests catch: what it draws, which tests it runs, and what it counts."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from cosmic_ray.ast import ast_nodes

from tools.mutants.__main__ import HERE, ROOT, PackageScore, described, equivalents, key, modules_of
from tools.mutants.checkout import Copy, MutantsError, Related
from tools.mutants.faults import OPERATORS, Mutant, SingleFault, faults, mutated_code, parse, sampled

SOURCE = '''"""A module."""

from dataclasses import dataclass

Ids = int | None


@dataclass(frozen=True)
class Job:
    """A job."""

    gpus: int | None = 4


def sooner(one: float, other: float, late: bool = False) -> bool:
    """Whether one is sooner."""
    if one < other and not late:
        return True
    return False


def total(values: list[float]) -> float:
    """Return the sum."""
    result = 0.0
    for value in values:
        result += min(value, 60.0)
    return result
'''
TESTS = """import pytest

from advisor.times import sooner, total


@pytest.fixture(scope="module")
def three():
    return total([1.0, 2.0])


def test_sum(three):
    assert three == 3.0


def test_order():
    assert sooner(1.0, 2.0)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of one module and its tests."""
    root = tmp_path / "checkout"
    for name in ("advisor", "models", "monitoring", "slurm", "systemd", "docs", "tests", "tools/mutants"):
        (root / name).mkdir(parents=True)
    (root / "advisor/__init__.py").touch()
    (root / "advisor/times.py").write_text(SOURCE)
    (root / "tests/test_times.py").write_text(TESTS)
    (root / "tools/mutants/recorder.py").write_bytes((HERE / "recorder.py").read_bytes())
    return root


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_makes_the_faults_of_its_examples(name: str) -> None:
    operator = OPERATORS[name]

    made = [mutated_code(example.pre_mutation_code, operator, example.occurrence) for example in operator.examples()]

    assert made == [example.post_mutation_code for example in operator.examples()]


@pytest.mark.parametrize(
    ("code", "swapped"),
    [
        ("f(a.b, a.c)", True),
        ("[a.b, a.c]", True),
        ("x == (a.b, a.c)", True),
        ("for x in (a.b, a.c): pass", True),
        ("f(a.b, d.c)", False),
        ("max(a.b, a.c)", False),
        ("x in (a.b, a.c)", False),
        ("x not in (a.b, a.c)", False),
    ],
)
def test_fields_are_exchanged_where_their_order_matters(code: str, swapped: bool) -> None:
    nodes = ast_nodes(parse(f"{code}\n"))

    positions = [place for node in nodes for place in OPERATORS["SwapFields"].mutation_positions(node)]

    assert bool(positions) is swapped


def test_faults_stand_where_the_module_decides(checkout: Path) -> None:
    lines = {fault.text for fault in faults(checkout, "advisor/times.py")}

    assert lines == {
        "gpus: int | None = 4",
        "if one < other and not late:",
        "return True",
        "return False",
        "result = 0.0",
        "for value in values:",
        "result += min(value, 60.0)",
    }


def drawn(root: Path, *, most: int = 1000, seed: int = 0) -> list[tuple[str, str]]:
    return [(mutant.before, mutant.after) for mutant in sampled(root, ["advisor/times.py"], most=most, seed=seed)]


def test_sample_is_that_of_its_seed(checkout: Path) -> None:
    assert drawn(checkout) == drawn(checkout)
    assert drawn(checkout)[:5] == drawn(checkout, most=5)
    assert drawn(checkout) != drawn(checkout, seed=1)
    assert sorted(drawn(checkout)) == sorted(drawn(checkout, seed=1))


def test_sample_takes_one_fault_of_each_line_before_a_second_of_any(checkout: Path) -> None:
    lines = [before for before, _ in drawn(checkout)]

    assert len(set(lines[:7])) == 7 < len(lines)


def test_faults_of_other_lines_stay_when_a_line_is_added(checkout: Path) -> None:
    before = drawn(checkout)

    (checkout / "advisor/times.py").write_text(SOURCE + "\n\nLIMIT = 5\n")

    assert [fault for fault in drawn(checkout) if "LIMIT" not in fault[0]] == before


def mutant_of(root: Path, before: str, after: str) -> Mutant:
    mutants = sampled(root, ["advisor/times.py"], most=1000, seed=0)
    return next(mutant for mutant in mutants if (mutant.before, mutant.after) == (before, after))


def test_mutant_is_caught_by_the_tests_that_run_its_line(checkout: Path, tmp_path: Path) -> None:
    copy = Copy(checkout, tmp_path / "kept")
    related = copy.related("times", ["tests"])
    summed = mutant_of(copy.root, "result += min(value, 60.0)", "result += max(value, 60.0)")
    unnoticed = mutant_of(copy.root, "result += min(value, 60.0)", "result += min(value, 120.0)")
    sooner = mutant_of(copy.root, "if one < other and not late:", "if one < other or not late:")

    # The shared fixture runs the loop for every test of its file.
    chosen = [sorted(related.tests(mutant, most_s=10.0)) for mutant in (summed, sooner)]
    caught = [copy.is_caught(mutant, chosen[0], limit_s=60.0) for mutant in (summed, unnoticed)]

    both = ["tests/test_times.py::test_order", "tests/test_times.py::test_sum"]
    assert chosen == [both, both[:1]]
    assert caught == [True, False]
    assert (copy.root / "advisor/times.py").read_text() == (checkout / "advisor/times.py").read_text() == SOURCE


def test_what_was_caught_is_not_run_again(checkout: Path, tmp_path: Path) -> None:
    mutant = mutant_of(checkout, "result += min(value, 60.0)", "result += max(value, 60.0)")
    assert Copy(checkout, tmp_path / "kept").is_caught(mutant, ["tests/test_times.py"], limit_s=60.0)

    again, other = (Copy(checkout, tmp_path / name) for name in ("kept", "new"))

    assert again.is_caught(mutant, [], limit_s=60.0)
    assert not other.is_caught(mutant, [], limit_s=60.0)


@pytest.mark.slow
def test_endless_loop_is_caught_by_the_limit(checkout: Path, tmp_path: Path) -> None:
    fault = next(faults(checkout, "advisor/times.py"))
    endless = Mutant(fault=fault, before="", after="", source=SOURCE + "\nwhile True:\n    pass\n")

    assert Copy(checkout, tmp_path / "kept").is_caught(endless, ["tests/test_times.py"], limit_s=3.0)


def test_tests_that_fail_without_a_fault_are_an_error(checkout: Path, tmp_path: Path) -> None:
    (checkout / "tests/test_times.py").write_text("def test_wrong():\n    assert False\n")

    with pytest.raises(MutantsError, match="do not pass without a fault"):
        Copy(checkout, tmp_path / "kept").related("times", ["tests"])


FAULT = SingleFault(path="a.py", operator="x", occurrence=0, statement_line=3, line=5, text="", twin=1)
MUTANT = Mutant(fault=FAULT, before="a < b", after="a <= b", source="")


@pytest.mark.parametrize(
    ("lines", "tests"),
    [
        ({5: ["t2"], 4: ["t1"]}, ["t2", "t1"]),
        ({3: ["t1"], 9: ["t2"]}, ["t1"]),
        ({9: ["t2"], 12: ["t1"]}, ["t1", "t2"]),
        ({5: ["t1", "t2", "slow"]}, ["t1", "t2"]),
        ({5: ["slow"]}, ["slow"]),
        ({}, []),
    ],
    ids=["its line first", "its statement", "its module", "the fastest", "at least one", "none"],
)
def test_tests_of_a_mutant_are_the_nearest_and_fastest(lines: dict[int, list[str]], tests: list[str]) -> None:
    related = Related(seconds={"t1": 0.1, "t2": 0.2, "slow": 30.0}, lines={"a.py": lines})

    assert related.tests(MUTANT, most_s=10.0) == tests


@pytest.mark.parametrize("text", ["MOST = 3", "MOST: Final = 3", "MOST: Final[int] = 3"])
def test_tests_of_a_constant_are_those_of_the_lines_that_name_it(text: str) -> None:
    fault = replace(FAULT, statement_line=1, line=1, text=text)
    source = f"{text}\n\ndef f(n):\n    return n < MOST\n\ndef g():\n    return ALMOST + MOST_NAMED\n"
    related = Related(seconds={"t1": 0.1, "t2": 0.2}, lines={"a.py": {4: ["t2"], 7: ["t1"]}})

    assert related.tests(replace(MUTANT, fault=fault, source=source), most_s=10.0) == ["t2"]


def test_share_leaves_out_what_is_equivalent() -> None:
    score = PackageScore(package="guard", mutants=12, equivalent=2, missed=(MUTANT,))

    assert (score.caught, score.share) == (9, 0.9)
    assert str(score).split() == ["guard", "12", "9", "2", "1", "90%"]
    assert described(MUTANT) == "a.py:5\n    - a < b\n    + a <= b"


def test_packages_name_modules_and_tests_that_are_there() -> None:
    packages = tomllib.loads((HERE / "packages.toml").read_text(encoding="utf-8"))

    for package in packages.values():
        assert all(list(ROOT.glob(pattern)) for pattern in package["modules"])
        files = [test.rpartition("=")[2].partition("::")[0] for test in package["tests"]]
        assert all((ROOT / file).exists() for file in files)
        assert modules_of(package)
    assert list(packages) == ["guard", "apply", "journal", "planning", "backends", "simulator", "predict"]


def test_every_equivalent_fault_has_its_reason() -> None:
    entries = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8")).get("equivalent", [])

    assert len(equivalents()) == len(entries)
    assert all(entry["why"] and entry.keys() == {"path", "before", "after", "why"} for entry in entries)
    assert key(MUTANT) == ("a.py", "a < b", "a <= b")
