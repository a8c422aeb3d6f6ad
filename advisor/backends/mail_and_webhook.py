"""Hands mails to the site's `sendmail`, and posts documents to a webhook, from a process that ends at a deadline."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from advisor.backends.child import run_module
from advisor.backends.process import Deadline, ProgramEnd, printable, run_to_end, text_of
from advisor.domain.notice import check_webhook
from advisor.errors import NoticeError, SlurmError, SlurmUnavailableError
from advisor.files import read_bounded

# Programs find the configuration of the mail system and the user by these; the secrets of others stay here.
_KEPT_VARIABLES: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ")
_OUTPUT_BYTES: Final = 1 << 16
_MODULE: Final = "advisor.backends.webhook_child"
# The process takes this long to start and to end.
_SPARE_S: Final = 3.0
_MOST_BYTES: Final = 4096


def send_mail(
    program: str,
    mail: bytes,
    recipients: Sequence[str],
    *,
    sender: str,
    timeout_s: float,
    patience: Deadline | None = None,
) -> None:
    """Hand a mail to a program that takes the options of sendmail; raises `NoticeError` if it does not accept it.

    The recipients are arguments after `--`, so that no header of the mail adds one and none counts as an option.
    """
    argv = (program, "-i", "-f", sender, "--", *recipients)
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    try:
        ended = run_to_end(
            argv, environment, timeout_s=timeout_s, limit_bytes=_OUTPUT_BYTES, patience=patience, content=mail
        )
    except SlurmError as err:
        raise NoticeError(f"mail: {err}") from err
    if ended.status != 0:
        raise NoticeError(f"mail: {program} {_why(ended, timeout_s)}")


def _why(ended: ProgramEnd, timeout_s: float) -> str:
    message = printable(text_of(ended.complaints or ended.output)) or "it gave no reason"
    if ended.status is None:
        return f"took no mail within {timeout_s:g} s"
    if ended.status < 0:
        return f"was ended by signal {-ended.status}: {message}"
    return f"refused a mail with exit status {ended.status}: {message}"


def post(url: str, document: dict[str, object], *, timeout_s: float, patience: Deadline | None = None) -> None:
    """Post a document as JSON; raises `NoticeError` unless the answer is 2xx.

    Redirects are not followed. Names cannot be looked up and answers cannot be read for longer than the limit, since
    the process that does it is killed. Errors name the host and never the rest of the URL, which can hold a secret.
    """
    host = urlsplit(url).hostname or ""
    task = json.dumps({"url": url, "document": document, "timeout_s": timeout_s}).encode()
    try:
        answer = json.loads(run_module(_MODULE, task, patience, limit_s=timeout_s + _SPARE_S))
    except SlurmUnavailableError as err:
        raise NoticeError(f"webhook: {host} gave no answer within {timeout_s:g} s") from err
    except (SlurmError, ValueError) as err:
        raise NoticeError(f"webhook: the process that posts to {host} failed") from err
    if fault := answer["fault"]:
        raise NoticeError(f"webhook: {host}: {printable(str(fault))}")


def webhook_url(setting: str) -> str:
    """Return the URL that a setting holds, or the file that it names; raises `NoticeError` where there is none."""
    if not setting.startswith("/"):
        return setting
    try:
        url = read_bounded(Path(setting), _MOST_BYTES).decode().strip()
        check_webhook(url)
    except OSError as err:
        raise NoticeError(f"webhook: {setting}: cannot be read: {err.strerror}") from err
    except ValueError as err:
        # Not the reason of the parser, which can quote the URL.
        raise NoticeError(f"webhook: {setting}: holds no URL that is https, or http on a loopback address") from err
    return url
