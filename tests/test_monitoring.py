"""The dashboard and the alerts ask for metrics that there are, in words that Prometheus understands."""

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from advisor.metrics.catalogue import METRICS, MetricKind
from tests.promtool import promtool

__all__ = ["promtool"]

ROOT = Path(__file__).parent.parent
RULES = ROOT / "monitoring" / "sadvise.rules.yml"
RULE_TESTS = ROOT / "monitoring" / "sadvise.rules.test.yml"
DASHBOARD: dict[str, Any] = json.loads((ROOT / "monitoring" / "sadvise.dashboard.json").read_bytes())

LABELS_BY_SERIES = {
    series: set(metric.labels)
    for metric in METRICS
    for series in (
        (f"{metric.name}_bucket", f"{metric.name}_sum", f"{metric.name}_count")
        if metric.kind is MetricKind.HISTOGRAM
        else (metric.name,)
    )
}
# What Prometheus adds to every series that it scrapes, and to the buckets of a histogram.
ADDED_LABELS = {"instance", "job", "le"}


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def queries() -> Iterator[str]:
    """Return every query of the dashboard."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


def run(*argv: str | Path) -> tuple[int, str]:
    """Run a command and return its status with what it said."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def unknown(query: str) -> list[str]:
    """Name what a query asks for that is not exported: series, and labels that no series of the query has."""
    series = set(re.findall(r"\bsadvise_\w+", query))
    wrong = sorted(series - LABELS_BY_SERIES.keys())
    asked = set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', query))
    for grouped in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", query):
        asked |= {label.strip() for label in grouped.split(",")}
    known = ADDED_LABELS.union(*(LABELS_BY_SERIES.get(name, set()) for name in series))
    return wrong + sorted(asked - known)


def lost(written: object, read: object, path: str) -> Iterator[str]:
    """Name the fields that a reader left out or changed; it may add defaults."""
    match written, read:
        case dict(), dict():
            for name, part in written.items():
                yield from lost(part, read.get(name, lost), f"{path}.{name}")
        case list(), list() if len(written) == len(read):
            for number, pair in enumerate(zip(written, read, strict=True)):
                yield from lost(*pair, f"{path}[{number}]")
        case _ if written != read:
            yield path


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ('sadvise_mode{mode="apply"}', []),
        ("sadvise_modes", ["sadvise_modes"]),
        ('sadvise_mode{lever="nice"}', ["lever"]),
        ("sum by (user) (sadvise_paused)", ["user"]),
        ("sadvise_cycle_duration_seconds", ["sadvise_cycle_duration_seconds"]),
    ],
)
def test_the_check_of_queries_finds_what_is_not_exported(query: str, missing: list[str]) -> None:
    found = unknown(query)

    assert found == missing


@pytest.mark.parametrize("query", [*queries(), *(alert["expr"] for alert in alerts())])
def test_every_query_asks_for_what_is_exported(query: str) -> None:
    found = unknown(query)

    assert found == []
    assert "sadvise_" in query


def test_the_dashboard_shows_every_metric() -> None:
    shown = " ".join(queries())

    unseen = [
        metric.name
        for metric in METRICS
        if not re.search(rf"\b{metric.name}{'_bucket' if metric.kind is MetricKind.HISTOGRAM else ''}\b", shown)
    ]

    assert unseen == []


def test_every_legend_names_a_label_of_its_query() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert unknown(f'{target["expr"]} {label}="x"') == [], panel["title"]


def test_panels_have_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y
        assert one["x"] + one["w"] <= 24


def test_the_dashboard_names_no_data_source_of_ours() -> None:
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    sources = {
        json.dumps(holder["datasource"])
        for panel in DASHBOARD["panels"]
        for holder in (panel, *panel.get("targets", ()))
        if "datasource" in holder
    }

    assert variables == {"datasource", "instance"}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    assert DASHBOARD["uid"] == "sadvise"
    assert "id" not in DASHBOARD


def test_the_dashboard_has_the_fields_of_grafanas_own_model_alone() -> None:
    register_default_plugins()

    read = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))

    assert list(lost(DASHBOARD, read, "")) == []
    assert list(lost(DASHBOARD | {"panles": []}, read, "")) == [".panles"]


@pytest.mark.needs("promtool")
def test_prometheus_understands_every_query_of_the_dashboard(tmp_path: Path, promtool: str) -> None:
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m").replace("$instance", ".+")}
        for number, query in enumerate(queries())
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    status, said = run(promtool, "check", "rules", tmp_path / "rules.yml")

    assert status == 0, said


@pytest.mark.needs("promtool")
def test_prometheus_understands_the_alerts(promtool: str) -> None:
    status, said = run(promtool, "check", "rules", RULES)

    assert status == 0, said


@pytest.mark.slow
@pytest.mark.needs("promtool")
def test_the_alerts_fire_when_they_should(promtool: str) -> None:
    status, said = run(promtool, "test", "rules", RULE_TESTS)

    assert status == 0, said


def test_every_alert_says_what_to_do_and_is_tested() -> None:
    tested = RULE_TESTS.read_text()

    for alert in alerts():
        assert alert["labels"]["severity"] in ("info", "warning", "critical")
        assert {"summary", "description"} <= alert["annotations"].keys()
        assert tested.count(alert["alert"]) >= 2
