"""Several clusters are served side by side: a page of all, and the pages of each; a fault of one hides no other."""

import contextlib
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.config import Config
from advisor.domain.snapshot import Snapshot
from advisor.errors import AdvisorError, ConfigError
from advisor.settings import DaemonSettings
from advisor.site.pause_file import paused
from advisor.text import escaped
from advisor.watch.reading import Reading
from advisor.web.content import Content
from advisor.web.served_clusters import ServedCluster
from tests.strategies import HOSTILE
from tests.web.conftest import BASE, client_of, site_client
from tests.web.stage import Stage, holding, staged_site
from tests.web.test_api import schema_of
from tests.web.test_operations import ROOT, SETTINGS, send, token_of
from tests.web.test_pages import PAGES, Structure, named, view_of


@pytest.fixture(scope="module")
def clusters(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> list[ServedCluster]:
    """Four staged clusters, of which `dione` has a configuration that is not valid."""
    return staged_site(tmp_path_factory.mktemp("site"), stage)


@pytest.fixture
def site(clusters: list[ServedCluster]) -> FlaskClient:
    """A client of the four clusters."""
    return site_client(clusters)


def rows_of(page: str) -> dict[str, str]:
    """Return the text of the line of each cluster."""
    lines = re.findall(r'<tr><th scope="row">.*?</tr>', page, re.DOTALL)
    texts = [" ".join(Structure(re.sub("(<br>|</t[dh]>)", r" \1", line)).text.split()) for line in lines]
    return {text.split()[0]: text for text in texts}


def test_front_page_has_a_line_for_each_cluster(site: FlaskClient, clusters: list[ServedCluster]) -> None:
    rows = rows_of(site.get("/").text)
    seen = clusters[0].content().view()

    assert list(rows) == ["aurora", "borealis", "corona", "dione"]
    gpus = sum(gpus.total for gpus in seen.overview.gpu_types)
    assert rows["aurora"].startswith(f"aurora ● running {gpus} ")
    counts = f"{seen.overview.pending_gpu_jobs} {len(seen.advice)} 3 apply 08:00:00"
    assert f"{counts} partition debug is not up well" in rows["aurora"]
    assert "▮▮ paused" in rows["borealis"] and "paused by ann: maintenance" in rows["borealis"]
    assert rows["corona"].startswith("corona ▲ not running ")
    assert "recommend 08:00:00 no daemon runs" in rows["corona"]
    assert rows["dione"].startswith(
        "dione ▲ cannot be read ? ? ? ? ? ? ? never /etc/sadvise/clusters/dione.toml: journal"
    )


@pytest.mark.parametrize("path", PAGES)
def test_every_page_stands_below_the_name_of_its_cluster(site: FlaskClient, path: str) -> None:
    page = site.get(f"/clusters/borealis{path}")

    assert page.status_code == 200
    assert "borealis" in page.text
    # Links stay within the cluster, but for those to the same page of the others.
    others = {f"/clusters/{name}{path}" for name in ("aurora", "corona", "dione")}
    links = {link for link in re.findall(r'(?:href|action)="(/[^"?#]*)', page.text) if not link.startswith("/static")}
    outside = {link for link in links if not link.startswith("/clusters/borealis/")}
    assert outside == {*others, "/", "/api/v1/openapi.json"}


def test_reader_stays_on_a_page_of_the_other_cluster_and_hears_where_she_is(site: FlaskClient) -> None:
    page, job = site.get("/clusters/aurora/gains").text, site.get("/clusters/aurora/jobs/9").text

    assert re.search(r'<nav aria-label="Clusters">.*href="/clusters/borealis/gains"', page, re.DOTALL)
    assert re.search(r'href="/clusters/aurora/gains" aria-current="true">aurora<', page)
    assert page.count('aria-current="page"') == 1 and "· aurora</title>" in page.replace("&#183;", "·")
    assert 'href="/clusters/borealis/"' in job


def test_broken_cluster_is_a_page_that_leads_to_the_others(site: FlaskClient) -> None:
    page, answer = site.get("/clusters/dione/line"), site.get("/api/v1/clusters/dione/line")

    assert (page.status_code, answer.status_code) == (503, 503)
    assert "journal.path is not known" in page.text and 'href="/clusters/aurora/line"' in page.text
    assert answer.json and "journal.path is not known" in answer.json["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/line",
        "/clusters/x/",
        "/clusters/x/line",
        "/clusters/..%2f/",
        "/clusters/<b>/",
        "/api/v1/line",
        "/api/v1/clusters/x/line",
    ],
)
def test_unknown_cluster_is_not_found(site: FlaskClient, path: str) -> None:
    answer = site.get(path)

    assert answer.status_code == 404
    assert "<b>" not in answer.text
    assert site.get(path, headers={"Host": "evil.example"}).status_code == 421


