"""A real headless Chromium, Debian's, driven by Playwright."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.watched_page import WatchedPage

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
