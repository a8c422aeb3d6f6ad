"""Writes HTML with the templates beside it, which escape every text, and with the scripts and styles of the package."""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from advisor.domain.dataclass import dataclass
from advisor.text import escaped

if TYPE_CHECKING:
    from jinja2 import Environment


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


_MEASURES: Final = re.compile(r"([+-]?\d[\d.,]* (?:%|s|min|h|d|jobs?|users?)(?!\w))")


class TableCell(NamedTuple):
    """A cell with a tone, or with a figure in a unit that its whole column has, by which the column is sorted."""

    text: str
    value: float | None = None
    tone: str = ""

    @property
    def key(self) -> str:
        """The figure for the script that sorts; "", which comes last, for what is no number."""
        return "" if self.value is None or self.value != self.value else f"{self.value:.9g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table whose first column names its rows.

    `is_sortable` lets readers sort the rows by any column; `text_columns` hold words instead of figures.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str | TableCell]]
    is_sortable: bool = False
    text_columns: Sequence[int] = ()

    def __html__(self) -> str:
        """Return the table as HTML, which templates do not escape again."""
        return rendered("table.html", made=self)


def page(template: str, **values: object) -> str:
    """Return a whole page that needs nothing but itself as text; it has the scripts of charts and tables."""
    style, scripts = inlined(STYLE) + inlined(CHART_STYLE), [inlined(name) for name in (*CHART_SCRIPTS, TABLE_SCRIPT)]
    policy = content_policy([style], scripts)
    return rendered(template, style=style, scripts=scripts, policy=policy, **values)


def rendered(template: str, **values: object) -> str:
    """Return what a template makes of values."""
    return _templates().get_template(template).render(values)


def shown(value: object) -> object:
    """Return what a template prints: a text without characters that control or reorder what is read."""
    return escaped(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


@cache
def _templates() -> "Environment":
    """Return the templates; Jinja is imported for the first page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        autoescape=True,
        finalize=shown,
        keep_trailing_newline=True,
        loader=PackageLoader("advisor.view"),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    # Splits a sentence, so that no line ends between a number and its unit.
    templates.filters["measures"] = _MEASURES.split
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return templates
