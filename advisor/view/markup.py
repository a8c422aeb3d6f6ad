"""HTML made of elements, so that no text of a trace can become markup."""

from html import escape
from xml.etree.ElementTree import Element, tostring

from advisor.text import escaped

Child = Element | str

# Six colours that stay apart for colour-blind readers, and five kinds of dash, so that no line depends on its colour.
COLOURS = 6
DASHES = 5

STYLE = """
:root{color-scheme:light dark;--ink:#1b1b1b;--faint:#5c5c5c;--rule:#d4d4d4;--paper:#fff;
--c0:#0072b2;--c1:#c04f00;--c2:#00785a;--c3:#8f3f86;--c4:#7a5c00;--c5:#3d3d3d}
@media(prefers-color-scheme:dark){:root{--ink:#ececec;--faint:#a8a8a8;--rule:#444;--paper:#16181c;
--c0:#56b4e9;--c1:#ff9a57;--c2:#2fcfa0;--c3:#e3a0d8;--c4:#f0e442;--c5:#d0d0d0}}
body{margin:0 auto;max-width:60rem;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem}h2{font-size:1.25rem;margin-top:2.5rem}h3{font-size:1.05rem;margin-top:2rem}
code{white-space:pre-wrap;overflow-wrap:anywhere}dt{font-weight:600}dd{margin:0 0 .4rem;overflow-wrap:anywhere}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:.5rem 0}
th,td{text-align:right;padding:.2rem .9rem .2rem 0;border-bottom:1px solid var(--rule);vertical-align:top}
th:first-child{text-align:left}th{font-weight:400;overflow-wrap:anywhere}thead th{font-weight:600}
figure{margin:1rem 0}figcaption{font-weight:600}svg{display:block;max-width:100%;height:auto}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}
.grid{stroke:var(--rule);fill:none}.limit{stroke:var(--faint);fill:none;stroke-dasharray:1 4}
.line{fill:none;stroke-width:2}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}
.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}
.d1{stroke-dasharray:8 3}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:10 3 2 3}.d4{stroke-dasharray:4 4}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;padding:0}
.legend svg{display:inline-block;vertical-align:middle;margin-right:.4rem}
"""


_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
"""


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
    """Return a whole page as text."""
    body = element("body", element("main", *children))
    # As XML, which escapes angle brackets in attributes too; HTML knows no short form of empty elements.
    return _HEAD.format(title=escape(escaped(title)), style=STYLE) + (
        tostring(body, encoding="unicode", short_empty_elements=False) + "\n</html>\n"
    )


def table(caption: str, header: list[str], rows: list[list[Child]]) -> Element:
    """Return a table whose first column names its rows."""
    head = element("tr", *(element("th", name, scope="col") for name in header))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", field) for field in row[1:])) for row in rows
    ]
    made = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    # Reached by keyboard, because it scrolls on a narrow screen.
    return element("div", made, class_="wide", tabindex="0", role="region", aria_label=caption)
