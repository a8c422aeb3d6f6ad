"""Measured pairs as they are published: which rows count, what is refused."""

import gzip
import math
from pathlib import Path

import pytest

from advisor.errors import ConfigError
from advisor.fit.interference_files import (
    GANG_PAIRS,
    GPU_PAIRS,
    Form,
    form_of,
    measured,
    read_files,
    read_sides,
    read_table,
)
from advisor.predict.interference_items import PROFILE, Shared
from tests.fit.interference_tables import DEEPSHARE, DEEPSHARE_SINGLES, GAVEL, LUCID_SINGLES, write


def test_both_sides_of_a_pair_are_read_relative_to_alone(tmp_path: Path) -> None:
    path = write(tmp_path, GAVEL, ["v100,A,16,B,32,10,4,5,1"])

    sides = read_sides(path, GPU_PAIRS)

    assert [(side.mine.model, side.other.model, side.speed) for side in sides] == [("A", "B", 0.5), ("B", "A", 0.25)]


def test_pairs_that_did_not_run_and_speeds_alone_of_zero_are_no_measurement(tmp_path: Path) -> None:
    path = write(tmp_path, GAVEL, ["v100,A,16,B,32,10,4,0,0", "v100,A,16,B,32,0,4,1,1", "v100,A,,B,32,1,1,1,1"])

    assert len(read_sides(path, GPU_PAIRS)) == 2


def test_extrapolated_rows_are_no_measurement(tmp_path: Path) -> None:
    path = write(tmp_path, DEEPSHARE, ["A,2,2,B,4,2,0.9,0", "A,2,2,B,8,8,0.5,1"])

    assert [side.speed for side in read_sides(path, GANG_PAIRS)] == [0.9]


def test_files_of_speeds_alone_are_found_by_their_columns(tmp_path: Path) -> None:
    pairs = write(tmp_path, DEEPSHARE, ["A,2,2,B,4,2,0.9,0"])
    singles = write(tmp_path, DEEPSHARE_SINGLES, ["a,2,2,150,0", "B,4,4,70,0", "B,4,2,80,1"], name="alone.csv")

    sides, sources = read_files([pairs, singles])

    [side] = sides[Shared.NODE]
    assert side.mine.steps_per_s == 150.0
    assert math.isnan(side.other.steps_per_s)
    assert [(source.name, source.rows) for source in sources] == [("alone.csv", 3), ("pairs.csv", 1)]


@pytest.mark.parametrize(("form", "columns"), [(GPU_PAIRS, GAVEL), (GANG_PAIRS, DEEPSHARE)])
def test_speeds_alone_of_another_form_are_refused(tmp_path: Path, form: Form, columns: tuple[str, ...]) -> None:
    pairs = write(tmp_path, columns, [",".join("1" for _ in columns)])
    singles = write(tmp_path, LUCID_SINGLES, ["A,C,64,0,12.5,55,20,1500,x"], name="alone.csv")

    with pytest.raises(ConfigError, match="jobs alone"):
        read_sides(pairs, form, singles)


def test_sides_and_repeats_of_a_pair_have_one_number(tmp_path: Path) -> None:
    path = write(tmp_path, GAVEL, ["v100,A,16,B,32,10,4,5,1", "v100,B,32,A,16,4,10,1,6", "k80,A,16,B,32,10,4,5,1"])

    found = measured(read_sides(path, GPU_PAIRS), Shared.GPU)

    assert len(set(found.pair[:4].tolist())) == 1
    assert found.pair[4] != found.pair[0]


def test_saturation_is_the_slope_of_the_step_time_over_the_batch(tmp_path: Path) -> None:
    path = write(tmp_path, GAVEL, ["v100,A,16,B,32,10,4,5,1", "v100,A,32,B,64,5,4,5,1"])

    items = measured(read_sides(path, GPU_PAIRS), Shared.GPU).pairs.items

    slopes = {model: items.profile[row, PROFILE.index("saturation")] for row, model in enumerate(items.model)}
    assert slopes == pytest.approx({"a": 1.0, "b": 0.0})


def test_packed_files_extra_columns_and_any_order_of_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv.gz"
    header, row = "note,throughput_ratio," + ",".join(DEEPSHARE[:6]), "x,0.9,A,2,2,B,4,2"
    path.write_bytes(gzip.compress(f"{header}\n{row}\n".encode()))

    assert form_of(path, read_table(path).header) is GANG_PAIRS
    assert [side.speed for side in read_sides(path, GANG_PAIRS)] == [0.9]


@pytest.mark.parametrize(("form", "columns"), [(GPU_PAIRS, GAVEL), (GANG_PAIRS, DEEPSHARE)])
def test_form_is_told_by_the_header(tmp_path: Path, form: Form, columns: tuple[str, ...]) -> None:
    assert form_of(tmp_path, columns) is form


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        pytest.param(["A,2,2,B,4,2,fast,0"], "line 2: throughput_ratio is 'fast'", id="text"),
        pytest.param(["A,2,2,B,4,2,-0.5,0"], "line 2: throughput_ratio is '-0.5'", id="negative"),
        pytest.param(["A,2,2,B,4,2,inf,0"], "line 2: throughput_ratio is 'inf'", id="infinite"),
        pytest.param(["A,2,2,B,4,2,nan,0"], "line 2: throughput_ratio is 'nan'", id="not a number"),
        pytest.param([",2,2,B,4,2,0.5,0"], "line 2: model is empty", id="no name"),
        pytest.param(["A,2"], "line 2: ", id="short"),
        pytest.param([], "holds no rows", id="empty"),
    ],
)
def test_wrong_row_is_refused_with_its_line(tmp_path: Path, rows: list[str], said: str) -> None:
    path = write(tmp_path, DEEPSHARE, rows)

    with pytest.raises(ConfigError, match=said):
        read_sides(path, GANG_PAIRS)


def test_file_that_is_not_there_or_of_another_form_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, DEEPSHARE, ["A,2,2,B,4,2,0.9,0"])
    damaged = tmp_path / "damaged.csv.gz"
    damaged.write_bytes(gzip.compress(b"model,gpus\n" * 1000)[:30])
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(b"model,gpus\n")[:10] + b"\xff" * 30)

    with pytest.raises(ConfigError, match="cannot be read"):
        read_sides(tmp_path / "missing.csv", GPU_PAIRS)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_table(damaged)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_table(broken)
    with pytest.raises(ConfigError, match="column gpu_type is missing"):
        read_sides(path, GPU_PAIRS)
    with pytest.raises(ConfigError, match="none of the known forms"):
        form_of(path, ["a", "b"])
