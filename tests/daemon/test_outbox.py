"""The outbox sends what is new once, in bounds, and across restarts, and no round waits for it."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from advisor.apply.step import Reconciled
from advisor.clock import ManualClock, SystemClock
from advisor.config import Config
from advisor.daemon.outbox import QUIET_S, RETRIES_S, Outbox
from advisor.domain.mode import Mode
from advisor.domain.notice import ALL, HINT, Notice, NoticeKind, NoticeSettings
from advisor.domain.units import DAY_S, HOUR_S, WEEK_S
from advisor.errors import NoticeError
from advisor.guard.breakers import OpenBreaker
from advisor.journal import SqliteJournal
from advisor.metrics.round import Round
from advisor.settings import JournalSettings
from advisor.site.delivery import Target, deliver, state_file
from advisor.site.digests import DigestTask, notices_of
from tests.builders import TAKEN_AT, make_gang, make_job, make_nodes, make_partition, make_snapshot
from tests.cli.test_report import held_back
from tests.daemon.test_run import Log
from tests.made_rounds import lease, make_round, step
from tests.post_office import dripping, eventually, post_office, web_server

TWO = NoticeSettings(mail_to="ops@example.org", webhook="http://127.0.0.1:9/hook", digest="off")
BAR = OpenBreaker(
    name="slurm_errors", keys=("max_reads_failed",), cause="5 reads failed", opened_time=TAKEN_AT, looked_time=TAKEN_AT
)


@dataclass
class Post:
    """Takes letters, unless a target is said to fail, and makes digests as it is told."""

    sent: list[tuple[Target, Notice]] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    made: list[DigestTask] = field(default_factory=list)
    counted: list[tuple[str, str]] = field(default_factory=list)

    def deliver(self, notice: Notice, target: Target, _settings: NoticeSettings) -> None:
        if target in self.failing:
            raise NoticeError(f"{target}: no answer")
        self.sent.append((target, notice))

    def make(self, task: DigestTask) -> list[Notice]:
        self.made.append(task)
        user = Notice(kind=NoticeKind.JOBS_CHANGED, time=task.now, subject="jobs", text="", user="alice")
        digest = Notice(kind=NoticeKind.DIGEST, time=task.now, subject="week", text="")
        return [*([digest] if task.with_digest else []), *([user] if task.users_since is not None else [])]

    def subjects(self, target: str = "mail") -> list[str]:
        return [notice.subject for to, notice in self.sent if to == target]


@dataclass
class Desk:
    """An outbox over a folder that can be started again, and the rounds that it is shown."""

    folder: Path
    settings: NoticeSettings = TWO
    post: Post = field(default_factory=Post)
    log: Log = field(default_factory=Log)
    clock: ManualClock = field(default_factory=lambda: ManualClock(TAKEN_AT))

    def __post_init__(self) -> None:
        self.outbox = self.started()

    def started(self) -> Outbox:
        config = Config(journal=JournalSettings(file=str(self.folder / "journal.sqlite")), notify=self.settings)
        path = state_file(Path(config.journal.file))
        self.outbox = Outbox(
            config, path, self.clock, self.log, deliver=self.post.deliver, make=self.post.make,
            count=lambda target, outcome: self.post.counted.append((target, outcome)),
        )  # fmt: skip
        return self.outbox

    def shown(self, *rounds: Round) -> None:
        for done in rounds:
            self.outbox.observe(done)
        self.outbox.work(self.outbox.drain())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def barred(number: int = 0) -> Round:
    return make_round(step(), number=number, mode=Mode.RECOMMEND, held_to={BAR.name: BAR.cause}, breakers=(BAR,))


def stopped(number: int = 0, *, is_up: bool = False) -> Round:
    seen = make_snapshot(
        [make_job(1, gang=make_gang(4), name="\x1b[2J", user="mallory")],
        make_nodes(["n01"]),
        partitions=[make_partition("gpu", ["n01"], is_up=is_up)],
    )
    made = step()
    return make_round(replace(made, record=replace(made.record, snapshot=seen)), number=number)


def overruled(number: int = 0, jobs: Sequence[int] = (1, 2)) -> Round:
    leases = tuple(lease(job_id, user="mallory") for job_id in jobs)
    return make_round(step(reconciled=Reconciled(overruled=leases)), number=number)


def test_a_breaker_that_opens_is_sent_once_to_every_target_also_after_a_restart(desk: Desk) -> None:
    desk.shown(make_round(step()), barred(1), barred(2))
    desk.started()
    desk.shown(barred(3))

    assert desk.post.subjects("mail") == ["circuit breaker slurm_errors is open: nothing is applied"]
    assert desk.post.subjects("webhook") == desk.post.subjects("mail")
    (_, notice), _ = desk.post.sent
    assert "5 reads failed" in notice.text
    assert "To do: find" not in notice.text and "`sadvise acknowledge slurm_errors`" in notice.text
    again = replace(BAR, opened_time=TAKEN_AT + DAY_S)
    desk.shown(replace(barred(4), breakers=(again,)))
    assert len(desk.post.subjects()) == 2


def test_a_change_of_the_mode_is_sent_with_its_reason(desk: Desk) -> None:
    desk.shown(make_round(step()))
    desk.started()
    desk.shown(make_round(step(), number=1, mode=Mode.RECOMMEND, held_to={"paused": "paused by ann: disk"}))
    desk.shown(make_round(step(), number=2))

    assert desk.post.subjects() == ["mode recommend, apply before", "mode apply, recommend before"]
    assert "paused by ann: disk" in desk.post.sent[0][1].text


def test_a_stopped_partition_with_idle_gpus_is_sent_once_until_it_was_up_for_a_while(desk: Desk) -> None:
    quiet_rounds = int(QUIET_S / 60.0)
    desk.shown(stopped(), stopped(1), stopped(2, is_up=True), stopped(3))
    once = desk.post.subjects()
    desk.shown(stopped(4, is_up=True), stopped(4 + quiet_rounds, is_up=True), stopped(5 + quiet_rounds))

    assert once == ["partition gpu is not up, and 8 GPUs idle"]
    assert len(desk.post.subjects()) == 2
    text = desk.post.sent[0][1].text
    assert "1 GPU job waits for 4 GPUs, and 8 are idle there" in text
    assert "mallory" not in text and "\x1b" not in text


def test_overruled_changes_of_a_round_are_one_notice_without_names(desk: Desk) -> None:
    desk.shown(overruled())

    assert desk.post.subjects() == ["2 changes overruled"]
    assert "1, 2" in desk.post.sent[0][1].text and "mallory" not in str(desk.post.sent)


def test_only_the_events_that_are_named_are_sent(tmp_path: Path) -> None:
    desk = Desk(tmp_path, replace(TWO, events="partition_down"))

    desk.shown(make_round(step()), barred(1), overruled(2), stopped(3))

    assert desk.post.subjects() == ["partition gpu is not up, and 8 GPUs idle"]


def test_nothing_is_sent_or_kept_without_a_target(tmp_path: Path) -> None:
    desk = Desk(tmp_path, NoticeSettings())

    desk.shown(make_round(step()), barred(1), overruled(2), stopped(3))

    assert desk.post.sent == []
    assert "topics" in json.loads(state_file(tmp_path / "journal.sqlite").read_text())


def test_a_flood_is_bounded_and_the_rest_is_summed_up(tmp_path: Path) -> None:
    desk = Desk(tmp_path, replace(TWO, max_per_hour=3))

    desk.shown(*(overruled(number) for number in range(20)))
    bounded = len(desk.post.subjects())
    desk.clock.advance(HOUR_S + 1.0)
    desk.started()
    desk.shown(make_round(step(), number=100))

    assert bounded == 3
    assert desk.post.subjects()[3:] == ["17 more notices in the last hour"]
    assert "17 change_overruled" in desk.post.sent[-1][1].text


def test_a_failed_delivery_is_tried_again_logged_once_and_given_up(desk: Desk) -> None:
    desk.post.failing = {"mail"}
    desk.shown(overruled())
    for wait_s in RETRIES_S:
        desk.shown(make_round(step()))
        desk.clock.advance(wait_s)
        desk.started()  # a restart forgets no letter
        desk.shown(make_round(step()))

    assert desk.post.subjects("webhook") == ["2 changes overruled"]
    assert [outcome for target, outcome in desk.post.counted if target == "mail"] == ["put_off"] * 3 + ["given_up"]
    assert desk.outbox.fault == "mail: no answer"
    desk.clock.advance(DAY_S)
    desk.post.failing = set()
    desk.shown(make_round(step()))
    assert desk.post.subjects("mail") == []


def test_a_fault_is_logged_once_and_so_is_its_end(desk: Desk) -> None:
    desk.post.failing = {"mail"}
    desk.shown(overruled(), overruled(1))
    desk.post.failing = set()
    desk.clock.advance(RETRIES_S[0])
    desk.shown(make_round(step()))

    assert desk.log.said("notices are not delivered") == [{"fault": "mail: no answer"}]
    assert desk.log.said("notices are delivered again") == [{"target": "mail"}]
    assert desk.outbox.fault == ""
    assert desk.post.subjects("mail") == ["2 changes overruled"] * 2


def test_a_damaged_or_unwritable_state_costs_no_notice(tmp_path: Path) -> None:
    state_file(tmp_path / "journal.sqlite").write_text("{")

    desk = Desk(tmp_path)
    desk.shown(barred())

    assert len(desk.post.subjects()) == 1
    assert "not the state of this release" in desk.log.said("the notices of earlier daemons are not known")[0]["fault"]


def test_the_digest_is_made_once_a_week_and_users_get_mail_once_a_day(tmp_path: Path) -> None:
    desk = Desk(tmp_path, replace(TWO, digest="monday", users=ALL))

    for _ in range(int(2 * WEEK_S / HOUR_S)):
        desk.shown(make_round(step()))
        desk.clock.advance(HOUR_S)
        desk.started()

    mondays = [time.gmtime(task.now) for task in desk.post.made if task.with_digest]
    assert [(day.tm_wday, day.tm_hour) for day in mondays] == [(0, TWO.hour)] * 2
    assert {time.gmtime(task.now).tm_hour for task in desk.post.made} == {TWO.hour}
    assert len([task for task in desk.post.made if task.users_since is not None]) == 14
    assert desk.post.subjects("webhook") == ["week", "week"]


def test_the_first_start_and_a_switch_that_is_turned_on_later_make_no_digest_of_the_past(desk: Desk) -> None:
    desk.shown(make_round(step()))
    desk.clock.advance(3 * WEEK_S)
    desk.settings = replace(TWO, digest="monday", users=ALL)
    desk.started()
    desk.shown(make_round(step()))

    assert desk.post.made == []


def test_a_digest_of_a_journal_is_made_in_a_process_of_its_own(tmp_path: Path) -> None:
    path, now = tmp_path / "journal.sqlite", time.time()
    with SqliteJournal(path) as journal:
        journal.keep_outcomes([
            held_back(1, user="alice", submit_time=now - HOUR_S * 3),
            held_back(2, user="bob", submit_time=now - HOUR_S * 3, wants_mail=True),
            held_back(3, user="-oQ", submit_time=now - HOUR_S * 3, wants_mail=True),
        ])  # fmt: skip
    config = Config(journal=JournalSettings(file=str(path)), notify=replace(TWO, users=HINT))

    digest, mail = notices_of(
        DigestTask(config=config, now=now, with_digest=True, users_since=now - DAY_S), None
    )  # fmt: skip

    assert digest.kind is NoticeKind.DIGEST and not digest.user
    assert "3 GPU jobs ended, 3 were changed" in digest.text
    assert "bob" not in digest.text
    assert (mail.user, mail.subject) == ("bob", "1 job of yours changed by sadvise")
    assert "Job 2, started" in mail.text and "a wait for one leaf switch" in mail.text
    assert "alice" not in mail.text


@pytest.mark.slow
def test_rounds_wait_for_nothing_while_a_server_hangs_and_the_mail_arrives(tmp_path: Path) -> None:
    over = threading.Event()
    with post_office() as office, web_server() as hook:
        hook.answer = lambda handler: dripping(handler, until=over)
        settings = NoticeSettings(
            mail_to="ops@example.org", sendmail=str(office.sendmail(tmp_path)), webhook=hook.url, timeout_s=1.0
        )
        config = Config(journal=JournalSettings(file=str(tmp_path / "journal.sqlite")), notify=settings)
        outbox = Outbox(
            config, state_file(Path(config.journal.file)), SystemClock(), Log(), deliver=deliver, make=_none
        )  # fmt: skip
        with outbox.running():
            begun = time.monotonic()
            for number in range(20):
                outbox.observe(overruled(number, jobs=(number,)))
            observed_s = time.monotonic() - begun
            eventually(lambda: len(office.envelopes) == settings.max_per_hour and outbox.fault, within_s=100.0)
        over.set()

    assert observed_s < 1.0
    assert "gave no answer within 1 s" in outbox.fault
    assert office.mails[0]["Subject"] == "[sadvise test] 1 change overruled"


def _none(_task: DigestTask) -> list[Notice]:
    return []
