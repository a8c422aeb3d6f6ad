"""With `web.hide_names` no page and no answer of the API names users, accounts or jobs of others."""

import html
from collections.abc import Iterator
from dataclasses import replace

import pytest
from flask.testing import FlaskClient

from advisor.config import Config
from advisor.settings import WebSettings
from advisor.watch.reading import Reading
from advisor.web.content import AUDIENCE, Audience, Content
from tests.web.conftest import client_of, site_client
from tests.web.stage import USERS, Stage, holding, set_up, staged_snapshot
from tests.web.test_api import PATHS
from tests.web.test_pages import PAGES

# Part of every name, ordinary or hostile; in no other text.
MARK = "zqx"
HOSTILE = f"<b>{MARK}</b>&\"'\u202e\x1b[31m"
SOCKET = "unix:/run/sadvise-web/web.sock"
OWN = f"{MARK}-{USERS[0]}"


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The staged cluster; every name in it has a mark, and some are hostile."""
    made = staged_snapshot()
    jobs = tuple(
        replace(
            job,
            user=HOSTILE if job.job_id % 11 == 0 else f"{MARK}-{job.user}",
            account=f"{MARK}-{job.account}",
            name=f"{HOSTILE}{job.name}" if job.job_id % 7 == 0 else f"{MARK}-{job.name}",
        )
        for job in made.jobs
    )
    return set_up(tmp_path_factory.mktemp("marked"), replace(made, jobs=jobs))


def content_of(stage: Stage, **web: object) -> Content:
    """Return what pages show of a stage with names hidden, and under other settings of the web view."""
    settings = replace(stage.settings, hide_names=True, **web)  # type: ignore[arg-type]
    content = Content(Reading(snapshot=stage.snapshot), Config(web=settings), journal=stage.journal)
    content.viewer.refresh()
    return content


@pytest.fixture(scope="module")
def content(marked: Stage) -> Content:
    """What pages show behind a proxy, with names hidden."""
    return content_of(marked, listen=SOCKET, user_header="X-Remote-User", admin_group="root")


@pytest.fixture(autouse=True)
def _no_audience() -> Iterator[None]:
    token = AUDIENCE.set(Audience())
    yield
    AUDIENCE.reset(token)


def answers(client: FlaskClient, content: Content, user: str = "") -> Iterator[tuple[str, str]]:
    """Yield every page and every answer of the API with its address: of jobs, of some of each kind."""
    view = content.viewer.last
    assert view is not None
    advised = [row.job_id for row in view.advice]
    jobs = {*[job.job_id for job in view.line[::40]], *advised[:4], *[row.job_id for row in view.in_effect]}
    api = [f"/api/v1{path}" for path in PATHS if "{" not in path]
    of_jobs = [address for job_id in jobs for address in (f"/jobs/{job_id}", f"/api/v1/jobs/{job_id}")]
    lines = ["/line?page=2", "/line?sort=user&order=desc", "/api/v1/line?size=1000&sort=name"]
    for path in (*PAGES, *api, *of_jobs, *lines):
        answer = client.get(path, headers={"X-Remote-User": user} if user else {})
        assert answer.status_code == 200, path
        # JSON is ASCII with escapes, which a mark has none of.
        yield path, html.unescape(answer.text)


def test_no_page_and_no_answer_holds_a_name(content: Content) -> None:
    named = {path for path, text in answers(client_of(content), content) if MARK in text or USERS[0] in text}

    assert named == set()
    gains = client_of(content).get("/gains").text
    assert "web.hide_names" in gains and not [user for user in USERS if user in gains]


def test_hidden_names_can_not_be_searched_for(content: Content) -> None:
    client = client_of(content)

    for query in (f"q={MARK}", f"user={OWN}", f"account={MARK}-vision"):
        answer = client.get(f"/api/v1/line?{query}").json
        assert answer is not None and answer["matching"] == 0


def test_users_see_the_names_of_their_own_jobs_alone(content: Content) -> None:
    client = client_of(content)

    rows = client.get("/api/v1/line?size=1000", headers={"X-Remote-User": OWN}).json
    assert rows is not None
    own = [row for row in rows["jobs"] if row["user"]]

    assert own and {row["user"] for row in own} == {OWN}
    assert all(row["name"] and row["account"] for row in own)
    assert all(not (row["name"] or row["account"]) for row in rows["jobs"] if not row["user"])
    others = {f"{MARK}-{user}" for user in USERS[1:]} | {HOSTILE}
    shown = "".join(text for _, text in answers(client, content, OWN))
    assert [name for name in others if name in shown] == []


def test_members_of_the_group_of_administrators_see_all_names(content: Content) -> None:
    shown = client_of(content).get("/line", headers={"X-Remote-User": "root"}).text

    assert MARK in shown and USERS[3] in shown


@pytest.mark.parametrize("user", [OWN, "root"])
def test_a_header_over_tcp_shows_no_name(marked: Stage, user: str) -> None:
    content = content_of(marked, user_header="X-Remote-User", admin_group="root")

    shown = client_of(content).get("/line", headers={"X-Remote-User": user}).text

    # Only what the client itself sent comes back: who is signed in.
    assert MARK not in shown.replace(f"signed in as {user}", "")


def test_the_site_hides_the_names_of_every_cluster(marked: Stage) -> None:
    shown = marked.content()
    clusters = [holding("aurora", shown), holding("borealis", shown)]
    pages = (
        "/",
        "/api/v1/clusters",
        "/clusters/aurora/line",
        "/clusters/borealis/advice",
        "/api/v1/clusters/aurora/line",
    )

    def named(settings: WebSettings) -> list[str]:
        client = site_client(clusters, settings)
        return [path for path in pages if MARK in client.get(path).text]

    assert named(WebSettings(hide_names=True)) == []
    assert named(WebSettings()) == [*pages[2:]]


def test_names_are_shown_by_default(marked: Stage) -> None:
    content = marked.content()

    named = {path for path, text in answers(client_of(content), content) if MARK in text}

    assert {"/line", "/advice", "/changes", "/api/v1/line", "/api/v1/changes"} <= named
    assert not WebSettings().hide_names
