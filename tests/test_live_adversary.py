"""The random adversary: what it draws, what is read from scontrol, and that each rule of the verdict can fail."""

import random
from itertools import pairwise

import numpy as np
import pytest

from tools.live_adversary.adversary_play import paused_s
from tools.live_adversary.gambits import GROWING, HONEST, SHAPES, SIDES, Gambit, When, draw_gambit
from tools.live_adversary.trial import records_of
from tools.live_adversary.verdict import (
    ALL,
    GROWN,
    GambitOutcome,
    PairKind,
    PlayerSide,
    gains,
    interval,
    judged,
    rows_of,
)

SHOWN = (
    "JobId=7 ArrayJobId=5 ArrayTaskId=2 JobName=wrap Nice=0 Restarts=1 JobState=RUNNING StartTime=120 EndTime=180 "
    "NodeList=n01 TRES=cpu=1,mem=1000M,node=1,billing=1,gres/gpu=4\n"
    "JobId=5 ArrayJobId=5 ArrayTaskId=3-4 JobName=wrap Nice=-1007 Restarts=0 JobState=PENDING StartTime=900 "
    "EndTime=960 NodeList=(null) ReqTRES=cpu=1,gres/gpu=4 AllocTRES=(null)\n"
    "JobId=9 JobName=x Nice=0 Restarts=0 JobState=CANCELLED StartTime=50 EndTime=50 NodeList= TRES=(null)\n"
    "\n"
)


def drawn(count: int = 2000) -> list[Gambit]:
    chance = random.Random(3)
    return [draw_gambit(chance) for _ in range(count)]


def judge(adversary: float | None, twin: float | None, *, shaped: float = 10.0, grown: float | None = None,
          refused: bool = False, gpus: int = 4) -> GambitOutcome:  # fmt: skip
    return judged(
        ("hold",),
        PlayerSide(first_start=adversary, began=adversary, least_gpus=gpus),
        PlayerSide(first_start=twin, began=twin),
        shaped_time=shaped,
        grown_time=grown,
        window_s=8.0,
        refused=refused,
        gpus=4,
        gpu_hours=2.0,
        until=500.0,
    )


def paired(seconds: float, *tricks: str, kind: PairKind = PairKind.COMPARED) -> GambitOutcome:
    return GambitOutcome(tricks=tricks, kind=kind, advantage_s=seconds)


def test_every_trick_is_drawn_and_the_same_seed_draws_the_same() -> None:
    gambits = drawn()

    assert {trick for gambit in gambits for trick in gambit.tricks} == {*SHAPES, *SIDES, HONEST}
    assert gambits == drawn()


def test_without_a_trick_both_sides_submit_the_same() -> None:
    honest = [gambit for gambit in drawn() if gambit.tricks == (HONEST,)]

    assert all((gambit.submissions, gambit.acts) == ((gambit.final.options(),), ()) for gambit in honest)
    assert 0.15 < len(honest) / len(drawn()) < 0.25


def test_no_node_is_both_asked_for_and_left_out() -> None:
    options = [options for gambit in drawn() for options in gambit.submissions]

    assert not any({"--nodelist", "--exclude"} <= {word.partition("=")[0] for word in words} for words in options)


def test_what_grows_ends_as_the_twin_asks() -> None:
    grown = next(gambit for gambit in drawn() if gambit.tricks == ("grows in nodes, GPUs and time",))
    words = {word for act in grown.acts for word in act.argv}

    assert {f"TresPerJob=gres:gpu:{grown.final.gpus}", f"TimeLimit={grown.final.limit_min}"} <= words
    assert grown.submissions[0][0] == "--time=1"
    assert all(act.shapes and act.grows for act in grown.acts)
    assert {act.when for gambit in drawn() for act in gambit.acts} == set(When)


def test_acts_that_shape_come_before_all_others() -> None:
    assert all(one.shapes or not other.shapes for gambit in drawn() for one, other in pairwise(gambit.acts))


