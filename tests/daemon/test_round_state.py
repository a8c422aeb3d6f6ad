"""What the daemon knows from round to round, and from start to start."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.daemon.pause_file import pause, resume
from advisor.domain.actions import SetNodeRange
from advisor.domain.experiment import ExperimentSettings
from advisor.domain.forecast import Interval
from advisor.domain.load import ControllerLoad
from advisor.domain.mode import Mode
from advisor.domain.outcome import Arm, JobOutcome, SeenForecast
from advisor.errors import JournalError, SlurmUnavailableError
from advisor.journal import SqliteJournal, opened
from advisor.trial.accuracy import NOT_KNOWN
from tests.builders import DAY_S, TAKEN_AT, make_job
from tests.daemon.rounds import Site
from tests.fake_cluster import fragmented

BUSY = ControllerLoad(server_threads=200)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A cluster of which the planner says: let the gang wait for one node."""
    return Site(folder=tmp_path, cluster=fragmented())


def full_disk(_journal: SqliteJournal, _outcomes: object) -> None:
    raise JournalError("cannot grow: its disk is full")


def events(site: Site) -> list[str]:
    """Return what the audit tells of the daemon, oldest first."""
    with opened(site.folder / "journal.sqlite", wait_s=5.0) as journal:
        rows = journal.audit(most=1000)
    return [row.event for row in reversed(rows) if "job_id" not in row.detail]


def test_strain_opens_a_breaker_that_outlives_the_daemon(site: Site) -> None:
    first = site.service()
    site.load = BUSY
    strained = first.round()
    site.load = ControllerLoad(server_threads=1)
    held = first.round()
    first.leave(4.0)
    second = site.service()
    site.cluster.now += 60.0

    again = second.round()

    assert strained.step is None
    for done in (held, again):
        assert done.mode is Mode.RECOMMEND and list(done.held_to) == ["controller_threads"]
        assert "200 threads busy" in done.held_to["controller_threads"]
        assert done.step is not None and done.step.applied == ()
        assert [off.text.partition(":")[0] for off in done.step.held_back] == ["controller_threads"]
    assert site.cluster.sent == []
    assert events(site).count("breakers") == 1


def test_a_breaker_that_could_not_be_written_down_is_written_down_in_the_next_round(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = SqliteJournal.note

    def full(journal: SqliteJournal, time: float, event: str, detail: Mapping[str, str | int | float]) -> None:
        if event == "breakers":
            raise JournalError("cannot grow: its disk is full")
        written(journal, time, event, detail)

    killed = site.service()
    site.load = BUSY
    killed.round()
    site.load = ControllerLoad(server_threads=1)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteJournal, "note", full)
        blind = killed.round()
    killed.round()
    site.cluster.now += 60.0

    again = site.service().round()

    assert "disk is full" in blind.held_to["journal"]
    assert "200 threads busy" in again.held_to["controller_threads"]
    assert site.cluster.sent == [] and events(site).count("breakers") == 1


def test_outcomes_that_could_not_be_written_down_leave_the_rest_of_a_breaker_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = site.service()
    site.load = BUSY
    service.round()
    site.load = ControllerLoad(server_threads=1, cycle_s=0.1, agent_queue=0)

    modes = []
    for minute in range(40):
        with monkeypatch.context() as patched:
            if minute == 20:
                site.cluster.jobs[12] = make_job(12, gpus=2, submitted_ago_s=30.0)
                patched.setattr(SqliteJournal, "keep_outcomes", full_disk)
            modes.append(service.round().mode)
        site.cluster.now += 60.0

    assert any("disk is full" in done.held_to.get("journal", "") for done in site.told)
    assert modes.index(Mode.APPLY) == 30, "as if the outcomes had been written"


def test_a_breaker_closes_after_its_rest_and_says_so(site: Site) -> None:
    service = site.service()
    site.load = BUSY
    service.round()
    site.load = ControllerLoad(server_threads=1, cycle_s=0.1, agent_queue=0)

    modes = []
    for _ in range(40):
        modes.append(service.round().mode)
        site.cluster.now += 60.0

    assert modes[0] is Mode.RECOMMEND and modes[-1] is Mode.APPLY
    assert modes.index(Mode.APPLY) == 30, "half an hour after the first look that found it gone"
    assert events(site).count("breakers") == 2


def test_reads_that_fail_in_a_row_open_a_breaker(site: Site) -> None:
    service = site.service()
    site.silent = SlurmUnavailableError("no answer")
    for _ in range(3):
        service.round()
    site.silent = None

    done = service.round()

    assert "slurm_errors" in done.held_to and site.cluster.sent == []


