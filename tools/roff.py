"""Man pages from Markdown, in the macros and escapes that groff and mandoc both know.

Of Markdown there are headings of two levels, paragraphs, examples indented by four spaces, `code`, which is bold,
*words*, which are in italics, and definitions: a tag on a line of its own, and below it a colon and the text.
"""

import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime

from advisor.text import blanked

# A plain hyphen or quote comes out as a typographic one, which no shell takes when it is copied.
_ESCAPES = {"\\": r"\e", "-": r"\-", "'": r"\(aq", '"': r"\(dq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
_MARKED = re.compile(r"`([^`]+)`|(?<!\S)(\[?)\*(\S+?)\*")
_DOCS = re.compile(r"(?<![\w/])docs/(?=[\w/.-]+\.(?:md|json)\b)")
DOCS_FOLDER = "/usr/share/doc/sadvise/docs/"
# Words are neither broken nor spread: what is broken or spread cannot be searched for and copied.
_LAYOUT = (".nh", ".nr HY 0", ".ad l")
_LINE_LENGTH = 60


def render(file_name: str, summary: str, text: str, *, version: str, built_time: float) -> str:
    """Write the page of a file such as `sadvise.1`; equal arguments give equal bytes, all of them ASCII."""
    name, _, section = file_name.rpartition(".")
    # mandoc knows a date by plain hyphens.
    date = datetime.fromtimestamp(built_time, UTC).strftime("%Y-%m-%d")
    title = (escape(name.upper()), section, date, escape(f"sadvise {version}"), "sadvise manual")
    header = " ".join(f'"{word}"' for word in title)
    lines = [f".TH {header}", *_LAYOUT, '.SH "NAME"', f"{escape(name)} \\- {marked(summary)}"]
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        # A heading begins a paragraph of its own; another one after it is a fault to mandoc.
        after_heading = lines[-1].startswith((".SH ", ".SS "))
        block_lines = list(_block(block))
        lines += block_lines[1:] if after_heading and block_lines[0] == ".PP" else block_lines
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Return a text as one line that comes out as it stands, whatever it holds, and is no request."""
    line = " ".join(map(_escaped_word, blanked(text).split()))
    return rf"\&{line}" if line.startswith(".") else line


def bold(text: str) -> str:
    """Return a text in bold, as what is typed as it stands."""
    return rf"\fB{escape(text)}\fR"


def marked(text: str) -> str:
    """Return one line with its marks, and pages of docs/ where the package has them."""
    line = _DOCS.sub(DOCS_FOLDER, " ".join(text.split()))
    parts, end = [], 0
    for mark in _MARKED.finditer(line):
        parts.append(_spaced(line[end : mark.start()]))
        parts.append(bold(mark[1]) if mark[1] else rf"{mark[2]}\fI{escape(mark[3])}\fR")
        end = mark.end()
    return "".join([*parts, _spaced(line[end:])])


def _block(block: str) -> Iterator[str]:
    """Yield the lines of a heading, an example, a definition or a paragraph."""
    tag, colon, text = block.partition("\n: ")
    if block.startswith("#"):
        level, _, title = block.partition(" ")
        yield f'{".SH" if level == "##" else ".SS"} "{escape(title)}"'
    elif block.startswith("    "):
        # An empty line is a fault to mandoc, and spaces inside count.
        example = (line.removeprefix("    ") for line in block.splitlines())
        yield from (".PP", ".RS 4", ".EX", *(rf"\&{_verbatim(line)}" for line in example), ".EE", ".RE")
    elif colon:
        # A tag without a text would take the next macro for its text.
        yield from (".TP", marked(tag), marked(text) or r"\&")
    else:
        yield from (".PP", marked(block))


def _spaced(part: str) -> str:
    """Escape a part of a line, with the spaces at its ends."""
    words = escape(part)
    return f"{' ' if part[:1] == ' ' else ''}{words}{' ' if part[-1:] == ' ' and words else ''}"


def _verbatim(line: str) -> str:
    return "".join(_escaped(char) for char in line if char.isprintable())


def _escaped_word(word: str) -> str:
    # A list longer than a line can go on in the next after a comma.
    return _verbatim(word).replace(",", r",\:" if len(word) > _LINE_LENGTH else ",")


def _escaped(char: str) -> str:
    # groff names a letter with an accent by its parts, a syllable of Hangul as a whole.
    parts = char if "\uac00" <= char <= "\ud7a3" else unicodedata.normalize("NFD", char)
    if parts.isascii():
        return _ESCAPES.get(parts, parts)
    return rf"\[u{'_'.join(f'{ord(part):04X}' for part in parts)}]"
