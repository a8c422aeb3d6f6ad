"""The report: well-formed, self-contained, harmless, and the same for the same runs."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.sim.comparison import compare, compare_groups, heaviest, tally_groups, tally_jobs
from advisor.sim.metrics import Grouping, by_gpus, by_user
from advisor.sim.result import RunResult, result_of
from advisor.sim.run_outcome import End
from advisor.sim.statistics import CellName
from advisor.sim.trace import Trace
from advisor.text import escaped
from advisor.view.charts import (
    LEFT,
    Line,
    Mark,
    Series,
    change_axis,
    count_axis,
    distribution,
    duration_axis,
    line_chart,
    percent_axis,
    point_chart,
    round_steps,
    time_axis,
)
from advisor.view.html_report import Origin, check_writable, report_page, write_report
from advisor.view.markup import element, page
from tests.sim.building import make_trace
from tests.sim.runs import NAN, make_run, random_trace, shifted_run

HOSTILE = "<script>alert('x')</script>\"&\x1b[2J\u202e\udcff"
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Strict(HTMLParser):
    """Reads a page, and refuses a tag that is not closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(html: str) -> Strict:
    """Parse a page to its end."""
    parser = Strict()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


def results_of(
    trace: Trace, policies: Sequence[str] = ("slurm", "rules"), seeds: Sequence[int] = (0,)
) -> list[RunResult]:
    """Run a trace by the rule of the tests."""
    return [result_of(shifted_run(trace, policy, seed)) for policy in policies for seed in seeds]


def xml(text: str) -> ElementTree.Element:
    """Parse a part of a page as XML, which forgives nothing."""
    return ElementTree.fromstring(text)  # noqa: S314  (our own page)


def origin_of(*traces: Trace, command: str = "sadvise simulate t.csv") -> Origin:
    """Build the origin of a report."""
    return Origin(
        command=command,
        traces={trace.name: trace for trace in traces},
        clusters={trace.name: "nodes=2,gpus=8" for trace in traces},
        settings=("planning.depth = 7 (a.toml)",),
    )


@pytest.fixture
def html() -> str:
    """The report on two traces under three policies and three seeds."""
    traces = [random_trace(200, name="one"), random_trace(150, name="two", seed=1)]
    results = [result for trace in traces for result in results_of(trace, ("slurm", "rules", "fifo"), (0, 1, 2))]
    return report_page(results, origin=origin_of(*traces), seed=0)


def test_the_page_is_well_formed_and_names_its_language(html: str) -> None:
    parsed = read(html)

    assert html.startswith("<!DOCTYPE html>\n")
    assert parsed.tags[0] == "html"
    assert ("lang", "en") in parsed.attributes
    assert ("charset", "utf-8") in parsed.attributes


def test_the_page_needs_nothing_but_itself(html: str) -> None:
    parsed = read(html)

    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "use", "image", "a"} & set(parsed.tags)
    assert not {"src", "href", "xlink:href", "srcset", "style", "action"} & {name for name, _ in parsed.attributes}
    assert not re.search(r"https?:|//|url\(|@import|@font-face", html)
    assert not any(name.startswith("on") for name, _ in parsed.attributes)


def test_every_chart_is_well_formed_and_says_what_it_shows(html: str) -> None:
    charts = [xml(svg) for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]
    named = [chart for chart in charts if chart.get("role") == "img"]
    idents = re.findall(r' id="([^"]+)"', html)

    assert len(named) == 2 * 3
    assert all(chart.get("aria-hidden") == "true" for chart in charts if chart not in named)
    for chart in named:
        title, description = chart.find("title"), chart.find("desc")
        assert title is not None and title.text
        assert description is not None and description.text
        assert (chart.get("aria-labelledby") or "").split() == [title.get("id"), description.get("id")]
    assert len(set(idents)) == len(idents)


