"""The front page, the page on live runs and their picture show what the kept results hold."""

import re
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from tools.generate_docs import DOCS, with_part
from tools.live.kept import Report
from tools.live.picture import picture
from tools.live.reported import PRESETS, RESULTS, front_part, read_values, results_part

TRACES = ("itp 04", "graham 0.9", None)
METRICS = ("mean_jct_s", "p99_queueing_delay_s", "max_queueing_delay_s", "makespan_s")
CHANGES = {"plain 2": (2.0, -3.0, 7.0), "trade": (-24.3, -31.5, -16.4), "gentle": (-4.0, -45.0, 250.0)}


@pytest.fixture
def report() -> Report:
    """Two traces and all, on two plain clusters and two advised ones."""
    metrics: list[dict[str, Any]] = []
    for trace in TRACES:
        for cluster in ("plain", *CHANGES):
            change, low, high = CHANGES.get(cluster, (None, None, None))
            metrics += [
                {
                    "trace": trace,
                    "cluster": cluster,
                    "runs": 5,
                    "metric": metric,
                    "change": change,
                    "low": low,
                    "high": high,
                }
                for metric in METRICS
            ]
    users = {
        "runs": 2,
        "worse": 3,
        "users": 28,
        "chance_runs": 1,
        "chance_worse": 1,
        "chance_users": 14,
        "beyond_bound": 0,
        "jobs": 900,
    }
    return {
        "runs": [
            {"trace": trace, "seed": 1, "version": "22.05.8", "gpus": 128, "jobs": jobs}
            for trace, jobs in (("itp 04", 435), ("graham 0.9", 571))
        ],
        "metrics": metrics,
        "users": [{"trace": None, "cluster": cluster, **users} for cluster in CHANGES],
        "slurmctld": [],
        "changes": [],
    }


def test_the_documents_hold_the_changes_over_all_traces_of_the_kept_results() -> None:
    kept = read_values(RESULTS)
    scopes = {one["trace"] for one in kept["metrics"]}
    wanted = [
        one
        for one in kept["metrics"]
        if one["trace"] in (scopes - {None} if len(scopes) == 1 else {None}) and one["metric"] == "mean_jct_s"
    ]

    front, page = ((DOCS / name).read_text() for name in ("../README.md", "live.md"))

    assert len(wanted) > 1
    for one in wanted:
        shown = "" if one["change"] is None else f"{one['change']:+.1f} %"
        assert shown in page
        assert shown in front or one["cluster"] not in PRESETS


def test_the_front_page_states_the_gain_the_price_and_what_chance_does(report: Report) -> None:
    text = " ".join(front_part(report).split())

    assert (
        "*trade* changed the mean job completion time by **-24.3 % (-31.5 to -16.4)**, and *gentle*, in 2 of them, by"
        " **-4.0 %" in text
    )
    assert (
        "the 99th percentile of waits changed by -24.3 % (-31.5 to -16.4), and 3 of 28 users (1 by chance) were" in text
    )
    assert "435 to 571 jobs" in text
    assert "](docs/live.svg)" in text


def test_the_picture_has_a_row_for_each_trace_and_a_point_for_each_cluster(report: Report) -> None:
    drawing = fromstring(picture(report))  # noqa: S314  (our own drawing)

    texts = [element.text for element in drawing.iter() if element.tag.endswith("text")]
    style = next(element.text or "" for element in drawing.iter() if element.tag.endswith("style"))
    assert [text for text in texts if text in ("itp 04", "graham 0.9", "all 2 traces")] == [
        "itp 04",
        "graham 0.9",
        "all 2 traces",
    ]
    assert texts.count("-24.3 %") == texts.count("+2.0 %") == 2 * len(TRACES)
    assert "plain again, the noise of the method" in texts
    assert "prefers-color-scheme:dark" in style and "var(" not in style


def test_an_interval_that_is_cut_off_ends_in_an_arrow_within_its_panel(report: Report) -> None:
    bars = re.findall(r'd="M([\d.]+) [\d.]+H([\d.]+)" class="bar c1"', picture(report))
    arrows = re.findall(r'd="M[\d.]+ [\d.]+L([\d.]+) [\d.]+l-6 4" class="bar c1"', picture(report))

    assert len(bars) == len(arrows) == 2 * len(TRACES)
    assert [end for _, end in bars] == arrows
    assert all(float(end) <= 920 for end in arrows)


def test_only_what_is_between_the_comments_is_made() -> None:
    text = "above\n<!-- made: live -->\nold\n<!-- end: live -->\nbelow\n"

    made = with_part(text, r"new \1")

    assert made == "above\n<!-- made: live -->\n\nnew \\1\n\n<!-- end: live -->\nbelow\n"
    with pytest.raises(ValueError, match="missing"):
        with_part("above", "new")


def test_the_page_is_the_report_of_the_kept_results() -> None:
    text = results_part()

    assert text.startswith("Written by `make docs`")
    for heading in ("Targets", "Metrics", "Who gained, who gave", "By the GPUs that jobs ask for", "What changes did"):
        assert f"\n### {heading}\n" in text
