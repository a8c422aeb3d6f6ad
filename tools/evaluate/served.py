"""Reads what all judgements need: options that take several files, and dates."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from typer.core import TyperCommand

from advisor.errors import ConfigError

FILE_OPTIONS = ("--train", "--test", "--estimates")


class TableFormat(StrEnum):
    """The form of the tables: `drac`, what DRAC published of its clusters."""

    DRAC = "drac"


class ManyFiles(TyperCommand):
    """A command whose `--train a b` means `--train a --train b`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each file, then parse as usual."""
        return super().parse_args(ctx, repeated(args))


def repeated(arguments: list[str]) -> list[str]:
    """Return arguments with the option of files before each of its files."""
    spread: list[str] = []
    option = ""
    for argument in arguments:
        if argument.startswith("-"):
            option = argument if argument in FILE_OPTIONS else ""
        if argument != option:
            spread += [option, argument] if option else [argument]
    return spread


def parsed_date(text: str) -> float:
    """Read the date of `--split`, UTC where it names no zone; raises `ConfigError`."""
    try:
        date = datetime.fromisoformat(text.strip())
    except ValueError as err:
        raise ConfigError(f"--split {text!a} is no date: give one such as 2021-05-24") from err
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def date_text(instant: float) -> str:
    """Return an instant as a date with time in UTC."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%S")
