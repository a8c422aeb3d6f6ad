"""The nightly fit and the weekly tune: each a process of its own, and what is read of its answer."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.config import Config
from advisor.daemon.weekly_tune import refit, weekly_tune
from advisor.domain.tune_verdict import TuneVerdict
from advisor.errors import SlurmError
from advisor.settings import DaemonSettings, ForecastSettings
from advisor.site.site_gate import RoundDeadline
from advisor.view.digest_words import tune_words


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


CONFIG = replace(Config(), daemon=DaemonSettings(tune=True, tune_cpu_s=90.0))


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs of the test come first."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def point(setting: str, preset: str | None, beyond_chance: int) -> dict[str, Any]:
    return {
        "setting": setting,
        "family": "lift",
        "preset": preset,
        "lines": [{"file": "sadvise.toml", "text": '[guard] fairness = "user"'}] if preset else [],
        "users": 9,
        "users_worse": beyond_chance + 1,
        "users_worse_beyond_chance": beyond_chance,
        "change": {"percent": None, "low": None, "high": None},
        **dict.fromkeys(("mean_jct_s", "p99_wait_s", "longest_wait_s", "late_jobs", "changes_per_job"), 0.0),
        "dominated": False,
    }


def document(**values: Any) -> dict[str, Any]:
    """Return an answer that advises to let users exchange places of their own jobs, or has other values."""
    change = {"percent": -4.0, "low": -6.0, "high": -2.0, "pairs": 100}
    points = [point("slurm", None, 0), point("lift user", "gentle", 1), point("lift trade 2", "trade", 4)]
    meta = {"schema": "sadvise.tune/2", "trace": "live", "cluster": "live", "repeats": 2, "late_after_s": 60.0}
    known = {
        "meta": meta,
        "presets": {},
        "jobs": 1234,
        "points": points,
        "in_force": "lift trade 2",
        "advised": "lift user",
    }
    return {**known, "against_in_force": change, **values}


def tuned(tmp_path: Path, answer: dict[str, Any]) -> TuneVerdict:
    (tmp_path / "answer").write_text(json.dumps(answer))
    nice(tmp_path, f'printf "%s\\n" "$@" >{tmp_path}/asked; cat {tmp_path}/answer')
    return weekly_tune(CONFIG, RoundDeadline()).advised


def test_its_own_accounting_is_tried_at_the_lowest_priority_within_a_budget(tmp_path: Path) -> None:
    verdict = tuned(tmp_path, document())

    asked = (tmp_path / "asked").read_text().split()
    assert asked[:4] == ["-n", "19", "prlimit", "--cpu=90:95"]
    assert asked[asked.index("tune") :] == [
        "tune", "live", "--since", "now-28days", "--repeats", "2", "--workers", "1", "--json",
    ]  # fmt: skip
    assert verdict == TuneVerdict(
        jobs=1234,
        in_force="lift trade 2",
        preset="gentle",
        setting="lift user",
        lines='sadvise.toml: [guard] fairness = "user"',
        percent=-4.0,
        low=-6.0,
        high=-2.0,
        users=9,
        worse=2,
        beyond_chance=1,
        beyond_chance_now=4,
    )
    assert tune_words(verdict) == (
        "tried on the last 1234 GPU jobs, preset gentle (lift user) would change the mean JCT by -4.0 % (-6.0 to -2.0) "
        "against lift trade 2, which is in force; 2 of 9 users would be worse than under plain Slurm, 1 beyond chance, "
        'now 4. To set: sadvise.toml: [guard] fairness = "user"'
    )


@pytest.mark.parametrize(
    ("values", "is_better"),
    [
        ({}, True),
        ({"against_in_force": {"percent": 9.0, "low": 8.0, "high": 10.0}}, True),
        ({"in_force": "slurm"}, True),
        ({"in_force": "slurm", "against_in_force": {"percent": -1.0, "low": -3.0, "high": 1.0}}, False),
        ({"in_force": "lift user"}, False),
        ({"advised": None, "against_in_force": None}, False),
    ],
)
def test_another_setting_is_better_where_fewer_lose_or_jobs_are_clearly_faster(
    tmp_path: Path, values: dict[str, Any], is_better: bool
) -> None:
    verdict = tuned(tmp_path, document(**values))

    assert verdict.is_better is is_better
    assert ("would change" in tune_words(verdict)) is is_better


def test_the_setting_that_the_daemon_can_take_up_is_measured_against_the_one_in_force(tmp_path: Path) -> None:
    change = {"percent": -3.0, "low": -5.0, "high": -1.0}
    move = {"setting": "lift trade 2", "fairness": "trade", "priority_decades": 2.0, "change": change}
    advised = tuned(tmp_path, document(moves_to=move, in_force="slurm"))

    found = weekly_tune(CONFIG, RoundDeadline()).move

    assert advised.setting == "lift user" and found is not None
    assert (found.setting, found.preset, found.fairness, found.priority_decades) == (
        "lift trade 2",
        "trade",
        "trade",
        2,
    )
    assert (found.percent, found.high, found.beyond_chance, found.beyond_chance_now) == (-3.0, -1.0, 4, 0)


def test_what_is_no_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="the output of sadvise tune cannot be read"):
        tuned(tmp_path, {"jobs": 3})


def test_a_run_beyond_its_budget_is_ended_and_says_which_setting_bounds_it(tmp_path: Path) -> None:
    short = replace(CONFIG, daemon=replace(CONFIG.daemon, tune_cpu_s=1.0))
    # As the real one, with a busy loop in place of sadvise.
    nice(tmp_path, 'shift 2; exec "$1" "$2" "$3" sh -c "while :; do :; done"')

    with pytest.raises(SlurmError, match=r"1 s of CPU are spent, raise daemon\.tune_cpu_s"):
        weekly_tune(short, RoundDeadline())
