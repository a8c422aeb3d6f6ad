"""What a breaker stopped is said by the commands, and a person can let the daemon go on."""

import json
from pathlib import Path

import pytest

from advisor.cli.check import _trust
from advisor.clock import SystemClock
from advisor.config import load_config
from advisor.daemon.breaker_events import read_breakers, write_breakers
from advisor.guard.breakers import BREAKERS, BreakerState, OpenBreaker
from advisor.journal import SqliteJournal
from advisor.journal.base import PROVEN
from advisor.planning.site_checks import Status
from advisor.settings import BreakerSettings
from advisor.view.breaker_words import REMEDIES
from tests.cli.conftest import Sadvise

NOW = 1_800_000_000.0
DRIFT = OpenBreaker(
    name="forecast_drift",
    keys=("min_coverage_ratio",),
    cause="a share of 0.5 of the run times lay within their intervals",
    opened_time=NOW,
    looked_time=NOW,
)


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal in which a daemon wrote that a breaker is open, and which the configuration names."""
    path = tmp_path / "journal.sqlite"
    with SqliteJournal(path) as held:
        write_breakers(held, BreakerState(open=(DRIFT,)), BreakerSettings(), NOW)
    monkeypatch.setenv("SADVISE_JOURNAL__FILE", str(path))
    return path


def test_every_breaker_has_a_remedy() -> None:
    assert list(REMEDIES) == list(BREAKERS)


def test_recommend_says_what_a_breaker_stopped_and_what_to_do(sadvise: Sadvise, journal: Path) -> None:
    text = sadvise("recommend", "--demo", "--journal", str(journal)).out
    document = json.loads(sadvise("recommend", "--demo", "--journal", str(journal), "--json").out)

    (line,) = [line for line in text.splitlines() if line.startswith("stopped")]
    assert "forecast_drift: the daemon applies nothing since 2027-01-15" in line
    assert DRIFT.cause in line and "sadvise fit runtime" in line and "`sadvise acknowledge forecast_drift`" in line
    (stop,) = document["stops"]
    assert (stop["breaker"], stop["cause"], stop["opened_time"]) == ("forecast_drift", DRIFT.cause, NOW)


def test_models_on_probation_advise_and_are_marked(
    sadvise: Sadvise, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What nothing would send anyway is not rolled out.
    monkeypatch.setenv("SADVISE_PLANNING__ROLLOUT_DEADLINE_S", "0")
    text = sadvise("recommend", "--demo", "--journal", str(journal)).out
    document = json.loads(sadvise("recommend", "--demo", "--journal", str(journal), "--json").out)
    file = json.loads(sadvise("recommend", "--demo", "--json").out)

    assert document["forecasts"]["on_probation"] == [{"model": "run_time default-1", "jobs": 0, "inside": 0}]
    assert document["recommendations"] == [] and document["advised_on_probation"] == file["recommendations"]
    rules = {job["rule"] for job in document["skipped"]} - {job["rule"] for job in file["skipped"]}
    assert rules == {"forecast_proven"}
    assert "On probation, not applied by sadvise:" in text
    assert "probation  run_time default-1: 0 of 0 ended jobs" in text


def test_explain_marks_forecasts_and_advice_on_probation(sadvise: Sadvise, journal: Path) -> None:
    file = sadvise("explain", "--demo", "10").out
    text = sadvise("explain", "--demo", "10", "--journal", str(journal)).out
    diagnosis = json.loads(sadvise("explain", "--demo", "10", "--journal", str(journal), "--json").out)["diagnosis"]

    assert "probation" not in file
    assert "advice  consolidate:" in text and "; on probation, not applied by sadvise" in text
    assert "run_time default-1 is not proven on jobs of this site" in text
    assert diagnosis["forecast"]["on_probation"] == ["run_time default-1"]
    assert (diagnosis["advice"], diagnosis["advised_on_probation"]) == ([], ["consolidate"])


def test_acknowledging_is_written_down_with_who_and_why(sadvise: Sadvise, journal: Path) -> None:
    began = SystemClock().now()
    done = sadvise("acknowledge", "forecast_drift", "--reason", "a course ended")
    after = json.loads(sadvise("recommend", "--demo", "--journal", str(journal), "--json").out)

    with SqliteJournal.read_only(journal) as held:
        (row, *_), state = held.audit(), read_breakers(held)[0]
    assert done.exit_code == 0 and "forecast_drift; the daemon counts again" in done.out
    assert row.event == "acknowledged" and row.time >= began
    assert row.detail["breaker"] == "forecast_drift" and row.detail["reason"] == "a course ended" and row.detail["by"]
    assert state.open == () and state.counted_since == {"forecast_drift": row.time}
    assert after["stops"] == []


def test_only_an_open_breaker_of_a_journal_that_is_there_is_acknowledged(
    sadvise: Sadvise, journal: Path, tmp_path: Path
) -> None:
    closed = sadvise("acknowledge", "people_object")
    unknown = sadvise("acknowledge", "x\x1b[2J")
    nowhere = sadvise("acknowledge", "forecast_drift", "--journal", str(tmp_path / "gone.sqlite"))

    assert "people_object is not open: open are forecast_drift" in closed.err
    assert r"'x\x1b[2J' is not open" in unknown.err
    assert "gone.sqlite" in nowhere.err and not (tmp_path / "gone.sqlite").exists()
    assert {outcome.exit_code for outcome in (closed, unknown, nowhere)} == {1}


def test_check_says_what_a_breaker_stopped_and_what_is_on_probation(journal: Path, tmp_path: Path) -> None:
    config = load_config(None, {"SADVISE_JOURNAL__FILE": str(journal)})

    before = {check.name: check for check in _trust(config, NOW)}
    with SqliteJournal(journal) as held:
        write_breakers(held, BreakerState(), BreakerSettings(), NOW)
        held.note(NOW, PROVEN, {"model": "run_time default-1", "jobs": 100, "inside": 80})
    after = list(_trust(config, NOW))

    assert list(before) == ["breaker forecast_drift", "probation"]
    assert {check.status for check in before.values()} == {Status.LACKS}
    assert DRIFT.cause in before["breaker forecast_drift"].text
    assert "run_time default-1: 0 of 0 ended jobs" in before["probation"].text
    assert [(check.name, check.status) for check in after] == [("breakers", Status.OK)]


def test_check_goes_on_without_a_journal_and_with_one_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database")

    (unknown,) = _trust(load_config(None, {"SADVISE_JOURNAL__FILE": str(broken)}), NOW)

    assert (unknown.name, unknown.status) == ("journal", Status.UNKNOWN)
    assert list(_trust(load_config(None, {"SADVISE_JOURNAL__FILE": str(tmp_path / "gone")}), NOW)) == []
