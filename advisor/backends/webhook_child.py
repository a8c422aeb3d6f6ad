"""Runs as a process of its own: posts one document to a webhook, and prints what went wrong, "" for nothing."""

import http.client
import json
import sys
from http import HTTPStatus
from typing import IO, Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

AGENT: Final = "sadvise"


class _NoRedirects(HTTPRedirectHandler):
    """Takes a redirect for what it is: no acceptance."""

    def redirect_request(
        self, _req: Request, _fp: IO[bytes], _code: int, _msg: str, _headers: http.client.HTTPMessage, _newurl: str
    ) -> None:
        """Follow no redirect: the document is for the address in the settings alone."""


def fetched(request: Request, timeout_s: float, most_bytes: int = 0) -> tuple[bytes, str]:
    """Return the answer to a request up to one byte above a limit, nothing without one, and why there was none."""
    try:
        with build_opener(_NoRedirects).open(request, timeout=timeout_s) as response:
            return response.read(most_bytes + 1) if most_bytes else b"", ""
    except HTTPError as err:
        known = err.code in set(HTTPStatus)
        return b"", f"answered {err.code}{f' {HTTPStatus(err.code).phrase}' if known else ''}"
    except URLError as err:
        return b"", str(err.reason)
    except TimeoutError:
        return b"", f"gave no answer within {timeout_s:g} s"
    except (OSError, http.client.HTTPException) as err:
        return b"", f"gave no answer in HTTP: {type(err).__name__}"


def fault_of(url: str, document: dict[str, object], timeout_s: float) -> str:
    """Post a document, and return why it was not accepted, "" if it was."""
    request = Request(  # noqa: S310  (the scheme was checked with the settings)
        url,
        data=json.dumps(document).encode(),
        headers={"Content-Type": "application/json; charset=utf-8", "User-Agent": AGENT},
        method="POST",
    )
    return fetched(request, timeout_s)[1]


def main() -> None:
    """Read a task, post its document, and print the fault as JSON."""
    task = json.load(sys.stdin)
    json.dump({"fault": fault_of(task["url"], task["document"], task["timeout_s"])}, sys.stdout)


if __name__ == "__main__":
    main()
