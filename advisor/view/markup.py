"""HTML made of elements, so that no text of a trace can become markup."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element, tostring

from advisor.text import escaped
from advisor.view.assets import CHART_SCRIPTS, CHART_STYLE, STYLE, TABLE_SCRIPT, content_policy, inlined

Child = Element | str

# Tables with as many rows get a field that filters them.
_FILTERED_ROWS: Final = 10

_MEASURES: Final = re.compile(r"([+-]?\d[\d.,]* (?:%|s|min|h|d|jobs?|users?)(?!\w))")

_HEAD: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
"""


class Number(NamedTuple):
    """A cell with a figure, by which its column is sorted, in a unit that the whole column has."""

    text: str
    value: float


Cell = Child | Number


def element(tag: str, *children: Child, **attributes: str) -> Element:
    """Make an element; `class_` stands for class, and an underline in the name of an attribute for a hyphen."""
    made = Element(tag, {name.rstrip("_").replace("_", "-"): escaped(value) for name, value in attributes.items()})
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + escaped(child)
        else:
            made.text = (made.text or "") + escaped(child)
    return made


def page(title: str, *children: Child) -> str:
    """Return a whole page that needs nothing but itself as text; it has the scripts of charts and tables."""
    style, scripts = inlined(STYLE) + inlined(CHART_STYLE), [inlined(name) for name in (*CHART_SCRIPTS, TABLE_SCRIPT)]
    head = _HEAD.format(policy=content_policy([style], scripts), title=escape(escaped(title)), style=style)
    parts = (f"<script>{script}</script>\n" for script in scripts)
    return f"{head}{markup(element('main', *children))}\n{''.join(parts)}</body>\n</html>\n"


def markup(part: Element) -> str:
    """Return an element as HTML."""
    # As XML, which escapes angle brackets in attributes too; HTML knows no short form of empty elements.
    return tostring(part, encoding="unicode", short_empty_elements=False)


def unbroken(text: str) -> Iterator[Child]:
    """Yield a sentence in parts, so that no line ends between a number and its unit."""
    for place, part in enumerate(_MEASURES.split(text)):
        yield element("span", part, class_="unbroken") if place % 2 else part


def table(
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    is_sortable: bool = False,
    text_columns: Sequence[int] = (),
) -> Element:
    """Return a table whose first column names its rows, in a box in which it scrolls.

    `is_sortable` lets readers sort the rows by any column; `text_columns` hold words instead of figures.
    """
    kinds = [{"class_": "text"} if column in text_columns else {} for column in range(len(header))]
    head = element("tr", *(element("th", name, scope="col", **kind) for name, kind in zip(header, kinds, strict=True)))
    body = [
        element(
            "tr",
            _cell("th", row[0], scope="row"),
            *(_cell("td", cell, **kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)),
        )
        for row in rows
    ]
    uses = [("sortable", is_sortable), ("filterable", is_sortable and len(rows) >= _FILTERED_ROWS)]
    classes = " ".join(name for name, applies in uses if applies)
    made = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", head),
        element("tbody", *body),
        **({"class_": classes} if classes else {}),
    )
    # Reached by keyboard, because it scrolls on a narrow screen.
    return element("div", made, class_="wide", tabindex="0", role="region", aria_label=caption)


def _cell(tag: str, cell: Cell, **attributes: str) -> Element:
    """Return a cell; one with a figure carries it for the script that sorts."""
    if not isinstance(cell, Number):
        return element(tag, cell, **attributes)
    # What is not a number is compared as nothing, and comes last.
    return element(
        tag, cell.text, **attributes, **({"data_value": f"{cell.value:.9g}"} if cell.value == cell.value else {})
    )
