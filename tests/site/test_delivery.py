"""Notices reach a real mail server and a real web server, and what fails is one line that names no secret."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.notice import ALL, Notice, NoticeKind, NoticeSettings
from advisor.errors import NoticeError
from advisor.site.delivery import deliver, mail_recipients, targets_of
from advisor.view.notice_words import mail_of, webhook_document
from tests.builders import TAKEN_AT
from tests.post_office import Hook, PostOffice, answered, dripping, post_office, web_server

ADMIN = "ops@example.org"


def notice(**fields: object) -> Notice:
    """Return a notice about a breaker."""
    made = Notice(
        kind=NoticeKind.BREAKER_OPENED,
        time=TAKEN_AT,
        cluster="alpha",
        subject="circuit breaker slurm_errors is open",
        text="5 reads failed.\nTo do: `scontrol ping`.",
        figures={"breaker": "slurm_errors"},
    )
    return replace(made, **fields)  # type: ignore[arg-type]  # the test's own


@pytest.fixture(scope="module")
def office() -> Iterator[PostOffice]:
    with post_office() as running:
        yield running


@pytest.fixture(scope="module")
def hook() -> Iterator[Hook]:
    with web_server() as running:
        yield running


@pytest.fixture(params=["sendmail", pytest.param("msmtp", marks=pytest.mark.needs("msmtp"))])
def program(request: pytest.FixtureRequest, office: PostOffice, tmp_path: Path, need: Callable[[str], Path]) -> Path:
    """A program that hands mails to the server: one of the tests, and Debian's msmtp."""
    office.envelopes.clear()
    return office.sendmail(tmp_path) if request.param == "sendmail" else office.msmtp(tmp_path, need("msmtp"))


def test_a_mail_to_the_administrators_arrives_by_smtp(office: PostOffice, program: Path) -> None:
    settings = NoticeSettings(mail_to=f"{ADMIN}, root@example.org", mail_from="sadvise@example.org",
                              sendmail=str(program))  # fmt: skip

    deliver(notice(text="Kö: 5 reads failed.\n.\nTo do: nothing."), "mail", settings)

    (envelope,), (mail,) = office.envelopes, office.mails
    assert envelope.rcpt_tos == [ADMIN, "root@example.org"]
    assert envelope.mail_from == "sadvise@example.org"
    assert mail["To"] == f"{ADMIN}, root@example.org"
    assert mail["Subject"] == "[sadvise alpha] circuit breaker slurm_errors is open"
    assert mail["Auto-Submitted"] == "auto-generated"
    # A line of one dot ends a mail in SMTP; here it is text.
    body = mail.get_content().replace("\r\n", "\n")
    assert body.startswith("Kö: 5 reads failed.\n.\nTo do: nothing.\n")


def test_a_mail_to_a_user_goes_to_that_user_alone(office: PostOffice, program: Path) -> None:
    settings = NoticeSettings(
        mail_to=ADMIN, users=ALL, user_domain="users.example.org", sendmail=str(program), webhook="http://127.0.0.1:9/"
    )
    to_user = notice(user="alice", named_lines=("job 7",))

    assert list(targets_of(to_user, settings)) == ["mail"]
    deliver(to_user, "mail", settings)

    assert [envelope.rcpt_tos for envelope in office.envelopes] == [["alice@users.example.org"]]


def test_a_refused_mail_is_an_error_with_the_reason(office: PostOffice, program: Path) -> None:
    settings = NoticeSettings(mail_to=ADMIN, sendmail=str(program))
    office.unknown = frozenset({ADMIN})
    try:
        with pytest.raises(NoticeError, match=r"refused a mail with exit status \d+: .*no such user"):
            deliver(notice(), "mail", settings)
    finally:
        office.unknown = frozenset()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\nsleep 60\n", "took no mail within 1 s"),
        ("#!/bin/sh\nkill -KILL $$\n", "refused a mail with exit status 137|was ended by signal 9"),
        (None, "No such file"),
    ],
    ids=["slow", "killed", "missing"],
)
def test_a_program_that_takes_no_mail_costs_a_bounded_time(tmp_path: Path, script: str | None, said: str) -> None:
    program = tmp_path / "mailer"
    if script is not None:
        program.write_text(script)
        program.chmod(0o700)
    begun = time.monotonic()

    with pytest.raises(NoticeError, match=said):
        deliver(notice(), "mail", NoticeSettings(mail_to=ADMIN, sendmail=str(program), timeout_s=1.0))

    assert time.monotonic() - begun < 10.0


@pytest.mark.parametrize("user", ["-oQ/tmp", "a b", "a\nBcc: x", "alice@evil.example", "", "x" * 65, "ålice", "a,b"])
def test_no_mail_goes_to_a_name_that_is_no_user_name(user: str) -> None:
    settings = NoticeSettings(users=ALL)

    assert settings.address_of_user(user) is None
    if user:
        with pytest.raises(NoticeError, match="give no recipient"):
            mail_recipients(notice(user=user), settings)


