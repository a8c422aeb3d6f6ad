"""Renews the pictures of the web view: python -m tests.browser.write, and look at each."""

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from advisor.settings import WebSettings
from tests.browser.conftest import ARGUMENTS
from tests.browser.pictures import PAGES, keep, shown, taken, views_of
from tests.programs import found
from tests.web.serving import in_utc, serving
from tests.web.stage import set_up


def main() -> None:
    """Take every picture that is kept."""
    with in_utc(), tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        content = set_up(Path(folder)).content()
        browser = playwright.chromium.launch(executable_path=found("chromium", "chromium"), args=list(ARGUMENTS))
        page = browser.new_page()
        with serving(content, WebSettings(listen="127.0.0.1:0")) as address:
            for name, path in PAGES.items():
                page.goto(f"http://127.0.0.1:{address[1]}{path}")
                for view in views_of(name):
                    shown(page, view)
                    keep(taken(page), view.file)
                    print(view.file.relative_to(Path.cwd()), view.file.stat().st_size)
        browser.close()


if __name__ == "__main__":
    main()
