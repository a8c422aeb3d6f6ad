"""Words the notices of a round, and puts notices into the forms in which they are sent: a mail, and a JSON document."""

import re
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from typing import Any, Final

from advisor import __version__
from advisor.diagnose.survey import stopped_partitions
from advisor.domain.lease import Lease
from advisor.domain.mode import Mode
from advisor.domain.notice import Notice, NoticeKind
from advisor.domain.overview import StoppedPartition
from advisor.domain.units import plural
from advisor.guard.breakers import OpenBreaker
from advisor.metrics.round import Round
from advisor.text import escaped
from advisor.view.breaker_words import stop_line
from advisor.view.terminal import stopped_sentence

_MOST_JOBS: Final = 20


def round_notices(done: Round, kinds: frozenset[NoticeKind], mode_before: Mode | None) -> list[Notice]:
    """Return the notices of some kinds about a round; those about what lasts recur in every round, with one topic.

    A change of the mode by nothing but a breaker is left to the notice about the breaker.
    """
    stopped = () if done.step is None else stopped_partitions(done.step.record.snapshot)
    notices = [
        *(_breaker(breaker, done) for breaker in done.breakers),
        *(_partition(partition, done) for partition in stopped if partition.idle_gpus),
        *([_overrule(leases, done)] if (leases := done.reconciled.overruled) else []),
    ]
    if mode_before is not None and mode_before is not done.mode:
        names = {breaker.name for breaker in done.breakers}
        by_breaker = bool(done.held_to) and done.held_to.keys() <= names and NoticeKind.BREAKER_OPENED in kinds
        notices += [] if by_breaker else [_mode(done, mode_before)]
    return [notice for notice in notices if notice.kind in kinds]


def cluster_of(done: Round) -> str:
    """Return the name of the cluster of a round; "" if nothing was read."""
    return "" if done.step is None else done.step.record.snapshot.config.cluster


def trial_notice(now: float) -> Notice:
    """Return the notice that tries the targets."""
    return Notice(
        kind=NoticeKind.TEST,
        time=now,
        subject="test notice",
        text="This is a test of the notices of sadvise, sent by `sadvise notify --test`.\nNothing has happened.",
    )


def summed_up(counts: dict[str, int], now: float) -> Notice:
    """Return one notice for those that were above the hourly bound; `counts` maps kinds to numbers."""
    total = sum(counts.values())
    parts = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return Notice(
        kind=NoticeKind.SUMMED_UP,
        time=now,
        subject=f"{plural(total, 'more notice')} in the last hour",
        text=f"{plural(total, 'more notice')} in the last hour, above the bound (notify.max_per_hour): {parts}.\n"
        "To do: `sadvise status` and `sadvise journal` show what happened.",
        figures=dict(counts),
    )


def _of_round(kind: NoticeKind, done: Round, **facts: Any) -> Notice:
    return Notice(kind=kind, time=done.started_time, cluster=cluster_of(done), **facts)


def _breaker(breaker: OpenBreaker, done: Round) -> Notice:
    return _of_round(
        NoticeKind.BREAKER_OPENED,
        done,
        topic=f"breaker {breaker.name}",
        value=f"{breaker.opened_time:.0f}",
        subject=f"circuit breaker {breaker.name} is open: nothing is applied",
        text=_sentence(stop_line(breaker)),
        figures={"breaker": breaker.name, "cause": breaker.cause, "opened_time": breaker.opened_time},
    )


def _partition(partition: StoppedPartition, done: Round) -> Notice:
    return _of_round(
        NoticeKind.PARTITION_DOWN,
        done,
        topic=f"partition {partition.name}",
        value="down",
        subject=f"partition {partition.name} is not up, and {plural(partition.idle_gpus, 'GPU')} idle",
        text=_sentence(stopped_sentence(partition)),
        figures={
            "partition": partition.name,
            "idle_gpus": partition.idle_gpus,
            "pending_jobs": partition.pending_jobs,
            "pending_gpus": partition.pending_gpus,
        },
    )


def _overrule(leases: tuple[Lease, ...], done: Round) -> Notice:
    jobs = sorted({lease.job_id for lease in leases})
    shown = ", ".join(map(str, jobs[:_MOST_JOBS])) + (", ..." if len(jobs) > _MOST_JOBS else "")
    levers = ", ".join(sorted({str(lease.lever) for lease in leases}))
    return _of_round(
        NoticeKind.CHANGE_OVERRULED,
        done,
        subject=f"{plural(len(leases), 'change')} overruled",
        text=f"A user or an administrator has set another value for {plural(len(leases), 'change')} of sadvise "
        f"({levers}) on {plural(len(jobs), 'job')}: {shown}. These jobs are left alone from now on.\n"
        f"To do: `sadvise journal changes` shows them; if the objection is right, restrict [mode] or [guard].",
        figures={"changes": len(leases), "jobs": len(jobs), "job_ids": shown, "levers": levers},
    )


def _mode(done: Round, before: Mode) -> Notice:
    reasons = "\n".join(f"  {reason}" for reason in done.held_to.values())
    why = f" because of this:\n{reasons}" if reasons else ", as configured."
    return _of_round(
        NoticeKind.MODE_CHANGED,
        done,
        subject=f"mode {done.mode}, {before} before",
        text=f"The mode of the daemon is {done.mode} now, and was {before},{why.lstrip(',')}\n"
        "To do: `sadvise status` shows what holds it.",
        figures={"before": str(before), "after": str(done.mode), "held_by": ", ".join(sorted(done.held_to))},
    )


def _sentence(line: str) -> str:
    """Return a line with what to do on a line of its own."""
    what, separator, to_do = line.partition("; to do: ")
    return f"{what[:1].upper()}{what[1:]}.\nTo do: {to_do}." if separator else f"{what[:1].upper()}{what[1:]}."


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
