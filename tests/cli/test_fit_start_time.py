"""`sadvise fit start-time`: a model from a journal that is better than the shipped one, and what it refuses."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.domain.units import DAY_S
from advisor.errors import ConfigError, ModelError
from advisor.fit.start_time_fit import log_wait
from advisor.fit.start_time_journal import JournalPolls, read_journal_polls
from advisor.fit.start_time_site import OURS, SHIPPED, SO_FAR, fit_site
from advisor.journal import SqliteJournal
from advisor.journal.schema import SCHEMA_VERSION
from advisor.predict.library import Library, shipped_folder
from advisor.predict.start_time import KIND, StartTimeForecaster
from tests.cli.conftest import Sadvise
from tests.fit.start_time_journal import with_names, write_journal

# Each fits a model.
pytestmark = pytest.mark.slow

FIT = ("fit", "start-time", "--journal")
DAYS = 16.0
HOSTILE = "lab`|\n# pwned \x1b[31m\u202e"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of the daemon of a simulated site."""
    path = tmp_path_factory.mktemp("site") / "journal.sqlite"
    write_journal(path, DAYS)
    return path


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The site's models, of which there is none yet."""
    monkeypatch.setenv("SADVISE_MODELS", str(tmp_path / "models"))
    return Library(tmp_path / "models")


def read(path: Path) -> JournalPolls:
    """Read the polls of a journal."""
    with SqliteJournal.read_only(path) as kept:
        return read_journal_polls(kept)


def shipped() -> StartTimeForecaster:
    """Return the model that ships."""
    return StartTimeForecaster.from_bundle(Library(shipped_folder(), shipped_folder()).load(KIND))


def test_fit_is_published_and_better_on_later_days_than_the_shipped_model(
    sadvise: Sadvise, journal: Path, models: Library, tmp_path: Path
) -> None:
    # The same site, watched for six days more.
    write_journal(tmp_path / "longer.sqlite", DAYS + 6.0)
    after = read(tmp_path / "longer.sqlite").polls
    later = after.take((after.poll_time > DAYS * DAY_S) & np.isfinite(after.wait_s))

    answer = sadvise(*FIT, str(journal))

    assert answer.exit_code == 0, answer.err
    assert "start_time: version site-1 is in use" in answer.err
    assert answer.err.splitlines()[-1].startswith("start_time: judged on ")
    assert "| squared error by burst, shipped model | " in answer.out
    assert "| squared error by burst, wait so far | " in answer.out
    assert "| covered by the 80 % interval | " in answer.out
    forecast = StartTimeForecaster.from_bundle(models.load(KIND)).forecast(later.table)
    true = log_wait(later.wait_s)
    ours, theirs = (
        float(np.mean((log_wait(one.median) - true) ** 2)) for one in (forecast, shipped().forecast(later.table))
    )
    assert len(later) > 200 and ours < 0.9 * theirs
    assert 0.6 < np.mean((true >= log_wait(forecast.low)) & (true <= log_wait(forecast.high))) < 0.97


def test_judgement_is_of_days_that_were_not_fitted_on(journal: Path) -> None:
    fitted, judgement = fit_site(read(journal), "journal", shipped=shipped(), seed=0)

    assert judgement.days == pytest.approx(DAYS / 4.0, abs=0.2)
    assert judgement.squared[OURS] < min(judgement.squared[SHIPPED], judgement.squared[SO_FAR])
    assert fitted.metrics["squared error by burst, this fit"] == judgement.squared[OURS]
    assert fitted.sources[0].rows == len(read(journal).polls)


def test_fit_without_a_shipped_model_is_judged_beside_the_wait_so_far(journal: Path) -> None:
    _, judgement = fit_site(read(journal), "journal", shipped=None, seed=0)

    assert list(judgement.squared) == [OURS, SO_FAR] and judgement.shipped_ratio is None


def test_dry_run_writes_nothing(sadvise: Sadvise, journal: Path, models: Library) -> None:
    answer = sadvise(*FIT, str(journal), "--dry-run")

    assert answer.exit_code == 0 and "start_time: nothing was written" in answer.err
    assert "## Graph" in answer.out and not models.site.exists()


