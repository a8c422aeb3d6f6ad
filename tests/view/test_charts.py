"""The figures and the files of pages: what is drawn, what stands in the table, and that no text becomes markup."""

import hashlib
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from advisor.view.charts import (
    Axis,
    Bars,
    Figure,
    Hover,
    Limit,
    Line,
    Mark,
    Series,
    Unit,
    bar_chart,
    change_axis,
    count_axis,
    distribution,
    line_chart,
    percent_axis,
    point_chart,
    spelled,
)
from advisor.view.markup import TYPES, asset, inlined
from tests.sim.runs import NAN

HOSTILE = "</script><!--<b>&\u2028\u202e\x1b\udcff"


def read(figure: Figure) -> ElementTree.Element:
    """Parse a figure as XML, which forgives nothing."""
    return ElementTree.fromstring(figure.__html__())  # noqa: S314  (our own figure)


def config_of(figure: Figure) -> dict[str, Any]:
    """Return the configuration that the script of charts reads."""
    config: dict[str, Any] = json.loads(read(figure).findtext("script") or "")
    return config


def rows_of(figure: Figure) -> list[list[str]]:
    """Return the table of a figure, its header first."""
    return [["".join(cell.itertext()) for cell in row] for row in read(figure).iter("tr")]


def drawn(lines: Sequence[Line], hover: Hover = Hover.X, limit: Limit | None = None) -> Figure:
    """Draw lines of counts over time."""
    return line_chart(
        ident="c",
        title="t",
        description="d",
        x_axis=Axis(label="time", unit=Unit.DURATION, low=0.0, high=20.0),
        y_axis=count_axis("GPUs"),
        lines=lines,
        limit=limit,
        hover=hover,
    )


def test_a_distribution_rises_from_none_to_all() -> None:
    line = distribution("a", np.arange(1.0, 10_002.0))

    assert (line.y[0], line.y[-1]) == (0.0, 100.0)
    assert line.x[100] == pytest.approx(5001.0)
    assert distribution("none", np.array([])).x.tolist() == [1.0] * len(line.x)
    assert distribution("short", np.array([0.0, 0.5])).x.max() == 1.0


def test_a_step_line_keeps_its_last_edge_and_its_limit() -> None:
    line = Line(name="a", x=np.array([0.0, 10.0, 20.0]), y=np.array([0.0, 5.0]), is_step=True)

    figure = drawn([line], limit=Limit(name="all", value=5.0))

    config = config_of(figure)
    assert config["series"] == [{"name": "a", "step": True, "x": [0, 10, 20], "y": [0, 5]}]
    assert config["limit"] == {"name": "all", "value": 5}
    assert (config["x"]["unit"], config["x"]["low"], config["x"]["high"]) == ("duration", 0.0, 20.0)
    assert rows_of(figure) == [["time", "a"], ["0 s", "0"], ["10 s", "5"]]


def test_lines_share_the_rows_of_the_table_by_the_axis_that_the_pointer_follows() -> None:
    values = {"slurm": np.array([60.0, 120.0]), "rules": np.array([60.0, 60.0])}

    figure = line_chart(
        ident="c",
        title="JCT",
        description="d",
        x_axis=Axis(label="JCT", unit=Unit.DURATION, is_log=True),
        y_axis=percent_axis("jobs"),
        lines=[distribution(name, of_name) for name, of_name in values.items()],
        hover=Hover.Y,
    )

    rows = rows_of(figure)
    assert rows[0] == ["jobs", "slurm", "rules"]
    assert rows[1] == ["0 %", "1 min", "1 min"]
    assert rows[-1] == ["100 %", "2 min", "1 min"]
    assert len(rows) <= 26


def test_points_carry_their_intervals() -> None:
    marks = (
        Mark(label="1", name="first", x=-10.0, y=0.0, low=-20.0, high=-1.0),
        Mark(label="2", name="second", x=0.0, y=4.0, low=NAN, high=NAN),
    )

    figure = point_chart(
        ident="c",
        title="t",
        description="d",
        x_axis=change_axis("change"),
        y_axis=count_axis("users"),
        series=[Series(name="lifts", marks=marks)],
    )

    (series,) = config_of(figure)["series"]
    assert series["marks"][1] == {"label": "2", "name": "second", "x": 0, "y": 4, "low": None, "high": None}
    assert rows_of(figure)[1:] == [
        ["1. first", "lifts", "-10.0 % (-20.0 % to -1.0 %)", "0"],
        ["2. second", "lifts", "+0.0 %", "4"],
    ]


def test_bars_stand_for_categories_and_may_lack_one() -> None:
    figure = bar_chart(
        ident="c",
        title="t",
        description="d",
        category_label="day",
        categories=["Mon", HOSTILE],
        y_axis=count_axis("GPU-hours"),
        bars=[Bars(name="gain", values=(1234.5, NAN))],
    )

    assert config_of(figure)["series"] == [{"name": "gain", "y": [1234.5, None]}]
    assert rows_of(figure)[1] == ["Mon", "1,234.5"]
    assert rows_of(figure)[2][1] == ""


def test_hostile_names_cannot_end_the_configuration() -> None:
    html = drawn([Line(name=HOSTILE, x=np.array([0.0, 1.0]), y=np.array([0.0, 1.0]))]).__html__()

    config = html.partition('<script type="application/json">')[2].partition("</script>")[0]
    assert config.isascii()
    assert not set("<>&") & set(config)
    assert json.loads(config)["series"][0]["name"] == "</script><!--<b>&\\u2028\\u202e\\x1b\\udcff"


@pytest.mark.parametrize(
    ("axis", "value", "text"),
    [
        (percent_axis(""), 12.345, "12.3 %"),
        (count_axis(""), 1234567.0, "1,234,567"),
        (change_axis(""), NAN, ""),
    ],
    ids=["percent", "count", "nothing"],
)
def test_values_are_spelled_with_their_units(axis: Axis, value: float, text: str) -> None:
    assert spelled(axis, value) == text


STATIC = files("advisor.view") / "static"


def test_chart_js_is_what_the_readme_says() -> None:
    readme = (STATIC / "README.md").read_text()
    version, digest = re.findall(r"Chart\.js (\d[\d.]+\d),.*SHA-256 `([0-9a-f]{64})`", readme)[0]

    assert hashlib.sha256((STATIC / "chart.umd.min.js").read_bytes()).hexdigest() == digest
    assert f"Chart.js v{version}" in asset("chart.umd.min.js")
    assert "MIT License" in (STATIC / "chart.LICENSE.md").read_text()


@pytest.mark.parametrize("name", TYPES)
def test_files_can_stand_inside_a_page(name: str) -> None:
    text = inlined(name)

    assert not re.search(r"</script|</style|<!--|sourceMappingURL", text, re.IGNORECASE)
    assert text in asset(name)


@pytest.mark.parametrize("name", ["charts.js", "tables.js"])
def test_our_scripts_make_no_markup_of_text(name: str) -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", asset(name))
