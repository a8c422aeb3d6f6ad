"""Pictures of web pages: taken, kept, and compared so that a difference of fonts by a shade does not count."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Final, Literal, NamedTuple

from PIL import Image, ImageChops
from playwright.sync_api import Page

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
