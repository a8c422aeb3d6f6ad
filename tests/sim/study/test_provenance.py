"""The files that decide the outcome of a simulation: none is missing, and each changes the digest of a cell."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import advisor
from advisor.predict.library import shipped_folder
from advisor.sim.study import cell
from advisor.sim.study.cell import deciding_files, deciding_sources, program_digest
from tools.train import TOOLS

ROOT = Path(advisor.__file__).parent


@pytest.fixture(scope="module", autouse=True)
def _parsed_once() -> Iterator[None]:
    """Parse a source that has not changed once."""
    imported = cell._imported
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cell, "_imported", cache(lambda content, package: tuple(imported(content, package))))
        yield


EVERY_POLICY = """
import json, sys
from advisor.sim.study.cell import run_cell, simulate_cell
from advisor.sim.runner import POLICIES
from tests.sim.runs import make_cell, random_trace

for name in POLICIES:
    run_cell(make_cell(random_trace(12), policy=name), simulate_cell)
json.dump([name for name in sys.modules if name.split(".")[0] == "advisor"], sys.stdout)
"""


@pytest.mark.slow
def test_every_module_that_a_simulation_loads_decides() -> None:
    run = subprocess.run(
        [sys.executable, "-c", EVERY_POLICY],
        cwd=ROOT.parent,
        env={"PYTHONPATH": str(ROOT.parent), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    loaded = set(json.loads(run.stdout))

    assert {"advisor.sim.study.cell", "advisor.sim.policies", "advisor.predict.forecaster"} <= loaded
    assert sorted(loaded - set(deciding_sources(ROOT))) == []


def test_commands_decide_nothing() -> None:
    assert not [name for name in deciding_sources(ROOT) if name.startswith("advisor.cli")]


def test_programs_of_other_folders_decide_what_a_judge_of_learned_policies_finds() -> None:
    sources = deciding_sources(ROOT, TOOLS, start="tools.train.metarl_judge")

    assert {"tools.train.metarl_judge", "tools.train.learnt_site", "tools.train.gang_training"} <= set(sources)
    assert {"advisor.sim.runner", "advisor.features.observe.graph"} <= set(sources)
    assert TOOLS / "train" / "spreads.json" in deciding_files(ROOT, TOOLS, start="tools.train.metarl_judge")


def test_a_change_in_another_package_changes_the_digest_of_what_imports_it(tmp_path: Path) -> None:
    for name, text in {
        "advisor/sim/study/cell.py": "",
        "tools/judge.py": "import tools.net",
        "tools/net.py": "1",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def digest() -> str:
        return program_digest(tmp_path / "advisor", tmp_path, tmp_path / "tools", start="tools.judge")

    before = digest()
    (tmp_path / "tools/net.py").write_text("2")

    assert digest() != before


def test_data_beside_the_sources_decides() -> None:
    assert ROOT / "sim" / "profiles.csv" in deciding_files(ROOT)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Copy the package and its models; the answer is the folder of the package."""
    shutil.copytree(ROOT, tmp_path / ROOT.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(shipped_folder(), tmp_path / "models")
    return tmp_path / ROOT.name


def one_of_each_folder() -> list[str]:
    """Return the last deciding file in every folder of the package, and each that lies in none."""
    names = [str(path.relative_to(ROOT)) for path in deciding_files(ROOT)]
    chosen = {name.rpartition("/")[0] or name: name for name in names}
    return sorted(chosen.values())


# Reads all sources once for each of them.
@pytest.mark.slow
@pytest.mark.no_cover
def test_one_more_byte_in_a_deciding_file_changes_the_digest(copied: Path) -> None:
    changed = [copied / name for name in one_of_each_folder()] + [copied.parent / "models" / "manifest.toml"]
    digests = [program_digest(copied, copied.parent / "models")]

    for path in changed:
        with path.open("ab") as file:
            file.write(b"\n")
        digests.append(program_digest(copied, copied.parent / "models"))

    assert len(set(digests)) == len(changed) + 1
    assert len(changed) > len({"domain", "features", "guard", "planning", "predict", "sim"})


@pytest.mark.slow
def test_a_module_that_no_simulation_imports_leaves_the_digest(copied: Path) -> None:
    before = program_digest(copied, copied.parent / "models")

    (copied / "cli" / "simulate.py").write_text("# other options\n")
    (copied / "sim" / "unused.py").write_text("")

    assert program_digest(copied, copied.parent / "models") == before


TREE = {
    "__init__.py": "import advisor.at_the_top",
    "at_the_top.py": "import numpy\nfrom os import path",
    "sim/__init__.py": "",
    "sim/study/__init__.py": "",
    "sim/study/cell.py": """
from typing import TYPE_CHECKING
from advisor.plain import Name
from advisor import from_the_package as renamed
from advisor.table import row
from . import beside
from ...above import other
if TYPE_CHECKING:
    from advisor.for_the_type_checker import Cluster
else:
    import advisor.without_the_type_checker
def run():
    try:
        from advisor.in_a_function import run
    except ImportError:
        import advisor.in_a_handler as run
    match run:
        case None:
            import advisor.in_a_case
class Cell:
    import advisor.in_a_class
""",
    "plain.py": "from advisor.imported_by_imported import *",
    "imported_by_imported.py": "import advisor.plain",
    "from_the_package.py": "",
    "table/__init__.py": "from . import column",
    "table/row.py": "",
    "table/column.py": "",
    "table/unused.py": "",
    "sim/study/beside.py": "",
    "above.py": "",
    "for_the_type_checker.py": "",
    "without_the_type_checker.py": "",
    "in_a_function.py": "",
    "in_a_handler.py": "",
    "in_a_case.py": "",
    "in_a_class.py": "",
}


def test_imports_are_found_wherever_they_are_written(tmp_path: Path) -> None:
    for name, text in TREE.items():
        path = tmp_path / "advisor" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    sources = deciding_sources(tmp_path / "advisor")

    left_out = {"table/unused.py", "for_the_type_checker.py"}
    assert {str(path.relative_to(tmp_path / "advisor")) for path in sources.values()} == set(TREE) - left_out
