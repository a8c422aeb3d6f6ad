"""Runs as a process of its own: puts queries to a Prometheus, and prints their answers, or what went wrong."""

import json
import sys
from base64 import b64encode
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import Request

from advisor.backends.webhook_child import AGENT, fetched

# A vector of ten thousand GPUs has two million bytes.
MOST_BYTES: Final = 16 << 20


def answers_of(url: str, queries: Sequence[str], timeout_s: float) -> tuple[list[str], str]:
    """Return the answers to instant queries, and why there is none, "" if there is one for each."""
    answers = []
    for query in queries:
        body, fault = fetched(_request(url, query, timeout_s), timeout_s, MOST_BYTES)
        if not fault and len(body) > MOST_BYTES:
            fault = f"answered with more than {MOST_BYTES} bytes, which sadvise does not read"
        if fault:
            return [], fault
        answers.append(body.decode("utf-8", "replace"))
    return answers, ""


def _request(url: str, query: str, timeout_s: float) -> Request:
    """Return the request of a query, with the user and password of the URL as a header."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    where = parts._replace(netloc=host, path=f"{parts.path.rstrip('/')}/api/v1/query", query="", fragment="").geturl()
    secret = {"Authorization": f"Basic {b64encode(unquote(user).encode()).decode()}"} if at else {}
    return Request(  # noqa: S310  (the scheme was checked with the settings)
        f"{where}?{urlencode({'query': query, 'timeout': f'{timeout_s:g}s'})}",
        headers={"Accept": "application/json", "User-Agent": AGENT, **secret},
    )


def main() -> None:
    """Read a task, ask, and print the answers and the fault as JSON."""
    task = json.load(sys.stdin)
    answers, fault = answers_of(task["url"], task["queries"], task["timeout_s"])
    json.dump({"answers": answers, "fault": fault}, sys.stdout)


if __name__ == "__main__":
    main()
