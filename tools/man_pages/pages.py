"""The whole manual, page by page."""

from advisor import __version__
from tools.man_pages.commands import command_pages
from tools.man_pages.reference import configuration_page, daemon_page
from tools.man_pages.roff import render


def man_pages(built_time: float) -> dict[str, str]:
    """Map the file name of every page, such as `sadvise.1`, to its text; `built_time` gives its date."""
    pages = [*command_pages(), configuration_page(), daemon_page()]
    return {page.file_name: render(page, version=__version__, built_time=built_time) for page in pages}
