"""A real headless Chromium, Debian's, driven by Playwright."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

SERIOUS = frozenset(["serious", "critical"])
# Counts the pixels of a canvas that are drawn: those that are not transparent.
_INKED = """canvas => {
    const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return pixels.reduce((sum, pixel) => sum + (pixel ? 1 : 0), 0);
}"""


class WatchedPage:
    """Notes errors on the console, and requests to other hosts than that of `url`."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.faults: list[str] = []
        self._origin = urlsplit(url)[:2]
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.faults.append(f"script error: {error}"))
        page.on("request", self._note_request)
        page.goto(url)

    def _note_message(self, message: ConsoleMessage) -> None:
        # Refusals by the Content-Security-Policy are among them.
        if message.type == "error":
            self.faults.append(f"console: {message.text}")

    def _note_request(self, request: Request) -> None:
        if urlsplit(request.url)[:2] != self._origin and not request.url.startswith("data:"):
            self.faults.append(f"request: {request.url}")

    def serious_violations(self) -> list[tuple[str, list[Any]]]:
        """Return the rules of axe that the page breaks seriously, with the elements concerned."""
        violations = Axe().run(self.page).response["violations"]
        return [
            (violation["id"], [node["target"] for node in violation["nodes"]])
            for violation in violations
            if violation["impact"] in SERIOUS
        ]

    def inked_pixels(self) -> list[int]:
        """Return for each canvas how many of its pixels are drawn."""
        return [int(canvas.evaluate(_INKED)) for canvas in self.page.query_selector_all("canvas")]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


# No sandbox: tests may run as root. The rest keeps the browser from asking the network for things of its own.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
Open = Callable[..., WatchedPage]


# Not for the session: Playwright's event loop runs until it ends, and other tests run loops of their own.
@pytest.fixture(scope="package")
def browser(need: Callable[[str], Path]) -> Iterator[Browser]:
    """One Chromium for all tests of this folder."""
    program = need("chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open a page in a browser profile of its own: `open_page(url, color_scheme="dark", viewport={...})`.

    Motion is reduced unless the test asks otherwise, so that what is drawn is drawn at once. The test fails if a page
    has written an error to the console, or has asked for another host than its own.
    """
    opened: list[WatchedPage] = []

    def open_one(url: str, **options: object) -> WatchedPage:
        context = browser.new_context(**{"reduced_motion": "reduce", **options})  # type: ignore[arg-type]
        watched = WatchedPage(context.new_page(), url)
        opened.append(watched)
        return watched

    yield open_one
    for watched in opened:
        watched.page.context.close()
    assert [watched.faults for watched in opened] == [[] for _ in opened]
