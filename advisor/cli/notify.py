"""`sadvise notify`: try the targets of notices, and see what they would get."""

from pathlib import Path
from typing import Annotated, Final

import typer

from advisor.cli.options import ConfigFile, JournalFile, Json, option
from advisor.clock import SystemClock
from advisor.config import Config
from advisor.domain.notice import Notice
from advisor.domain.units import DAY_S
from advisor.errors import ConfigError, NoticeError, OptionsError
from advisor.journal import SqliteJournal
from advisor.site.delivery import deliver, targets_of
from advisor.site.digests import user_mails, weekly_digest
from advisor.view.notice_words import body_of, subject_of, trial_notice, webhook_document
from advisor.view.terminal import console, print_json, print_labelled, tool_meta
from advisor.watch.reading import Reading, journal_file

SCHEMA: Final = "sadvise.notify/1"


def notify(
    test: Annotated[bool, option("--test", "Send a test notice to every target that is configured.")] = False,
    config: ConfigFile = None,
    journal: JournalFile = None,
    json: Json = False,
) -> None:
    """Print the digest and the mails to users that the journal gives now, and send nothing; --test tries the targets.

    Mails to users are those about jobs that ended in the last day. With --test it exits with 1 if a target fails.
    """
    settings, now = Reading(config=config).load_config(), SystemClock().now()
    if test and journal is not None:
        raise OptionsError("--test excludes --journal: give one")
    if test:
        _try_targets(settings, now, as_json=json)
        return
    _show(settings, _notices(settings, journal_file(settings, journal), now), as_json=json)


def _try_targets(settings: Config, now: float, *, as_json: bool) -> None:
    """Send a test notice to each target; exit with 1 if one fails."""
    notice, results = trial_notice(now), {}
    for target in targets_of(notice, settings.notify):
        try:
            deliver(notice, target, settings.notify)
        except NoticeError as err:
            results[target] = str(err)
        else:
            results[target] = ""
    if not results:
        raise ConfigError("no target is configured: set mail_to or webhook in [notify] of sadvise.toml")
    if as_json:
        print_json(
            {
                "meta": tool_meta(SCHEMA, now=now),
                "targets": [{"target": name, "fault": fault} for name, fault in results.items()],
            }
        )
    else:
        for name, fault in results.items():
            print_labelled(name, fault or _accepted(name, settings))
    if any(results.values()):
        raise typer.Exit(1)


def _accepted(target: str, settings: Config) -> str:
    if target == "mail":
        recipients = ", ".join(settings.notify.recipients)
        return f"accepted by {settings.notify.sendmail} for {recipients}; see that it arrives"
    return "accepted"


def _notices(settings: Config, path: Path, now: float) -> list[Notice]:
    """Return the digest and the mails to users by a journal; raises `JournalError`."""
    with SqliteJournal.read_only(path) as kept:
        return [weekly_digest(kept, settings, now), *user_mails(kept, settings, since=now - DAY_S, now=now)]


def _show(settings: Config, notices: list[Notice], *, as_json: bool) -> None:
    """Print notices as mails and documents; nothing is sent."""
    users = {notice.user: settings.notify.address_of_user(notice.user) for notice in notices if notice.user}
    if as_json:
        documents = [{"to": users.get(notice.user), "document": webhook_document(notice)} for notice in notices]
        print_json({"meta": tool_meta(SCHEMA, now=notices[0].time), "notices": documents})
        return
    out = console()
    for notice in notices:
        administrators = ", ".join(settings.notify.recipients) or "no one: notify.mail_to is empty"
        print_labelled("to", users.get(notice.user) or administrators)
        print_labelled("subject", subject_of(notice))
        out.print()
        out.print(body_of(notice), markup=False, highlight=False, soft_wrap=True)
    print_labelled("sent", "nothing; to do: `sadvise notify --test` tries the targets")