def test_every_table_has_a_caption_and_headers(html: str) -> None:
    tables = re.findall(r"<table>.*?</table>", html, re.DOTALL)

    assert len(tables) > 6
    for text in tables:
        table = xml(text)
        assert (table.findtext("caption") or "").strip()
        assert {header.get("scope") for header in table.iter("th")} == {"col", "row"}
        width = len(table.findall("thead/tr/th"))
        assert all(len(row) == width for row in table.findall("tbody/tr"))


def test_the_page_says_where_its_runs_come_from(html: str) -> None:
    text = " ".join(read(html).text)

    for words in (
        "sadvise simulate t.csv", "0, 1, 2; intervals are drawn with seed 0", "nodes=2,gpus=8", "planning.depth = 7",
        "Over all traces", "rules against slurm", "3-4", "bob", "mean bounded slowdown", "95 % interval",
    ):  # fmt: skip
        assert words in text


def test_equal_runs_give_equal_bytes_whatever_they_took(tmp_path: Path) -> None:
    trace = random_trace(300)
    first = results_of(trace)
    slower = [
        replace(result, summary=replace(result.summary, wall_s=99.0, jobs_per_s=1.0, peak_rss_mib=1.0))
        for result in first
    ]

    for name, results in (("a.html", first), ("b.html", slower)):
        write_report(results, tmp_path / name, origin=origin_of(trace), seed=0)

    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_hostile_names_stay_text() -> None:
    trace = replace(random_trace(60, users=(HOSTILE, "bob"), name=HOSTILE), note=HOSTILE)
    results = [
        replace(result, sampled=(HOSTILE,), summary=replace(result.summary, policy=name))
        for result, name in zip(results_of(trace), (HOSTILE, "rules"), strict=True)
    ]

    html = report_page(results, origin=origin_of(trace, command=HOSTILE), seed=0)

    parsed = read(html)
    assert "script" not in parsed.tags
    assert "<script" not in html
    assert not set(html) & {"\x1b", "\u202e", "\udcff"}
    assert "<script>alert('x')</script>\"&\\x1b[2J\\u202e\\udcff" in " ".join(parsed.text)
    html.encode("utf-8")
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        xml(svg)


def test_a_hostile_name_in_an_attribute_stays_there() -> None:
    parsed = read(page("t", element("p", "x", aria_label='" onclick="evil()" x="')))

    assert ("aria-label", '" onclick="evil()" x="') in parsed.attributes
    assert "onclick" not in {name for name, _ in parsed.attributes}


def test_text_between_elements_keeps_its_place() -> None:
    paragraph = element("p", "a", element("b", "c"), "d", "e")

    assert ElementTree.tostring(paragraph, encoding="unicode") == "<p>a<b>c</b>de</p>"
    assert escaped("plain é") == "plain é"


def test_very_many_jobs_fit_in_a_small_page() -> None:
    users = tuple(f"user{number}" for number in range(3000))
    trace = random_trace(200_000, users=users)
    results = results_of(trace, ("slurm", "rules", "fifo", "sjf"))

    html = report_page(results, origin=origin_of(trace), seed=0)

    assert len(html.encode()) < 400_000
    assert "all others" in html


def test_one_policy_alone_is_reported_without_comparison() -> None:
    trace = random_trace(50)

    html = report_page(results_of(trace, ["slurm"]), origin=origin_of(trace), seed=0)

    assert "against" not in " ".join(read(html).text)
    assert "Distribution of JCT" in html


def test_users_that_were_drawn_for_the_runs_get_no_table() -> None:
    trace = random_trace(50)
    drawn = [replace(result, sampled=("user",)) for result in results_of(trace)]

    html = report_page(drawn, origin=origin_of(trace), seed=0)

    assert "does not tell its users apart" in html
    assert "by user" not in html


