"""The nightly fit: a process of its own, with the least claim to the processor."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.config import Config
from advisor.daemon.weekly_tune import refit
from advisor.errors import SlurmError
from advisor.settings import ForecastSettings
from advisor.site.site_gate import RoundDeadline


def nice(folder: Path, script: str) -> None:
    """Put a program of that name first on PATH."""
    program = folder / "nice"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return replace(Config(), forecasts=ForecastSettings(models=str(tmp_path / "models")))


def test_fit_is_nice_and_tells_what_it_said_last(config: Config, tmp_path: Path) -> None:
    nice(tmp_path, f'printf "%s " "$@" >{tmp_path}/asked; echo "version 3 is in use" >&2')

    said = refit(config, RoundDeadline())

    asked = (tmp_path / "asked").read_text().split()
    assert said == "version 3 is in use"
    assert asked[:2] == ["-n", "19"]
    assert asked[3:] == [
        "-m", "advisor.cli.main", "fit", "runtime", "--from", "live", "--models", str(tmp_path / "models"),
    ]  # fmt: skip


def test_fit_that_fails_says_why(config: Config, tmp_path: Path) -> None:
    nice(tmp_path, 'echo "sadvise: error: sklearn is not installed" >&2; exit 1')

    with pytest.raises(SlurmError, match="sklearn is not installed"):
        refit(config, RoundDeadline())


def test_fit_ends_with_the_daemon(config: Config, tmp_path: Path) -> None:
    nice(tmp_path, "sleep 60")
    patience = RoundDeadline()
    threading.Timer(0.3, patience.stopping.set).start()

    with pytest.raises(SlurmError, match="sadvised was asked to stop"):
        refit(config, patience)
