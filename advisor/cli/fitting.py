"""What the commands that fit models share: the check before the work, and how a card is printed."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import typer

from advisor.backends.installation import how_to_install
from advisor.cli.models import library
from advisor.errors import ConfigError
from advisor.text import escaped

# The part of a card from which on it is for those who make models.
_SETTINGS = "## Settings"


def use_one_thread() -> None:
    """Keep linear algebra to one thread, if NumPy is not imported yet.

    Beside other work, threads that wait for each other make small systems many times slower.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def left_out_words(counts: Mapping[str, int]) -> str:
    """Return how many rows were left out, by reason, as the end of a sentence; "" if none were."""
    left_out = ", ".join(f"{count:,} {why}" for why, count in sorted(counts.items()))
    return f"; left out: {left_out}" if left_out else ""


def print_card(card: str, *, whole: bool) -> None:
    """Print a card; unless `whole`, without what is for those who make models."""
    for line in card.splitlines():
        if not whole and line == _SETTINGS:
            break
        typer.echo(escaped(line))


def check_fitting(folder: Path | None, *, dry_run: bool) -> None:
    """Raise `ConfigError` before the work if the fitting libraries are missing, or the model could not be written."""
    for module in ("sklearn", "skl2onnx"):
        if find_spec(module) is None:
            raise ConfigError(f"{module} is not installed, and fitting needs it: {how_to_install('fit')}")
    site = library(folder).site
    nearest = next(path for path in (site, *site.absolute().parents) if os.access(path, os.F_OK))
    if not dry_run and not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise ConfigError(f"{nearest}: cannot be written: run this as root, or give --models DIR or --dry-run")
