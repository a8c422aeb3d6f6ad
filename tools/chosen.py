"""Parses the part of a command line that chooses one of several programs by name."""

import argparse
from collections.abc import Mapping, Sequence


def chosen(prog: str, names: Mapping[str, str], arguments: Sequence[str] | None) -> tuple[str, list[str]]:
    """Return the first argument, a name, and the arguments after it; `names` maps names to descriptions."""
    listed = "\n".join(f"  {name:<12}{sentence}" for name, sentence in names.items())
    parser = argparse.ArgumentParser(
        prog=prog,
        usage="%(prog)s NAME [OPTIONS]",
        description=f"Run one of these; NAME --help lists its options.\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=names, metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("options", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    return options.name, options.options
