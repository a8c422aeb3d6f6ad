"""What the daemon knows from round to round, and from start to start."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from advisor.daemon.service import Service
from advisor.domain.actions import SetNodeRange
from advisor.domain.experiment import ExperimentSettings
from advisor.domain.forecast import Forecasts, Interval, JobForecast, RunTime
from advisor.domain.job import Job, JobState
from advisor.domain.load import ControllerLoad
from advisor.domain.mode import Mode
from advisor.domain.outcome import Arm, JobOutcome, SeenForecast
from advisor.domain.snapshot import Snapshot
from advisor.errors import JournalError, SlurmUnavailableError
from advisor.journal import SqliteJournal, opened
from advisor.metrics.round import Round
from advisor.settings import BreakerSettings, Limits
from advisor.site.breaker_events import acknowledge, read_breakers, trust_again
from advisor.site.pause_file import pause, resume
from advisor.trial.accuracy import NOT_KNOWN
from tests.builders import DAY_S, TAKEN_AT, make_job
from tests.daemon.rounds import Site

BUSY = ControllerLoad(server_threads=200)


CALM = ControllerLoad(server_threads=1, cycle_s=0.1, agent_queue=0)


def strained(site: Site) -> tuple[Service, Round]:
    """Start a daemon, and let slurmctld be busy for its first round."""
    service = site.service()
    site.load = BUSY
    done = service.round()
    site.load = CALM
    return service, done


def unanswered(site: Site) -> Service:
    """Start a daemon whose first three rounds get no answer."""
    service = site.service()
    site.silent = SlurmUnavailableError("no answer")
    for _ in range(3):
        service.round()
    site.silent = None
    return service


def full_disk(_journal: SqliteJournal, _outcomes: object) -> None:
    raise JournalError("cannot grow: its disk is full")


def events(site: Site) -> list[str]:
    """Return what the audit tells of the daemon, oldest first."""
    with opened(site.folder / "journal.sqlite", wait_s=5.0) as journal:
        rows = journal.audit(most=1000)
    return [row.event for row in reversed(rows) if "job_id" not in row.detail]


def test_strain_opens_a_breaker_that_outlives_the_daemon(site: Site) -> None:
    first, busy = strained(site)
    held = first.round()
    first.leave(4.0)
    second = site.service()
    site.cluster.now += 60.0

    again = second.round()

    assert busy.step is None
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

    killed, _ = strained(site)
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
    service, _ = strained(site)

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
    service, _ = strained(site)

    modes = []
    for _ in range(40):
        modes.append(service.round().mode)
        site.cluster.now += 60.0

    assert modes[0] is Mode.RECOMMEND and modes[-1] is Mode.APPLY
    assert modes.index(Mode.APPLY) == 30, "half an hour after the first look that found it gone"
    assert events(site).count("breakers") == 2


def test_reads_that_fail_in_a_row_open_a_breaker(site: Site) -> None:
    done = unanswered(site).round()

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
        "configuration read again",
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
    assert blind.step is not None and len(blind.step.applied) == len(site.cluster.sent) == 1, "what was sent is shown"
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


MODEL = "run_time default-1"
NEARLY_A_DAY = RunTime(interval_s=Interval(low=60.0, median=80_000.0, high=DAY_S), mean_s=80_000.0)
TOO_LONG = RunTime(interval_s=Interval(low=80_000.0, median=81_000.0, high=DAY_S), mean_s=81_000.0)


class OnProbation:
    """A model on probation that forecasts one interval for all jobs that run, and puts those first that just began.

    With `orders` False it puts them last.
    """

    def __init__(self, run_time: RunTime, *, orders: bool = True) -> None:
        self.run_time, self.orders = run_time, orders

    def run_time_of(self, job: Job, now: float) -> RunTime:
        """Return the run time of a job that runs; its mean never lies below its interval."""
        since_s = now - (job.start_time or now)
        mean_s = since_s if self.orders else self.run_time.interval_s.high - since_s
        return replace(self.run_time, mean_s=max(self.run_time.interval_s.low, mean_s))

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        by_job = {
            job.job_id: JobForecast(run_time=self.run_time_of(job, snapshot.taken_at))
            for job in snapshot.jobs
            if not job.is_pending
        }
        return Forecasts(by_job=by_job, models=(MODEL,), on_probation=(MODEL,))

    def with_starts(self, forecasts: Forecasts, snapshot: Snapshot, job_ids: Collection[int]) -> Forecasts:
        assert set(job_ids) <= set(snapshot.jobs_by_id)
        return forecasts


def on_probation(site: Site, jobs: int, run_time: RunTime = NEARLY_A_DAY) -> Service:
    """Start a daemon whose model has to prove itself on a number of jobs."""
    site.forecaster = OnProbation(run_time)
    service = site.service()
    service.reconfigure(site.config(guard=Limits(probation_jobs=jobs)))
    return service


def test_forecasts_are_judged_in_the_round_in_which_jobs_end(site: Site) -> None:
    service = on_probation(site, 100)
    before = service.round()
    del site.cluster.jobs[1]
    site.cluster.now += 60.0

    after = service.round()

    assert before.accuracy["run_time"] == NOT_KNOWN
    assert (after.accuracy["run_time"].jobs, after.accuracy["run_time"].coverage_ratio) == (1, 1.0)


def test_rounds_without_ended_jobs_read_no_outcomes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    service = on_probation(site, 100)
    service.round()
    with monkeypatch.context() as patched:
        patched.setattr(SqliteJournal, "outcomes", full_disk)
        for _ in range(70):
            site.cluster.now += 60.0
            assert "journal" not in service.round().held_to


# As many users as can prove an order.
EIGHT = range(60, 68)


def add_short_jobs(site: Site, *job_ids: int) -> None:
    """Run jobs of a user each that waited together, and hold no GPUs that the gang waits for."""
    now = site.cluster.now
    for job_id in job_ids:
        site.cluster.jobs[job_id] = make_job(
            job_id,
            user=f"user{job_id}",
            state=JobState.RUNNING,
            submit_time=now - 3600.0,
            start_time=now - 600.0 - 60.0 * (job_id % 10),
        )


def next_round(site: Site, service: Service, *ended: int) -> Round:
    """Run a round a minute later, after some jobs have ended."""
    for job_id in ended:
        del site.cluster.jobs[job_id]
    site.cluster.now += 60.0
    return service.round()


def set_aside(done: Round) -> tuple[str, ...]:
    """Return the models that the plan of a round set aside."""
    assert done.step is not None
    assert tuple(done.on_probation) == done.step.record.forecasts.on_probation
    return done.step.record.forecasts.on_probation


def test_changes_go_out_by_time_limits_until_jobs_of_the_site_prove_the_model(site: Site) -> None:
    add_short_jobs(site, *EIGHT)
    service = on_probation(site, 8)
    first = service.round()
    second = next_round(site, service, *EIGHT)
    third = next_round(site, service)
    service.leave(4.0)
    again = on_probation(site, 8).round()

    assert set_aside(first) == set_aside(second) == (MODEL,) and set_aside(third) == set_aside(again) == ()
    assert first.step is not None and len(first.step.applied) == 1 and first.mode is Mode.APPLY
    assert "No job that it forecast has ended yet" in first.on_probation[MODEL]
    # The record holds the forecasts that the jobs are judged by.
    assert first.step.record.forecasts.by_job and events(site).count("run times proven") == 1


def test_model_that_does_not_fit_is_set_aside_for_good_and_changes_go_out(site: Site) -> None:
    add_short_jobs(site, 60, 61, 62)
    service = on_probation(site, 2, TOO_LONG)
    service.round()
    rounds = [next_round(site, service, 60, 61, 62), *(next_round(site, service) for _ in range(3))]

    assert [set_aside(done) for done in rounds] == [(MODEL,)] * 4
    assert [done.held_to for done in rounds] == [{}] * 4 and site.cluster.sent
    assert "0 of the 3 jobs that ended ran within" in rounds[0].on_probation[MODEL]


def foresee(site: Site, run_time: RunTime) -> None:
    """Let the model forecast another run time of new jobs."""
    assert isinstance(site.forecaster, OnProbation)
    site.forecaster.run_time = run_time


def drifting(site: Site) -> Service:
    """Start a daemon with a model that eight jobs have proven, and which drifts by three."""
    add_short_jobs(site, *EIGHT)
    service = on_probation(site, 8)
    service.reconfigure(
        site.config(guard=Limits(probation_jobs=8), breakers=BreakerSettings(min_ended_jobs=3, min_coverage_ratio=0.6))
    )
    service.round()
    next_round(site, service, *EIGHT)
    foresee(site, TOO_LONG)
    add_short_jobs(site, 70, 71, 72)
    assert set_aside(next_round(site, service)) == ()
    assert set_aside(next_round(site, service, 70, 71, 72)) == ()
    return service


def test_proven_model_that_drifts_is_set_aside_until_jobs_that_end_later_prove_it_again(site: Site) -> None:
    service = drifting(site)
    drifted = next_round(site, service)
    foresee(site, NEARLY_A_DAY)
    site.cluster.now += 7 * DAY_S
    add_short_jobs(site, *range(80, 88))
    next_round(site, service)
    service.leave(4.0)
    service = on_probation(site, 8)
    restarted = service.round()
    next_round(site, service, *range(80, 88))
    again = next_round(site, service)

    assert set_aside(drifted) == set_aside(restarted) == (MODEL,) and set_aside(again) == ()
    assert drifted.held_to == {} and drifted.mode is Mode.APPLY
    assert "no longer holds" in drifted.on_probation[MODEL]
    assert "No job that it forecast has ended since" in drifted.on_probation[MODEL]
    assert [event for event in events(site) if event.startswith("forecast")] == [
        "forecast drifted",
    ]  # fmt: skip
    assert events(site).count("run times proven") == 2


def looked(site: Site) -> int:
    """Count the looks at the order of a model."""
    return events(site).count("run times in order")


def test_model_that_covers_what_it_claims_and_orders_jobs_worse_than_limits_is_looked_at_once_a_week(
    site: Site,
) -> None:
    add_short_jobs(site, *EIGHT)
    service = on_probation(site, 8)
    assert isinstance(site.forecaster, OnProbation)
    site.forecaster.orders = False
    service.round()
    next_round(site, service, *EIGHT)
    site.forecaster.orders = True
    add_short_jobs(site, *range(100, 160))
    next_round(site, service)
    early = [next_round(site, service, *range(100, 160)), next_round(site, service)]
    looks = looked(site)
    service.leave(4.0)
    site.cluster.now += 7 * DAY_S
    service = on_probation(site, 8)
    late = [next_round(site, service), next_round(site, service)]

    assert [set_aside(done) for done in early] == [(MODEL,)] * 2 and looks == 1
    line = "At the last look it orders 0.0 % of the GPU-time in question right, time limits 50.0 %"
    assert line in early[0].on_probation[MODEL] and "68 of the 68 jobs" in early[1].on_probation[MODEL]
    assert looked(site) == 2 and [set_aside(done) for done in late] == [(MODEL,), ()]
    assert late[-1].order is not None and late[-1].order.order.ordered_ratio > late[-1].order.order.limit_ratio


def test_model_that_a_person_trusts_again_counts_until_later_jobs_show_the_same(site: Site) -> None:
    service = drifting(site)
    next_round(site, service)
    with opened(site.folder / "journal.sqlite", wait_s=5.0) as journal:
        trust_again(journal, site.cluster.now, by="ada", reason="a course ended")
    trusted = [next_round(site, service) for _ in range(3)]
    add_short_jobs(site, 80, 81, 82)
    next_round(site, service)
    next_round(site, service, 80, 81, 82)
    again = next_round(site, service)

    assert [set_aside(done) for done in trusted] == [()] * 3 and set_aside(again) == (MODEL,)
    assert events(site).count("forecast drifted") == 2


def test_breaker_that_a_person_acknowledges_closes_and_counts_again(site: Site) -> None:
    service = unanswered(site)
    site.asked = (100, 50)
    stopped = service.round()
    with opened(site.folder / "journal.sqlite", wait_s=5.0) as journal:
        shown = read_breakers(journal)[0].open
        acknowledge(journal, "slurm_errors", site.cluster.now, by="ada", reason="switch replaced")
        acknowledged = read_breakers(journal)[0]
    site.cluster.now += 60.0

    after = service.round()

    assert [breaker.name for breaker in shown] == ["slurm_errors"] == list(stopped.held_to)
    assert "`sadvise acknowledge slurm_errors`" in stopped.held_to["slurm_errors"]
    assert acknowledged.open == () and list(acknowledged.counted_since) == ["slurm_errors"]
    assert after.held_to == {} and after.mode is Mode.APPLY
    assert events(site).count("acknowledged") == 1 and events(site)[-1] == "breakers"


def test_acknowledged_breaker_whose_cause_lasts_opens_again(site: Site) -> None:
    service, _ = strained(site)
    service.round()
    with opened(site.folder / "journal.sqlite", wait_s=5.0) as journal:
        acknowledge(journal, "controller_threads", site.cluster.now, by="ada", reason="")
    for load in (BUSY, CALM):
        site.load = load
        again = service.round()
    service.leave(4.0)

    with opened(site.folder / "journal.sqlite", wait_s=5.0) as journal:
        (breaker,) = read_breakers(journal)[0].open
    assert breaker.name == "controller_threads" and "controller_threads" in again.held_to


def test_what_still_holds_outlives_the_retention_of_the_journal(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.journal.store.LEAST_KEPT", 0)
    with opened(site.folder / "journal.sqlite") as journal:
        for event in ("breakers", "run times proven", "started"):
            journal.note(TAKEN_AT, event, {"model": MODEL})
        journal.prune(TAKEN_AT + 400 * DAY_S)

    with opened(site.folder / "journal.sqlite") as journal:
        assert [row.event for row in reversed(journal.audit())] == ["pruned", "breakers", "run times proven"]
        assert journal.trust().proven == {MODEL} and journal.verify().broken is None
