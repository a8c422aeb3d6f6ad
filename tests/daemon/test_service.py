"""Rounds of the daemon over a fake cluster: what is sent, what is not, and why."""

from dataclasses import replace

import pytest

from advisor.domain.actions import SetNice
from advisor.domain.lease import Ending, LeaseState, intended
from advisor.domain.load import ControllerLoad
from advisor.domain.mode import Mode, Modes
from advisor.domain.plan import Outcome
from advisor.errors import AdvisorError, BudgetSpentError, ConfigError, SlurmUnavailableError
from advisor.journal import locked, opened
from advisor.site.pause_file import pause, resume
from tests.builders import make_recommendation
from tests.daemon.rounds import Site
from tests.fake_cluster import HOLD


@pytest.mark.parametrize(
    ("mode", "recommended", "sent"), [(Mode.OBSERVE, 0, 0), (Mode.RECOMMEND, 1, 0), (Mode.APPLY, 1, 1)]
)
def test_mode_decides_how_far_a_round_goes(site: Site, mode: Mode, recommended: int, sent: int) -> None:
    site.mode = mode

    done = site.service().round()

    assert done.step is not None and done.mode is mode and done.fault == ""
    assert len(done.step.record.recommendations) == recommended
    assert len(done.step.applied) == len(site.cluster.sent) == sent
    assert len(done.step.held_back) == recommended - sent


def test_next_round_proposes_nothing_new(site: Site) -> None:
    service = site.service()
    service.round()

    again = service.round()

    assert again.step is not None and again.step.record.recommendations == ()
    assert again.open_leases == {LeaseState.OUT: 1}
    assert again.rpcs == {"snapshot": 2}
    assert site.told == [site.told[0], again]


def test_every_round_shows_the_leases_that_it_leaves_and_what_they_are_for(site: Site) -> None:
    service = site.service()
    service.round()
    site.cluster.now += 86_400.0
    service.round()

    first, second = site.shown
    assert [(lease.job_id, lease.ending) for lease in first.leases] == [(HOLD.job_id, None)]
    assert first.purposes[HOLD.job_id, HOLD.lever].reason == "node_worth_waiting"
    assert next(lease.ending for lease in second.leases if lease.job_id == HOLD.job_id) is Ending.TAKEN_BACK
    assert first.taken_at + 86_400.0 == second.taken_at


def test_job_whose_nice_goes_back_in_the_round_is_no_stray(site: Site) -> None:
    nice = SetNice(job_id=HOLD.job_id, before=0, after=17)
    due = intended(nice, site.cluster.now - 600.0, after_s=600.0)
    with opened(site.folder / "journal.sqlite") as journal:
        journal.keep(replace(due, state=LeaseState.OUT))
    for job_id in (HOLD.job_id, 90):
        site.cluster.jobs[job_id] = replace(site.cluster.jobs[job_id], nice=17)

    done = site.service().round()

    assert done.step is not None and [taken.action.job_id for taken in done.step.reconciled.taken_back] == [HOLD.job_id]
    assert done.strays == (90,)


def test_a_pause_stops_new_changes_and_what_is_due_still_goes_back(site: Site) -> None:
    service = site.service()
    before = dict(site.cluster.jobs)
    service.round()
    site.cluster.now += 86_400.0
    pause(site.folder, by="ada", reason="maintenance")

    paused_round = service.round()

    assert paused_round.step is not None and paused_round.step.applied == () and paused_round.mode is Mode.RECOMMEND
    assert [receipt.outcome for receipt in paused_round.step.reconciled.taken_back] == [Outcome.APPLIED]
    assert paused_round.held_to == {"paused": "paused by ada: maintenance"} and paused_round.overdue == 0
    assert site.cluster.jobs == before and site.journal_leases() == ()


def test_a_pause_that_freezes_holds_everything_back_even_what_is_due(site: Site) -> None:
    service = site.service()
    service.round()
    site.cluster.now += 86_400.0
    pause(site.folder, by="ada", reason="maintenance", freeze=True)

    frozen = service.round()
    resume(site.folder)
    freed = service.round()

    said = "paused, and what is due stays, by ada: maintenance"
    assert frozen.step is not None and frozen.step.applied == () and frozen.mode is Mode.RECOMMEND
    assert [off.text for off in frozen.step.reconciled.put_off] == [f"paused: {said}"]
    assert frozen.held_to == {"paused": said} and frozen.overdue == 1
    assert freed.step is not None and len(freed.step.reconciled.taken_back) == 1
    assert freed.held_to == {} and freed.overdue == 0


