"""A policy behind the planner: what it may decide, what becomes of one that fails, and how a cycle is replayed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from advisor.cycle import Cycle
from advisor.domain.actions import Lever, SetGpus
from advisor.domain.plan import Kind, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.errors import ModelError
from advisor.features.policy import Options, RecordedPolicy, ScoredDecision, Scores
from advisor.features.steps import OPTION_COLUMNS
from advisor.journal import SqliteJournal
from advisor.journal.cycle_record import _Content, outcome_of
from advisor.journal.views import RowQuery
from advisor.planning.case import Case
from advisor.planning.line import Proposer
from advisor.planning.sizing import Resizing
from advisor.replay.deviations import cycle_of, replayed
from tests.builders import DAY_S, HOUR_S, make_hints, make_job, make_node, make_partition, make_snapshot
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
    asked: list[Options] = field(default_factory=list)

    def act(self, options: Options) -> Scores:
        """Answer."""
        self.asked.append(options)
        if isinstance(self.answer, ModelError):
            raise self.answer
        if self.answer == "short":
            return np.zeros(len(options) + 1)
        return np.full(len(options), float(self.answer))


def test_policy_that_scores_nothing_above_0_grows_no_job() -> None:
    record = Cycle(policy=Scripted(0.0)).judge(queue())

    assert new_sizes(record) == {} and record.policy_fault == ""
    assert len(record.decisions) == 1


def test_policy_takes_steps_until_no_gpu_is_left() -> None:
    policy = Scripted(1.0)

    record = Cycle(policy=policy).judge(queue())

    # Both begin at 2 GPUs, and all steps score the same: the first job takes all that are left.
    assert new_sizes(Cycle().judge(queue())) == {1: 4, 2: 4}
    assert new_sizes(record) == {1: 6}
    assert tuple(policy.asked[0].columns) == OPTION_COLUMNS and policy.asked[0].lever is Lever.GPU_COUNT
    assert [decision.lever for decision in record.decisions] == [Lever.GPU_COUNT] * 4
    assert set(policy.asked[0].job_id.tolist()) == {1, 2}


@pytest.mark.parametrize(("longest_s", "limit_s"), [(2 * HOUR_S, 2 * HOUR_S), (119 * 60.0, None)])
def test_smaller_size_of_a_policy_comes_with_the_limit_that_it_needs_or_not_at_all(
    longest_s: float, limit_s: float | None
) -> None:
    job = make_job(1, gpus=4, time_limit_s=HOUR_S, hints=make_hints(gpus=(2, 6)))
    partitions = [make_partition(nodes=["n01"], max_time_s=longest_s)]
    snapshot = make_snapshot([job], [make_node("n01")], partitions=partitions)

    # It stops at once, at the smallest size.
    record = Cycle(policy=Scripted(0.0)).judge(snapshot)

    actions = [change.action for change in record.recommendations]
    assert all(isinstance(action, SetGpus) and action.after.count == 2 for action in actions)
    assert [action.after.time_limit_s for action in actions if isinstance(action, SetGpus)] == (
        [] if limit_s is None else [limit_s]
    )


@pytest.mark.parametrize(("used", "wait_s"), [(6, 4 * HOUR_S), (4, 0.0)])
def test_smaller_size_of_a_policy_saves_the_wait_for_more_gpus_than_are_idle(used: int, wait_s: float) -> None:
    job = make_job(1, gpus=4, time_limit_s=HOUR_S, hints=make_hints(gpus=(2, 6)))
    running = make_job(9, gpus=used, running_on=["n01"], started_ago_s=0.0, time_limit_s=20 * HOUR_S)

    # The running job is expected to take a fifth of its limit at least.
    (change,) = Cycle(policy=Scripted(0.0)).judge(make_snapshot([job, running], [make_node("n01", used=used)])).judged

    assert isinstance(change.facts, Resizing)
    assert (change.facts.gpus_after, change.facts.expected_wait_s) == (2, wait_s)


@pytest.mark.parametrize(
    ("answer", "said"), [(ModelError("late"), "late"), (float("nan"), "finite"), ("short", "finite")]
)
def test_rules_decide_where_a_policy_fails(answer: float | str | ModelError, said: str) -> None:
    policy = Scripted(answer)

    record = Cycle(policy=policy).judge(queue())

    assert new_sizes(record) == new_sizes(Cycle().judge(queue()))
    assert said in record.policy_fault
    assert record.decisions == () and len(policy.asked) == 1


def test_policy_is_not_asked_about_levers_that_it_does_not_score() -> None:
    policy = Scripted(ModelError("asked"), levers=frozenset({Lever.SWITCHES}))

    record = Cycle(policy=policy).judge(queue())

    assert new_sizes(record) == {1: 4, 2: 4} and record.policy_fault == "" and policy.asked == []


def test_replay_makes_the_same_plan_without_the_policy(tmp_path: Path) -> None:
    cycle = Cycle(policy=Scripted(1.0))
    record = cycle.judge(queue())
    assert outcome_of(record) != outcome_of(Cycle().judge(queue()))
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    journal.record(record, cycle)

    found = journal.recorded()

    assert replayed(found) == found.outcome == outcome_of(record)
    assert found.decisions == record.decisions
    assert (found.policy, found.policy_digest) == ("scripted", "")
    journal.close_file()


class OneByOne:
    """A proposer that takes `most` decisions between 80 options, and what the rules propose."""

    def __init__(self, most: int = 300) -> None:
        self.most = most

    def __call__(self, case: Case, _: Sequence[Recommendation]) -> Iterator[Recommendation]:
        """Ask for as long as the policy chooses something."""
        columns = {"number": np.arange(80.0)}
        options = Options(lever=Lever.GPU_COUNT, job_id=np.zeros(80, dtype=np.int64), columns=columns)
        chosen = [case.decider.best(options) for _ in range(self.most)]
        for change in Cycle().judge(queue()).recommendations:
            # What is chosen shows in the plan: as the expected saving, here.
            saved_s = float(sum(place for place in chosen if place is not None))
            yield replace(change, expected=replace(change.expected, saved_s_low=saved_s, saved_s_high=saved_s))

    @property
    def line(self) -> tuple[Proposer, ...]:
        """A line of this proposer alone."""
        return (Proposer(kind=Kind.RESIZE, levers=frozenset({Lever.GPU_COUNT}), propose=self),)


class Drawn(Scripted):
    """A policy with scores drawn by chance, of which most are below 0."""

    def act(self, options: Options) -> Scores:
        """Answer."""
        self.asked.append(options)
        return np.random.default_rng(len(self.asked)).normal(-2.0, 1.0, len(options))


def test_record_of_hundreds_of_decisions_is_small_and_planned_again_is_the_same(tmp_path: Path) -> None:
    cycle = Cycle(policy=Drawn(0.0), line=OneByOne().line)
    record = cycle.judge(queue())
    with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        journal.record(record, cycle)

        found, (listed,) = journal.recorded(), journal.cycles(RowQuery())

    assert record.judged != () and len({decision.chosen for decision in found.decisions}) > 10
    assert None in {decision.chosen for decision in found.decisions}
    assert len(found.decisions) == 300 and found.decisions == record.decisions
    assert listed.record_bytes < 30_000
    again = replayed(found, replace(cycle_of(found), line=cycle.line))
    assert again == found.outcome != replayed(found)


def test_decisions_of_earlier_records_are_read() -> None:
    old = b'[{"lever":"gpu_count","scores":[0.5,2.0,-1.0]},{"lever":"gpu_count","scores":[-0.5]}]'

    decisions = TypeAdapter(tuple[ScoredDecision, ...]).validate_json(old, strict=True)

    assert not _Content.model_fields["policy"].is_required()
    assert [(len(decision), decision.chosen) for decision in decisions] == [(3, 1), (1, None)]
    assert decisions[0].repeated().tolist() == [0.5, 2.0, -1.0]


def test_decision_that_stops_is_repeated_as_one() -> None:
    options = Options(lever=Lever.GPU_COUNT, job_id=np.zeros(2, dtype=np.int64), columns={})
    stops = ScoredDecision.of_best(options, np.array([-3.0, -2.0]))

    scores = RecordedPolicy([stops]).act(options)

    assert stops.chosen is None and len(stops) == 2
    assert scores.tolist() == [-3.0, -2.0]


def test_best_option_of_a_decision_is_one_of_its_options() -> None:
    with pytest.raises(ValueError, match="none of its options"):
        ScoredDecision(lever=Lever.GPU_COUNT, scores=(1.0,), best=2, options=2)