def test_a_run_in_which_no_job_started_is_reported() -> None:
    trace = make_trace([{"gpus": 999}, {"gpus": 500}])
    runs = [
        make_run(trace, [(NAN, NAN)] * 2, ends=[End.IMPOSSIBLE] * 2, policy=policy) for policy in ("slurm", "rules")
    ]

    html = report_page([result_of(run) for run in runs], origin=origin_of(trace), seed=0)

    text = " ".join(read(html).text)
    assert "slurm: 2 too large for the cluster or refused by a limit." in text
    assert "not comparable" in text
    assert "nan" not in text.lower().split()


@pytest.mark.parametrize("where", ["missing/r.html", "."], ids=["no folder", "a folder"])
def test_a_path_that_takes_no_report_is_found_out_before_and_after(tmp_path: Path, where: str) -> None:
    trace = random_trace(20)

    with pytest.raises(SimulationError, match=r"the report cannot be written: .*: choose another --report"):
        check_writable(tmp_path / where)
    with pytest.raises(SimulationError, match="the report cannot be written"):
        write_report(results_of(trace), tmp_path / where, origin=origin_of(trace), seed=0)


def test_looking_whether_a_report_can_be_written_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "old.html").write_text("old")

    check_writable(tmp_path / "new.html")
    check_writable(tmp_path / "old.html")

    assert [path.name for path in tmp_path.iterdir()] == ["old.html"]
    assert (tmp_path / "old.html").read_text() == "old"


@pytest.mark.parametrize(
    ("high", "last"), [(0, 1.0), (1, 1.0), (7, 7.0), (9, 10.0), (128, 140.0), (1000, 1000.0), (0.03, 0.03)]
)
def test_ticks_are_round_reach_the_top_and_stay_few(high: float, last: float) -> None:
    ticks = round_steps(high)

    assert ticks[0] == 0
    assert ticks[-1] == pytest.approx(last)
    assert 1 < len(ticks) <= 9


def test_time_is_told_in_a_unit_that_fits() -> None:
    assert time_axis(1800.0).label.startswith("minutes")
    assert time_axis(36_000.0).label.startswith("hours")
    assert time_axis(30 * 86_400.0).label.startswith("days")


def test_a_logarithmic_axis_holds_what_is_drawn() -> None:
    lines = [distribution("a", np.array([50.0, 70.0])), distribution("b", np.array([0.0, 4000.0]))]

    axis = duration_axis("JCT", lines)

    assert [tick.label for tick in axis.ticks] == ["1 s", "10 s", "1 min", "10 min", "1 h", "10 h"]
    assert axis.share(np.array([0.5, 1.0, 36_000.0, 1e9])).tolist() == [0.0, 0.0, 1.0, 1.0]
    assert axis.share(np.array([10.0]))[0] == pytest.approx(np.log(10) / np.log(36_000))


def test_a_distribution_rises_from_none_to_all() -> None:
    line = distribution("a", np.arange(1.0, 10_002.0))

    assert (line.y[0], line.y[-1]) == (0.0, 100.0)
    assert line.x[200] == pytest.approx(5001.0)
    assert len(line.x) == 401


def test_a_step_holds_until_the_next_one() -> None:
    line = Line(name="a", x=np.array([0.0, 10.0, 20.0]), y=np.array([0.0, 5.0]), is_step=True)

    chart = line_chart(
        ident="c",
        title="t",
        description="d",
        x_axis=time_axis(20.0),
        y_axis=count_axis("GPUs", 5),
        lines=[line],
        limit=5,
    )

    path = next(path for path in chart.iter("path") if (path.get("class") or "").startswith("line c0"))
    # The axis ends at its last tick, 21 seconds: 20 of them are 624.8 pixels, 10 are 312.4.
    assert path.get("d") == f"M{LEFT} 274H{LEFT + 312.4}V14H{LEFT + 624.8}"
    assert percent_axis("share").ticks[-1].label == "100 %"


