"""A forecaster that keeps what it told of jobs that did not change tells the same as one that never saw them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain.forecast import Placement
from advisor.domain.job import Job, JobState
from advisor.domain.outcome import LONGEST_GAP_S
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.history import History, keys_of
from advisor.predict.library import Library
from advisor.predict.memo import BATCH, Memo
from advisor.predict.onnx_model import Bundle
from advisor.predict.queue_run_times import EndedSeen
from advisor.predict.queue_speeds import PlacementIndex, QueueSpeeds
from advisor.predict.run_time import EndedJobs
from advisor.predict.run_time_features import RUNS_KEPT
from advisor.predict.throughput import ThroughputForecaster
from advisor.predict.throughput_site import SitePoints
from tests.builders import DAY_S, HOUR_S, TAKEN_AT, make_gang, make_hints, make_job, make_node, make_snapshot
from tests.examples import examples
from tests.predict.run_time_jobs import make_ended, make_jobs

NODES = [make_node(name, used=4 if name in ("n01", "n02") else 0) for name in ("n01", "n02", "n03", "n04")]


@cache
def opened(kind: str) -> Bundle:
    """Open a shipped model once."""
    return Library(Path("/nonexistent")).load(kind)


class Shipped(Library):
    """The shipped models, opened once for all tests."""

    def load(self, kind: str) -> Bundle:
        """Return the checked model."""
        return opened(kind)


def forecaster(*, start_times: bool = True) -> ModelForecaster:
    """A forecaster that has seen nothing."""
    return ModelForecaster(Shipped(Path("/nonexistent")), start_times=start_times)


def some_ended(count: int = 1, run_s: float = HOUR_S, *, user: str = "ada") -> EndedJobs:
    """Jobs as in these queues that ended."""
    return make_ended([run_s] * count, user=user, account="physics", name="train")


@st.composite
def jobs(draw: st.DrawFn, job_id: int) -> Job:
    """Draw a job of few kinds, pending or running, so that one often stays as it was."""
    gpus = draw(st.sampled_from([1, 4, 16]))
    started_ago_s = draw(st.sampled_from([None, 600.0, 30 * HOUR_S]))
    running = {"running_on": ["n01", "n02"], "started_ago_s": started_ago_s} if started_ago_s else {}
    return make_job(
        job_id,
        gang=make_gang(gpus, nodes_max=draw(st.sampled_from([None, 2]))),
        user=draw(st.sampled_from(["ada", "bob", ""])),
        account=draw(st.sampled_from(["physics", "chemistry"])),
        name=draw(st.sampled_from(["train", "train7"])),
        hints=make_hints(
            model=draw(st.sampled_from([None, "bert"])), gpus=draw(st.sampled_from([None, (2, 8), (64, 4096)]))
        ),
        time_limit_s=draw(st.sampled_from([HOUR_S, DAY_S, None])),
        priority=draw(st.integers(1, 3)),
        **running,  # type: ignore[arg-type]
    )


def slightly_other(job: Job) -> st.SearchStrategy[Job]:
    """Draw the job with one other value."""
    others: dict[str, object] = {
        "user": "eve",
        "account": "biology",
        "name": "other",
        "gang": make_gang(8),
        "hints": make_hints(model="gpt2"),
        "time_limit_s": 2 * HOUR_S,
        "submit_time": job.submit_time - HOUR_S,
        "start_time": None if job.start_time is None else job.start_time - HOUR_S,
        "priority": 7,
    }
    return st.sampled_from([replace(job, **{name: value}) for name, value in others.items()])  # type: ignore[arg-type]


@st.composite
def queues(draw: st.DrawFn) -> list[tuple[Snapshot, EndedJobs | None]]:
    """Draw snapshots with what ended after each."""
    found = []
    present: dict[int, Job] = {}
    for step in range(draw(st.integers(2, 4))):
        for job_id in draw(st.sets(st.integers(1, 6), max_size=4)):
            present[job_id] = draw(jobs(job_id))
        for job_id in draw(st.sets(st.sampled_from(sorted(present)), max_size=2)) if present else ():
            present[job_id] = draw(slightly_other(present[job_id]))
        for job_id in draw(st.sets(st.integers(1, 6), max_size=2)):
            present.pop(job_id, None)
        nodes = draw(st.sampled_from([NODES, NODES[:2], [make_node("n01", gpus=64)]]))
        ended = st.builds(some_ended, st.just(1), st.sampled_from([60.0, HOUR_S]), user=st.sampled_from(["ada", "bob"]))
        snapshot = make_snapshot(list(present.values()), nodes, taken_at=TAKEN_AT + 60.0 * step)
        found.append((snapshot, draw(st.none() | ended)))
    return found


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(queues())
def test_what_is_kept_is_what_would_be_forecast_anew(steps: list[tuple[Snapshot, EndedJobs | None]]) -> None:
    keeps, learnt = forecaster(), list[EndedJobs]()

    for snapshot, ended in steps:
        anew = forecaster()
        for each in learnt:
            anew.add_ended(each)

        assert repr(keeps.forecasts(snapshot)) == repr(anew.forecasts(snapshot))

        if ended is not None:
            learnt.append(ended)
            keeps.add_ended(ended)


def test_unchanged_job_is_told_the_very_same() -> None:
    queue = [make_job(1, hints=make_hints(model="bert")), make_job(2, gang=make_gang(4))]
    keeps = forecaster(start_times=False)

    first = keeps.forecasts(make_snapshot(queue, NODES))
    second = keeps.forecasts(
        make_snapshot([make_job(1, hints=make_hints(model="bert"))], NODES, taken_at=TAKEN_AT + 60)
    )

    assert second.of(1) is first.of(1)
    assert set(second.by_job) == {1}


def test_levels_that_moved_change_what_is_told() -> None:
    snapshot = make_snapshot([make_job(1)], NODES)
    keeps = forecaster()
    before = keeps.forecasts(snapshot)

    model = keeps._model("run_time").model
    model.levels.levels[:, 2] = 0.6

    assert keeps.forecasts(snapshot).of(1) != before.of(1)


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_run_times_do_not_depend_on_who_else_is_asked_about(rows: int) -> None:
    model = forecaster()._model("run_time").model
    table = make_jobs(700, gpus=np.arange(700) % 9 + 1, limit_s=3600.0 * (np.arange(700) % 48 + 1))

    together, alone = model.forecast(table), model.forecast(table.take(np.arange(rows)))

    assert np.array_equal(alone.quantiles_s, together.quantiles_s[:rows])
    assert np.array_equal(alone.mean_s, together.mean_s[:rows])


def test_stamps_change_with_what_is_recalled_and_with_nothing_else() -> None:
    history, asked = History(), keys_of(make_jobs(3, user=["ada", "bob", "eve"], account="", name="train"))
    nothing = history.stamps(asked)

    history.add(some_ended(user="ada"))
    ada = history.stamps(asked)
    history.add(some_ended(RUNS_KEPT + 1, user="bob"))
    both = history.stamps(asked)

    assert nothing.tolist() == [[0, 0]] * 3
    assert (ada[0] != nothing[0]).any()
    assert ada[1:].tolist() == nothing[1:].tolist()
    assert both[0].tolist() == ada[0].tolist()
    assert (both[1] != ada[1]).any()
    assert both[2].tolist() == [0, 0]


def test_stamp_outlives_what_others_make_a_history_forget() -> None:
    history, asked = History(keys_kept=40), keys_of(make_jobs(2, user=["ada", "bob"], account="", name="train"))
    history.add(make_ended([60.0], user="ada", account="", name="train", submit_time=1.0e9))
    history.add(make_ended([60.0], user="bob", account="", name="train", submit_time=1.9e9))
    before = history.stamps(asked)

    others = [f"user{number}" for number in range(30)]
    history.add(make_ended([60.0] * 30, user=others, account="", name="train", submit_time=1.5e9))
    after = history.stamps(asked)

    assert after[0].tolist() == [0, 0]
    assert after[1].tolist() == before[1].tolist()


def test_history_that_was_read_back_has_stamps() -> None:
    history, asked = History(), keys_of(make_jobs(1, user="ada", name="train"))
    history.add(some_ended(user="ada"))

    again = History.from_json(history.to_json())

    assert (again.stamps(asked) > 0).all()
    assert again.version > 0


def test_step_times_in_comments_make_placements_over_several_nodes_known() -> None:
    def seen(job_id: int, nodes: list[str], gpus: int, step_s: float) -> Job:
        hints = make_hints(model="Omega", step_s=step_s)
        return make_job(job_id, gang=make_gang(gpus), running_on=nodes, started_ago_s=600.0, hints=hints)

    asks = make_job(1, gang=make_gang(4), hints=make_hints(model="omega"))
    running = [seen(2, ["n01"], 1, 1.0), seen(3, ["n01"], 4, 1.1), seen(4, ["n01", "n02"], 4, 1.6)]
    model = forecaster(start_times=False)

    before, after = (model.forecasts(make_snapshot([asks, *seen], NODES)).of(1) for seen in ((), running))
    ended = model.forecasts(make_snapshot([asks], NODES)).of(1)

    spread = Placement(gpus=4, tier=LocalityTier.LEAF)
    assert spread not in before.speed_by_placement and any("step times" in text for text in before.unknown)
    assert after.speed_by_placement[spread].median == pytest.approx(1.1 / 1.6, rel=0.15)
    assert ended.speed_by_placement == after.speed_by_placement


@pytest.mark.parametrize("bound", ["_MOST_POINTS", "_MOST_OF_USER"])
def test_queue_that_states_too_many_step_times_is_learned_from_once(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"advisor.predict.queue_speeds.{bound}", 3)
    model = QueueSpeeds(shipped_throughput())
    running = [stating(number, "mallory") for number in range(1, 6)]
    cluster = PlacementIndex(make_snapshot(running, [make_node("n01")]))

    model.forecast([], cluster, running)
    learned = model.model
    model.forecast([], cluster, running)

    assert model.model is learned


def test_user_who_states_new_models_in_every_cycle_displaces_no_point_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned: list[list[str]] = []

    def at_site(_: ThroughputForecaster, __: str | None, points: SitePoints) -> ThroughputForecaster:
        learned.append(points.family.tolist())
        return unseen

    unseen = shipped_throughput()
    monkeypatch.setattr(ThroughputForecaster, "at_site", at_site)
    model, ada = QueueSpeeds(unseen), stating(1, "ada")
    cluster = PlacementIndex(make_snapshot([ada], [make_node("n01")]))
    model.forecast([], cluster, [ada])
    for cycle in range(1, 21):
        model.forecast([], cluster, [stating(100 * cycle + number, "mallory") for number in range(30)])

    # 20 of the one who states many, and every one of the other.
    assert len(learned) == 21
    assert learned[-1] == ["model1", *(f"model{number}" for number in range(2000, 2020))]


def shipped_throughput() -> ThroughputForecaster:
    return ThroughputForecaster.from_bundle(Library(Path("/nonexistent")).load("throughput"))


def stating(number: int, user: str) -> Job:
    """A running job that states the step time of a model of its own."""
    return make_job(number, user=user, running_on=["n01"], hints=make_hints(model=f"model{number}", step_s=0.5))


RUNNING = make_job(7, gpus=4, running_on=["n01"], started_ago_s=HOUR_S)


def queue(*jobs: Job, after_s: float = 0.0) -> Snapshot:
    """Return a snapshot of jobs."""
    return replace(make_snapshot(list(jobs), [make_node("n01")]), taken_at=TAKEN_AT + after_s)


def test_job_that_left_the_queue_ended_halfway() -> None:
    seen = EndedSeen()
    seen.since_last(queue(RUNNING))

    ended = seen.since_last(queue(after_s=60.0))

    assert ended.jobs.user == (RUNNING.user,)
    assert ended.run_s.tolist() == [HOUR_S + 30.0] and ended.end_time.tolist() == [TAKEN_AT + 30.0]
    assert all(ended.usable()[0])
    assert len(seen.since_last(queue(after_s=120.0))) == 0


def test_job_that_slurm_still_shows_ended_when_it_says() -> None:
    seen = EndedSeen()
    seen.since_last(queue(RUNNING))
    over = replace(RUNNING, state=JobState.COMPLETING, end_time=TAKEN_AT + 5.0)

    assert seen.since_last(queue(over, after_s=60.0)).run_s.tolist() == [HOUR_S + 5.0]


@pytest.mark.parametrize(
    ("jobs", "after_s"),
    [
        pytest.param([RUNNING], 60.0, id="runs on"),
        pytest.param([make_job(7, gpus=4)], 60.0, id="waits again"),
        pytest.param([replace(RUNNING, state=JobState.SUSPENDED)], 60.0, id="suspended"),
        pytest.param([], LONGEST_GAP_S + 1.0, id="no look in between"),
        pytest.param([], -60.0, id="the clock went back"),
    ],
)
def test_job_that_has_not_ended_is_not_learnt_from(jobs: list[Job], after_s: float) -> None:
    seen = EndedSeen()
    seen.since_last(queue(RUNNING))

    assert len(seen.since_last(queue(*jobs, after_s=after_s))) == 0


@pytest.mark.parametrize("learns", [True, False])
def test_daemon_learns_the_users_of_its_site(learns: bool) -> None:
    forecaster = ModelForecaster(Library(Path("/nonexistent")), learns=learns)
    waiting = make_job(9, gpus=4, name=RUNNING.name)

    before = forecaster.forecasts(queue(RUNNING, waiting)).of(9)
    after = forecaster.forecasts(queue(waiting, after_s=60.0)).of(9)

    assert (before.run_time != after.run_time) is learns


ROUNDS = st.lists(st.dictionaries(st.integers(0, 5), st.integers(0, 2)), max_size=6)


@pytest.mark.no_cover
@given(ROUNDS)
def test_each_round_computes_what_changed_since_the_last_and_returns_what_a_first_one_would(
    rounds: list[dict[int, int]],
) -> None:
    memo, last = Memo[int, int, tuple[int, int]](), dict[int, int]()
    for bases in rounds:
        computed = dict[int, int]()

        def compute(fresh: Mapping[int, int], computed: dict[int, int] = computed) -> Iterator[tuple[int, int]]:
            computed |= fresh
            return iter(fresh.items())

        values = memo.fill([*bases], bases.values(), compute)

        assert values == [*bases.items()]
        assert computed == {key: basis for key, basis in bases.items() if last.get(key) != basis}
        last = bases


def test_a_key_that_comes_again_is_computed_once() -> None:
    asked: list[list[str]] = []

    def compute(fresh: Mapping[str, int]) -> Iterator[str]:
        asked.append([*fresh])
        return map(str.upper, fresh)

    values = Memo[str, int, str]().fill(["b", "a", "b"], [0, 0, 0], compute)

    assert values == ["B", "A", "B"]
    assert asked == [["b", "a"]]


def test_value_that_is_the_next_basis_is_no_reason_to_keep_it() -> None:
    memo, one, two = Memo[str, str, str](), "one", "two"

    first = memo.fill(["a"], [one], lambda _: [two])
    second = memo.fill(["a"], [two], lambda _: [one])

    assert (first, second) == ([two], [one])


def test_what_is_new_is_computed_in_batches() -> None:
    sizes: list[int] = []

    def compute(fresh: Mapping[int, None]) -> Mapping[int, None]:
        sizes.append(len(fresh))
        return fresh

    values = Memo[int, None, int]().fill(range(BATCH + 2), [None] * (BATCH + 2), compute)

    assert values == [*range(BATCH + 2)]
    assert sizes == [BATCH, 2]
