"""The text of pages: templates in named parts, and tables."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from textwrap import wrap
from typing import Any, Final

from advisor.domain.units import duration

FOLDER: Final = Path(__file__).parent
WIDTH: Final = 120


class _Words(Formatter):
    """The fields of `str.format`, and `{name!d}` for seconds as a duration."""

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        return duration(value) if conversion == "d" else value


def render(template: str, part: str = "page", **values: object) -> str:
    """Return a part of a template with its fields filled in.

    Paragraphs are wrapped; headings and tables are not, nor is a field that stands alone, which may be empty.
    """
    blocks = []
    for block in _parts(template)[part].split("\n\n"):
        text = _Words().vformat(block, (), values)
        is_prose = not block.startswith(("#", "|")) and not re.fullmatch(r"\{\w+\}", block)
        blocks.append(paragraph(text) if is_prose else text)
    return "\n\n".join(block for block in blocks if block)


def paragraph(text: str) -> str:
    """Return a paragraph, wrapped."""
    return "\n".join(wrap(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; columns whose head ends with a colon are aligned right."""
    names = [head.removesuffix(":") for head in heads]
    rule = "|".join("--:" if head.endswith(":") else "---" for head in heads)
    return "\n".join([_row(names), f"|{rule}|", *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


@cache
def _parts(template: str) -> Mapping[str, str]:
    """Read a template: a line `%% NAME` begins a part, what stands before the first is `page`."""
    text = (FOLDER / f"{template}.md").read_text(encoding="utf-8")
    names = ["page", *re.findall(r"^%% (\w+)$", text, re.MULTILINE)]
    return dict(zip(names, (part.strip("\n") for part in re.split(r"^%% \w+$", text, flags=re.MULTILINE)), strict=True))
