"""A recorded cycle, planned again, gives the same bytes."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.cycle import Cycle, NoForecaster
from advisor.domain.actions import Lever
from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement, RunTime
from advisor.domain.lease import LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.mode import Mode, Modes
from advisor.domain.plan import Recommendation
from advisor.domain.probation import Trust
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import standings_of
from advisor.domain.topology import LocalityTier
from advisor.errors import JournalError
from advisor.journal import SqliteJournal
from advisor.journal.cycle_record import RECORDS_IN_FRAME, outcome_of
from advisor.planning.case import Case
from advisor.planning.plan_trial import NO_TRIAL, PlanTrial, untried
from advisor.replay.deviations import cycle_of, deviations, replayed
from advisor.settings import Limits, PlanningSettings
from tests.builders import HOUR_S, TAKEN_AT, make_job, make_snapshot, make_stretch
from tests.examples import examples
from tests.fake_cluster import HOLD, fragmented
from tests.journal.contract import ACTIONS, wait
from tests.planning.test_policies import Scripted, queue
from tests.strategies import snapshots


class KnowsSomething:
    """Forecasts of every kind for every second job; the run times can be on probation."""

    def __init__(self, *on_probation: str) -> None:
        self.on_probation = on_probation

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        known = Interval(low=600.1, median=3000.3, high=9000.7)
        speeds = {
            Placement(gpus=4, tier=tier): Interval(low=0.7, median=1 / 3 + 0.6, high=1.0) for tier in LocalityTier
        }
        told = JobForecast(
            run_time=RunTime(interval_s=known, mean_s=3333.3),
            start_s=known,
            speed_by_placement=speeds,
            inflation_beside=Interval(low=1.0, median=1.1, high=1.2),
            unknown=("nothing\nmore",),
        )
        return Forecasts(
            by_job={job.job_id: told for job in snapshot.jobs[::2]},
            models=("run_time 1", "m 1"),
            notes=("n",),
            on_probation=self.on_probation,
        )


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        yield journal


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    seen=st.lists(snapshots(), min_size=1, max_size=3),
    memory_s=st.sampled_from([600.0, 3600]),
    knows=st.sampled_from([None, KnowsSomething(), KnowsSomething("run_time 1")]),
    least=st.sampled_from([0, 100]),
    trust=st.sampled_from([None, Trust(), Trust(drifted=frozenset({"run_time 1"}))]),
)
def test_record_and_replay_give_the_same_bytes(
    seen: list[Snapshot],
    memory_s: float,
    knows: KnowsSomething | None,
    least: int,
    trust: Trust | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    journal = SqliteJournal(tmp_path_factory.mktemp("replay") / "journal.sqlite")
    cycle = Cycle(planning=PlanningSettings(timer_memory_s=memory_s, min_saving_s=0.0))
    cycle = replace(cycle, limits=Limits(probation_jobs=least), forecaster=knows or NoForecaster())
    leases = tuple(intended(action, TAKEN_AT - 30.0) for action in ACTIONS)
    records = [
        cycle.judge(
            replace(snapshot, taken_at=snapshot.taken_at + number),
            Memory(
                leases=leases[number:],
                waits=tuple(wait(TAKEN_AT - 60.0 - each) for each in range(number)),
                busy=frozenset({3, number}),
                trust=trust,
                standings=standings_of([make_stretch(user="al\nice", waited_s=float(number // 2))]),
            ),
        )
        for number, snapshot in enumerate(seen)
    ]

    numbers = [journal.record(record, cycle, whole=True) for record in records]

    for number, record in zip(numbers, records, strict=True):
        found = journal.recorded(number)
        assert replayed(found) == found.outcome == outcome_of(record)
        assert (found.snapshot, found.forecasts) == (record.snapshot, record.forecasts)
        assert found.memory.standings == record.memory.standings
        assert (found.memory.waits, found.memory.leases, found.memory.outstanding) == (
            record.memory.waits,
            record.memory.leases,
            record.memory.outstanding,
        )
    journal.close_file()


@pytest.mark.no_cover
@settings(max_examples=examples(100), deadline=None)
@given(snapshot=snapshots(), memory_s=st.sampled_from([600.0, 3600]), drifted=st.booleans())
def test_plan_with_a_model_on_probation_is_that_without_its_run_times(
    snapshot: Snapshot, memory_s: float, drifted: bool
) -> None:
    class KnowsSpeeds:
        """The same forecasts, from a site without a run-time model."""

        def forecasts(self, snapshot: Snapshot) -> Forecasts:
            full = KnowsSomething().forecasts(snapshot)
            by_job = {job_id: replace(forecast, run_time=None) for job_id, forecast in full.by_job.items()}
            return replace(full, by_job=by_job, models=("m 1",))

    model = "run_time 1"
    memory = Memory(waits=(wait(TAKEN_AT - 60.0),), trust=Trust(drifted=frozenset({model} if drifted else ())))
    without = Cycle(
        planning=PlanningSettings(timer_memory_s=memory_s, min_saving_s=0.0), forecaster=KnowsSpeeds()
    ).judge(snapshot, memory)
    forecaster = KnowsSomething() if drifted else KnowsSomething(model)

    on_probation = Cycle(
        planning=PlanningSettings(timer_memory_s=memory_s, min_saving_s=0.0), forecaster=forecaster
    ).judge(snapshot, memory)

    assert on_probation.forecasts == KnowsSomething(model).forecasts(snapshot)
    assert replace(on_probation, forecasts=without.forecasts) == without


def test_settings_of_then_are_those_of_the_replay(journal: SqliteJournal) -> None:
    cycle = Cycle(
        planning=PlanningSettings(depth=7),
        limits=Limits(max_changes=3),
        levers=frozenset({Lever.NODE_RANGE}),
        modes=Modes(default=Mode.RECOMMEND, accounts="vision=apply"),
    )

    journal.record(cycle.judge(fragmented().snapshot()), cycle)

    found = cycle_of(journal.recorded())
    assert (found.planning, found.limits) == (cycle.planning, cycle.limits)
    assert (found.levers, found.modes) == (cycle.levers, cycle.modes)


def test_replay_repeats_what_a_policy_scored(journal: SqliteJournal) -> None:
    shy = Cycle(policy=Scripted(0.0))
    record = shy.judge(queue())

    journal.record(record, shy, whole=True)

    assert replayed(journal.recorded()) == outcome_of(record) != outcome_of(Cycle().judge(queue()))


def test_replay_repeats_what_a_trial_refused(journal: SqliteJournal) -> None:
    class Refuses:
        def tried(self, case: Case, changes: Sequence[Recommendation]) -> PlanTrial:  # noqa: ARG002  (the protocol's)
            return untried(changes, "late")

    cycle = Cycle(trial=Refuses())
    record = cycle.judge(fragmented().snapshot())

    journal.record(record, cycle)

    assert journal.recorded().trial == record.trial != NO_TRIAL
    assert replayed(journal.recorded()) == outcome_of(record) != outcome_of(Cycle().judge(fragmented().snapshot()))


def test_other_settings_show_what_would_differ(journal: SqliteJournal) -> None:
    journal.record(Cycle().judge(fragmented(make_job(11, gpus=2)).snapshot()), Cycle())
    found = journal.recorded()

    capped = deviations(found.outcome, replayed(found, Cycle(limits=Limits(max_changes=0))))
    observing = deviations(found.outcome, replayed(found, Cycle(modes=Modes())))

    assert [(each.job_id, each.what, each.recorded, each.replayed) for each in capped if each.job_id == 9] == [
        (9, "node_range refused by", "-", "changes_within_cap")
    ]
    assert (9, "left alone", "-", "mode_allows_advice") in [
        (each.job_id, each.what, each.recorded, each.replayed) for each in observing
    ]
    (action,) = [
        each.recorded
        for each in deviations(found.outcome, b'{"left_alone":[],"verdicts":[]}')
        if (each.job_id, each.what) == (9, "node_range")
    ]
    assert action == '{"after":{"high":1,"low":1},"before":{"high":4,"low":1},"job_id":9}'
    assert deviations(found.outcome, found.outcome) == ()


def test_another_order_is_a_deviation() -> None:
    def outcome(*job_ids: int) -> bytes:
        verdicts = [
            {"lever": "nice", "refused_by": None, "recommendation": {"action": {"job_id": job_id}}}
            for job_id in job_ids
        ]
        return json.dumps({"left_alone": [], "verdicts": verdicts}).encode()

    (found,) = deviations(outcome(1, 2), outcome(2, 1))

    assert (found.job_id, found.what, found.replayed) == (1, "order", "2")


@pytest.mark.slow
def test_records_after_a_frame_are_small_and_a_new_frame_comes_in_time(journal: SqliteJournal) -> None:
    jobs = [make_job(number, gpus=1 + number % 4, time_limit_s=HOUR_S) for number in range(1, 150)]
    first, cycle = make_snapshot(jobs), Cycle(limits=Limits(nice_min=0))
    for number in range(RECORDS_IN_FRAME + 2):
        seen = replace(first, taken_at=TAKEN_AT + number, jobs=(replace(jobs[0], nice=number), *jobs[1:]))
        journal.record(cycle.judge(seen), cycle, whole=True)

    rows = journal._database.execute("SELECT cycle_id, frame, length(content) FROM records ORDER BY 1").fetchall()

    assert [frame for _, frame, _ in rows] == [1] * RECORDS_IN_FRAME + [RECORDS_IN_FRAME + 1] * 2
    assert rows[1][2] * 3 < rows[0][2]
    assert journal.recorded(RECORDS_IN_FRAME).snapshot.jobs[0].nice == RECORDS_IN_FRAME - 1


def test_damaged_record_is_named(journal: SqliteJournal) -> None:
    for _ in range(2):
        journal.record(Cycle().judge(fragmented().snapshot()), Cycle())
    statements = {
        "UPDATE records SET content = x'00' WHERE cycle_id = 2": "is damaged",
        "UPDATE records SET content = substr(content, 1, 40) WHERE cycle_id = 2": "is damaged",
        "UPDATE cycles SET digest = 'x' WHERE id = 2": "the record of cycle 2 is damaged",
        "DELETE FROM records WHERE cycle_id = 1": "is damaged",
    }

    for statement, complaint in statements.items():
        journal._database.execute("SAVEPOINT before")
        journal._database.execute(statement)
        with pytest.raises(JournalError, match=complaint):
            journal.recorded(2)
        journal._database.execute("ROLLBACK TO before")
        journal._database.execute("RELEASE before")
    assert journal.recorded(2).digest


def test_lease_that_is_out_is_part_of_the_record(journal: SqliteJournal) -> None:
    out = replace(intended(HOLD, TAKEN_AT - 60.0, after_s=600.0), state=LeaseState.OUT, user="alice")
    cycle = Cycle()

    journal.record(cycle.judge(fragmented().snapshot(), Memory(leases=(out,), busy=frozenset({9}))), cycle, whole=True)

    assert journal.recorded().memory.leases == (out,)
    assert replayed(journal.recorded()) == journal.recorded().outcome


def test_a_sentence_of_an_earlier_version_is_shown_as_it_was_recorded() -> None:
    now = outcome_of(Cycle().judge(fragmented().snapshot()))
    recorded = now.replace(b"waits up to", b"is to wait")

    (change,) = [found for found in deviations(recorded, now) if "is to wait" in found.recorded]
    assert change.what.endswith(" text") and "waits up to" in change.replayed
    assert not change.recorded.startswith('"')
