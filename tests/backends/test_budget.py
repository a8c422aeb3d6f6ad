"""What each command costs slurmctld, and that a budget of requests is never overdrawn."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.budget import BudgetedCommands, RpcBudget, requests_of
from advisor.backends.process import Answer
from advisor.backends.sources import MOST_REQUESTS
from advisor.errors import BudgetSpentError, SlurmError
from advisor.settings import BudgetSettings
from tests.backends.fake_slurm import Streaming

SETTINGS = BudgetSettings(rpcs_per_minute=60.0, burst=30, writes_per_minute=12, kept_for_reads=5)
UPDATE = ("scontrol", "update", "JobId=7", "Nice=5")
READ_ONE = ("squeue", "-h", "-a", "--noconvert", "--local", "-j", "7", "-O", "JobID")
SNAPSHOT = (("squeue", "-h", "-a", "-O", "JobID"), ("sinfo", "-h", "-a", "-N", "-O", "NodeList"))


@dataclass
class Monotonic:
    """A clock that a test moves, in both directions."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Return the instant."""
        return self.now


@dataclass
class Recorder(Streaming):
    """Commands that answer nothing and remember what was asked."""

    cluster: str | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer nothing."""
        self.asked.append((program, *arguments))
        return Answer(output=b"")


def budgeted(settings: BudgetSettings = SETTINGS) -> tuple[BudgetedCommands, Recorder, Monotonic]:
    clock, recorder = Monotonic(), Recorder(cluster="east")
    return BudgetedCommands(commands=recorder, budget=RpcBudget(settings, clock)), recorder, clock


def test_stream_costs_what_its_command_costs() -> None:
    commands, recorder, _ = budgeted()

    commands.stream("squeue", "-h", variables={"SQUEUE_FORMAT2": "JobID:@"})

    assert commands.budget.rpcs == {"REQUEST_JOB_INFO": 1, "REQUEST_PARTITION_INFO": 1}
    assert recorder.asked == [("squeue", "-h", "-O", "JobID:@")]


def test_stream_that_does_not_fit_is_not_begun() -> None:
    commands, recorder, _ = budgeted()
    while commands.budget.against_round(2) is None:
        commands.budget.take(("REQUEST_JOB_INFO",))

    with pytest.raises(BudgetSpentError, match="slurmctld is not asked now"):
        commands.stream("squeue", "-h", variables={})

    assert recorder.asked == []


def change(commands: BudgetedCommands) -> None:
    for command in (READ_ONE, UPDATE, READ_ONE):
        commands.ask(*command)


@pytest.mark.parametrize(
    ("command", "requests"),
    [
        (SNAPSHOT[0], ("REQUEST_JOB_INFO", "REQUEST_PARTITION_INFO")),
        (READ_ONE, ("REQUEST_JOB_INFO_SINGLE", "REQUEST_PARTITION_INFO")),
        (("squeue", "-j", "1,2"), ("REQUEST_JOB_INFO", "REQUEST_PARTITION_INFO")),
        (("squeue", "-a", "--json"), ("REQUEST_JOB_INFO",)),
        (SNAPSHOT[1], ("REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO")),
        (("sinfo", "--version"), ()),
        (UPDATE, ("REQUEST_UPDATE_JOB",)),
        (("scontrol", "requeue", "incomplete", "7"), ("REQUEST_JOB_REQUEUE",)),
        (("scontrol", "show", "config"), ("REQUEST_BUILD_INFO", "REQUEST_PING")),
        (("scontrol", "ping"), ("REQUEST_PING",)),
        (("scontrol", "-a", "show", "node", "--json"), ("REQUEST_NODE_INFO", "REQUEST_PARTITION_INFO")),
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


def test_snapshot_through_pyslurm_costs_five_requests() -> None:
    assert len(requests_of("/usr/bin/python3", ("-P", "/opt/pyslurm_child.py"))) == 5
    assert MOST_REQUESTS["pyslurm"] == 5 + MOST_REQUESTS["text"]
    assert requests_of("/usr/bin/python3", ("-P", "/opt/pyslurm_child.py", "--version")) == ()


def test_what_is_asked_is_counted_by_kind_and_passed_on() -> None:
    commands, recorder, _ = budgeted()

    change(commands)

    assert commands.cluster == "east"
    assert recorder.asked == [READ_ONE, UPDATE, READ_ONE]
    assert commands.budget.rpcs == {
        "REQUEST_JOB_INFO_SINGLE": 2,
        "REQUEST_PARTITION_INFO": 2,
        "REQUEST_UPDATE_JOB": 1,
    }


def test_a_round_of_a_minute_fits_with_four_changes_and_the_next_round_after_it() -> None:
    commands, _, clock = budgeted()

    for _ in range(10):
        for command in (("sdiag",), *SNAPSHOT):
            commands.ask(*command)
        changes = 0
        while commands.budget.against_change() is None:
            change(commands)
            changes += 1
        assert changes == 4
        clock.now += 60.0


def test_changes_leave_room_for_the_next_reading_of_the_cluster() -> None:
    commands, _, _ = budgeted()
    while commands.budget.against_change() is None:
        change(commands)

    for command in (("sdiag",), *SNAPSHOT):
        commands.ask(*command)

    assert (commands.budget.against_return() or "").startswith("budget: it has had its share of requests")


def test_spent_budget_sends_nothing_takes_nothing_and_can_be_tried_again() -> None:
    commands, recorder, clock = budgeted()
    for _ in range(15):
        commands.ask(*SNAPSHOT[0])

    with pytest.raises(BudgetSpentError, match=r"slurmctld is not asked now: .* with room again in 2 s") as caught:
        commands.ask(*SNAPSHOT[0])
    clock.now += 2.0
    commands.ask(*SNAPSHOT[0])

    assert isinstance(caught.value, SlurmError)
    assert len(recorder.asked) == 16
    assert sum(commands.budget.rpcs.values()) == 32


def test_a_round_begins_once_the_whole_of_it_fits() -> None:
    commands, _, clock = budgeted()
    for _ in range(15):
        commands.ask(*SNAPSHOT[0])

    said = []
    for _ in range(6):
        said.append(commands.budget.against_round())
        clock.now += 1.0

    assert [text is None for text in said] == [False, False, False, False, False, True]
    assert said[0] is not None and "with room again in 5 s" in said[0]


def test_change_that_could_not_be_read_back_is_not_sent() -> None:
    commands, recorder, _ = budgeted()
    for _ in range(14):
        commands.ask(*SNAPSHOT[0])

    with pytest.raises(BudgetSpentError):
        commands.ask(*UPDATE)

    assert UPDATE not in recorder.asked


def test_change_that_the_gate_lets_pass_is_never_cut_off_halfway() -> None:
    commands, recorder, clock = budgeted()

    for _ in range(50):
        while commands.budget.against_change() is None:
            # Where Slurm hides one end of a node range, the job is looked at once more.
            for command in (READ_ONE, ("scontrol", "-o", "show", "job", "7"), UPDATE, READ_ONE):
                commands.ask(*command)
        clock.now += 7.0

    assert recorder.asked.count(UPDATE) > 20


def test_changes_of_a_minute_are_bounded_whatever_the_requests_are() -> None:
    commands, _, clock = budgeted(replace(SETTINGS, rpcs_per_minute=6000.0, burst=1000))
    for _ in range(12):
        change(commands)

    said = commands.budget.against_change()
    with pytest.raises(BudgetSpentError, match="12 changes were sent within a minute"):
        commands.ask(*UPDATE)
    clock.now += 5.0
    later = commands.budget.against_change()

    assert said == "budget: 12 changes were sent within a minute (budget.writes_per_minute)"
    assert later is None


def test_no_change_is_sent_where_none_is_allowed() -> None:
    commands, recorder, _ = budgeted(replace(SETTINGS, writes_per_minute=0))

    with pytest.raises(BudgetSpentError):
        commands.ask(*UPDATE)

    assert recorder.asked == []


@pytest.mark.parametrize("jump_s", [-1e6, -1.0, 1e6])
def test_clock_that_jumps_neither_floods_nor_starves(jump_s: float) -> None:
    commands, _, clock = budgeted()
    for _ in range(15):
        commands.ask(*SNAPSHOT[0])

    clock.now += jump_s
    taken = 0
    for _ in range(100):
        if commands.budget.against_change() is None:
            change(commands)
            taken += 1
    clock.now += 60.0

    assert taken <= 5
    assert commands.budget.against_change() is None


def test_settings_taken_over_at_a_reload_keep_what_was_sent() -> None:
    commands, _, clock = budgeted()
    for _ in range(15):
        commands.ask(*SNAPSHOT[0])

    commands.budget.adopt(replace(SETTINGS, rpcs_per_minute=600.0, burst=100))
    at_once = commands.budget.against_change()
    clock.now += 10.0
    later = commands.budget.against_change()
    commands.budget.adopt(SETTINGS)

    assert at_once is not None
    assert later is None
    assert sum(commands.budget.rpcs.values()) == 30


steps = st.lists(
    st.tuples(st.floats(0.0, 30.0), st.sampled_from([READ_ONE, UPDATE, *SNAPSHOT, ("sdiag",)])), max_size=200
)


@given(steps)
def test_no_window_ever_holds_more_than_the_burst_and_what_it_earned(plan: list[tuple[float, tuple[str, ...]]]) -> None:
    commands, _, clock = budgeted()
    sent: list[tuple[float, int, bool]] = []

    for wait_s, command in plan:
        clock.now += wait_s
        try:
            commands.ask(*command)
        except BudgetSpentError:
            continue
        sent.append((clock.now, len(requests_of(command[0], command[1:])), command == UPDATE))

    for first, (since, _, _) in enumerate(sent):
        total, writes = 0, 0
        for instant, cost, is_write in sent[first:]:
            total, writes = total + cost, writes + is_write
            assert total <= 30 + (instant - since) + 1e-6
            assert writes <= 12 + (instant - since) / 5.0 + 1e-6
