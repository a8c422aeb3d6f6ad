"""Messages on one line, and tables for programs."""

from collections.abc import Iterable, Sequence

from advisor.text import escaped


def one_line(text: str) -> str:
    """Return a message on one line, safe for a terminal."""
    return escaped(" ".join(text.split("\n")))


def parsable(rows: Iterable[Sequence[str]]) -> str:
    """Join fields with `|` and rows with newlines, as `sacct -P` does; a `|` inside a field is escaped."""
    return "".join("|".join(escaped(field).replace("|", "\\x7c") for field in row) + "\n" for row in rows)
