"""Defines notices, messages about what happened, and the settings that choose who gets them."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Annotated, Final
from urllib.parse import urlsplit

from advisor.domain.dataclass import dataclass
from advisor.domain.units import DAY_S, HOUR_S, WEEK_S

Figure = str | int | float | None


class NoticeKind(StrEnum):
    """What a notice is about."""

    BREAKER_OPENED = "breaker_opened"
    MODE_CHANGED = "mode_changed"
    PARTITION_DOWN = "partition_down"
    CHANGE_OVERRULED = "change_overruled"
    DIGEST = "digest"
    JOBS_CHANGED = "jobs_changed"
    TIME_LIMIT = "time_limit"
    IDLE_GPUS = "idle_gpus"
    SUMMED_UP = "summed_up"
    TEST = "test"


# The kinds that `notify.events` can name.
EVENTS: Final = (
    NoticeKind.BREAKER_OPENED,
    NoticeKind.MODE_CHANGED,
    NoticeKind.PARTITION_DOWN,
    NoticeKind.CHANGE_OVERRULED,
)
OFF: Final = "off"
HINT: Final = "hint"
ALL: Final = "all"
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# 1970-01-01 was a Thursday.
_EPOCH_WEEKDAY: Final = 3
# Neither a leading dash, which a program takes for an option, nor anything that a shell or a header interprets.
_LOCAL_PART: Final = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}"
_DOMAIN: Final = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
_ADDRESS: Final = re.compile(rf"{_LOCAL_PART}(?:@{_DOMAIN})?", re.ASCII)
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_DOMAIN_ALONE: Final = re.compile(_DOMAIN, re.ASCII)
_MOST_RECIPIENTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One message; `subject` and `text` name no user and no job name.

    `topic` and `value` identify what it is about: it is not sent again while the topic keeps the value. With an empty
    topic it is always sent. `named_lines` follow the text in mails alone, since they name users. `figures` are the
    numbers for programs. `user` is the Unix user who gets it, "" for the administrators.
    """

    kind: NoticeKind
    time: float
    subject: str
    text: str
    topic: str = ""
    value: str = ""
    cluster: str = ""
    named_lines: tuple[str, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """Who gets which notices, by mail and by webhook; none by default."""

    mail_to: Annotated[str, "mail addresses of the administrators, separated by commas; empty for no mail"] = ""
    mail_from: Annotated[str, "sender of the mails"] = "sadvise"
    sendmail: Annotated[str, "absolute path of the program that takes mails, as sendmail does"] = "/usr/sbin/sendmail"
    webhook: Annotated[
        str,
        "URL that gets a JSON document for each notice, https or http on a loopback address, or the absolute path of a "
        "file that holds it; empty for none",
    ] = ""
    events: Annotated[
        str, "events to send, separated by commas: breaker_opened, mode_changed, partition_down, change_overruled"
    ] = ", ".join(EVENTS)
    digest: Annotated[str, "day of the week on which the administrators get a digest, such as monday; or off"] = (
        "monday"
    )
    users: Annotated[
        str,
        "users who get a mail a day about their changed jobs: off, hint for those whose jobs ask for it with "
        "`sadvise: mail` in --comment, or all",
    ] = OFF
    user_domain: Annotated[str, "mail domain of the users; empty to leave it to the mail system"] = ""
    hour: Annotated[int, "hour of the day, UTC, of the digest and of the mails to users"] = 6
    max_per_hour: Annotated[int, "most event notices an hour; those above it are summed up in one"] = 10
    timeout_s: Annotated[float, "time limit of one delivery"] = 20.0

    def __post_init__(self) -> None:
        if self.webhook and not self.webhook.startswith("/"):
            check_webhook(self.webhook)
        recipients, domain = self.recipients, self.user_domain
        wrong = {
            f"mail_to must be {_MOST_RECIPIENTS} mail addresses or fewer, separated by commas": (
                len(recipients) > _MOST_RECIPIENTS or not all(map(_ADDRESS.fullmatch, recipients))
            ),
            "mail_from must be a mail address": not _ADDRESS.fullmatch(self.mail_from),
            "sendmail must be an absolute path": not self.sendmail.startswith("/"),
            f"events must be of {', '.join(EVENTS)}": not set(EVENTS).issuperset(_names(self.events)),
            f"digest must be {OFF} or a day of the week, such as monday": self.digest not in (OFF, *_WEEKDAYS),
            f"users must be {OFF}, {HINT} or {ALL}": self.users not in (OFF, HINT, ALL),
            "user_domain must be a domain, or empty": bool(domain) and not _DOMAIN_ALONE.fullmatch(domain),
            "hour must be an hour from 0 to 23": not 0 <= self.hour <= 23,
            "max_per_hour must be from 1 to 1000": not 1 <= self.max_per_hour <= 1000,
            "timeout_s must be from 1 to 120": not 1.0 <= self.timeout_s <= 120.0,
        }
        for message, is_wrong in wrong.items():
            if is_wrong:
                raise ValueError(message)

    @property
    def recipients(self) -> tuple[str, ...]:
        """The addresses of the administrators."""
        return _names(self.mail_to)

    @property
    def kinds(self) -> frozenset[NoticeKind]:
        """The events that are sent."""
        return frozenset(map(NoticeKind, _names(self.events)))

    @property
    def reaches_administrators(self) -> bool:
        """Whether any notice for administrators has a target."""
        return bool(self.recipients or self.webhook)

    @property
    def reaches_users(self) -> bool:
        """Whether users get mails."""
        return self.users != OFF

    def reaches(self, wants_mail: Iterable[bool]) -> bool:
        """Return whether a user gets a mail, by whether each of the jobs asks for it."""
        return self.users == ALL or any(wants_mail)

    def digest_due_since(self, now: float) -> float | None:
        """Return the last instant at which a digest was due; None if there is none."""
        if self.digest == OFF or not self.reaches_administrators:
            return None
        day = (_WEEKDAYS.index(self.digest) - _EPOCH_WEEKDAY) % len(_WEEKDAYS)
        return _last(now, WEEK_S, day * DAY_S + self.hour * HOUR_S)

    def users_due_since(self, now: float) -> float | None:
        """Return the last instant at which mails to users were due; None if they get none."""
        return _last(now, DAY_S, self.hour * HOUR_S) if self.reaches_users else None

    def address_of_user(self, user: str) -> str | None:
        """Return the address of a Unix user; None for a name that no mail system should see."""
        if not _USER.fullmatch(user):
            return None
        return f"{user}@{self.user_domain}" if self.user_domain else user


def check_url(url: str, key: str, example: str, *, with_user: bool = False) -> None:
    """Raise `ValueError` for a URL of a key that is neither https nor http on a loopback address, or names a user."""
    if not (url.isascii() and url.isprintable() and " " not in url and len(url) <= 2000):
        raise ValueError(f"{key} must be a URL in ASCII")
    parts = urlsplit(url)
    host = parts.hostname or ""
    if (parts.username is not None and not with_user) or not host or parts.scheme not in ("http", "https"):
        raise ValueError(f"{key} must be a URL such as {example}, without a user name")
    if parts.port == 0:  # above 65535 it raises ValueError by itself
        raise ValueError(f"{key} must name a port above 0")
    if parts.scheme == "http" and not is_loopback(host):
        raise ValueError(f"{key} must be https, or http on a loopback address such as 127.0.0.1")


def check_webhook(url: str) -> None:
    """Raise `ValueError` for what is no URL of a webhook."""
    check_url(url, "webhook", "https://chat.example.org/hooks/TOKEN")


def is_loopback(host: str) -> bool:
    """Return whether a host is a numeric loopback address; names are not resolved."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _last(now: float, period_s: float, offset_s: float) -> float:
    """Return the last instant that lies an offset after the begin of a period."""
    return (now - offset_s) // period_s * period_s + offset_s
