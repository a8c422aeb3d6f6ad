"""`sadvise fit performance`: what it publishes, what it refuses, and how a version is put in use and taken back."""

import json
import math
import sqlite3
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.domain.outcome import JobOutcome
from advisor.fit.performance_release import POLICY_KIND
from advisor.journal import SqliteJournal
from advisor.predict.library import PERFORMANCE, Library
from advisor.predict.manifest import GRAPH
from advisor.predict.performance import PerformanceModel
from advisor.predict.served_policy import OpenedPolicy, held_policy
from tests.cli.conftest import Sadvise
from tests.fit.performance_journal import ship, write_journal
from tests.predict.graphs import publish_sizes

# Each fits or judges models.
pytestmark = pytest.mark.slow

JOBS = 400


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """A site without models of its own, and a package with a performance model and policy-metarl."""
    library = ship(tmp_path)
    monkeypatch.setattr("advisor.predict.library.shipped_folder", lambda: library.shipped)
    publish_sizes(library.shipped, "metarl", "default-1")
    monkeypatch.setenv("SADVISE_MODELS", str(library.site))
    return library


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of a site on which types differ twice as much as in the prior."""
    path = tmp_path_factory.mktemp("adaptation") / "journal.sqlite"
    write_journal(path, JOBS)
    return path


def adapt(sadvise: Sadvise, journal: Path) -> None:
    """Adapt the performance model, which passes."""
    answer = sadvise("fit", "performance", "--from", str(journal))
    assert answer.exit_code == 0, answer.err


def test_adaptation_publishes_a_model_and_the_policy_with_it_and_puts_neither_in_use(
    sadvise: Sadvise, site: Library, journal: Path
) -> None:
    answer = sadvise("fit", "performance", "--from", str(journal))

    assert answer.exit_code == 0, answer.err
    assert answer.err.splitlines()[-1].startswith("performance: site-1 is published beside the version in use: ")
    assert f"{JOBS} ended jobs in " in answer.out and "# performance site-1" in answer.out
    assert [site.find(kind, None).entry.version for kind in (PERFORMANCE, POLICY_KIND)] == ["default-1"] * 2
    model, policy = (site.find(kind, "site-1") for kind in (PERFORMANCE, POLICY_KIND))
    before = site.find(POLICY_KIND, "default-1")
    assert policy.entry.digests[GRAPH] == before.entry.digests[GRAPH]
    assert json.loads((policy.files / "parameters.json").read_text()) == {PERFORMANCE: "site-1"}
    parameters = PerformanceModel.opened(model).parameters
    assert parameters.prior == "default-1" and parameters.samples > 300 and parameters.until > 0.0
    assert parameters.gate["gain"] > 0.0 and 0.65 <= parameters.gate["coverage"] <= 0.95
    assert sadvise("models", "verify").exit_code == 0


def test_effects_of_the_journal_are_those_of_the_site(sadvise: Sadvise, site: Library, journal: Path) -> None:
    adapt(sadvise, journal)

    tables = PerformanceModel.opened(site.find(PERFORMANCE, "site-1")).tabulated()
    a100, h100, v100 = tables.log_speed[:4, :3].mean(axis=0)
    assert h100 - a100 == pytest.approx(0.4, abs=0.15) and v100 - a100 == pytest.approx(-0.5, abs=0.15)
    assert 0.2 < tables.neighbours.added[:4, :4].mean() < 0.5


def test_rollback_is_one_command(sadvise: Sadvise, site: Library, journal: Path) -> None:
    adapt(sadvise, journal)

    used = sadvise("models", "use", POLICY_KIND, "site-1")
    rolled_back = sadvise("models", "rollback", POLICY_KIND)

    assert (used.exit_code, used.out) == (0, "policy-metarl: site-1 is in use\n")
    assert (rolled_back.exit_code, rolled_back.out) == (0, "policy-metarl: default-1 is in use\n")
    assert site.find(POLICY_KIND, None).entry.version == "default-1"


def test_performance_model_itself_can_be_used_and_rolled_back(sadvise: Sadvise, site: Library, journal: Path) -> None:
    adapt(sadvise, journal)

    assert sadvise("models", "use", PERFORMANCE, "site-1").exit_code == 0
    assert sadvise("models", "rollback", PERFORMANCE).out == "performance: default-1 is in use\n"


def test_policy_without_its_performance_model_is_not_used(sadvise: Sadvise, site: Library, journal: Path) -> None:
    adapt(sadvise, journal)
    manifest = site.site / "manifest.toml"
    manifest.write_text(manifest.read_text().replace('kind = "performance"', 'kind = "other"'))

    answer = sadvise("models", "use", POLICY_KIND, "site-1")

    assert answer.exit_code == 1 and len(answer.err.splitlines()) == 1
    assert "model policy-metarl site-1: there is no version 'site-1' of performance" in answer.err


def test_newest_is_the_version_of_the_last_night(sadvise: Sadvise, site: Library, journal: Path) -> None:
    assert held_policy(site, "metarl@newest").entry.version == "default-1"
    shadow = OpenedPolicy(site, "metarl@newest")
    first = shadow()

    adapt(sadvise, journal)
    second = shadow()

    assert held_policy(site, "metarl@newest").entry.version == "site-1"
    assert held_policy(site, "metarl").entry.version == "default-1"
    assert second is not first


def test_second_night_is_judged_on_newer_jobs_alone(
    sadvise: Sadvise, site: Library, journal: Path, tmp_path: Path
) -> None:
    adapt(sadvise, journal)
    sadvise("models", "use", POLICY_KIND, "site-1")

    again = sadvise("fit", "performance", "--from", str(journal))
    write_journal(tmp_path / "longer.sqlite", 2 * JOBS)
    later = sadvise("fit", "performance", "--from", str(tmp_path / "longer.sqlite"))

    assert again.exit_code == 1
    assert "not published: 0 jobs that neither it nor the version in use has seen" in again.err
    assert later.exit_code == 0 and "performance: site-2 is published" in later.err
    # What the first night learnt is no prior of the second.
    assert PerformanceModel.opened(site.find(PERFORMANCE, "site-2")).parameters.prior == "default-1"


def test_dry_run_writes_nothing(sadvise: Sadvise, site: Library, journal: Path) -> None:
    answer = sadvise("fit", "performance", "--from", str(journal), "--dry-run")

    assert answer.exit_code == 0 and "performance: nothing was written" in answer.err
    assert "## Graph" in answer.out and not site.site.exists()


@pytest.mark.parametrize(("private_data", "mode"), [((), 0o644), (("jobs",), 0o640)], ids=["shown", "hidden"])
def test_names_of_models_are_as_open_as_slurm_shows_jobs(
    sadvise: Sadvise, site: Library, tmp_path: Path, private_data: tuple[str, ...], mode: int
) -> None:
    write_journal(tmp_path / "journal.sqlite", 200, private_data=private_data)
    adapt(sadvise, tmp_path / "journal.sqlite")

    parameters = site.site / PERFORMANCE / "site-1" / "parameters.json"
    assert stat.S_IMODE(parameters.stat().st_mode) == mode


def as_it_was(outcome: JobOutcome, _: np.random.Generator) -> JobOutcome:
    """The same outcome."""
    return outcome


def at_random(outcome: JobOutcome, rng: np.random.Generator) -> JobOutcome:
    """An outcome whose forecast has nothing to do with its run time."""
    return with_forecast(outcome, float(np.exp(rng.uniform(-2.5, 2.5))))


def without_numbers(outcome: JobOutcome, _: np.random.Generator) -> JobOutcome:
    """An outcome whose times are no numbers."""
    return replace(outcome, start_time=math.nan, last_start_time=math.nan)


def with_forecast(outcome: JobOutcome, factor: float) -> JobOutcome:
    """The same outcome with a forecast that many times as long."""
    forecast = outcome.first_forecast
    assert forecast is not None and forecast.run_time_s is not None
    run = forecast.run_time_s
    longer = replace(run, low=run.low * factor, median=run.median * factor, high=run.high * factor)
    return replace(outcome, first_forecast=replace(forecast, run_time_s=longer))


@pytest.mark.parametrize(
    ("jobs", "users", "spoil", "complaint"),
    [
        (JOBS, 24, at_random, "performance: not published: "),
        (JOBS, 24, without_numbers, "0 ended jobs can be compared with others like them, fewer than 100"),
        (60, 24, as_it_was, "ended jobs can be compared with others like them, fewer than 100"),
        (200, 4, as_it_was, "samples of 4 users are too few to learn from"),
    ],
    ids=["garbage", "no numbers", "few jobs", "few users"],
)
def test_bad_adaptation_is_not_published(
    sadvise: Sadvise,
    site: Library,
    tmp_path: Path,
    jobs: int,
    users: int,
    spoil: Callable[[JobOutcome, np.random.Generator], JobOutcome],
    complaint: str,
) -> None:
    path = tmp_path / "journal.sqlite"
    write_journal(path, jobs, users=users, spoil=spoil)

    answer = sadvise("fit", "performance", "--from", str(path))

    assert answer.exit_code == 1 and complaint in answer.err and len(answer.err.splitlines()) == 1
    assert not site.site.exists()


def changed_by_hand(path: Path) -> None:
    """Change the outcomes of a journal as another program would."""
    with sqlite3.connect(path) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM outcomes")
    database.close()


def test_wrong_journal_is_one_line(sadvise: Sadvise, site: Library, tmp_path: Path) -> None:
    changed = tmp_path / "journal.sqlite"
    write_journal(changed, 20)
    changed_by_hand(changed)
    (tmp_path / "text").write_text("no journal")

    answers = [
        sadvise("fit", "performance", "--from", str(path))
        for path in (changed, tmp_path / "text", tmp_path / "none.sqlite")
    ]

    for answer, complaint in zip(
        answers,
        ("another program has changed outcomes", "is not a journal", "none.sqlite: no such journal: name a file, or"),
        strict=True,
    ):
        assert answer.exit_code == 1 and complaint in answer.err and len(answer.err.splitlines()) == 1


def test_journal_of_the_configuration_is_found(
    sadvise: Sadvise, site: Library, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SADVISE_JOURNAL__FILE", str(journal))

    answer = sadvise("fit", "performance", "--from", "journal", "--dry-run")

    assert answer.exit_code == 0, answer.err


def test_package_without_a_performance_model_is_one_line(
    sadvise: Sadvise, tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.predict.library.shipped_folder", lambda: tmp_path / "none")
    monkeypatch.setenv("SADVISE_MODELS", str(tmp_path / "site"))

    answer = sadvise("fit", "performance", "--from", str(journal))

    assert answer.exit_code == 1 and len(answer.err.splitlines()) == 1
    assert "no performance model ships with this release" in answer.err


def test_journal_is_only_read(sadvise: Sadvise, site: Library, journal: Path) -> None:
    before = journal.read_bytes()

    adapt(sadvise, journal)

    assert journal.read_bytes() == before
    with SqliteJournal.read_only(journal) as opened:
        assert opened.verify().is_intact
