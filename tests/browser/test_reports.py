"""Reports in a real browser: drawn, filtered, sorted, in both colour schemes and on a phone."""

import re
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import expect

from advisor.view.html_report import report_page
from tests.browser.conftest import Open
from tests.sim.runs import random_trace
from tests.view.test_html_report import HOSTILE, origin_of, results_of

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report on two policies, one user of which has a hostile name."""
    users = (HOSTILE, *(f"user{number:02}" for number in range(15)))
    trace = random_trace(400, users=users, name="month")
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_page(results_of(trace), origin=origin_of(trace), seed=0), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", PHONE)], ids=["light desktop", "dark phone"])
def test_report_is_drawn_and_accessible(
    open_page: Open, report: str, scheme: Literal["light", "dark"], size: dict[str, int]
) -> None:
    opened = open_page(report, viewport=size, color_scheme=scheme)

    assert len(opened.inked_pixels()) == 3
    assert min(opened.inked_pixels()) > 1000
    assert opened.overflow() <= 0
    assert opened.serious_violations() == []


def test_table_is_filtered_and_sorted_by_keyboard(open_page: Open, report: str) -> None:
    page = open_page(report).page
    table = page.locator("table.filterable").first
    rows = table.locator("tbody tr:visible")
    before = rows.count()

    page.get_by_label("Filter the rows of").first.press_sequentially("user0")
    filtered = rows.count()
    jobs = table.get_by_role("columnheader", name="jobs")
    jobs.get_by_role("button").press("Enter")
    ascending = [int(text) for text in rows.locator("td:nth-of-type(1)").all_inner_texts()]
    jobs.get_by_role("button").press("Enter")
    descending = [int(text) for text in rows.locator("td:nth-of-type(1)").all_inner_texts()]

    assert (before, filtered) == (16, 10)
    assert ascending == sorted(ascending) != descending
    assert descending == sorted(descending, reverse=True)
    assert jobs.get_attribute("aria-sort") == "descending"


def test_chart_names_its_values_at_the_pointer_and_hides_lines(open_page: Open, report: str) -> None:
    opened = open_page(report, viewport=DESKTOP)
    canvas = opened.page.locator("canvas").first
    before = opened.inked_pixels()[0]

    canvas.hover()
    tooltip = opened.page.evaluate_handle("Chart.getChart(document.querySelector('canvas')).tooltip")
    (title,), lines = tooltip.evaluate("tooltip => [tooltip.title, tooltip.body.map(part => part.lines[0])]")
    button = opened.page.locator(".legend button").first
    button.press("Enter")
    opened.page.mouse.move(0, 0)

    assert re.fullmatch(r"share of jobs: \d+(\.5)? %", title)
    assert [re.sub(r"[\d.]+ (s|min|h|d)$", "a duration", line) for line in lines] == [
        "slurm: a duration",
        "rules: a duration",
    ]
    assert button.get_attribute("aria-pressed") == "false"
    assert opened.inked_pixels()[0] < before


def test_charts_follow_the_colour_scheme_and_the_window(open_page: Open, report: str) -> None:
    page = open_page(report, viewport=DESKTOP, color_scheme="light").page
    colour = "Chart.getChart(document.querySelector('canvas')).data.datasets[0].borderColor"
    width = "document.querySelector('canvas').clientWidth"
    light, wide = page.evaluate(colour), page.evaluate(width)

    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    # Not wait_for_function, which the page's own policy forbids to evaluate text.
    expect(page.locator("canvas").first).to_have_css("width", re.compile(r"^3\d\d(\.\d+)?px$"))

    assert page.evaluate(colour) != light
    assert wide > 390


def test_paper_is_light(open_page: Open, report: str) -> None:
    page = open_page(report, color_scheme="dark").page
    drawn = "Chart.getChart(document.querySelector('canvas')).data.datasets[0].borderColor"
    dark = page.evaluate(drawn)

    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    printed = page.evaluate(drawn)
    page.emulate_media(media="print")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.evaluate("dispatchEvent(new Event('afterprint'))")

    assert printed != dark
    assert paper == "rgb(255, 255, 255)"
