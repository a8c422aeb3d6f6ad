"""The report: well-formed, self-contained, harmless, and the same for the same runs."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.sim.run_outcome import End
from advisor.sim.study.comparison import compare, compare_groups, heaviest, tally_groups, tally_jobs
from advisor.sim.study.metrics import Grouping, by_gpus, by_user
from advisor.sim.study.result import RunResult, result_of
from advisor.sim.study.statistics import CellName
from advisor.sim.traces.trace import Trace
from advisor.text import escaped
from advisor.view.html_report import Origin, check_writable, report_page, write_report
from advisor.view.markup import Table, rendered
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


def without_scripts(html: str) -> str:
    """Return a page without its own scripts and its style, which name no text of a trace."""
    return re.sub(r"<(script|style)>.*?</\1>", "", html, flags=re.DOTALL)


def test_the_page_needs_nothing_but_itself(html: str) -> None:
    parsed = read(html)

    assert not {"link", "img", "iframe", "object", "embed", "base", "use", "image", "a"} & set(parsed.tags)
    assert not {"src", "href", "xlink:href", "srcset", "style", "action"} & {name for name, _ in parsed.attributes}
    assert not re.search(r"https?:|//|url\(|@import|@font-face", without_scripts(html))
    assert not any(name.startswith("on") for name, _ in parsed.attributes)


def test_only_the_scripts_and_the_style_of_the_page_are_allowed(html: str) -> None:
    texts = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", html, re.DOTALL)
    policy = next(value for name, value in read(html).attributes if name == "content" and "script-src" in (value or ""))

    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    assert len(hashes) == 4
    assert set(re.findall(r"'sha256-([^']+)'", policy or "")) == set(hashes)
    assert "unsafe" not in (policy or "")


def test_every_chart_says_what_it_shows_and_has_its_data_as_a_table(html: str) -> None:
    figures = [xml(figure) for figure in re.findall(r"<figure.*?</figure>", html, re.DOTALL)]
    idents = re.findall(r' id="([^"]+)"', without_scripts(html))

    assert len(figures) == 2 * 3
    for figure in figures:
        canvas = figure.find(".//canvas")
        assert canvas is not None and canvas.get("role") == "img"
        named = [figure.find(f"*[@id='{ident}']") for ident in (canvas.get("aria-labelledby") or "").split()]
        assert [bool(part is not None and part.text) for part in named] == [True, True]
        assert len(figure.findall("details//tbody/tr")) > 10
    assert len(set(idents)) == len(idents)


def test_the_page_opens_with_its_verdict_and_explains_jct() -> None:
    trace = random_trace(200)
    html = report_page(results_of(trace, ("slurm", "rules", "fifo")), origin=origin_of(trace), seed=0)

    opening = xml(html[html.index("<main>") : html.index("<h2>")] + "</main>")

    texts = ["".join(part.itertext()) for part in opening]
    assert [part.get("class") for part in opening] == [None, "subtitle", "verdict better", None, "notes"]
    assert texts[2].startswith("rules is the best of 2 policies compared with slurm: it lowers the mean JCT by ")
    assert re.search(r"JCT is longer for \d+ % of the jobs and for \d+ of \d+ users\.$", texts[2])
    assert texts[3].startswith("JCT is the job completion time")


def test_every_table_has_a_caption_and_headers(html: str) -> None:
    tables = re.findall(r"<table.*?</table>", html, re.DOTALL)

    assert len(tables) > 6
    for text in tables:
        table = xml(text)
        assert (table.findtext("caption/span") or "").strip()
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
    assert parsed.tags.count("script") == 3 + 3
    assert "<script>alert" not in html
    assert not set(html) & {"\x1b", "\u202e", "\udcff"}
    assert "<script>alert('x')</script>\"&\\x1b[2J\\u202e\\udcff" in " ".join(parsed.text)
    html.encode("utf-8")
    for config in re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL):
        assert escaped(HOSTILE) in {one["name"] for one in json.loads(config)["series"]}


def test_a_hostile_name_in_an_attribute_stays_there() -> None:
    name = '" onclick="evil()" x="'

    parsed = read(rendered("table.html", made=Table(caption=name, header=["name"], rows=[["x"]])))

    assert ("aria-label", name) in parsed.attributes
    assert "onclick" not in {attribute for attribute, _ in parsed.attributes}


@pytest.mark.slow
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
