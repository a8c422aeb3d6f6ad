"""The web view in a real browser: quiet, accessible, as its pictures show it, by keyboard, and refreshed in place."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from advisor.settings import WebSettings
from tests.browser.conftest import Open
from tests.browser.pictures import (
    FOLDER,
    MOST_DIFFERENT,
    PAGES,
    PHONE,
    SITE_PAGES,
    View,
    difference,
    shown,
    taken,
    views_of,
)
from tests.web.stage import FRONTIER, in_utc, serving, set_up, staged_site

# On busy machines, a page that is asked for can take its time.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a web view of the staged cluster."""
    with in_utc():
        content = set_up(tmp_path_factory.mktemp("web")).content()
        with serving(content, WebSettings(listen="127.0.0.1:0")) as bound:
            yield f"http://127.0.0.1:{bound[1]}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a web view of four staged clusters."""
    folder = tmp_path_factory.mktemp("site")
    with in_utc(), serving(staged_site(folder, set_up(folder)), WebSettings(listen="127.0.0.1:0")) as bound:
        yield f"http://127.0.0.1:{bound[1]}"


@pytest.mark.parametrize("name", [*PAGES, *SITE_PAGES])
def test_page_is_quiet_accessible_and_as_its_pictures(open_page: Open, address: str, site: str, name: str) -> None:
    opened = open_page(address + PAGES[name] if name in PAGES else site + SITE_PAGES[name])

    # Errors on the console and requests to other hosts fail in the fixture.
    for view in [*views_of(name), View(name, "dark", is_phone=True)]:
        shown(opened.page, view)
        assert opened.overflow() <= 0, view
        # What axe finds does not change with the size of the window alone.
        assert (view.scheme == "light" and view.is_phone) or opened.serious_violations() == [], view
        if view.file.exists():
            assert difference(taken(opened.page), Image.open(view.file)) < MOST_DIFFERENT, view


def test_every_picture_is_kept_and_another_page_would_be_found() -> None:
    files = [view.file for name in (*PAGES, *SITE_PAGES) for view in views_of(name)]

    assert sorted(FOLDER.glob("*.png")) == sorted(files)
    assert sum(file.stat().st_size for file in files) < 1_500_000
    assert difference(Image.open(files[0]), Image.open(files[1])) > 0.5
    assert difference(Image.open(FOLDER / "line-light.png"), Image.open(FOLDER / "changes-light.png")) > MOST_DIFFERENT


def test_long_names_of_settings_stay_beside_their_values(open_page: Open, tmp_path: Path) -> None:
    text = FRONTIER.read_text().replace('"lift user, pin"', '"lift trade 0, pin, bf_min_age_reserve=259200"')
    (tmp_path / "frontier.json").write_text(text)
    settings = WebSettings(listen="127.0.0.1:0", frontier_file=str(tmp_path / "frontier.json"))

    with in_utc(), serving(replace(set_up(tmp_path), settings=settings).content(), settings) as bound:
        page = open_page(f"http://127.0.0.1:{bound[1]}/frontier").page
        page.set_viewport_size({"width": 1180, "height": 800})
        cut = page.evaluate(
            "() => [...document.querySelectorAll('#frontier, .frontier th, .lines dt')]"
            ".filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent.trim())"
        )

    assert cut == []


def test_line_is_searched_and_sorted_by_keyboard(open_page: Open, address: str) -> None:
    page = open_page(f"{address}/line").page

    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(page.locator(":focus")).to_have_id("main")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_id("by-q")
    page.keyboard.type("llama")
    page.keyboard.press("Enter")
    expect(page.locator("#matching")).to_contain_text("that match")
    page.locator("#sort-wait").press("Enter")
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("waits ▲")
    page.locator("#sort-wait").press("Enter")
    expect(page.locator("th[aria-sort=descending]")).to_have_text("waits ▼")
    assert set(page.locator("td.name").evaluate_all("cells => cells.map(cell => cell.textContent.split('-')[0])")) == {
        "llama"
    }


def test_reader_goes_to_another_cluster_by_keyboard_and_stays_on_the_page(open_page: Open, site: str) -> None:
    opened = open_page(f"{site}/clusters/aurora/advice")
    page = opened.page
    named = page.get_by_role("navigation", name="Clusters").get_by_role("link", name="borealis")

    assert opened.serious_violations() == []
    named.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site}/clusters/borealis/advice")
    expect(page.locator("[aria-current=true]")).to_have_text("borealis")
    page.locator("#cluster-all").press("Enter")
    expect(page).to_have_url(f"{site}/")
    # It refreshes in place as other pages do, though it has no pages of a cluster.
    page.clock.install()
    page.reload()
    page.locator("#refresh").press("Enter")
    page.get_by_role("link", name="corona").last.focus()
    page.evaluate("document.querySelector('h1').textContent = 'old'")
    with page.expect_response(f"{site}/"):
        page.clock.fast_forward(61_000)
    expect(page.locator("h1")).to_have_text("Clusters")
    expect(page.locator(":focus")).to_have_text("corona")


def test_refresh_is_off_for_little_motion_and_keeps_the_readers_place(open_page: Open, address: str) -> None:
    page = open_page(f"{address}/advice").page
    page.clock.install()
    page.reload()
    button = page.locator("#refresh")
    expect(button).to_have_text("○ refresh is off")
    button.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "true")
    page.locator("details summary").first.press("Enter")
    link = page.locator("article a").nth(3)
    text = link.text_content()
    link.focus()
    page.evaluate("document.querySelector('h1').textContent = 'old'")
    page.evaluate("scrollTo(0, 400)")

    with page.expect_response(f"{address}/advice"):
        page.clock.fast_forward(61_000)
    expect(page.locator("h1")).to_have_text("Advice")

    expect(page.locator(":focus")).to_have_text(text or "")
    assert page.locator("details").first.evaluate("details => details.open")
    assert page.evaluate("scrollY") == 400
    expect(button).to_have_attribute("aria-pressed", "true")


def test_charts_are_drawn_again_only_where_their_data_changed(open_page: Open, address: str) -> None:
    opened = open_page(f"{address}/gains", reduced_motion="no-preference")
    page = opened.page
    page.clock.install()
    page.reload()
    page.evaluate("document.querySelector('canvas').dataset.kept = 'yes'")

    with page.expect_response(f"{address}/gains"):
        page.clock.fast_forward(61_000)
    page.wait_for_function("document.querySelector('main').firstElementChild.isConnected")

    assert page.locator("canvas").get_attribute("data-kept") == "yes"
    assert opened.inked_pixels()[0] > 1000


def test_commands_are_copied(open_page: Open, address: str) -> None:
    page = open_page(f"{address}/advice", permissions=["clipboard-read", "clipboard-write"]).page
    command = page.locator(".command code").first.text_content()

    page.locator(".copy").first.click()

    expect(page.locator("#said")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == command


def test_pages_are_whole_without_a_script(open_page: Open, address: str) -> None:
    page = open_page(f"{address}/gains", java_script_enabled=False, viewport=PHONE).page

    expect(page.locator("#by-day tbody tr")).to_have_count(14)
    expect(page.locator("#refresh")).to_be_hidden()
