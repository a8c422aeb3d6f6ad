"""Renews the pictures of the web view: python -m tests.browser.write [PAGE ...], and look at each."""

import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from playwright.sync_api import sync_playwright

from advisor.settings import WebSettings
from tests.browser.conftest import ARGUMENTS
from tests.browser.pictures import PAGES, SITE_PAGES, keep, shown, taken, views_of
from tests.needs import path_of
from tests.web.stage import in_utc, serving, set_up, staged_site


def main(names: Collection[str]) -> None:
    """Take the pictures of some pages, by default of all."""
    with in_utc(), tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        stage = set_up(Path(folder))
        served = ((stage.content(), PAGES), (staged_site(Path(folder), stage), SITE_PAGES))
        browser = playwright.chromium.launch(executable_path=path_of("chromium"), args=list(ARGUMENTS))
        page = browser.new_page()
        for content, pages in served:
            with serving(content, WebSettings(listen="127.0.0.1:0")) as address:
                for name in [name for name in pages if name in (names or pages)]:
                    page.goto(f"http://127.0.0.1:{address[1]}{pages[name]}")
                    for view in views_of(name):
                        shown(page, view)
                        keep(taken(page), view.file)
                        print(view.file.relative_to(Path.cwd()), view.file.stat().st_size)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
