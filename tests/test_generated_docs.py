"""The pages of docs/ that are made from code are fresh, and the published schema is true."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from advisor.backends.snapshot_file import write_snapshot
from advisor.domain.snapshot import Snapshot
from tests.builders import make_job, make_snapshot
from tests.examples import examples
from tests.strategies import snapshots
from tools.generate_docs import DOCS, PAGES, main, stale_pages

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