def test_points_stand_where_their_values_are_with_their_intervals() -> None:
    joined = Series(
        name="a",
        marks=(
            Mark(label="1", name="first", x=-10.0, y=0.0, low=-20.0, high=0.0),
            Mark(label="2", name="second", x=0.0, y=4.0, low=NAN, high=NAN),
        ),
        is_joined=True,
    )
    x_axis, y_axis = change_axis("change", -20.0, 0.0), count_axis("users", 4)

    chart = point_chart(ident="c", title="t", description="d", x_axis=x_axis, y_axis=y_axis, series=[joined])

    assert [tick.label for tick in x_axis.ticks] == ["-20 %", "-15 %", "-10 %", "-5 %", "0 %"]
    low, high = LEFT, LEFT + 656
    assert [(dot.get("cx"), dot.get("cy"), dot.findtext("title")) for dot in chart.iter("circle")] == [
        (f"{(low + high) / 2:g}", "274", "first"),
        (f"{high:g}", "14", "second"),
    ]
    lines = [path.get("d") for path in chart.iter("path") if (path.get("class") or "").startswith("line c0")]
    assert lines[:2] == [f"M{(low + high) / 2:g} 274L{high:g} 14", f"M{low} 274H{high:g}"]


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [(-77.4, 19.0, ("-80 %", "+20 %")), (0.0, 0.0, ("0 %", "+0.2 %")), (2.0, 7.0, ("0 %", "+7 %"))],
)
def test_an_axis_of_changes_holds_0_and_both_ends(low: float, high: float, ends: tuple[str, str]) -> None:
    axis = change_axis("change", low, high)

    assert (axis.ticks[0].label, axis.ticks[-1].label) == ends


def test_who_gains_and_who_loses_is_told_apart() -> None:
    trace = make_trace([{"gpus": 1, "user": "ann"}] * 100 + [{"gpus": 8, "user": "bob"}] * 100)
    slow = [(0.0, 100.0)] * 200
    fast_for_small = [(0.0, 50.0)] * 100 + [(0.0, 150.0)] * 100
    cell = CellName("made", 0)
    before, after = (
        {cell: result_of(make_run(trace, times, policy=policy))}
        for policy, times in (("slurm", slow), ("rules", fast_for_small))
    )

    sizes = {each.group: each for each in compare_groups(before, after, {cell: by_gpus(trace)}, seed=0)}
    jobs, users = tally_jobs(before, after), tally_groups(before, after, {cell: by_user(trace)})

    assert sizes["1"].change.percent == pytest.approx(-50.0)
    assert sizes["5-8"].change.percent == pytest.approx(50.0)
    assert (sizes["1"].jobs, sizes["1"].before_s, sizes["1"].after_s) == (100, 100.0, 50.0)
    assert (jobs.lower, jobs.higher, jobs.same) == (100, 100, 0)
    assert (users.lower, users.higher, users.same) == (1, 1, 0)


def test_the_heaviest_groups_come_first_and_the_rest_become_one() -> None:
    grouping = Grouping(names=("a", "b", "c", "d"), group_of_job=np.array([0, 1, 1, 2, 3]))

    kept = heaviest(grouping, np.array([1.0, 5.0, 5.0, 2.0, 7.0]), 2, "others")

    assert kept.names == ("b", "d", "others")
    assert kept.group_of_job.tolist() == [2, 0, 0, 2, 1]


def test_policies_are_compared_on_each_trace_and_over_all() -> None:
    traces = [random_trace(100, name=name, seed=index) for index, name in enumerate(("x", "y", "z"))]
    results = [result for trace in traces for result in results_of(trace, ("slurm", "rules", "sjf"))]

    found = {(each.trace, each.policy): each for each in compare(results, seed=0, metrics=["mean_jct_s"])}

    assert set(found) == {(trace, policy) for trace in ("x", "y", "z", None) for policy in ("rules", "sjf")}
    assert found["x", "rules"].change.high < 0
    assert found["x", "sjf"].change.percent == 0.0
    assert found[None, "rules"].change.units == 3
    assert all(each.against == "slurm" for each in found.values())
