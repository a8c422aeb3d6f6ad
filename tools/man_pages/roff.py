"""Man pages in the macros and escapes that groff and mandoc both know."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from advisor.text import blanked

MANUAL = "sadvise manual"
# A plain hyphen or quote comes out as a typographic one, which no shell takes when it is copied.
_ESCAPES = {"\\": r"\e", "-": r"\-", "'": r"\(aq", '"': r"\(dq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
_CODE = re.compile(r"`([^`]+)`")
_DOCS = re.compile(r"(?<![\w/])docs/(?=[\w/.-]+\.(?:md|json)\b)")
DOCS_FOLDER = "/usr/share/doc/sadvise/"
_LINE_LENGTH = 60
# Words are neither broken nor spread: what is broken or spread cannot be searched for and copied.
_LAYOUT = [".nh", ".nr HY 0", ".ad l"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One man page; `lines` are roff, made by the functions below."""

    name: str
    section: int
    summary: str
    lines: Sequence[str]

    @property
    def file_name(self) -> str:
        """The name under which `man` finds it."""
        return f"{self.name}.{self.section}"


def render(page: Page, *, version: str, built_time: float) -> str:
    """Write a page; equal arguments give equal bytes, all of them ASCII."""
    date = datetime.fromtimestamp(built_time, UTC).strftime("%Y-%m-%d")
    # mandoc knows a date by plain hyphens.
    title = [escape(page.name.upper()), str(page.section), date, escape(f"sadvise {version}"), escape(MANUAL)]
    header = ".TH " + " ".join(f'"{word}"' for word in title)
    lines = [header, *_LAYOUT, *heading("NAME"), f"{escape(page.name)} \\- {marked(page.summary)}", *page.lines]
    # A heading begins a paragraph of its own; another one after it is a fault to mandoc.
    kept = [line for before, line in zip(["", *lines], lines, strict=False) if not (line == ".PP" and _heads(before))]
    return "\n".join(kept) + "\n"


def escape(text: str) -> str:
    """Return a text as one line that comes out as it stands, whatever it holds, and is no request."""
    line = " ".join(
        "".join(_escaped(char) for char in word).replace(",", _comma(word)) for word in blanked(text).split()
    )
    return rf"\&{line}" if line.startswith(".") else line


def bold(text: str) -> str:
    """Return a text in bold, as what is typed as it stands."""
    return rf"\fB{escape(text)}\fR"


def italic(text: str) -> str:
    """Return a text in italics, as what something else is typed for."""
    return rf"\fI{escape(text)}\fR"


def marked(text: str) -> str:
    """Return a text with what stands between backticks in bold, and pages of docs/ where the package has them."""
    parts = _CODE.split(_DOCS.sub(DOCS_FOLDER, " ".join(text.split())))
    return "".join(bold(part) if index % 2 else _spaced(part) for index, part in enumerate(parts))


def heading(title: str) -> list[str]:
    """Begin a section."""
    return [f'.SH "{escape(title)}"']


def subheading(title: str) -> list[str]:
    """Begin a part of a section."""
    return [f'.SS "{escape(title)}"']


def prose(text: str) -> list[str]:
    """Write paragraphs, which empty lines part."""
    return [line for part in re.split(r"\n\s*\n", text.strip()) if part for line in (".PP", marked(part))]


def item(tag: str, text: str) -> list[str]:
    """Write a tag, which is roff already, and beside or below it what it means."""
    # A tag without a text would take the next macro for its text.
    return [".TP", tag, marked(text) or r"\&"]


def example(lines: Sequence[str]) -> list[str]:
    """Write lines as they stand, leading spaces included."""
    blank = [len(line) - len(line.lstrip(" ")) for line in lines]
    return [".PP", ".RS 4", ".EX", *(_verbatim(line, of) for line, of in zip(lines, blank, strict=True)), ".EE", ".RE"]


def _verbatim(line: str, blank: int) -> str:
    # An empty line is a fault to mandoc, and spaces inside count.
    return "\\&" + " " * blank + "".join(_escaped(char) for char in line[blank:] if char.isprintable())


def _spaced(part: str) -> str:
    """Escape a part of a line, with the spaces at its ends."""
    words = escape(part)
    return f"{' ' if part[:1] == ' ' else ''}{words}{' ' if part[-1:] == ' ' and words else ''}"


def _escaped(char: str) -> str:
    # groff names a letter with an accent by its parts, a syllable of Hangul as a whole.
    parts = char if "\uac00" <= char <= "\ud7a3" else unicodedata.normalize("NFD", char)
    if parts.isascii():
        return _ESCAPES.get(parts, parts)
    return rf"\[u{'_'.join(f'{ord(part):04X}' for part in parts)}]"


def _comma(word: str) -> str:
    """Return a comma, after which a list longer than a line may go on in the next."""
    return r",\:" if len(word) > _LINE_LENGTH else ","


def _heads(line: str) -> bool:
    return line.startswith((".SH ", ".SS "))
