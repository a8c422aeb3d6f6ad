"""Run the command line in this process, as a user would type it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from advisor.cli.main import main


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command line left behind."""

    exit_code: int
    out: str
    err: str


Sadvise = Callable[..., Outcome]


@pytest.fixture
def sadvise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sadvise:
    """Return a function that runs `sadvise` with arguments."""
    for variable in ("SADVISE_CONFIG", "SADVISE_SNAPSHOT", "SLURM_CONF", "SLURM_CLUSTERS"):
        monkeypatch.delenv(variable, raising=False)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["sadvise", *arguments])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as err:
            code = err.code if isinstance(err.code, int) else 0
        said = capsys.readouterr()
        return Outcome(exit_code=code, out=said.out, err=said.err)

    return run
