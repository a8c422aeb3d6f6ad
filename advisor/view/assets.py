"""Scripts and styles of pages, which stand in files of the package."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

STYLE: Final = "style.css"
CHART_STYLE: Final = "charts.css"
CHART_SCRIPTS: Final = ("chart.umd.min.js", "charts.js")
TABLE_SCRIPT: Final = "tables.js"
# Every file that a page can ask for, with its type.
TYPES: Final = {
    **dict.fromkeys((STYLE, CHART_STYLE), "text/css; charset=utf-8"),
    **dict.fromkeys((*CHART_SCRIPTS, TABLE_SCRIPT), "text/javascript; charset=utf-8"),
}
_SOURCE_MAP: Final = "\n//# sourceMappingURL="


@cache
def asset(name: str) -> str:
    """Return the text of a file in `TYPES`."""
    return (files("advisor.view") / "static" / name).read_text(encoding="utf-8")


def inlined(name: str) -> str:
    """Return a file as it stands inside a page: without the address of its source map, which is not there."""
    return asset(name).partition(_SOURCE_MAP)[0]


def content_policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Return the Content-Security-Policy of a page that runs and applies only these inline texts."""
    return (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hashes(texts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
