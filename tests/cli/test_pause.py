"""`sadvise serve`, `pause`, `resume` and `acknowledge`: what stops the daemon, and what lets it go on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.cli.check import _trust
from advisor.clock import SystemClock
from advisor.config import load_config
from advisor.daemon.launch import only_daemon
from advisor.diagnose.site_checks import Status
from advisor.guard.breakers import BREAKERS, BreakerState, OpenBreaker
from advisor.journal import SqliteJournal
from advisor.journal.base import DRIFTED, PROVEN
from advisor.settings import BreakerSettings
from advisor.site.breaker_events import read_breakers, write_breakers
from advisor.view.breaker_words import REMEDIES
from tests.cli.conftest import Sadvise
from tests.programs import killed_after

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with everything in a folder of its own."""
    path = tmp_path / "sadvise.toml"
    path.write_text(
        f'[journal]\nfile = "{tmp_path}/journal.sqlite"\n[daemon]\nruntime_folder = "{tmp_path}"\n'
        f'[metrics]\nlisten = "unix:{tmp_path}/metrics.sock"\n'
    )
    return path


def test_one_round_without_slurm_says_so(
    sadvise: Sadvise, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    outcome = sadvise("serve", "--once", "--config", str(config))

    assert outcome.exit_code == 1
    assert (
        outcome.out
        == "observe: sdiag is not on PATH here: install Slurm's client commands, or run on a host that has them\n"
    )


def test_second_daemon_refuses(sadvise: Sadvise, config: Path, tmp_path: Path) -> None:
    with only_daemon(tmp_path, tmp_path / "journal.sqlite"):
        outcome = sadvise("serve", "--once", "--config", str(config))

    assert outcome.exit_code == 1 and outcome.out == ""
    assert outcome.err == f"sadvise: error: {tmp_path}/sadvised.lock: another sadvised runs here: stop that one first\n"


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ('[mode]\ndefault = "applied"', "mode.default"),
        ('[mode]\npartitions = "gpu:apply"', "partitions must be name=mode pairs"),
        ("[daemon]\ninterval_s = 0.0", "interval_s must be at least 1"),
        ("[daemon]\ndeadline_s = 600.0", "deadline_s must be above 0 and at most 80"),
        ("[daemon]\nnight_hour = 24", "night_hour must be an hour from 0 to 23"),
        ("[daemon]\njitter_s = 90.0", "jitter_s must not be negative, nor above interval_s"),
        ('[daemon]\nruntime_folder = "run"', "runtime_folder must be an absolute path"),
        ("[daemon]\nstrain_queue = 0", "strain_cycle_s must be above 0"),
        ('[metrics]\nlisten = "0.0.0.0:9341"', "listen must be a loopback address"),
    ],
)
def test_wrong_settings_are_one_line(sadvise: Sadvise, tmp_path: Path, key: str, complaint: str) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(key)

    for command in (("serve", "--once"), ("config", "check")):
        outcome = sadvise(*command, "--config", str(wrong))

        assert outcome.exit_code == 1 and outcome.err.count("\n") == 1
        assert complaint in outcome.err and str(wrong) in outcome.err


def test_pause_and_resume_tell_what_they_did(sadvise: Sadvise, config: Path, tmp_path: Path) -> None:
    paused = sadvise("pause", "--reason", "maintenance", "--config", str(config))
    there = (tmp_path / "pause").exists()
    resumed = sadvise("resume", "--config", str(config))
    again = sadvise("resume", "--config", str(config))

    assert paused.out == f"paused  {tmp_path}; `sadvise resume` ends the pause\n" and there
    assert resumed.out == f"resumed {tmp_path}\n" and again.out == "nothing was paused\n"
    assert not (tmp_path / "pause").exists()


def test_pause_without_a_runtime_folder_says_that_nothing_is_paused(sadvise: Sadvise, tmp_path: Path) -> None:
    wrong = tmp_path / "sadvise.toml"
    wrong.write_text(f'[daemon]\nruntime_folder = "{tmp_path}/gone"\n')

    outcome = sadvise("pause", "--config", str(wrong))

    assert outcome.exit_code == 1 and "nothing is paused" in outcome.err and outcome.err.count("\n") == 1


