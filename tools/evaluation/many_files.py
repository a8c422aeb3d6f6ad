"""Options that take several files one after the other."""

from typing import Any

from typer.core import TyperCommand

FILE_OPTIONS = ("--train", "--test", "--estimates")


class ManyFiles(TyperCommand):
    """A command whose `--train a b` means `--train a --train b`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each further file, then parse as usual."""
        return super().parse_args(ctx, repeated(args))


def repeated(arguments: list[str]) -> list[str]:
    """Return arguments with the option of files before each of its files."""
    spread: list[str] = []
    option, has_file = "", False
    for argument in arguments:
        if argument.startswith("-"):
            option, has_file = (argument if argument in FILE_OPTIONS else ""), False
        elif option and has_file:
            spread.append(option)
        elif option:
            has_file = True
        spread.append(argument)
    return spread