def test_journal_of_the_configuration_is_the_default(
    sadvise: Sadvise, journal: Path, models: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SADVISE_JOURNAL__FILE", str(journal))

    assert sadvise("fit", "start-time", "--dry-run").exit_code == 0


def test_rollback_is_one_command(sadvise: Sadvise, journal: Path, models: Library) -> None:
    sadvise(*FIT, str(journal))

    answer = sadvise("models", "rollback", KIND)

    assert (answer.exit_code, answer.out) == (0, "start_time: default-1 is in use\n")


def test_waits_that_nothing_tells_are_not_published(journal: Path) -> None:
    found = read(journal)
    rng, polls = np.random.default_rng(1), found.polls
    # Each job waits for as long again, and the fit sees earlier waits of any length.
    early = polls.poll_time < 0.6 * DAYS * DAY_S
    chance = np.where(early, 10.0 ** rng.uniform(2.0, 5.0, len(polls)), np.maximum(polls.table.since_submit_s, 60.0))
    spoilt = replace(found, polls=replace(polls, wait_s=chance))

    with pytest.raises(ModelError, match=r"not published: on the last .* days it is no better than without it: "):
        fit_site(spoilt, "journal", shipped=shipped(), seed=0)


def test_hostile_names_reach_neither_terminal_nor_card(sadvise: Sadvise, models: Library, tmp_path: Path) -> None:
    path = tmp_path / "a`|\n# \x1b[31m.sqlite"
    write_journal(path, 8.0, show=with_names(HOSTILE))

    answer = sadvise(*FIT, str(path))

    assert answer.exit_code == 0, answer.err
    card = (models.site / KIND / "site-1" / "card.md").read_text()
    for text in (answer.out, answer.err, card):
        assert "pwned" not in text and "\x1b" not in text and "\u202e" not in text
    assert r"| `a`|\n# \x1b[31m.sqlite` |" in card


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "no such journal: name another file with --journal", id="missing"),
        pytest.param(b"", "no recorded cycle has a pending GPU job", id="empty"),
        pytest.param(b"User|Account\n" * 100, "is not a journal of sadvise", id="another file"),
    ],
)
def test_what_is_no_journal_is_refused(
    sadvise: Sadvise, models: Library, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "journal.sqlite"
    if content is not None:
        path.write_bytes(content)

    answer = sadvise(*FIT, str(path))

    assert answer.exit_code == 1 and len(answer.err.splitlines()) == 1
    assert message in answer.err and not models.site.exists()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        pytest.param(f"PRAGMA user_version = {SCHEMA_VERSION + 1}", "written by a newer sadvise", id="newer schema"),
        pytest.param("UPDATE records SET content = x'00'", "is damaged", id="damaged records"),
        pytest.param("UPDATE outcomes SET end_time = 1.0", "another program has changed outcomes", id="tampered"),
        pytest.param("DELETE FROM records", "no recorded cycle has a pending GPU job", id="no records"),
    ],
)
def test_journal_that_cannot_be_learnt_from_is_refused(
    sadvise: Sadvise, models: Library, tmp_path: Path, statement: str, message: str
) -> None:
    path = tmp_path / "journal.sqlite"
    write_journal(path, 2.0)
    with closing(sqlite3.connect(path)) as database, database:
        database.create_function("sadvise_sum", -1, lambda *_: None)
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute(statement)

    answer = sadvise(*FIT, str(path))

    assert answer.exit_code == 1 and len(answer.err.splitlines()) == 1, answer.err
    assert message in answer.err and not models.site.exists()


def test_too_few_days_are_refused_with_what_to_do(sadvise: Sadvise, models: Library, tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    write_journal(path, 3.0)

    answer = sadvise(*FIT, str(path))

    assert answer.exit_code == 1 and "days are too few to fit to: let the daemon run until there are 200" in answer.err


def test_too_few_rows_are_refused_with_what_to_do(journal: Path) -> None:
    found = read(journal)
    few = replace(found, polls=found.polls.take(np.arange(0, len(found.polls), 9)))

    with pytest.raises(ConfigError, match="are too few to fit to"):
        fit_site(few, "journal", shipped=None, seed=0)


def test_last_days_without_a_start_are_refused(journal: Path) -> None:
    found = read(journal)
    polls = found.polls
    late = polls.poll_time > 0.6 * DAYS * DAY_S
    still = replace(found, polls=replace(polls, wait_s=np.where(late, np.nan, polls.wait_s)))

    with pytest.raises(ConfigError, match="was seen to start: nothing to judge a fit on"):
        fit_site(still, "journal", shipped=None, seed=0)
