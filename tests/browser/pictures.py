"""Pictures of web pages: taken, kept, and compared so that a difference of fonts by a shade does not count.

`python -m tests.browser.pictures [PAGE ...]` renews those of the web view; look at each.
"""

import sys
import tempfile
from collections.abc import Collection, Iterator
from io import BytesIO
from pathlib import Path
from typing import Final, Literal, NamedTuple

from PIL import Image, ImageChops
from playwright.sync_api import Page, sync_playwright

from advisor.settings import WebSettings
from tests.browser.conftest import ARGUMENTS
from tests.needs import path_of
from tests.web.stage import in_utc, serving, set_up, staged_site

FOLDER: Final = Path(__file__).parent / "pictures"
PAGES: Final = {
    "cluster": "/",
    "line": "/line?size=25",
    "job": "/jobs/9",
    "advice": "/advice",
    "changes": "/changes",
    "gains": "/gains",
    "frontier": "/frontier",
    "models": "/models",
    "daemon": "/daemon",
}
# Where several clusters are served.
SITE_PAGES: Final = {"clusters": "/"}
ON_PHONES: Final = ("cluster", "line", "advice", "clusters")
DESKTOP: Final = {"width": 1280, "height": 800}
PHONE: Final = {"width": 375, "height": 800}
# Pixels are compared as the mean of a square of this size, and count if a colour differs by more than this.
_SQUARE: Final = 4
_SHADE: Final = 40
MOST_DIFFERENT: Final = 0.02
_COLOURS: Final = 96


class View(NamedTuple):
    """A page as it is seen."""

    name: str
    scheme: Literal["light", "dark"]
    is_phone: bool

    @property
    def file(self) -> Path:
        """The picture that is kept."""
        return FOLDER / f"{self.name}-{self.scheme}{'-phone' if self.is_phone else ''}.png"


def views_of(name: str) -> Iterator[View]:
    """Yield the views of a page of which pictures are kept."""
    yield View(name, "light", is_phone=False)
    yield View(name, "dark", is_phone=False)
    if name in ON_PHONES:
        yield View(name, "light", is_phone=True)


def shown(page: Page, view: View) -> None:
    """Show a page that is open in a view, as one who opens it there sees it."""
    page.set_viewport_size(PHONE if view.is_phone else DESKTOP)  # type: ignore[arg-type]
    page.emulate_media(color_scheme=view.scheme, reduced_motion="reduce")
    page.reload()
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def taken(page: Page) -> Image.Image:
    """Take a picture of what is in the window."""
    return Image.open(BytesIO(page.screenshot(animations="disabled", caret="hide"))).convert("RGB")


def keep(picture: Image.Image, file: Path) -> None:
    """Keep a picture with few colours, so that it is small."""
    file.parent.mkdir(exist_ok=True)
    few = picture.quantize(_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(file, optimize=True)


def difference(one: Image.Image, other: Image.Image) -> float:
    """Return the share of squares in which two pictures differ; all of them if their sizes do."""
    if one.size != other.size:
        return 1.0
    small = (max(1, one.width // _SQUARE), max(1, one.height // _SQUARE))
    parts = [picture.convert("RGB").resize(small, Image.Resampling.BOX) for picture in (one, other)]
    apart = ImageChops.difference(*parts).convert("RGB")
    largest = ImageChops.lighter(ImageChops.lighter(*apart.split()[:2]), apart.split()[2])
    counts = largest.histogram()
    return sum(counts[_SHADE:]) / sum(counts)


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
