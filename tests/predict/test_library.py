"""Which model serves, and which is refused and why."""

import os
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import ModelError
from advisor.fit.publish import publish
from advisor.predict.library import Library, read_card
from advisor.predict.manifest import GRAPH, PARAMETERS, read_manifest, write_manifest
from tests.predict.graphs import doubling, endless, in_another_file, unary
from tests.predict.shelf import TODAY, add, make_fitted, make_library, plant, renamed

ROWS = np.array([[1.0, 0.0]], dtype=np.float32)


def answer(library: Library) -> float:
    """Ask the run-time model in use."""
    return float(library.load("run_time").model.run(ROWS)[0, 0])


def test_shipped_model_serves_until_the_site_has_its_own(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    shipped = answer(library)

    add(library, "site-1", slope=5.0)

    assert answer(library) == pytest.approx(2.5 * shipped, rel=1e-4)


def test_rollback_returns_to_the_version_before_and_forth_again(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    shipped = answer(library)
    add(library, "site-1", slope=5.0)

    versions = [library.rollback("run_time"), library.rollback("run_time")]

    assert versions == ["default-1", "site-1"]
    assert answer(library) == pytest.approx(2.5 * shipped, rel=1e-4)


def test_rollback_without_a_version_before_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nothing to roll run_time back to"):
        make_library(tmp_path).rollback("run_time")


def test_unknown_kinds_and_versions_name_those_there_are(tmp_path: Path) -> None:
    library = make_library(tmp_path)

    with pytest.raises(ModelError, match="no model of kind 'speed': there are run_time"):
        library.find("speed", None)
    with pytest.raises(ModelError, match="no version '9' of run_time: there are default-1"):
        library.find("run_time", "9")
    with pytest.raises(ModelError, match="there is no throughput model in use"):
        library.load("throughput")


@pytest.mark.parametrize("file", [GRAPH, PARAMETERS])
def test_file_that_was_changed_is_refused(tmp_path: Path, file: str) -> None:
    library = make_library(tmp_path)
    path = tmp_path / "shipped" / "run_time" / "default-1" / file
    path.write_bytes(path.read_bytes() + b" ")

    with pytest.raises(ModelError, match=f"{file} is not the file of its digest"):
        library.load("run_time")


@pytest.mark.parametrize(("more", "fault"), [(0, "is not the file of its digest"), (1, "is larger than 64 MiB")])
def test_file_larger_than_any_model_is_refused(tmp_path: Path, more: int, fault: str) -> None:
    library = make_library(tmp_path)
    path = tmp_path / "shipped" / "run_time" / "default-1" / PARAMETERS
    os.truncate(path, 64 * 1024 * 1024 + more)

    with pytest.raises(ModelError, match=fault):
        library.load("run_time")


def test_missing_file_is_refused(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    (tmp_path / "shipped" / "run_time" / "default-1" / GRAPH).unlink()

    with pytest.raises(ModelError, match="is missing"):
        library.load("run_time")


def test_damaged_graph_with_a_right_digest_is_refused(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    plant(tmp_path / "shipped", "run_time", "default-1", GRAPH, b"no graph")

    with pytest.raises(ModelError, match="ONNX Runtime cannot open it"):
        library.load("run_time")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "fault"),
    [
        (endless(), r"it holds control flow \(Loop\)"),
        (in_another_file(), "it keeps data in another file"),
        (unary("Steal", "com.example"), "it holds the operator com.example.Steal"),
        (doubling(40), "it fails its first run, .* it needs more than 256 MiB of memory"),
    ],
    ids=["loop", "another file", "custom operator", "memory bomb"],
)
def test_hostile_graph_with_a_right_digest_is_neither_opened_nor_put_in_use(
    tmp_path: Path, graph: bytes, fault: str
) -> None:
    library = make_library(tmp_path)
    add(library, "site-1")
    plant(library.site, "run_time", "site-1", GRAPH, graph)

    with pytest.raises(ModelError, match=f"^model run_time site-1: {fault}"):
        library.load("run_time")
    library.use("run_time", "default-1")
    with pytest.raises(ModelError, match=f"^model run_time site-1: {fault}"):
        library.use("run_time", "site-1")
    assert library.find("run_time", None).entry.version == "default-1"


def test_graph_of_other_columns_is_refused(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    other = tmp_path / "other"
    publish(renamed(make_fitted(), "second", "first"), other, "default-1", today=TODAY)
    foreign = (other / "run_time" / "default-1" / GRAPH).read_bytes()
    plant(tmp_path / "shipped", "run_time", "default-1", GRAPH, foreign)

    with pytest.raises(ModelError, match="its graph was made for other columns"):
        library.load("run_time")


def test_manifest_with_other_columns_than_its_fingerprint_is_refused(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    folder = tmp_path / "shipped"
    manifest = read_manifest(folder)
    entry = manifest.model[0].model_copy(update={"columns": ("second", "first")})
    write_manifest(folder, manifest.model_copy(update={"model": (entry,)}))

    with pytest.raises(ModelError, match="its fingerprint is not that of its columns"):
        library.load("run_time")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no toml", "is not valid TOML"),
        ('format = "other"', "format"),
        ("surprise = 1", "surprise"),
        ("\xff", "manifest"),
        ("a = " + "[" * 100_000, "is not valid TOML: nested more than 32 deep"),
        ("a" + ".a" * 60_000 + " = 1", "is not valid TOML: nested more than 32 deep"),
    ],
)
def test_manifest_that_is_none_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    library = make_library(tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "manifest.toml").write_text(text, encoding="latin-1")

    with pytest.raises(ModelError, match=complaint):
        library.load("run_time")


def test_version_in_use_that_is_gone_is_not_replaced_in_silence(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    add(library, "site-1")
    manifest = read_manifest(library.site)
    write_manifest(library.site, manifest.model_copy(update={"model": ()}))

    with pytest.raises(ModelError, match="run_time site-1 is in use but is not there"):
        library.load("run_time")


def test_card_tells_of_the_fit(tmp_path: Path) -> None:
    card = read_card(make_library(tmp_path).find("run_time", None))

    for expected in ("# run_time default-1", "A line.", "| `points.csv` | 50 |", "| mean error | 0.25 |", "seed 7"):
        assert expected in card


def test_site_folder_that_cannot_be_read_is_an_error_in_one_line(tmp_path: Path) -> None:
    make_library(tmp_path)
    (tmp_path / "file").write_text("")

    with pytest.raises(ModelError, match="cannot be read"):
        Library(tmp_path / "file", tmp_path / "shipped").load("run_time")


def test_newest_is_the_highest_number_that_the_site_fitted_else_the_one_in_use(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    shipped = library.newest("run_time").entry.version
    for version in ("site-9", "site-10", "site-own", "other-11"):
        publish(make_fitted(), library.site, version, today=TODAY)

    assert shipped == "default-1"
    assert library.newest("run_time").entry.version == "site-10"
    assert library.find("run_time", None).entry.version == "default-1"


def test_versions_are_counted_for_each_kind(tmp_path: Path) -> None:
    library = make_library(tmp_path)
    publish(make_fitted("run_time"), library.site, "site-1", today=TODAY)
    publish(make_fitted("other"), library.site, "site-2", today=TODAY)

    assert (library.next_version("run_time"), library.next_version("other")) == ("site-2", "site-1")
