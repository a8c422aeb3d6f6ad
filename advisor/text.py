"""Text from outside, made safe for terminals, logs, pages and error messages."""


def escaped(text: str) -> str:
    """Return text with each character escaped that ends a line, controls a terminal or reorders what is read."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def blanked(text: str) -> str:
    """Return text with a space in place of each character that cannot be printed."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def one_line(text: str) -> str:
    """Return a message on one line, safe for a terminal."""
    return escaped(" ".join(text.split("\n")))


def named(text: str, *, longest: int | None = None) -> str:
    """Return a name for an error message: as it stands, or cut and spelled in ASCII if unprintable or too long."""
    fits = longest is None or len(text) <= longest
    return text if fits and text.isprintable() else ascii(text[:longest])
