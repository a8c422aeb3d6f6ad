"""Administrators can pause, apply and revert; nobody else can, and no form that another site sends."""

import grp
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from structlog.testing import capture_logs
from werkzeug.test import TestResponse

from advisor.config import Config
from advisor.settings import DaemonSettings, WebSettings
from advisor.site.pause_file import paused
from advisor.web.content import Content
from advisor.web.defence import MOST_FIELDS, is_member
from tests.web.conftest import BASE, client_of

SETTINGS = WebSettings(
    listen="unix:/run/sadvise-web/web.sock",
    user_header="X-Remote-User",
    actions=True,
    admin_group="root",
    hosts="portal.example.org",
)
ROOT = {"X-Remote-User": "root"}
FORM = "application/x-www-form-urlencoded"
TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')


def with_settings(content: Content, folder: Path, settings: WebSettings = SETTINGS) -> FlaskClient:
    """Return a client of the same cluster under other settings."""
    config = Config(web=settings, daemon=DaemonSettings(runtime_folder=str(folder)))
    made = Content(content.reading, config, journal=content.journal)
    made.viewer = content.viewer
    return client_of(made)


@pytest.fixture
def admin(content: Content, tmp_path: Path) -> FlaskClient:
    """A client whose proxy can name an administrator."""
    return with_settings(content, tmp_path)


def token_of(client: FlaskClient, path: str, headers: dict[str, str] = ROOT) -> str:
    match = TOKEN.search(client.get(path, headers=headers).text)
    assert match is not None
    return match[1]


def send(client: FlaskClient, path: str, token: str, **headers: str) -> TestResponse:
    """Send a form as a browser does: over HTTPS, as its cookies are for that alone, with its origin."""
    sent = {"Origin": BASE, **ROOT, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return client.post(path, data={"csrf_token": token, "reason": "<maintenance>"}, headers=sent)


def test_administrator_pauses_and_resumes(admin: FlaskClient, tmp_path: Path) -> None:
    token = token_of(admin, "/do/pause")
    done = send(admin, "/do/pause", token)
    pause = paused(tmp_path)

    assert "sadvise pause" in admin.get("/do/pause", headers=ROOT).text
    assert done.status_code == 200
    assert pause is not None and (pause.by, pause.reason) == ("root", "<maintenance>")
    assert send(admin, "/do/resume", token_of(admin, "/do/resume")).status_code == 200
    assert paused(tmp_path) is None


def test_page_shows_the_exact_command_before_anything_is_done(admin: FlaskClient) -> None:
    text = admin.get("/do/apply/56,57", headers=ROOT).text

    assert "<code>sadvise apply -j 56,57 --journal" in text
    assert "now it would send" in text
    assert "<code>sadvise revert 7 --journal" in admin.get("/do/revert/7", headers=ROOT).text


def test_a_file_is_no_cluster_to_change(admin: FlaskClient) -> None:
    answer = send(admin, "/do/apply/56", token_of(admin, "/do/apply/56"))

    assert answer.status_code == 502
    assert "there is no cluster to change" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Sec_Fetch_Site": "cross-site"},
        {"X_Remote_User": "nobody"},
        {"X_Remote_User": "root, root"},
        {"X_Remote_User": ""},
        {"Host": "evil.example"},
    ],
    ids=str,
)
def test_forged_form_is_refused(admin: FlaskClient, tmp_path: Path, headers: dict[str, str]) -> None:
    answer = send(admin, "/do/pause", token_of(admin, "/do/pause"), **headers)

    assert answer.status_code in (403, 421)
    assert paused(tmp_path) is None


def test_form_needs_the_token_of_its_own_session(admin: FlaskClient, content: Content, tmp_path: Path) -> None:
    other = with_settings(content, tmp_path)
    token = token_of(admin, "/do/pause")

    answers = [send(admin, "/do/pause", ""), send(admin, "/do/pause", "x" * 43), send(other, "/do/pause", token)]

    assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert paused(tmp_path) is None


