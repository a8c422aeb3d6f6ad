"""What each command costs slurmctld, and that a budget of requests is never overdrawn."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.budget import BudgetedCommands, RpcBudget, requests_of
from advisor.backends.process import Answer
from advisor.backends.sources import MOST_REQUESTS
from advisor.clock import ManualClock
from advisor.domain.load import Allowance, RateLimit
from advisor.errors import BudgetSpentError
from advisor.settings import BudgetSettings
from tests.backends.fake_slurm import Streaming

SETTINGS = BudgetSettings(time_ratio=0.005)
# In seconds; what is not named costs a thousandth.
MEANS_S = {"REQUEST_UPDATE_JOB": 0.0005, "REQUEST_JOB_INFO": 0.002}
UPDATE = ("scontrol", "update", "JobId=7", "Nice=5")
READ_ONE = ("squeue", "-h", "-a", "--noconvert", "--local", "-j", "7", "-O", "JobID")
READ_LIST = ("squeue", "-h", "-a", "--noconvert", "--local", "-j", "7,8", "-O", "JobID")
SNAPSHOT = (("squeue", "-h", "-a", "-O", "JobID"), ("sinfo", "-h", "-a", "-N", "-O", "NodeList"))


@dataclass
class Recorder(Streaming):
    """Commands that answer nothing and remember what was asked."""

    cluster: str | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer nothing."""
        self.asked.append((program, *arguments))
        return Answer(output=b"")

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Answer nothing."""
        self.asked.append((program, *lines))
        return ""


def budgeted() -> tuple[BudgetedCommands, Recorder, ManualClock]:
    clock, recorder = ManualClock(1000.0), Recorder(cluster="east")
    budget = RpcBudget(SETTINGS, clock.now)
    budget.learn(MEANS_S, None, reading=4)
    return BudgetedCommands(commands=recorder, budget=budget), recorder, clock


def test_stream_costs_what_its_command_costs() -> None:
    commands, recorder, _ = budgeted()

    commands.stream("squeue", "-h", variables={"SQUEUE_FORMAT2": "JobID:@"})

    assert commands.budget.rpcs == {"REQUEST_JOB_INFO": 1, "REQUEST_PARTITION_INFO": 1}
    assert recorder.asked == [("squeue", "-h", "-O", "JobID:@")]


def test_stream_that_does_not_fit_is_not_begun() -> None:
    commands, recorder, _ = budgeted()
    commands.budget.learn(MEANS_S, RateLimit(size=10, per_s=2.0), reading=4)
    commands.budget.take(("REQUEST_JOB_INFO",) * 3)

    with pytest.raises(BudgetSpentError, match="slurmctld is not asked now"):
        commands.stream("squeue", "-h", variables={})

    assert recorder.asked == []


def batch(commands: BudgetedCommands, changes: int) -> None:
    """Read, change and read back as the actuator does."""
    if changes:
        commands.ask(*READ_LIST)
        commands.feed("scontrol", [f"update JobId={number} Nice=5" for number in range(1, changes + 1)])
        commands.ask(*READ_LIST)


@pytest.mark.parametrize(
    ("command", "requests"),
    [
        (SNAPSHOT[0], ("REQUEST_JOB_INFO", "REQUEST_PARTITION_INFO")),
        (READ_ONE, ("REQUEST_JOB_INFO_SINGLE", "REQUEST_PARTITION_INFO")),
        (("squeue", "-j", "1,2"), ("REQUEST_JOB_INFO", "REQUEST_PARTITION_INFO")),
        (("squeue", "-a", "--json", "-j", "1,2"), ("REQUEST_JOB_INFO",)),
        (SNAPSHOT[1], ("REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO")),
        (("sinfo", "--version"), ()),
        (UPDATE, ("REQUEST_UPDATE_JOB",)),
        (
            ("scontrol", "update", "JobId=7", "NumNodes=1-4"),
            ("REQUEST_UPDATE_JOB", "REQUEST_JOB_INFO_SINGLE", "REQUEST_FED_INFO"),
        ),
        (("scontrol", "show", "config"), ("REQUEST_BUILD_INFO", "REQUEST_PING")),
        (("scontrol", "ping"), ("REQUEST_PING",)),
        (("scontrol", "show", "node"), ("REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO")),
        (("scontrol", "-o", "-a", "show", "partition"), ("REQUEST_PARTITION_INFO",)),
        (("scontrol", "-o", "show", "assoc_mgr", "users=ada"), ("REQUEST_ASSOC_MGR_INFO",)),
        (("scontrol", "-o", "show", "job", "7"), ("REQUEST_JOB_INFO_SINGLE", "REQUEST_FED_INFO")),
        (("sdiag",), ("REQUEST_STATS_INFO",)),
        (("sprio", "-h"), ("REQUEST_PRIORITY_FACTORS",)),
        (("sacctmgr", "-nP", "show", "user"), ()),
    ],
    ids=" ".join,
)
def test_cost_of_a_command_is_known(command: tuple[str, ...], requests: tuple[str, ...]) -> None:
    assert requests_of(command[0], command[1:]) == requests


@pytest.mark.parametrize(
    "command", [("scancel", "7"), ("scontrol",), ("scontrol", "show"), ("scontrol", "reconfigure")]
)
def test_command_that_nobody_counted_is_taken_for_dear(command: tuple[str, ...]) -> None:
    assert requests_of(command[0], command[1:]) == ("UNCOUNTED",) * 4


def test_snapshot_through_pyslurm_costs_four_requests() -> None:
    assert len(requests_of("/usr/bin/python3", ("-P", "/opt/pyslurm_child.py"))) == 4
    assert MOST_REQUESTS["pyslurm"] == 4 + MOST_REQUESTS["text"]
    assert requests_of("/usr/bin/python3", ("-P", "/opt/pyslurm_child.py", "--version")) == ()


def test_what_is_asked_is_counted_by_kind_and_passed_on() -> None:
    commands, recorder, _ = budgeted()

    for command in (READ_ONE, UPDATE, READ_ONE):
        commands.ask(*command)

    assert commands.cluster == "east"
    assert recorder.asked == [READ_ONE, UPDATE, READ_ONE]
    assert commands.budget.rpcs == {
        "REQUEST_JOB_INFO_SINGLE": 2,
        "REQUEST_PARTITION_INFO": 2,
        "REQUEST_UPDATE_JOB": 1,
    }


def test_lines_that_scontrol_reads_are_counted_one_by_one() -> None:
    commands, recorder, _ = budgeted()

    commands.feed("scontrol", ["update JobId=7 Nice=5", "update JobId=8 Nice=6"])

    assert recorder.asked == [("scontrol", "update JobId=7 Nice=5", "update JobId=8 Nice=6")]
    assert commands.budget.rpcs == {"REQUEST_UPDATE_JOB": 2}
    assert commands.budget.spent_s == pytest.approx(2 * MEANS_S["REQUEST_UPDATE_JOB"])


def test_three_hundred_changes_a_minute_fit_into_the_default_share() -> None:
    commands, _, clock = budgeted()

    for _ in range(10):
        assert commands.budget.against_round() is None
        for command in (("sdiag",), *SNAPSHOT):
            commands.ask(*command)
        assert commands.budget.room(300) == Allowance(changes=300)
        batch(commands, 300)
        clock.advance(60.0)


def test_changes_beyond_the_share_wait_and_say_so() -> None:
    commands, _, clock = budgeted()

    room = commands.budget.room(1000)
    batch(commands, room.changes)
    left = commands.budget.room(1)
    early = commands.budget.against_round()
    clock.advance(60.0)

    assert room == Allowance(
        changes=600,
        text="budget: the share of slurmctld's time, budget.time_ratio, leaves room for 600 of 1000 changes",
    )
    assert left.changes == 0
    assert early is not None and early.startswith("it has spent its share of slurmctld's time (budget.time_ratio)")
    assert commands.budget.against_round() is None


def test_what_is_late_already_waits_for_no_share_and_later_rounds_pay_for_it() -> None:
    commands, _, clock = budgeted()
    batch(commands, 1000)

    assert commands.budget.room(500, returning=True) == Allowance(changes=500)
    batch(commands, 500)
    clock.advance(60.0)

    assert commands.budget.against_round() is not None


def test_a_slower_slurmctld_is_asked_for_less() -> None:
    commands, _, _ = budgeted()

    commands.budget.learn({**MEANS_S, "REQUEST_UPDATE_JOB": 0.04}, None, reading=4)

    assert commands.budget.room(300).changes == 7


def test_a_cluster_too_large_for_the_share_is_read_less_often() -> None:
    commands, _, clock = budgeted()
    commands.budget.learn({**MEANS_S, "REQUEST_JOB_INFO": 1.2}, None, reading=4)
    began, rounds = clock.time_s, 0

    while clock.time_s < began + 3600.0:
        if commands.budget.against_round() is None:
            rounds += 1
            for command in (("sdiag",), *SNAPSHOT):
                commands.ask(*command)
        clock.advance(10.0)

    assert 3600.0 * 0.005 / 1.21 - 1 < rounds < 3600.0 * 0.005 / 1.2 + 2


def test_daemon_that_starts_counts_on_no_more_of_slurms_rate_limiter_than_its_first_read() -> None:
    commands, _, clock = budgeted()
    commands.budget.learn(MEANS_S, RateLimit(size=30, per_s=2.0), reading=4)

    for command in SNAPSHOT:
        commands.ask(*command)
    at_start = (commands.budget.room(300).changes, commands.budget.room(300, returning=True).changes)
    spent = commands.budget.against_round(1)
    clock.advance(10.0)
    after_10_s = commands.budget.room(300).changes
    clock.advance(90.0)

    assert at_start == (0, 0) and spent is not None
    assert after_10_s == 0
    assert commands.budget.room(300).changes == 6


@pytest.mark.parametrize("interval_s", [1.0, 5.0, 60.0])
def test_rounds_under_slurms_rate_limiter_leave_room_for_changes_however_often_they_begin(interval_s: float) -> None:
    commands, _, clock = budgeted()
    commands.budget.learn(MEANS_S, RateLimit(size=30, per_s=2.0), reading=4)
    began, rooms = clock.time_s, []

    while clock.time_s < began + 600.0:
        clock.advance(interval_s)
        if commands.budget.against_round() is None:
            for command in (("sdiag",), *SNAPSHOT):
                commands.ask(*command)
            rooms.append(commands.budget.room(300, returning=True).changes)

    assert len(rooms) >= 9 and min(rooms) >= 1


def test_first_read_is_limited_by_the_size_of_slurms_bucket() -> None:
    commands, _, _ = budgeted()
    commands.budget.learn(MEANS_S, RateLimit(size=3, per_s=2.0), reading=4)

    assert commands.budget.against_round(4) is not None and commands.budget.against_round(3) is None


def test_under_slurms_rate_limiter_no_more_is_sent_than_it_lets_pass() -> None:
    commands, recorder, clock = budgeted()
    commands.budget.learn(MEANS_S, RateLimit(size=30, per_s=2.0), reading=30)

    first = commands.budget.room(300)
    batch(commands, first.changes)
    late = commands.budget.room(300, returning=True)
    clock.advance(10.0)
    later = commands.budget.room(300)
    with pytest.raises(BudgetSpentError, match=r"limits the requests of this user \(rl_enable\), with room again in"):
        commands.feed("scontrol", ["update JobId=7 Nice=5"] * 300)

    assert first == Allowance(changes=6, text="budget: slurmctld's rate limiter leaves room for 6 of 300 changes")
    assert (late.changes, later.changes) == (3, 6)
    assert len(recorder.asked) == 3


def test_a_limit_that_is_read_again_is_not_filled_again() -> None:
    commands, _, _ = budgeted()
    commands.budget.learn(MEANS_S, RateLimit(size=30, per_s=2.0), reading=30)
    for _ in range(15):
        commands.ask(*SNAPSHOT[0])

    commands.budget.learn(MEANS_S, RateLimit(size=30, per_s=2.0), reading=30)

    assert commands.budget.against_round(5) is not None
    commands.budget.learn(MEANS_S, None, reading=4)
    assert commands.budget.against_round(5) is None


@pytest.mark.parametrize("jump_s", [-1e6, -1.0])
def test_clock_that_jumps_back_neither_floods_nor_starves(jump_s: float) -> None:
    commands, _, clock = budgeted()
    batch(commands, 600)

    clock.advance(jump_s)
    at_once = commands.budget.room(300)
    clock.advance(60.0)

    assert at_once.changes == 0
    assert commands.budget.room(300).changes == 300


def test_settings_taken_over_at_a_reload_keep_what_was_sent() -> None:
    commands, _, clock = budgeted()
    batch(commands, 600)

    commands.budget.adopt(BudgetSettings(time_ratio=0.05))
    at_once = commands.budget.room(300)
    clock.advance(10.0)

    assert at_once.changes == 0
    assert commands.budget.room(300).changes == 300
    assert commands.budget.rpcs["REQUEST_UPDATE_JOB"] == 600


steps = st.lists(st.tuples(st.floats(0.0, 90.0), st.integers(0, 2000)), max_size=60)


@given(steps)
def test_no_window_ever_costs_more_than_the_share_a_minute_of_it_and_one_round(plan: list[tuple[float, int]]) -> None:
    commands, _, clock = budgeted()
    sent: list[tuple[float, float]] = []

    for wait_s, wanted in plan:
        clock.advance(wait_s)
        if commands.budget.against_round() is not None:
            continue
        before_s = commands.budget.spent_s
        for command in (("sdiag",), *SNAPSHOT):
            commands.ask(*command)
        batch(commands, commands.budget.room(wanted).changes)
        sent.append((clock.time_s, commands.budget.spent_s - before_s))

    reads_s = 5 * 0.002
    for first, (since, _) in enumerate(sent):
        total_s = 0.0
        for instant, cost_s in sent[first:]:
            total_s += cost_s
            assert total_s <= 0.005 * (instant - since) + 0.3 + 2 * reads_s + 1e-6