def test_the_webhook_gets_the_documented_body(hook: Hook) -> None:
    hook.documents.clear()

    deliver(notice(named_lines=("user alice gained",)), "webhook", NoticeSettings(webhook=hook.url))

    (document,) = hook.documents
    assert document["schema"] == "sadvise.notice/1"
    assert document["kind"] == "breaker_opened"
    assert document["text"] == "circuit breaker slurm_errors is open\n5 reads failed.\nTo do: `scontrol ping`."
    assert document["figures"] == {"breaker": "slurm_errors"}
    assert "alice" not in str(document)


def test_the_url_of_a_webhook_can_stand_in_a_file(hook: Hook, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"{hook.url}\n")
    hook.documents.clear()

    deliver(notice(), "webhook", NoticeSettings(webhook=str(file)))

    assert len(hook.documents) == 1
    file.write_text("http://chat.example.org/secret\n")
    with pytest.raises(NoticeError, match="holds no URL that is https") as refused:
        deliver(notice(), "webhook", NoticeSettings(webhook=str(file)))
    assert "secret" not in str(refused.value)


def test_a_redirect_is_not_followed(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "answer", lambda handler: answered(handler, 302, "/elsewhere"))
    hook.paths.clear()

    with pytest.raises(NoticeError, match="answered 302"):
        deliver(notice(), "webhook", NoticeSettings(webhook=hook.url))

    assert hook.paths == ["/hook/secret-token"]


def test_a_server_that_fails_or_refuses_is_an_error_without_the_secret(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "answer", lambda handler: answered(handler, 500))
    with pytest.raises(NoticeError, match="answered 500 Internal Server Error") as failed:
        deliver(notice(), "webhook", NoticeSettings(webhook=hook.url))
    with pytest.raises(NoticeError, match="refused") as refused:
        deliver(notice(), "webhook", NoticeSettings(webhook="http://127.0.0.1:1/secret-token"))

    assert "secret" not in f"{failed.value} {refused.value}"


def test_a_server_that_drips_an_answer_is_given_up_at_the_deadline(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(hook, "answer", lambda handler: dripping(handler, until=over))
    begun = time.monotonic()

    with pytest.raises(NoticeError, match="gave no answer within 1 s") as late:
        deliver(notice(), "webhook", NoticeSettings(webhook=hook.url, timeout_s=1.0))

    over.set()
    assert time.monotonic() - begun < 12.0
    assert "secret" not in str(late.value)


HOSTILE = st.text(
    st.sampled_from("a\r\n\t\x00\x1b[]<>@!:;,=?._-\u202e\u2028\ud800ö💥 ") | st.characters(), max_size=300
)


@given(subject=HOSTILE, text=HOSTILE, line=HOSTILE, cluster=HOSTILE, value=HOSTILE)
def test_hostile_text_stays_text_in_mails_and_documents(
    subject: str, text: str, line: str, cluster: str, value: str
) -> None:
    hostile = notice(
        subject=f"{subject}\r\nBcc: evil@example.org", text=text, named_lines=(line,), cluster=cluster,
        figures={"value": value},
    )  # fmt: skip

    raw = mail_of(hostile, [ADMIN], sender="sadvise@example.org")
    document = webhook_document(hostile)

    mail = message_from_bytes(raw, policy=default)
    names = [name.lower() for name in mail.keys()]  # noqa: SIM118  (a message yields no keys by itself)
    assert len(names) == len(set(names))
    assert "bcc" not in names
    assert mail["To"] == ADMIN
    assert str(mail["Subject"]).isprintable()
    body = mail.get_content()
    assert all(part.isprintable() for part in body.split("\n"))
    assert max(map(len, raw.split(b"\n"))) < 998
    assert all(part.isprintable() for part in document["text"].split("\n"))
    assert not set(document["text"]) & set("<>@")
    assert document["figures"]["value"].isprintable()


@pytest.mark.parametrize(
    "fields",
    [
        {"mail_to": "ops@example.org\nBcc: x@y"},
        {"mail_to": "-oQ/tmp"},
        {"mail_from": "a b"},
        {"sendmail": "sendmail"},
        {"webhook": "http://chat.example.org/hook"},
        {"webhook": "http://localhost/hook"},
        {"webhook": "ftp://127.0.0.1/x"},
        {"webhook": "file:///etc/passwd"},
        {"webhook": "https://user:pass@example.org/"},
        {"webhook": "https://example.org/\r\nX: y"},
        {"webhook": "https://example.org:99999/"},
        {"events": "breaker_opened, digest"},
        {"digest": "someday"},
        {"users": "some"},
        {"user_domain": "-x"},
        {"hour": 24},
        {"max_per_hour": 0},
        {"timeout_s": 0.5},
    ],
    ids=str,
)
def test_wrong_settings_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must|Port"):
        NoticeSettings(**fields)  # type: ignore[arg-type]  # wrong on purpose