def test_daemon_without_slurm_goes_on_and_ends_when_it_is_told_to(config: Path, tmp_path: Path) -> None:
    program = "import sys; from advisor.cli.main import serve; sys.argv = ['sadvised', *sys.argv[1:]]; serve()"
    lines = []
    process = subprocess.Popen(
        [sys.executable, "-c", program, "--config", str(config)],
        env={**os.environ, "PATH": str(tmp_path)},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    with killed_after(process) as daemon:
        assert daemon.stderr is not None
        for line in daemon.stderr:
            lines.append(line)
            if "round not done" in line:
                break
        daemon.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        daemon.send_signal(signal.SIGTERM)
        began = time.monotonic()
        lines += daemon.stderr.readlines()
        status = daemon.wait(10.0)

    assert status == 0 and time.monotonic() - began < 5.0
    assert any("sdiag is not on PATH" in line for line in lines)
    assert "event=ended" in lines[-1] and "still_out=0" in lines[-1]


NOW = 1_800_000_000.0
MODEL = "run_time default-1"
ERRORS = OpenBreaker(
    name="slurm_errors",
    keys=("max_reads_failed",),
    cause="5 reads of the cluster failed in a row",
    opened_time=NOW,
    looked_time=NOW,
)


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal in which a daemon wrote that a breaker is open, and which the configuration names."""
    path = tmp_path / "journal.sqlite"
    with SqliteJournal(path) as held:
        write_breakers(held, BreakerState(open=(ERRORS,)), BreakerSettings(), NOW)
    monkeypatch.setenv("SADVISE_JOURNAL__FILE", str(path))
    return path


def test_every_breaker_has_a_remedy() -> None:
    assert list(REMEDIES) == list(BREAKERS)


def test_recommend_says_what_a_breaker_stopped_and_what_to_do(sadvise: Sadvise, journal: Path) -> None:
    text = sadvise("recommend", "--demo", "--journal", str(journal)).out
    document = json.loads(sadvise("recommend", "--demo", "--journal", str(journal), "--json").out)

    (line,) = [line for line in text.splitlines() if line.startswith("stopped")]
    assert "slurm_errors: the daemon applies nothing since 2027-01-15" in line
    assert ERRORS.cause in line and "scontrol ping" in line and "`sadvise acknowledge slurm_errors`" in line
    (stop,) = document["stops"]
    assert (stop["breaker"], stop["cause"], stop["opened_time"]) == ("slurm_errors", ERRORS.cause, NOW)


def test_recommend_plans_by_time_limits_while_the_run_time_model_is_on_probation(
    sadvise: Sadvise, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SADVISE_PLANNING__ROLLOUT_DEADLINE_S", "0")
    text = sadvise("recommend", "--demo", "--long", "--journal", str(journal)).out
    document = json.loads(sadvise("recommend", "--demo", "--journal", str(journal), "--json").out)
    file = json.loads(sadvise("recommend", "--demo", "--json").out)

    assert document["forecasts"]["on_probation"] == [
        {"model": MODEL, "jobs": 0, "inside": 0, "order": None, "drifted": False}
    ]
    assert document["recommendations"] and document["recommendations"] != file["recommendations"]
    (line,) = [line for line in text.splitlines() if line.startswith("probation")]
    assert f"{MODEL} is not proven here, so plans rest on time limits. No job that it forecast has ended yet" in line
    assert "100 jobs with about 80 %" in line and "sadvise fit runtime --from live" in line
    (by,) = [line for line in text.splitlines() if line.startswith("forecasts")]
    assert "throughput" in by and "run_time" not in by


def test_explain_says_that_a_run_time_is_set_aside(sadvise: Sadvise, journal: Path) -> None:
    file = sadvise("explain", "--demo", "10", "--long").out
    text = sadvise("explain", "--demo", "10", "--long", "--journal", str(journal)).out
    diagnosis = json.loads(sadvise("explain", "--demo", "10", "--journal", str(journal), "--json").out)["diagnosis"]

    assert "probation" not in file
    assert f"{MODEL} is not proven on jobs of this site, so plans count with time limits instead" in text
    assert diagnosis["forecast"]["on_probation"] == [MODEL] and diagnosis["forecast"]["run_time_s"]


def test_acknowledging_is_written_down_with_who_and_why(sadvise: Sadvise, journal: Path) -> None:
    began = SystemClock().now()
    done = sadvise("acknowledge", "slurm_errors", "--reason", "switch replaced")
    after = json.loads(sadvise("recommend", "--demo", "--journal", str(journal), "--json").out)

    with SqliteJournal.read_only(journal) as held:
        (row, *_), state = held.audit(), read_breakers(held)[0]
    assert done.exit_code == 0 and "slurm_errors; the daemon counts again" in done.out
    assert row.event == "acknowledged" and row.time >= began
    assert row.detail["breaker"] == "slurm_errors" and row.detail["reason"] == "switch replaced" and row.detail["by"]
    assert state.open == () and state.counted_since == {"slurm_errors": row.time}
    assert after["stops"] == []


def test_person_can_trust_a_model_again_that_drifted(sadvise: Sadvise, journal: Path) -> None:
    with SqliteJournal(journal) as held:
        held.note(NOW, PROVEN, {"model": MODEL, "since": NOW})
        held.note(NOW + 60.0, DRIFTED, {"model": MODEL, "since": NOW + 60.0})
    before = sadvise("recommend", "--demo", "--journal", str(journal)).out
    done = sadvise("acknowledge", "forecast_drift", "--reason", "a course ended")
    after = sadvise("recommend", "--demo", "--journal", str(journal)).out
    again = sadvise("acknowledge", "forecast_drift")

    with SqliteJournal.read_only(journal) as held:
        (row, *_), trust = held.audit(), held.trust()
    assert f"{MODEL} no longer holds here" in before and "`sadvise acknowledge forecast_drift`" in before
    assert done.exit_code == 0 and "probation" not in after
    assert row.event == PROVEN and row.detail["reason"] == "a course ended" and row.detail["by"]
    assert trust.proven == {MODEL} and trust.since(MODEL) >= NOW + 60.0
    assert again.exit_code == 1 and "forecast_drift is not open" in again.err


def test_only_an_open_breaker_of_a_journal_that_is_there_is_acknowledged(
    sadvise: Sadvise, journal: Path, tmp_path: Path
) -> None:
    closed = sadvise("acknowledge", "people_object")
    unproven = sadvise("acknowledge", "forecast_drift")
    unknown = sadvise("acknowledge", "x\x1b[2J")
    nowhere = sadvise("acknowledge", "slurm_errors", "--journal", str(tmp_path / "gone.sqlite"))

    assert "people_object is not open: open are slurm_errors" in closed.err
    assert "forecast_drift is not open" in unproven.err
    assert r"'x\x1b[2J' is not open" in unknown.err
    assert "gone.sqlite" in nowhere.err and not (tmp_path / "gone.sqlite").exists()
    assert {outcome.exit_code for outcome in (closed, unproven, unknown, nowhere)} == {1}


def test_check_says_what_a_breaker_stopped_and_what_is_on_probation(journal: Path) -> None:
    config = load_config(None, {"SADVISE_JOURNAL__FILE": str(journal)})
    trusting = load_config(None, {"SADVISE_JOURNAL__FILE": str(journal), "SADVISE_GUARD__PROBATION_JOBS": "0"})

    before = {check.name: check for check in _trust(config, NOW)}
    with SqliteJournal(journal) as held:
        write_breakers(held, BreakerState(), BreakerSettings(), NOW)
        unasked = list(_trust(trusting, NOW))
        held.note(NOW, PROVEN, {"model": MODEL, "jobs": 100, "inside": 80})
        proven = list(_trust(config, NOW))
        held.note(NOW + 1.0, DRIFTED, {"model": MODEL, "jobs": 50, "inside": 20})
        drifted = list(_trust(trusting, NOW))

    assert list(before) == ["breaker slurm_errors", "probation"]
    assert {check.status for check in before.values()} == {Status.LACKS}
    assert ERRORS.cause in before["breaker slurm_errors"].text
    assert f"{MODEL} is not proven here" in before["probation"].text
    for none in (unasked, proven):
        assert [(check.name, check.status) for check in none] == [("breakers", Status.OK)]
    assert [check.name for check in drifted] == ["breakers", "probation"]
    assert f"{MODEL} no longer holds" in drifted[1].text and "50 jobs with about 80 %" in drifted[1].text


def test_check_goes_on_without_a_journal_and_with_one_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database")

    (unknown,) = _trust(load_config(None, {"SADVISE_JOURNAL__FILE": str(broken)}), NOW)

    assert (unknown.name, unknown.status) == ("journal", Status.UNKNOWN)
    assert list(_trust(load_config(None, {"SADVISE_JOURNAL__FILE": str(tmp_path / "gone")}), NOW)) == []