@pytest.mark.parametrize("token", ["ä" * 43, "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), "\x00"])
def test_token_of_other_characters_is_refused_like_a_wrong_one(admin: FlaskClient, tmp_path: Path, token: str) -> None:
    token_of(admin, "/do/pause")

    assert send(admin, "/do/pause", token).status_code == 403
    assert paused(tmp_path) is None


def test_origin_that_is_no_address_is_refused(admin: FlaskClient) -> None:
    assert send(admin, "/do/pause", token_of(admin, "/do/pause"), Origin="http://[").status_code == 403


def test_refused_actions_are_logged_with_who_tried_what(admin: FlaskClient) -> None:
    with capture_logs() as lines:
        send(admin, "/do/pause", "", X_Remote_User="mallory")
        send(admin, "/do/pause", "", Origin="https://evil.example")
        send(admin, "/do/apply/7", "ä")
        admin.get("/do/revert/7", headers={"X-Remote-User": "mallory"})
        admin.post("/do/" + "\x1b" * 500, headers={"X-Remote-User": "mallory"})

    assert {line["event"] for line in lines} == {"operation refused"}
    assert [(line["user"], line["method"], line["path"], line["why"]) for line in lines[:4]] == [
        ("mallory", "POST", "/do/pause", "no administrator"),
        ("root", "POST", "/do/pause", "another origin"),
        ("root", "POST", "/do/apply/7", "no form of this session"),
        ("mallory", "GET", "/do/revert/7", "no administrator"),
    ]
    assert "\x1b" not in lines[4]["path"] and len(lines[4]["path"]) < 1000


def test_form_of_more_fields_than_stated_is_refused_before_it_is_parsed(admin: FlaskClient, tmp_path: Path) -> None:
    token = token_of(admin, "/do/pause")

    def post(fields: int, **options: str) -> int:
        form = "&".join([f"csrf_token={token}", *["x=1"] * (fields - 1)])
        return admin.post("/do/pause", data=form, headers={"Origin": BASE, **ROOT}, **options).status_code

    assert post(MOST_FIELDS + 1, content_type=FORM) == 413
    assert post(2, content_type="multipart/form-data; boundary=x") == post(2, content_type="text/plain") == 415
    assert paused(tmp_path) is None
    assert post(MOST_FIELDS, content_type=FORM) == 200


def test_get_changes_nothing(admin: FlaskClient, tmp_path: Path) -> None:
    admin.get("/do/pause?csrf_token=x", headers=ROOT)

    assert paused(tmp_path) is None


@pytest.mark.parametrize("path", ["/do/pause", "/do/apply/56", "/do/revert/7", "/do/nothing", "/do/pause/7"])
def test_who_is_no_administrator_sees_no_form(admin: FlaskClient, path: str) -> None:
    assert admin.get(path, headers={"X-Remote-User": "nobody"}).status_code == 403
    assert admin.get(path).status_code == 403


@pytest.mark.parametrize(
    "path", ["/do/nothing", "/do/pause/7", "/do/apply", "/do/apply/0", "/do/revert/1,2,3", "/do/apply/-j"]
)
def test_unknown_operation_is_not_found(admin: FlaskClient, path: str) -> None:
    assert admin.get(path, headers=ROOT).status_code == 404


def test_without_actions_the_header_opens_nothing(content: Content, tmp_path: Path) -> None:
    client = with_settings(content, tmp_path, replace(SETTINGS, actions=False))

    assert client.get("/do/pause", headers=ROOT).status_code == 404
    assert client.post("/do/pause", headers=ROOT).status_code in (403, 404)
    assert "Pause" not in client.get("/", headers=ROOT).text


def test_header_counts_only_where_the_settings_name_it(content: Content, tmp_path: Path) -> None:
    named = with_settings(content, tmp_path)
    unnamed = with_settings(content, tmp_path, WebSettings())

    assert "signed in as root" in named.get("/", headers=ROOT).text
    assert "signed in as" not in unnamed.get("/", headers=ROOT).text


def test_cookie_is_closed_to_scripts_and_other_sites(admin: FlaskClient) -> None:
    cookie = admin.get("/do/pause", headers=ROOT).headers["Set-Cookie"]

    assert all(part in cookie for part in ("HttpOnly", "Secure", "SameSite=Strict"))


def test_members_are_those_of_the_group_database() -> None:
    own = grp.getgrgid(os.getgid()).gr_name

    assert is_member("root", "root")
    assert not is_member("root", "no-such-group")
    assert not is_member("no-such-user", own)
    assert not is_member("", own)


@pytest.mark.parametrize(
    "change",
    [
        {"listen": "127.0.0.1:9342"},
        {"user_header": ""},
        {"admin_group": ""},
        {"user_header": "bad header"},
        {"hosts": "a.example:80"},
        {"prefix": "/sadvise/"},
        {"max_age_s": 1.0},
        {"listen": "0.0.0.0:80"},
        {"listen": ""},
    ],
    ids=str,
)
def test_unsafe_settings_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"must be|actions need"):
        replace(SETTINGS, **change)  # type: ignore[arg-type]  # the row's own
