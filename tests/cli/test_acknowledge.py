"""What a breaker stopped is said by the commands, and a person can let the daemon go on."""

import json
from pathlib import Path

import pytest

from advisor.cli.check import _trust
from advisor.clock import SystemClock
from advisor.config import load_config
from advisor.diagnose.site_checks import Status
from advisor.guard.breakers import BREAKERS, BreakerState, OpenBreaker
from advisor.journal import SqliteJournal
from advisor.journal.base import DRIFTED, PROVEN
from advisor.settings import BreakerSettings
from advisor.site.breaker_events import read_breakers, write_breakers
from advisor.view.breaker_words import REMEDIES
from tests.cli.conftest import Sadvise

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