def test_api_lists_the_clusters_and_answers_for_each(site: FlaskClient, clusters: list[ServedCluster]) -> None:
    listed, line = site.get("/api/v1/clusters").json, site.get("/api/v1/clusters/borealis/line?size=1").json
    assert listed and line

    jsonschema.validate(listed, schema_of("/clusters"))
    jsonschema.validate(line, schema_of("/line"))
    assert [row["name"] for row in listed["clusters"]] == ["aurora", "borealis", "corona", "dione"]
    assert [row["fault"] is None for row in listed["clusters"]] == [True, True, True, False]
    assert listed["clusters"][0]["gpus_in_use"] + listed["clusters"][0]["gpus_idle"] <= listed["clusters"][0]["gpus"]
    assert line["meta"]["cluster"] == "borealis" and line["matching"] == len(clusters[1].content().view().line)


def test_repaired_cluster_is_read_at_the_next_look(stage: Stage) -> None:
    faults = [ConfigError("not yet")]

    def content() -> Content:
        if faults:
            raise faults.pop()
        return stage.content()

    site = site_client([ServedCluster("alpha", content), ServedCluster("beta", content)])
    rows = [rows_of(site.get("/").text) for _ in range(2)]

    assert "not yet" not in rows[1]["alpha"] and rows[1]["alpha"].split()[2].isdecimal()


class Silent:
    """A source that answers once it is allowed to."""

    name = "file"

    def __init__(self) -> None:
        self.answers = threading.Event()

    def snapshot(self) -> Snapshot:
        """Wait, and then fail."""
        self.answers.wait(30.0)
        raise AdvisorError("squeue: no answer")


def test_cluster_that_does_not_answer_delays_no_other(clusters: list[ServedCluster], stage: Stage) -> None:
    silent, late = Silent(), Content(Reading(snapshot=stage.snapshot), Config())
    late.viewer._source = silent
    site = site_client([holding("late", late), clusters[1]])

    begun = time.monotonic()
    first = site.get("/")
    took_s = time.monotonic() - begun
    silent.answers.set()
    with contextlib.suppress(AdvisorError):
        late.viewer.latest(10.0)
    second = site.get("/")

    assert took_s < 10.0 and first.headers["Refresh"] == "2"
    assert "being read" in rows_of(first.text)["late"] and "33 3 0 apply" in rows_of(first.text)["borealis"]
    assert "squeue: no answer" in rows_of(second.text)["late"] and "Refresh" not in second.headers


def test_operation_is_for_the_cluster_of_its_address(content: Content, tmp_path: Path) -> None:
    served = []
    for name in ("alpha", "beta"):
        config = Config(daemon=DaemonSettings(runtime_folder=str(tmp_path / name)))
        (tmp_path / name).mkdir()
        made = Content(replace(content.reading, cluster=name), config, journal=content.journal)
        made.viewer = content.viewer
        served.append(holding(name, made))
    admin = site_client(served, SETTINGS)

    shown = admin.get("/clusters/beta/do/pause", headers=ROOT).text
    done = send(admin, "/clusters/beta/do/pause", token_of(admin, "/clusters/beta/do/pause"))

    assert done.status_code == 200
    assert "<code>sadvise pause -M beta</code>" in shown and 'action="/clusters/beta/do/pause"' in shown
    assert paused(tmp_path / "beta") is not None and paused(tmp_path / "alpha") is None
    assert admin.get("/do/pause", headers=ROOT).status_code == 404
    assert admin.get("/clusters/beta/do/pause").status_code == 403
    forged = admin.post("/clusters/alpha/do/pause", headers={**ROOT, "Origin": BASE})
    assert forged.status_code == 403 and paused(tmp_path / "alpha") is None


def stopped(text: str) -> Snapshot:
    """Return a cluster in which all has one name, and the partition for which a job waits is down."""
    made = named(text)
    return replace(made, partitions=tuple(replace(partition, name=text, is_up=False) for partition in made.partitions))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.text(HOSTILE + "ab=/&-!", min_size=1, max_size=12) | st.just('"><img src=x onerror=alert(1)>'))
def test_hostile_names_and_faults_stay_text_on_the_front_page(text: str) -> None:
    def page_of(name: str) -> Structure:
        def broken() -> Content:
            raise ConfigError(name)

        site = site_client([holding("alpha", view_of(stopped(name), 1)), ServedCluster("beta", broken)])
        return Structure(site.get("/").text)

    page, expected = page_of(text), page_of("plain")

    assert page.elements == expected.elements
    assert page.text.count(escaped(text)) >= 2
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u200b\ufeff]", page.text.replace("\r", ""))


def test_one_cluster_keeps_its_addresses(content: Content) -> None:
    client = client_of(content)
    listed = client.get("/api/v1/clusters").json

    assert listed and [row["name"] for row in listed["clusters"]] == [""]
    assert client.get("/clusters/aurora/").status_code == 404
    assert "Clusters" not in client.get("/").text
