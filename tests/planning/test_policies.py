"""A policy behind the planner: what it may decide, what becomes of one that fails, and how a cycle is replayed."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from advisor.apply.memory_journal import MemoryJournal
from advisor.cycle import Cycle
from advisor.domain.actions import Lever
from advisor.domain.memory import NO_STATE, Memory, PolicyState
from advisor.domain.snapshot import Snapshot
from advisor.errors import ModelError
from advisor.features.board import FINGERPRINT, JOB_COLUMNS, NODE_COLUMNS, Board
from advisor.features.policy import Options, Scores
from advisor.journal import SqliteJournal
from advisor.journal.cycle_record import outcome_of
from advisor.journal.deviations import replayed
from advisor.planning import case
from advisor.planning.sizing import OPTION_COLUMNS
from tests.builders import DAY_S, make_hints, make_job, make_node, make_snapshot
from tests.planning.test_sizing import new_sizes


def queue() -> Snapshot:
    """Two jobs that start with 2 GPUs each and could have 4 or 6, where 4 GPUs are left."""
    hints = make_hints(gpus=(2, 6))
    jobs = [make_job(number, gpus=2, time_limit_s=DAY_S, hints=hints) for number in (1, 2)]
    return make_snapshot(jobs, [make_node("n01")])


@dataclass
class Scripted:
    """A policy that answers as a test says, and remembers what it was asked."""

    answer: float | str | ModelError
    name: str = "scripted"
    digest: str = ""
    levers: frozenset[Lever] = frozenset({Lever.GPU_COUNT})
    boards: list[Board] = field(default_factory=list)
    asked: list[Options] = field(default_factory=list)
    states: list[bytes] = field(default_factory=list)

    def act(self, board: Board, options: Options, state: bytes) -> tuple[Scores, bytes]:
        """Answer."""
        self.boards.append(board)
        self.asked.append(options)
        self.states.append(state)
        if isinstance(self.answer, ModelError):
            raise self.answer
        if self.answer == "short":
            return np.zeros(len(options) + 1), state
        return np.full(len(options), float(self.answer)), state + b"."


def test_policy_that_scores_nothing_above_0_grows_no_job() -> None:
    record = Cycle(policy=Scripted(0.0)).judge(queue())

    assert new_sizes(record) == {} and record.policy_fault == ""
    assert len(record.decisions) == 1


def test_policy_chooses_among_the_same_options_as_the_rules() -> None:
    policy = Scripted(1.0)

    record = Cycle(policy=policy).judge(queue())

    # All steps score the same: the first job takes both of its own before the second gets any.
    assert new_sizes(Cycle().judge(queue())) == {1: 4, 2: 4}
    assert new_sizes(record) == {1: 6}
    assert tuple(policy.asked[0].columns) == OPTION_COLUMNS and policy.asked[0].lever is Lever.GPU_COUNT
    assert [decision.lever for decision in record.decisions] == [Lever.GPU_COUNT]
    assert policy.states == [b"." * number for number in range(len(record.decisions))]


@pytest.mark.parametrize(
    ("answer", "said"), [(ModelError("late"), "late"), (float("nan"), "finite"), ("short", "finite")]
)
def test_rules_decide_where_a_policy_fails(answer: float | str | ModelError, said: str) -> None:
    policy = Scripted(answer)

    record = Cycle(policy=policy).judge(queue())

    assert new_sizes(record) == new_sizes(Cycle().judge(queue()))
    assert said in record.policy_fault
    assert record.decisions == () and len(policy.asked) == 1
    assert record.policy_state == NO_STATE


def test_rules_need_no_board(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "board_of", None)

    assert new_sizes(Cycle().judge(queue())) == {1: 4, 2: 4}


def test_policy_goes_on_from_what_it_remembered() -> None:
    policy = Scripted(0.0)
    cycle = Cycle(policy=policy)
    journal = MemoryJournal()

    for _ in range(3):
        journal.record(cycle.judge(queue(), cycle.memory(journal, queue())), cycle)

    assert policy.states == [b"", b".", b".."]
    assert journal.policy_state() == PolicyState(policy="scripted", content=b"...")


@pytest.mark.parametrize(
    ("policy", "begins_with"),
    [
        (Scripted(0.0, digest="one"), b"kept"),
        (Scripted(0.0, digest="two"), b""),
        (Scripted(0.0, name="other", digest="one"), b""),
    ],
    ids=["same policy", "other model", "other name"],
)
def test_state_of_another_policy_is_dropped(policy: Scripted, begins_with: bytes) -> None:
    kept = PolicyState(policy="scripted", digest="one", content=b"kept")

    record = Cycle(policy=policy).judge(queue(), Memory(policy_state=kept))

    assert policy.states == [begins_with]
    assert record.policy_state.content == begins_with + b"."


def test_state_is_dropped_where_the_rules_took_over() -> None:
    kept = PolicyState(policy="scripted", content=b"kept")

    failed, by_rules = (
        Cycle(policy=policy).judge(queue(), Memory(policy_state=kept)) for policy in (Scripted("short"), None)
    )

    assert failed.policy_state == by_rules.policy_state == NO_STATE


def test_state_survives_a_restart_also_of_a_cycle_that_proposed_nothing(tmp_path: Path) -> None:
    cycle = Cycle(policy=Scripted(0.0, digest="one"))
    record = cycle.judge(queue())
    with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        journal.record(record, cycle)
        journal.record(Cycle().judge(make_snapshot()), cycle)

    with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        state = cycle.memory(journal, queue()).policy_state
        of_rules = Cycle().memory(journal, queue()).policy_state

    assert record.judged == () and of_rules == NO_STATE
    assert state == record.policy_state == PolicyState(policy="scripted", digest="one", content=b".")


def test_policy_is_not_asked_about_levers_that_it_does_not_score() -> None:
    policy = Scripted(ModelError("asked"), levers=frozenset({Lever.SWITCHES}))

    record = Cycle(policy=policy).judge(queue())

    assert new_sizes(record) == {1: 4, 2: 4} and record.policy_fault == "" and policy.asked == []


def test_board_shows_the_pending_jobs_and_every_node() -> None:
    policy = Scripted(0.0)

    Cycle(policy=policy).judge(queue())

    board = policy.boards[0]
    assert board.job_id.tolist() == [1, 2]
    assert board.jobs[:, JOB_COLUMNS.index("gpus")].tolist() == [2, 2]
    assert board.nodes[:, NODE_COLUMNS.index("gpus_idle")].tolist() == [8]
    assert board.jobs.dtype == board.nodes.dtype == np.float32
    assert len(FINGERPRINT) == 64


def test_replay_makes_the_same_plan_without_the_policy(tmp_path: Path) -> None:
    cycle = Cycle(policy=Scripted(1.0))
    record = cycle.judge(queue())
    assert outcome_of(record) != outcome_of(Cycle().judge(queue()))
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    journal.record(record, cycle)

    found = journal.recorded()

    assert replayed(found) == found.outcome == outcome_of(record)
    assert (found.decisions, found.policy_state) == (record.decisions, record.policy_state)
    journal.close_file()
