"""The documents: the settings, programs and files that they name are there, and the pages made from code are fresh."""

import ast
import json
import re
from dataclasses import MISSING, fields
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from advisor.backends.snapshot_file import write_snapshot
from advisor.config import Config, effective_values
from advisor.domain.snapshot import Snapshot
from advisor.sim.cluster import _SHORT, _TABLES, parse_cluster
from advisor.sim.policies import POLICIES
from tests.builders import make_job, make_snapshot
from tests.examples import examples
from tests.strategies import snapshots
from tools.bench.__main__ import BENCHES
from tools.generate_docs import DOCS, PAGES, main, stale_pages
from tools.pages.page_experiment import summaries

ROOT = Path(__file__).parent.parent
KEYS = frozenset(value.key for value in effective_values(Config()))
TABLES = frozenset(key.partition(".")[0] for key in KEYS)
# A key in backticks, perhaps with its value, or one that a sentence names in parentheses.
_NAMED = re.compile(r"[`(]([a-z]+\.[a-z_]+)(?: = [^`)]*)?[`)]")
_FILES = (".md", ".toml", ".json", ".sqlite", ".socket", ".py", ".lua", ".csv", ".service")


def named_settings(text: str) -> set[str]:
    """Return the words of a text that look like a setting of sadvise.toml."""
    words = _NAMED.findall(text)
    return {word for word in words if word.partition(".")[0] in TABLES and not word.endswith(_FILES)}


def test_every_setting_that_a_page_names_exists() -> None:
    pages = [
        page for page in ROOT.rglob("*.md") if "decisions" not in page.parts and not page.name.startswith("CHANGELOG")
    ]
    pages = [page for page in pages if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)]

    wrong = {f"{page.relative_to(ROOT)}: {name}" for page in pages for name in named_settings(page.read_text()) - KEYS}

    assert len(pages) > 30
    assert wrong == set()


def test_setting_that_does_not_exist_is_found() -> None:
    text = "`guard.fairness`, `planning.deepness = 3`, (daemon.every_s), `web.socket`, `numpy.random`, `journal.sqlite`"

    assert named_settings(text) - KEYS == {"planning.deepness", "daemon.every_s"}


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

    assert {"is_weighed", "grown"} <= shared
    assert sorted(name for name in shared if not re.search(rf"[`.]{name}`", page)) == []


SCHEMA = Draft202012Validator(json.loads((DOCS / "snapshot.schema.json").read_bytes()))


def test_no_page_is_stale() -> None:
    assert stale_pages(DOCS) == []


def test_the_check_names_stale_and_missing_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([], folder=tmp_path)
    (tmp_path / "metrics.md").write_text("edited by hand")
    (tmp_path / "snapshot.schema.json").unlink()

    status = main(["--check"], folder=tmp_path)

    assert status == 1
    assert capsys.readouterr().out.splitlines() == [
        "docs/metrics.md is stale: run `make docs`",
        "docs/snapshot.schema.json is stale: run `make docs`",
    ]


def test_pages_just_written_are_fresh(tmp_path: Path) -> None:
    written = main([], folder=tmp_path / "docs")

    checked = main(["--check"], folder=tmp_path / "docs")

    assert (written, checked) == (0, 0)
    assert {page.name for page in (tmp_path / "docs").iterdir()} == PAGES.keys()


@settings(max_examples=examples(25), deadline=None)
@given(snapshot=snapshots())
def test_a_written_snapshot_is_valid_by_the_schema(
    snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "schema.json"

    write_snapshot(snapshot, path)

    SCHEMA.validate(json.loads(path.read_bytes()))


def test_the_schema_knows_a_wrong_type(tmp_path: Path) -> None:
    write_snapshot(make_snapshot([make_job()]), tmp_path / "snapshot.json")
    content = json.loads((tmp_path / "snapshot.json").read_bytes())
    content["snapshot"]["jobs"][0]["nice"] = "0"

    with pytest.raises(ValidationError, match="'0' is not of type 'integer'"):
        SCHEMA.validate(content)


PAGE = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")


def spelled(default: object) -> str:
    """Return a default as the page spells it."""
    match default:
        case bool():
            return str(default).lower()
        case float() | int():
            return f"{default:.12g}"
        case str() if default:
            return f"`{default}`"
        case _:
            return "must be given" if default is MISSING else "none"


CLUSTER_KEYS = [
    (f"{table}.{key.name}", "none" if key.default_factory is not MISSING else spelled(key.default))
    for table, kind in _TABLES.items()
    for key in fields(kind)
]


@pytest.mark.parametrize(("key", "default"), CLUSTER_KEYS, ids=[key for key, _ in CLUSTER_KEYS])
def test_every_key_has_a_row_with_its_default(key: str, default: str) -> None:
    row = next((line for line in PAGE.splitlines() if line.startswith(f"| `{key}` |")), "")

    assert row.split(" | ")[2:3] == [default]


def test_no_row_is_of_a_key_that_is_not_there() -> None:
    section = PAGE.partition("## The cluster file")[2].partition("## How jobs run")[0]
    named = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]

    assert sorted(named) == sorted(key for key, _ in CLUSTER_KEYS)


def test_every_policy_and_every_word_of_the_short_form_is_named() -> None:
    assert [name for name in (*POLICIES, *_SHORT) if f"`{name}`" not in PAGE] == []


def test_the_example_is_a_cluster_file(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(PAGE.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")

    cluster = parse_cluster(str(file))

    assert cluster.gpus == 48 * 8 + 16 * 4
