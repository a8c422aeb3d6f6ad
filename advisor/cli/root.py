"""Defines the root of the tree of commands."""

import typer

from advisor.cli.version import print_version


def root() -> typer.Typer:
    """Return the program without its commands: its help, its exit codes, and the options before the command."""
    tree = typer.Typer(
        name="sadvise",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Advice for the pending GPU jobs of a Slurm cluster: reorder, resize, consolidate. "
        "Nothing changes anything but apply, revert and the daemon where [mode] says apply.",
        epilog="Exit codes: 0 fine, 1 error, 2 usage, 3 recommend --exit-code found something to change, "
        "4 status: the daemon needs attention, 5 status: no daemon runs.",
    )
    tree.callback()(options)
    return tree


def _version(value: bool) -> None:
    if value:
        print_version()
        raise typer.Exit


def options(
    version: bool = typer.Option(False, "--version", "-V", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Accept the options before the command."""
