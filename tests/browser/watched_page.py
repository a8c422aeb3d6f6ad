"""A page in the browser, with what it does wrong."""

from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Page, Request

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