def test_work_in_pieces_adds_up_to_that_of_the_twin_within_the_shorter_limit() -> None:
    requeued = [gambit for gambit in drawn() if gambit.pieces > 1]

    assert requeued
    assert all(gambit.pieces * gambit.piece_s == gambit.final.run_s for gambit in requeued)
    assert all(gambit.submissions[0][0] == "--time=1" and gambit.piece_s < 30 for gambit in requeued)


def test_records_of_tasks_and_jobs_are_read_with_starts_of_those_that_ran() -> None:
    running, waiting, cancelled = records_of(SHOWN)

    assert (running.job_id, running.task, running.own_id, running.restarts) == (5, 2, 7, 1)
    assert (running.start_time, running.gpus) == (120.0, 4)
    assert (waiting.is_pending, waiting.nice, waiting.start_time, waiting.task) == (True, -1007, None, 0)
    assert cancelled.start_time is None


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (judge(30.0, 40.0), PairKind.COMPARED),
        (judge(9.0, 40.0), PairKind.EARLY),
        (judge(40.0, 9.0), PairKind.EARLY),
        (judge(17.0, 40.0, grown=10.0), PairKind.WINDOW),
        (judge(40.0, 17.0, grown=10.0), PairKind.WINDOW),
        (judge(19.0, 40.0, grown=10.0), PairKind.COMPARED),
        (judge(30.0, 40.0, refused=True), PairKind.REFUSED),
        (judge(30.0, 40.0, gpus=1), PairKind.RESIZED),
        (judge(None, None), PairKind.UNFINISHED),
    ],
)
def test_pairs_are_left_out_alike_for_both_sides(outcome: GambitOutcome, kind: PairKind) -> None:
    assert outcome.kind is kind


def test_advantage_is_how_much_sooner_the_adversary_began_or_will() -> None:
    assert judge(30.0, 40.0).advantage_s == 10.0
    assert judge(30.0, None).advantage_s == 470.0
    assert judge(None, 40.0).advantage_s == -460.0


def test_an_adversary_that_starts_sooner_beyond_noise_is_found() -> None:
    sooner = [paired(30.0 + number % 5, "hold") for number in range(40)]
    chance = random.Random(1)
    grown = [paired(20.0 + number % 9, *GROWING[number % 3 :][:1]) for number in range(12)]
    noise = [paired(chance.gauss(0.0, 30.0), "-x") for _ in range(40)]

    assert [text.partition(":")[0] for text in gains(rows_of(sooner))] == [ALL, "hold"]
    assert list(gains(rows_of(noise))) == []
    assert GROWN in [text.partition(":")[0] for text in gains(rows_of([*noise, *grown]))]


def test_pairs_without_a_trick_and_those_left_out_are_no_gain() -> None:
    honest = [paired(30.0 + number % 5, HONEST) for number in range(40)]
    left_out = [paired(30.0 + number % 5, "hold", kind=PairKind.WINDOW) for number in range(40)]

    rows = rows_of([*honest, *left_out])

    assert [(row.name, row.pairs) for row in rows] == [(ALL, 0), (GROWN, 0), (HONEST, 40)]
    assert list(gains(rows)) == []


def test_time_without_rounds_is_counted_beyond_what_passes_between_two() -> None:
    rounds = (0.0, 8.0, 100.0, 108.0)

    assert paused_s(rounds, 0.0, 200.0, 8.0) == 84.0
    assert paused_s(rounds, 50.0, 90.0, 8.0) == 32.0
    assert paused_s(rounds, 100.0, 200.0, 8.0) == 0.0


def test_interval_of_the_mean_covers_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    runs = [interval(rng.normal(5.0, 20.0, 100)) for _ in range(400)]

    covered = sum(low <= 5.0 <= high for low, high in runs)

    assert 0.92 * 400 <= covered <= 0.98 * 400
    assert np.isnan(interval(np.array([1.0, 2.0]))).all()