def test_a_breaker_state_that_cannot_be_read_counts_as_none(site: Site) -> None:
    with opened(site.folder / "journal.sqlite") as journal:
        journal.note(TAKEN_AT, "breakers", {"state": "{}"})

    done = site.service().round()

    assert done.mode is Mode.APPLY


def test_audit_tells_start_pause_resume_reload_and_end(site: Site) -> None:
    service = site.service()
    service.round()
    pause(site.folder, by="ada", reason="")
    service.round()
    resume(site.folder)
    service.reconfigure(service.config)
    service.round()
    service.leave(4.0)

    assert [event for event in events(site) if event != "claimed"] == [
        "started",
        "paused",
        "configuration read anew",
        "resumed",
        "ended",
    ]


EXPERIMENT = ExperimentSettings(
    by="partition", name="spring", start="2027-01-01", end="2027-12-31", treated_partitions="gpu"
)


def test_experiment_is_registered_once_for_all_starts(site: Site) -> None:
    for _ in range(2):
        service = site.service()
        service.reconfigure(replace(service.config, experiment=EXPERIMENT))
        service.round()
        service.round()
        service.leave(4.0)

    assert events(site).count("experiment") == 1


def test_experiment_is_registered_after_the_journal_could_not_be_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = site.service()
    service.round()
    service.reconfigure(replace(service.config, experiment=EXPERIMENT))
    with monkeypatch.context() as patched:
        patched.setattr(SqliteJournal, "last", full_disk)
        blind = service.round()

    service.round()

    assert "journal" in blind.held_to and events(site).count("experiment") == 1


def test_jobs_are_followed_with_their_arm_and_their_changes(site: Site) -> None:
    service = site.service()
    service.reconfigure(replace(service.config, experiment=EXPERIMENT))
    service.round()
    del site.cluster.jobs[1]
    site.cluster.now += 60.0
    service.round()

    with opened(site.folder / "journal.sqlite", wait_s=5.0) as journal:
        over = journal.outcomes(0.0)
        still = {outcome.job_id: outcome for outcome in journal.open_outcomes()}

    assert [outcome.job_id for outcome in over] == [1]
    assert still[9].arm is Arm.TREATED
    assert [change.lever for change in still[9].changes] == ["node_range"]


def test_a_second_start_goes_on_following(site: Site) -> None:
    first = site.service()
    first.round()
    first.leave(4.0)
    site.cluster.jobs[12] = make_job(12, gpus=2, submitted_ago_s=30.0)
    second = site.service()
    site.cluster.now += 60.0
    second.round()

    with opened(site.folder / "journal.sqlite", wait_s=5.0) as journal:
        followed = [outcome.job_id for outcome in journal.open_outcomes()]

    assert followed == sorted(followed) and len(set(followed)) == len(followed)
    assert {9, 12} <= set(followed)


def test_jobs_that_could_not_be_written_down_are_written_down_later(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = site.service()
    with monkeypatch.context() as patched:
        patched.setattr(SqliteJournal, "keep_outcomes", full_disk)
        blind = service.round()
    again = service.round()

    with opened(site.folder / "journal.sqlite", wait_s=5.0) as journal:
        followed = {outcome.job_id for outcome in journal.open_outcomes()}
    assert "disk is full" in blind.held_to["journal"]
    assert again.held_to == {} and followed == set(site.cluster.jobs)


def test_forecasts_are_judged_by_the_jobs_that_ended(site: Site) -> None:
    hour = Interval(low=1800.0, median=3600.0, high=10_800.0)
    ended = JobOutcome(
        job_id=900, submit_time=TAKEN_AT - 8000.0, last_start_time=TAKEN_AT - 7300.0, end_time=TAKEN_AT - 100.0,
        last_seen_time=TAKEN_AT - 100.0, first_forecast=SeenForecast(made_time=TAKEN_AT - 8000.0, run_time_s=hour),
    )  # fmt: skip
    long_ago = replace(ended, job_id=901, last_start_time=TAKEN_AT - 4 * DAY_S, end_time=TAKEN_AT - 3.5 * DAY_S)
    with opened(site.folder / "journal.sqlite") as journal:
        journal.keep_outcomes([ended, replace(long_ago, last_seen_time=long_ago.end_time)])

    done = site.service().round()

    assert done.accuracy["start"] == NOT_KNOWN
    assert (done.accuracy["run_time"].coverage_ratio, done.accuracy["run_time"].jobs) == (1.0, 1)
    assert done.accuracy["run_time"].error_factor == pytest.approx(2.0)
    assert all(isinstance(action, SetNodeRange) for action in site.cluster.sent)
