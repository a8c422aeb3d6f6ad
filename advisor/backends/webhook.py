"""Posts documents to a webhook, from a process of its own that is killed at a deadline."""

import json
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from advisor.backends.child import run_module
from advisor.backends.process import Deadline, printable
from advisor.domain.notice import check_webhook
from advisor.errors import NoticeError, SlurmError, SlurmUnavailableError
from advisor.files import read_bounded

_MODULE: Final = "advisor.backends.webhook_child"
# The process takes this long to start and to end.
_SPARE_S: Final = 3.0
_MOST_BYTES: Final = 4096


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
