"""Delivers notices to their targets, and keeps what was sent and what is still to deliver in a file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor.backends.mail_and_webhook import post, send_mail, webhook_url
from advisor.backends.process import Deadline
from advisor.domain.mode import Mode
from advisor.domain.notice import Notice, NoticeSettings
from advisor.errors import ConfigError, NoticeError
from advisor.files import read_bounded, replace_file
from advisor.view.notice_words import mail_of, webhook_document

Target = Literal["mail", "webhook"]
MAIL: Final = "mail"
WEBHOOK: Final = "webhook"


def targets_of(notice: Notice, settings: NoticeSettings) -> Iterable[Target]:
    """Yield the targets of a notice; one to a user goes to that user by mail and nowhere else."""
    if notice.user or settings.recipients:
        yield MAIL
    if settings.webhook and not notice.user:
        yield WEBHOOK


def deliver(notice: Notice, target: Target, settings: NoticeSettings, patience: Deadline | None = None) -> None:
    """Deliver a notice to one target; raises `NoticeError`."""
    if target == WEBHOOK:
        url = webhook_url(settings.webhook)
        if not url:
            raise NoticeError("webhook: notify.webhook is empty now")
        post(url, webhook_document(notice), timeout_s=settings.timeout_s, patience=patience)
        return
    recipients = mail_recipients(notice, settings)
    mail = mail_of(notice, recipients, sender=settings.mail_from)
    send_mail(
        settings.sendmail,
        mail,
        recipients,
        sender=settings.mail_from,
        timeout_s=settings.timeout_s,
        patience=patience,
    )


def check_mail(settings: NoticeSettings) -> None:
    """Raise `ConfigError` if no user gets a mail."""
    if not settings.reaches_users:
        raise ConfigError('--mail needs [notify] users = "hint" or "all" in sadvise.toml')


def mail_users(notices: Iterable[Notice], settings: NoticeSettings) -> dict[str, str]:
    """Mail notices to their users; map each user to why it failed, "" if it did not."""
    results = {}
    for notice in notices:
        try:
            deliver(notice, MAIL, settings)
            results[notice.user] = ""
        except NoticeError as err:
            results[notice.user] = str(err)
    return results


def mail_recipients(notice: Notice, settings: NoticeSettings) -> tuple[str, ...]:
    """Return the addresses that a mail goes to; raises `NoticeError` where there are none."""
    if not notice.user:
        addresses = settings.recipients
    else:
        address = settings.address_of_user(notice.user) if settings.reaches_users else None
        addresses = () if address is None else (address,)
    if not addresses:
        raise NoticeError("mail: notify.mail_to and notify.users give no recipient now")
    return addresses


_MOST_BYTES: Final = 32 << 20


class Letter(BaseModel):
    """One notice on its way to one target; `due_time` is when it is tried next."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    notice: Notice
    target: Target
    due_time: float
    attempts: int = 0


class NoticeState(BaseModel):
    """What is known across restarts; instants in seconds since the epoch, 0 for never.

    `topics` maps what lasts to the value that was sent. `sent_times` are those of the event notices of the last hour,
    `summed` counts the ones above the bound by kind.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)

    format: Literal["sadvise.notices/1"] = "sadvise.notices/1"
    mode: Mode | None = None
    topics: dict[str, str] = Field(default_factory=dict)
    letters: list[Letter] = Field(default_factory=list)
    sent_times: list[float] = Field(default_factory=list)
    summed: dict[str, int] = Field(default_factory=dict)
    digest_time: float = 0.0
    users_time: float = 0.0


def state_file(journal: Path) -> Path:
    """Return the path of the file beside a journal."""
    return journal.with_name(f"{journal.name}.notices")


def read_state(path: Path) -> tuple[NoticeState, str]:
    """Return the state, an empty one if there is none or it cannot be read, and why it cannot, "" if it can."""
    try:
        return NoticeState.model_validate_json(read_bounded(path, _MOST_BYTES)), ""
    except FileNotFoundError:
        return NoticeState(), ""
    except OSError as err:
        return NoticeState(), f"{path}: {err.strerror or err}"
    except ValidationError:
        return NoticeState(), f"{path}: is not the state of this release; notices about what lasts are sent once more"


def write_state(path: Path, state: NoticeState) -> str:
    """Write the state; return why it cannot be written, "" if it is."""
    try:
        replace_file(path, state.model_dump_json().encode() + b"\n")
    except OSError as err:
        return f"{path}: {err.strerror or err}"
    return ""
