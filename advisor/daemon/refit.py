"""Fit run times again on what the site has shown since, in a process of its own."""

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
    answer = run(
        ("nice", "-n", "19", sys.executable, "-m", "advisor.cli.main", "fit", "runtime", "--from", "live",
         "--models", config.forecasts.models),
        timeout_s=DEADLINE_S,
        patience=patience,
    )  # fmt: skip
    return printable(text_of(answer.complaints))