def test_a_pause_in_the_middle_of_a_round_counts_at_once(site: Site) -> None:
    service = site.service()
    outfit = site.outfit(site.config())
    gate = outfit.gate

    before = gate.against_change(make_recommendation(HOLD), site.cluster.jobs[9])
    pause(site.folder, by="ada", reason="")

    assert before is None
    assert gate.against_change(make_recommendation(HOLD), site.cluster.jobs[9]) == "paused: paused by ada"
    assert service.config.mode.default is Mode.APPLY


def test_a_broken_journal_stops_changes_and_not_the_watching(site: Site) -> None:
    service = site.service()
    (site.folder / "journal.sqlite").write_bytes(b"this is no journal" * 99)

    blind = service.round()
    (site.folder / "journal.sqlite").unlink()
    again = service.round()

    assert blind.step is not None and len(blind.step.record.recommendations) == 1
    assert blind.step.applied == () and "is not a journal of sadvise" in blind.held_to["journal"]
    assert blind.mode is Mode.RECOMMEND
    assert again.step is not None and len(again.step.applied) == 1 and again.held_to == {}


@pytest.mark.slow
def test_jobs_with_changes_out_are_left_alone_while_the_journal_is_broken(site: Site) -> None:
    service = site.service()
    service.round()
    # Somebody else has the journal; what was read of it last still counts.
    with locked(site.folder / "journal.sqlite"):
        blind = service.round()

    assert "another sadvise is changing jobs with it" in blind.held_to["journal"]
    assert blind.step is not None and blind.step.record.memory.outstanding == {9}


def test_a_silent_slurmctld_is_asked_less_often_and_then_again_as_before(site: Site) -> None:
    service = site.service()
    site.silent = SlurmUnavailableError("sdiag cannot reach slurmctld")

    silent = [service.round() for _ in range(6)]
    site.silent = None
    answered = [service.round() for _ in range(12)]

    assert all(done.step is None and done.fault == "sdiag cannot reach slurmctld" for done in silent)
    assert [done.interval_s for done in silent] == [120.0, 240.0, 480.0, 600.0, 600.0, 600.0]
    assert answered[-1].interval_s == 60.0
    assert answered[0].step is not None


def test_a_strained_slurmctld_is_left_alone(site: Site) -> None:
    site.load = ControllerLoad(server_threads=200)

    done = site.service().round()

    assert done.step is None and site.cluster.snapshots == 0
    assert "200 server threads" in done.fault and done.interval_s == 120.0


TOO_LONG = "squeue answered with more than 67108864 bytes, which sadvise does not read: try another --source"


def test_what_is_due_goes_back_while_the_queue_cannot_be_read(site: Site) -> None:
    service = site.service()
    before = dict(site.cluster.jobs)
    service.round()
    site.cluster.unreadable = TOO_LONG
    site.cluster.now += 86_400.0
    site.clock.advance(86_400.0)

    blind = service.round()
    again = service.round()

    assert blind.step is None and blind.fault == TOO_LONG
    assert [receipt.outcome for receipt in blind.returned.taken_back] == [Outcome.APPLIED]
    assert site.cluster.jobs == before and site.journal_leases() == ()
    # Only the leased job was read, and nothing any more once nothing was due.
    assert site.cluster.read_by_id == [frozenset({9})] and again.returned.taken_back == ()


def test_nothing_is_read_for_what_is_not_due_yet(site: Site) -> None:
    service = site.service()
    service.round()
    site.cluster.unreadable = TOO_LONG

    blind = service.round()

    assert blind.fault == TOO_LONG and blind.returned.taken_back == ()
    assert site.cluster.read_by_id == [] and len(site.journal_leases()) == 1


def test_what_is_due_goes_back_while_slurmctld_is_strained_or_the_budget_is_spent(site: Site) -> None:
    service = site.service()
    service.round()
    site.silent = BudgetSpentError("slurmctld is not asked now")
    site.cluster.now += 86_400.0
    site.clock.advance(86_400.0)

    done = service.round()

    assert done.step is None and len(done.returned.taken_back) == 1
    assert site.journal_leases() == ()


