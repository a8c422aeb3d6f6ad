"""Writes HTML with the templates beside it, which escape every text, so that no name of a trace can become markup."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from advisor.text import escaped
from advisor.view.assets import CHART_SCRIPTS, CHART_STYLE, STYLE, TABLE_SCRIPT, content_policy, inlined

if TYPE_CHECKING:
    from jinja2 import Environment

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
