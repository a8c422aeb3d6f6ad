"""Text from Slurm made safe for a terminal, and tables made safe for programs."""

from collections.abc import Iterable, Sequence


def safe(text: str) -> str:
    """Return text with everything that a terminal might obey, or that reorders what is read, spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() else _spelled(char) for char in text)


def one_line(text: str) -> str:
    """Return a message on one line, safe for a terminal."""
    return safe(" ".join(text.split("\n")))


def parsable(rows: Iterable[Sequence[str]]) -> str:
    """Join fields with `|` and rows with newlines, as `sacct -P` does; a `|` inside a field is spelled out."""
    return "".join("|".join(safe(field).replace("|", "\\x7c") for field in row) + "\n" for row in rows)


def _spelled(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")
