"""Puts notices into the forms in which they are sent: a mail, and the JSON document of a webhook."""

import re
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from typing import Any, Final

from advisor import __version__
from advisor.domain.notice import Notice
from advisor.text import escaped

SCHEMA: Final = "sadvise.notice/1"
_SUBJECT_LENGTH: Final = 150
_WIDTH: Final = 76
_MOST_BYTES: Final = 64 << 10
# A chat takes these for markup, or for the name of a person or a group to alert.
_NEUTRAL: Final = str.maketrans({"<": "(", ">": ")", "@": "(at)"})
# Spaces, and a label that is followed by two spaces or more.
_INDENT: Final = re.compile(r" *(?:\S+ {2,})?")
_FOOTER: Final = "-- \nsadvise {version}; settings: [notify] in sadvise.toml"


def mail_of(notice: Notice, recipients: Sequence[str], *, sender: str) -> bytes:
    """Return a notice as a mail in plain text; what cannot be printed is escaped, so that no text adds a header."""
    mail = EmailMessage(policy=SMTP.clone(linesep="\n"))
    mail["From"] = sender
    mail["To"] = ", ".join(recipients)
    mail["Subject"] = subject_of(notice)
    mail["Date"] = format_datetime(datetime.fromtimestamp(notice.time, UTC))
    mail["Message-ID"] = make_msgid(domain="sadvise.invalid")
    # Keeps answering machines from answering (RFC 3834).
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Sadvise-Notice"] = str(notice.kind)
    mail.set_content(body_of(notice), charset="utf-8", cte="quoted-printable")
    return mail.as_bytes()


def subject_of(notice: Notice) -> str:
    """Return the subject on one line."""
    cluster = f" {notice.cluster}" if notice.cluster else ""
    return _cut(escaped(f"[sadvise{cluster}] {notice.subject}"), _SUBJECT_LENGTH)


def body_of(notice: Notice) -> str:
    """Return the text of a mail, in lines of 76 characters where words allow."""
    lines = [*notice.text.split("\n"), *notice.named_lines]
    wrapped = (_wrapped(escaped(line)) for line in lines)
    return _cut("\n".join(wrapped), _MOST_BYTES) + "\n\n" + _FOOTER.format(version=__version__) + "\n"


def webhook_document(notice: Notice) -> dict[str, Any]:
    """Return a notice as a webhook gets it; `text` can be shown by a chat as it is."""
    text = "\n".join(escaped(line) for line in (notice.subject, *notice.text.split("\n")))
    return {
        "schema": SCHEMA,
        "version": __version__,
        "kind": str(notice.kind),
        "time": notice.time,
        "cluster": escaped(notice.cluster),
        "subject": escaped(notice.subject),
        "text": _cut(text, _MOST_BYTES).translate(_NEUTRAL),
        "figures": {
            name: escaped(figure) if isinstance(figure, str) else figure for name, figure in notice.figures.items()
        },
    }


def _wrapped(line: str) -> str:
    indent = " " * len(_INDENT.match(line)[0])  # type: ignore[index]  # it matches every line
    return textwrap.fill(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