@pytest.mark.parametrize(
    ("fault", "held_to"),
    [
        (BudgetSpentError("slurmctld is not asked now"), set()),
        (SlurmUnavailableError("slurmctld does not answer"), {"slurm_errors"}),
    ],
    ids=["budget", "no answer"],
)
def test_rounds_that_the_budget_puts_off_are_no_failed_reads(
    site: Site, fault: AdvisorError, held_to: set[str]
) -> None:
    service = site.service()
    site.silent = fault

    put_off = [service.round() for _ in range(4)]
    site.silent = None
    done = service.round()

    assert all(skipped.step is None and skipped.fault == str(fault) for skipped in put_off)
    assert done.held_to.keys() == held_to
    assert len(site.cluster.sent) == (0 if held_to else 1)


def test_a_round_says_when_what_is_due_could_not_go_back_either(site: Site) -> None:
    service = site.service()
    service.round()
    site.cluster.unreadable, site.cluster.unreachable = TOO_LONG, True
    site.cluster.now += 86_400.0
    site.clock.advance(86_400.0)

    done = service.round()

    assert done.fault == f"{TOO_LONG}; what is due was not reverted: no answer"
    assert [lease.state for lease in site.journal_leases()] == [LeaseState.RETURNING]


def test_leaving_takes_back_what_is_out_while_the_queue_cannot_be_read(site: Site) -> None:
    service = site.service()
    before = dict(site.cluster.jobs)
    service.round()
    site.cluster.unreadable = TOO_LONG

    left = service.leave(4.0)

    assert left == {"taken_back": 1, "still_out": 0}
    assert site.cluster.jobs == before


def test_leaving_takes_back_what_nobody_else_would(site: Site) -> None:
    service = site.service()
    before = dict(site.cluster.jobs)
    service.round()
    assert site.cluster.jobs != before

    service.stop()
    left = service.leave(4.0)

    assert left == {"taken_back": 1, "still_out": 0}
    assert site.cluster.jobs == before
    assert site.journal_leases() == ()


FROZEN = {"taken_back": 0, "still_out": 1, "because": "paused: paused, and what is due stays"}


@pytest.mark.parametrize(("freeze", "outcome"), [(False, {"taken_back": 1, "still_out": 0}), (True, FROZEN)])
def test_leaving_in_a_pause_reverts_unless_it_freezes(freeze: bool, outcome: dict[str, object], site: Site) -> None:
    service = site.service()
    service.round()
    pause(site.folder, by="", reason="", freeze=freeze)

    left = service.leave(4.0)

    assert left == outcome
    assert len(site.journal_leases()) == outcome["still_out"]


def test_leaving_without_slurm_leaves_the_leases_to_the_next_start(site: Site) -> None:
    service = site.service()
    service.round()
    site.cluster.unreachable = True

    assert service.leave(4.0) == {"taken_back": 0, "still_out": 1, "because": "no answer"}
    assert [lease.state for lease in site.journal_leases()] == [LeaseState.RETURNING]


def test_nothing_is_sent_once_the_daemon_is_told_to_end(site: Site) -> None:
    service = site.service()
    outfit = site.outfit(site.config())

    service.stop()

    said = outfit.gate.against_change(make_recommendation(HOLD), site.cluster.jobs[9])
    assert said == "stopping: sadvised was asked to stop"


def test_another_configuration_counts_from_the_next_round_on(site: Site) -> None:
    service = site.service()

    service.reconfigure(replace(site.config(), mode=Modes(default=Mode.OBSERVE)))
    done = service.round()

    assert done.mode is Mode.OBSERVE and done.step is not None and done.step.record.recommendations == ()


@pytest.mark.parametrize("table", ["journal", "daemon"])
def test_what_takes_a_restart_is_not_reloaded(site: Site, table: str) -> None:
    service = site.service()
    before = site.config()
    moved = {
        "journal": replace(before.journal, file="/elsewhere"),
        "daemon": replace(before.daemon, runtime_folder="/elsewhere"),
    }

    with pytest.raises(ConfigError, match="takes a restart to change"):
        service.reconfigure(replace(before, **{table: moved[table]}))  # type: ignore[arg-type]  # a test's own

    assert getattr(service.config, table) == getattr(before, table)


def test_a_person_who_changes_a_job_meanwhile_wins(site: Site) -> None:
    service = site.service()
    service.round()
    theirs = replace(site.cluster.jobs[9].gang, nodes_max=2)
    site.cluster.jobs[9] = replace(site.cluster.jobs[9], gang=theirs)

    done = service.round()
    service.leave(4.0)

    assert done.step is not None and [lease.job_id for lease in done.step.reconciled.overruled] == [9]
    assert site.cluster.jobs[9].gang == theirs
