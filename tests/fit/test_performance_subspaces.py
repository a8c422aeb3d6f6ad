"""What the nightly fit counts of combinations, and what exploration makes of it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import SetNodeList
from advisor.domain.forecast import NO_FORECASTS, Interval
from advisor.domain.job import Job
from advisor.domain.memory import Memory
from advisor.domain.outcome import JobOutcome, SeenForecast
from advisor.errors import ModelError
from advisor.features.observe.subspaces import NOTHING_SEEN, Subspaces
from advisor.fit.gang_places import GangPlace, held_servers
from advisor.fit.performance_fit import SitePrior, Spreads, adapted, no_samples
from advisor.fit.performance_graph import performance_exported
from advisor.fit.performance_samples import EndedJob, read_ended_jobs
from advisor.fit.performance_subspaces import ServedSpeeds, seen_subspaces
from advisor.fit.publish import Exported, publish_graph
from advisor.journal import SqliteJournal
from advisor.predict.library import Library
from advisor.predict.performance import KIND, Parameters, PerformanceModel
from tests.builders import HOUR_S, TAKEN_AT, make_gang
from tests.planning.exploring_site import pending as waiting
from tests.planning.exploring_site import planned, queue, resident, tried
from tests.predict.shelf import TODAY

MODELS = ("bert", "gpt2", "VGG-16")
BESIDE_BERT, BESIDE_GPT2 = ("n01", "n02"), ("n03", "n04")
LEAVES = {"leaf1": ("n01", "n02"), "leaf2": ("n03", "n04"), "leaf3": ("n05", "n06")}
HALF = GangPlace(span="one leaf", share="half")
DIGEST = "a" * 64


def model(subspaces: Subspaces | None = None) -> PerformanceModel:
    """Return a model in which every neighbour adds 5 %."""
    exported = exported_with(subspaces)
    return PerformanceModel.of(exported.graph, exported.parameters)


def exported_with(subspaces: Subspaces | None) -> Exported:
    """Return that model as it is published."""
    origin = {} if subspaces is None else {"subspaces": subspaces.document()}
    return performance_exported(adapted(_prior(), no_samples(len(MODELS)), seed=1), seed=1, origin=origin)


def _prior() -> SitePrior:
    rows = len(MODELS) + 1
    added = np.full((rows, rows), 0.05)
    return SitePrior(models=MODELS, gpu_types=("a100",), log_speed=np.zeros((rows, 2)), added=added, spreads=Spreads())


def served(by_policy: Mapping[str, PerformanceModel] | None = None) -> ServedSpeeds:
    """Return the tables of models in use."""
    tables = {digest: one.tabulated() for digest, one in (by_policy or {}).items()}
    return ServedSpeeds(shipped=model().tabulated(), by_policy=tables, noise_share=1.0, misfit=0.1)


def seen(jobs: Sequence[EndedJob], by_policy: Mapping[str, PerformanceModel] | None = None) -> Subspaces:
    """Return what is counted of ended jobs."""
    return seen_subspaces(jobs, served(by_policy), MODELS, ("a100",))


def gang(log_speed: float, *, beside: str = "bert", **facts: Any) -> EndedJob:
    """Return a gang that ran beside another one on half of two servers."""
    given: dict[str, Any] = {"family": "alice", "model": "gpt2", "gang_place": HALF, "others": {beside: 1.0}, **facts}
    return EndedJob(
        user="alice", account="lab", gpu_type="a100", place=0.0, log_speed=log_speed, noise=0.2, end_time=0.0, **given
    )


def write(path: Path, gangs: int, log_speed: float) -> None:
    """Write a journal in which gangs of one model run one after the other, beside one that stays."""
    outcomes = []
    with SqliteJournal(path) as journal, journal.together():
        for number in range(gangs):
            begin = TAKEN_AT + 2 * HOUR_S * number
            job = replace(
                resident(100 + number, model="gpt2", user=f"user{number}"), start_time=begin, submit_time=begin - 60.0
            )
            for minute in range(0, 61, 10):
                now = begin + 60.0 * minute
                beside = replace(resident(8), submit_time=TAKEN_AT, start_time=TAKEN_AT)
                jobs = [beside, job] if minute < 60 else [beside]
                record = CycleRecord(
                    snapshot=queue(*jobs, taken_at=now), memory=Memory(), forecasts=NO_FORECASTS, judged=(),
                    left_alone={},
                )  # fmt: skip
                journal.record(record, Cycle(), whole=True)
            median = HOUR_S * math.exp(log_speed)
            run_time_s = Interval(low=median * math.exp(-0.256), median=median, high=median * math.exp(0.256))
            outcomes.append(
                JobOutcome(
                    job_id=job.job_id, submit_time=job.submit_time, user=job.user, account="lab", gpus=8,
                    start_time=begin, last_start_time=begin, last_seen_time=begin + 3000.0, end_time=begin + HOUR_S,
                    first_forecast=SeenForecast(made_time=begin - 60.0, run_time_s=run_time_s),
                )
            )  # fmt: skip
        journal.keep_outcomes(outcomes)


def test_recurring_combination_has_its_count_and_residual(tmp_path: Path) -> None:
    write(tmp_path / "journal.sqlite", 5, -0.6)
    with SqliteJournal.read_only(tmp_path / "journal.sqlite") as journal:
        jobs = read_ended_jobs(journal).jobs

    counted = seen(jobs)

    # Nothing older is known of a family, so that its constant has a variance of 1.
    speeds = model().tabulated()
    variance = speeds.speed_variance[1, 1] + speeds.added_variance[1, 0] + jobs[0].noise ** 2 + 1.0
    squared = (-0.6 + math.log1p(speeds.neighbours.added[1, 0])) ** 2 / variance
    # As planning names it (tests/planning/test_exploring.py).
    assert {name: one.count for name, one in counted.seen.items()} == {"bert+gpt2|one leaf|half|other": 5}
    assert counted.of("bert+gpt2|one leaf|half|other").squared == pytest.approx(squared, rel=1e-6)
    assert counted.total == 5


@pytest.mark.parametrize(
    ("facts", "signature"),
    [
        ({}, "bert+gpt2|one leaf|half|a100"),
        ({"others": {"bert": 0.4}}, "gpt2|one leaf|half|a100"),
        ({"others": {"bert": 1.6, "vgg16": 0.5}}, "VGG-16+bert+bert+gpt2|one leaf|half|a100"),
        ({"model": "own", "others": {}}, "other|one leaf|half|a100"),
        ({"gang_place": None}, None),
    ],
    ids=["one neighbour", "short time", "several", "not known", "one server"],
)
def test_combination_is_what_sends_for_half_of_the_run(facts: dict[str, Any], signature: str | None) -> None:
    assert list(seen([gang(0.0, **facts)]).seen) == ([] if signature is None else [signature])


def test_residual_is_that_of_the_model_that_the_policy_looked_at() -> None:
    place = replace(HALF, decided_by=DIGEST)
    # The family is known by ten gangs, and the later ones ran under a model that knows how slow they are.
    before = [gang(0.0, others={}) for _ in range(10)]
    after = [gang(-1.0, gang_place=place) for _ in range(10)]

    by_shipped, by_its_own = (
        seen([*before, *after], by_policy).of("bert+gpt2|one leaf|half|a100").squared
        for by_policy in ({}, {DIGEST: model_where_bert_slows()})
    )

    assert by_its_own < 0.1
    assert by_shipped > 3.0


def model_where_bert_slows() -> PerformanceModel:
    """Return a model in which bert slows gpt2 as much as it does here."""
    prior = _prior()
    added = prior.added.copy()
    added[1, 0] = math.expm1(1.0)
    exported = performance_exported(adapted(replace(prior, added=added), no_samples(len(MODELS)), seed=1), seed=1)
    return PerformanceModel.of(exported.graph, exported.parameters)


def test_shift_renews_what_a_try_is_worth() -> None:
    rng = np.random.default_rng(1)
    early = [gang(float(rng.normal(0.0, 0.5))) for _ in range(20)]
    steady = [gang(float(rng.normal(0.0, 0.1))) for _ in range(80)]
    slower = [gang(-2.0) for _ in range(12)]

    before, after = seen([*early, *steady]), seen([*early, *steady, *slower])

    assert before.allowance.kappa < 0.6
    assert after.allowance.kappa == 1.0
    assert after.allowance.test.count < len(slower)
    assert (before.total, after.total) == (100, 112)


def test_subspaces_come_back_from_the_published_version(tmp_path: Path) -> None:
    counted = seen([gang(0.3), gang(-0.9, beside="vgg16")])
    exported = exported_with(counted)
    publish_graph(exported, tmp_path / "site", "site-1", today=TODAY, card=lambda entry: f"# {entry.kind}\n")

    opened = PerformanceModel.opened(Library(tmp_path / "site", tmp_path / "none").find(KIND, "site-1"))

    assert opened.tabulated().subspaces == counted and len(counted.seen) == 2
    assert model().tabulated().subspaces == NOTHING_SEEN


@pytest.mark.parametrize(
    "damage",
    [
        {"total": -1},
        {"total": 10**400},
        {"seen": {"gpt2|one leaf|half|a100": [1, 1e400]}},
        {"seen": {"gpt2|one leaf|half|a100": "x"}},
        {"allowance": None},
    ],
    ids=["negative", "too large", "not finite", "no pair", "no allowance"],
)
def test_damaged_subspaces_are_refused_in_one_line(damage: dict[str, Any]) -> None:
    exported = exported_with(seen([gang(0.3)]))
    parameters = json.loads(exported.parameters)
    parameters["subspaces"] |= damage

    with pytest.raises(ModelError, match=r"^model \S+: its parameters cannot be read: restore it, or roll back$"):
        PerformanceModel.of(exported.graph, json.dumps(parameters))


def test_more_signatures_than_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    document = seen([gang(0.3), gang(-0.9, beside="vgg16")]).document()
    fields: dict[str, Any] = {"models": ("a",), "gpu_types": (), "samples": 0, "residual": 0.0, "spreads": {}}
    Parameters(**fields, subspaces=document)
    monkeypatch.setattr("advisor.features.observe.subspaces.MOST_SIGNATURES", 1)

    with pytest.raises(ValueError, match="more than 1 signatures"):
        Parameters(**fields, subspaces=document)


@pytest.mark.parametrize(("often", "preferred"), [("gpt2", BESIDE_BERT), ("bert", BESIDE_GPT2)])
def test_exploration_prefers_what_ended_jobs_have_shown_least(often: str, preferred: tuple[str, ...]) -> None:
    # The cluster of these tests names no GPU type, and the policy would choose the servers without neighbours.
    rare = "bert" if often == "gpt2" else "gpt2"
    counts: tuple[tuple[dict[str, float], int], ...] = (({}, 200), ({often: 1.0}, 200), ({rare: 1.0}, 2))
    # Each of its own family, so that all residuals beside a neighbour are equally large.
    ended = [
        replace(gang(2.9, others=others, family=f"{others} {number}"), gpu_type="")
        for others, count in counts
        for number in range(count)
    ]
    jobs = [resident(8), resident(9, BESIDE_GPT2, model="gpt2"), waiting()]

    record = planned(queue(*jobs, leaves=LEAVES), model(seen(ended)).tabulated())

    (change,) = tried(record)
    assert isinstance(change.action, SetNodeList) and change.action.after == preferred
    assert change.evidence["seen"] == 2


@pytest.mark.parametrize(
    ("job", "nodes", "span", "share"),
    [
        (resident(1), LEAVES["leaf1"], "one leaf", "half"),
        (resident(1, gang=make_gang(6, nodes_min=2)), ("n01", "n03"), "several leaves", "half"),
        (resident(1, gang=make_gang(9, nodes_min=2)), LEAVES["leaf1"], "one leaf", "part"),
        (resident(1, gang=make_gang(2, nodes_min=2, exclusive=True)), LEAVES["leaf1"], "one leaf", "whole"),
    ],
    ids=["half", "two leaves", "odd number", "exclusive"],
)
def test_place_of_a_gang_is_classed_as_in_planning(job: Job, nodes: Sequence[str], span: str, share: str) -> None:
    placed = resident(1, nodes, gang=job.gang)

    held = held_servers(queue(placed, resident(8), leaves=LEAVES), {1}, DIGEST)

    assert held.keys() == {1}
    assert held[1].place(nodes[0]) == GangPlace(span=span, share=share, decided_by=DIGEST)
    assert held[1].place("n99") is None
