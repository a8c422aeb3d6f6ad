"""Fit models again on what the site has shown since, in a process of its own."""

import sys
from typing import Final

from advisor.backends.process import Deadline, printable, run, text_of
from advisor.config import Config
from advisor.domain.units import HOUR_S

DEADLINE_S: Final = HOUR_S


def refit(config: Config, patience: Deadline) -> str:
    """Run `sadvise fit runtime` at the lowest priority, and return its messages.

    Raises `SlurmError` if it fails or takes too long; the models in use then stay.
    """
    return printable(_fitted(("runtime", "--from", "live"), config, patience))


def adapt(config: Config, patience: Deadline) -> str:
    """Run `sadvise fit performance` on the journal at the lowest priority, and return its last message.

    Raises `SlurmError` if it fails, publishes nothing, or takes too long. What it publishes is not put in use.
    """
    lines = _fitted(("performance", "--from", config.journal.file), config, patience).strip().splitlines()
    return printable(lines[-1] if lines else "")


def _fitted(arguments: tuple[str, ...], config: Config, patience: Deadline) -> str:
    """Run a fit in a child process, and return what it wrote to standard error."""
    answer = run(
        ("nice", "-n", "19", sys.executable, "-m", "advisor.cli.main", "fit", *arguments,
         "--models", config.forecasts.models),
        timeout_s=DEADLINE_S,
        patience=patience,
    )  # fmt: skip
    return text_of(answer.complaints)
