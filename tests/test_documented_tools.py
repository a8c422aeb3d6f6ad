"""Every program and file of the checkout that a document names is there."""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.bench.__main__ import BENCHES
from tools.pages.page_experiment import summaries

ROOT = Path(__file__).parent.parent
DOCUMENTS = tuple(
    path
    for pattern in ("*.md", "docs/**/*.md", "models/*.md", "slurm/*.md", "ansible/*.md")
    for path in sorted(ROOT.glob(pattern))
)
# Programs of several parts, and the names of the parts.
PARTS = {
    "bench": BENCHES,
    "pages": summaries(),
    "evaluate": ("throughput", "interference", "runtime", "start", "presets"),
}
# In CONTRIBUTING.md, the first cells of tables.
LISTED = re.compile(r"^\| (`[^|]+`) \|", re.MULTILINE)
NAMED_FILE = re.compile(r"`((?:advisor|tests|tools)/[\w/.-]+\.(?:c|json|py|toml))`")
COMMAND = re.compile(r"python -m tools\.(\w+)(?: ([a-z][\w-]*))?")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_program_named_is_there(document: Path) -> None:
    named = COMMAND.findall(document.read_text(encoding="utf-8"))

    assert [program for program, _ in named if find_spec(f"tools.{program}") is None] == []
    assert [f"{program} {part}" for program, part in named if part and part not in PARTS.get(program, (part,))] == []


def test_list_of_programs_has_those_that_exist_and_every_benchmark_and_page() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Programs of a checkout")[2]
    listed = [words.split() for cells in LISTED.findall(section) for words in re.findall(r"`([^`]+)`", cells)]

    assert [program for program, *_ in listed if find_spec(f"tools.{program}") is None] == []
    assert {part for program, *parts in listed for part in parts if program == "bench"} == set(BENCHES)
    assert {part for program, *parts in listed for part in parts if program == "pages"} == set(summaries())


def test_documents_name_programs() -> None:
    text = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)

    assert {program for program, _ in COMMAND.findall(text)} >= {"bench", "evaluate", "fidelity", "pages"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_named_is_there(document: Path) -> None:
    named = NAMED_FILE.findall(document.read_text(encoding="utf-8"))

    assert [path for path in named if "NAME" not in path and not (ROOT / path).exists()] == []


def test_decision_on_shared_algorithms_names_each_that_a_simulated_policy_shares_with_the_planner() -> None:
    page = (ROOT / "docs/decisions/simulator.md").read_text(encoding="utf-8")
    shared = {
        alias.name
        for path in (ROOT / "advisor/sim/policies").glob("*.py")
        # It runs the planner itself.
        if path.name != "advised.py"
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("advisor.planning.")
        for alias in node.names
        if alias.name.islower()
    }

    assert {"lifts", "exchanges", "grown"} <= shared
    assert sorted(name for name in shared if not re.search(rf"[`.]{name}`", page)) == []
