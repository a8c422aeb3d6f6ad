"""Every sentence of a reason, filled in with real values: one of each form, in a list to be read."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.backends.commands import apply_argv, revert_argv
from advisor.cycle import Cycle, CycleRecord
from advisor.diagnose.causes import diagnose
from advisor.domain.actions import SetNice
from advisor.domain.job import Job
from advisor.domain.lease import Ending, intended
from advisor.domain.load import ControllerLoad
from advisor.domain.memory import Memory
from advisor.domain.particulars import (
    NOTHING_ASKED,
    AccountUse,
    FairShare,
    LicenceUse,
    Particulars,
    PriorityFactors,
    ReachedLimit,
    Reservation,
)
from advisor.domain.probation import Coverage, OrderProof, Proof
from advisor.domain.snapshot import Snapshot
from advisor.guard.breakers import ALL_CLOSED, Vitals
from advisor.guard.breakers import judged as judged_breakers
from advisor.settings import BreakerSettings, Fairness, Limits, PlanningSettings
from advisor.view.breaker_words import breaker_lines, probation_line, stop_line
from advisor.view.documents import shell
from advisor.view.explanations import explanation
from advisor.view.rule_words import RULES_IN_WORDS, rule_sentence
from advisor.view.sentences import assumption, sentence
from advisor.view.terminal import instant
from tests.builders import HOUR_S, TAKEN_AT, make_gang, make_job, make_node, make_snapshot
from tests.diagnose.test_causes import APART, TWO_NODES
from tests.golden import random_queues
from tests.golden.documents import DOCUMENTS, document, english
from tests.golden.plans import RANDOM_QUEUES, RECORDED, random_record, recorded_record
from tests.planning import test_gang_nodes as gang_nodes
from tests.planning.test_counterfactual import delayed

SCOPES: tuple[Fairness, ...] = ("user", "account")
SCOPED_SEEDS = 60
EXPLAINED_SEEDS = 20
NOON = 1_772_366_400.0
# What differs between sentences of one form: numbers, ids, requests, names of causes.
_NUMBER = re.compile(r"-?[a-z]?\d[\d.]*( (s|min|h|d)\b)?")
_REQUEST = re.compile(
    r"# (more |idle )?((# )?[CG]PUs?|nodes?)( and # (# )?GPUs)?"
    r"( (on|for|under) (one|each of|at most) (# )?(nodes?|socket|tasks?))*"
    r"|(?<=reason; sadvise finds ).*|(#, )*# and # more|(#, )+#|# to #|one node|(?<=# job)s"
)
# The words of Slurm that name a cause which the snapshot may not show.
_REASONS = (
    *("Priority", "Resources", "BeginTime", "JobHeldAdmin", "JobHoldMaxRequeue", "AssocGrpGRES", "AssocMaxGRESPerJob"),
    *(
        "QOSGrpGRES",
        "QOSMaxGRESPerJob",
        "PartitionTimeLimit",
        "Licenses",
        "Reservation",
        "BadConstraints",
        "None",
        "Own",
    ),
)
# The texts that a command alone prints: what they are of, and their keys.
_PRINTED = {"check": ("check", ("text", "cost")), "explain": ("forecast", ("rests_on", "next_step", "unknown"))}


LIMITS = (
    ("AssocGrpGRES", ReachedLimit(name="GrpTRES", tres="gres/gpu", most=8, used=7, account="vision")),
    ("AssocGrpGRES", ReachedLimit(name="GrpTRES", tres="gres/gpu:a100", most=8, used=7, account="vision")),
    ("AssocGrpCpuLimit", ReachedLimit(name="GrpTRES", tres="cpu", most=64, used=64, account="vision")),
    ("AssocGrpMemLimit", ReachedLimit(name="GrpTRES", tres="mem", most=64000, used=64000, account="vision")),
    ("AssocGrpGRESMinutes", ReachedLimit(name="GrpTRESMins", tres="gres/gpu", most=900, used=900, account="vision")),
    ("AssocGrpGRESRunMinutes", ReachedLimit(name="GrpTRESRunMins", tres="gres/gpu", most=9, used=9, account="vision")),
    ("AssocMaxJobsLimit", ReachedLimit(name="MaxJobs", most=1, used=1, account="vision", user="ada")),
    ("AssocMaxGRESPerJob", ReachedLimit(name="MaxTRESPJ", tres="gres/gpu", most=1, account="vision", user="ada")),
    ("AssocMaxWallDurationPerJobLimit", ReachedLimit(name="MaxWallPJ", most=30, account="vision")),
    ("QOSGrpWallLimit", ReachedLimit(name="GrpWall", most=600, used=600, qos="short")),
    ("QOSGrpJobsLimit", ReachedLimit(name="GrpJobs", most=2, used=2, qos="short")),
    ("QOSMaxGRESPerUser", ReachedLimit(name="MaxTRESPU", tres="gres/gpu", most=2, used=2, qos="short", user="ada")),
    (
        "MaxGRESPerAccount",
        ReachedLimit(name="MaxTRESPA", tres="gres/gpu", most=2, used=2, qos="short", account="vision"),
    ),
    ("QOSMaxGRESPerNode", ReachedLimit(name="MaxTRESPN", tres="gres/gpu", most=1, qos="short")),
)
_ADA = AccountUse(name="ada", used_of_share=1.0)
_VISION = AccountUse(name="vision", used_of_share=2.1)
SHARES = (
    FairShare(user=_ADA, accounts=(_VISION,), half_life_s=604800.0),
    FairShare(
        user=replace(_ADA, used_of_share=0.4),
        accounts=(replace(_VISION, used_of_share=0.5), AccountUse(name="physics", used_of_share=3.0)),
    ),
    FairShare(user=_ADA, accounts=(replace(_VISION, used_of_share=0.0),)),
    FairShare(user=_ADA, accounts=(replace(_VISION, used_of_share=float("inf")),)),
    FairShare(user=_ADA, accounts=()),
)


def sentences() -> str:
    """Return the first text of each form about proposals and about jobs that wait, what rules say, and the commands."""
    listed = {
        **numbered(_sentences()),
        **numbered(_explanations()),
        **numbered(_printed()),
        **_commands(),
        **dict(_rules()),
        **dict(_breakers()),
    }
    return json.dumps(listed, indent=1) + "\n"


def _commands() -> Mapping[str, str]:
    """Return what applies and what reverts the first change of each reason."""
    commands: dict[str, str] = {}
    for record in _records():
        for change in record.judged:
            commands.setdefault(f"{change.reason} apply", shell(apply_argv(change.action, None)))
            commands.setdefault(f"{change.reason} revert", shell(revert_argv(change.action, None)))
    return dict(sorted(commands.items()))


def _rules() -> Iterator[tuple[str, str]]:
    """Yield what each rule of the guard found, with the settings that ship."""
    for rule in RULES_IN_WORDS:
        yield f"rule {rule}", rule_sentence(rule, Limits(), PlanningSettings())


def _breakers() -> Iterator[tuple[str, str]]:
    """Yield the line of each circuit breaker, of a site where all that opens one is the case, and of probation."""
    settings = BreakerSettings()
    load = ControllerLoad(
        server_threads=199, cycle_s=41.5, backfill_cycle_s=312.0, agent_queue=1800, database_queue=90_000
    )
    reverted = tuple(
        replace(intended(SetNice(job_id=job_id, before=0, after=-10), 0.0), ending=Ending.REVERTED, ended_time=NOON)
        for job_id in range(1, 6)
    )
    health = Vitals(now=NOON, load=load, reads_failed=7, error_ratio=0.6, requests=50, leases=reverted)
    state = judged_breakers(ALL_CLOSED, health, settings)
    for breaker in state.open:
        # Instants are left out: how they read depends on where the tests run.
        yield f"breaker {breaker.name}", stop_line(breaker).replace(instant(NOON), "2026-03-01T12:00:00")
    name, line = next(iter(breaker_lines(state, settings).items()))
    yield f"breaker {name} in the log", line
    order = OrderProof(jobs=60, users=14, ordered_ratio=0.925, limit_ratio=0.938, gain_ratio=-0.004, error_ratio=0.011)
    half = Proof(coverage=Coverage(jobs=60, inside=31), order=order)
    yield "probation", probation_line("run_time site-1", half, 100)
    yield "probation after drift", probation_line("run_time default-1", half, 100, drifted=True)


def numbered(found: Iterator[tuple[str, str]]) -> Mapping[str, str]:
    """Return the first text of each form, keyed by its name and a number."""
    by_form: dict[tuple[str, str], str] = {}
    for name, text in found:
        by_form.setdefault((name, _form(text)), text)
    counts: dict[str, int] = {}
    listed = {}
    for (name, _), text in sorted(by_form.items()):
        counts[name] = counts.get(name, 0) + 1
        listed[f"{name} {counts[name]}"] = text
    return listed


def _form(text: str) -> str:
    return _REQUEST.sub("#", _NUMBER.sub("#", text))


def _sentences() -> Iterator[tuple[str, str]]:
    for record in _records():
        for change in record.judged:
            yield str(change.reason), sentence(change)
            yield f"{change.reason} if", assumption(change)


def _records() -> Iterator[CycleRecord]:
    yield from map(random_record, range(RANDOM_QUEUES))
    # A job that is lifted gets no other change, so that some reasons show without lifts alone.
    yield from (random_record(seed, Limits(nice_min=0)) for seed in range(RANDOM_QUEUES))
    for scope in SCOPES:
        yield from (random_record(seed, Limits(fairness=scope)) for seed in range(SCOPED_SEEDS))
    for with_models in (False, True):
        yield from (recorded_record(name, with_models=with_models) for name in RECORDED)
    yield gang_nodes.cycle(policy=gang_nodes.LastFirst()).judge(gang_nodes.site(gang_nodes.waiting()))
    lease, jobs = delayed()
    yield Cycle().judge(make_snapshot(jobs), Memory(leases=(lease,)))


def _explanations() -> Iterator[tuple[str, str]]:
    asked = ((snapshot, job_id, NOTHING_ASKED) for snapshot in _explained_snapshots() for job_id in _ids(snapshot))
    for snapshot, job_id, particulars in (*asked, *_asked_about()):
        explained = explanation(diagnose(snapshot, job_id, particulars=particulars))
        for obstacle in (explained.first, *explained.further):
            yield str(obstacle.cause), obstacle.text
            yield from ((f"{obstacle.cause} remedy", remedy) for remedy in obstacle.remedies)
        if explained.disagreement is not None:
            yield "disagreement", explained.disagreement
        yield from (("unread", text) for text in explained.unread)
        if explained.share is not None:
            yield "share", explained.share


def _printed() -> Iterator[tuple[str, str]]:
    """Yield what documents print of forecasts and of a site, which no proposal and no diagnosis has."""
    for name in DOCUMENTS:
        command = name.partition("-")[0]
        if command in _PRINTED:
            of, keys = _PRINTED[command]
            yield from ((f"{of} {key}", text) for key, text in english(document(name)) if key in keys)


def _ids(snapshot: Snapshot) -> tuple[int, ...]:
    return (*snapshot.jobs_by_id, 99)


def _asked_about() -> Iterator[tuple[Snapshot, int, Particulars]]:
    """Yield jobs about which Slurm was asked: each kind of limit, licences, reservations, shares, dependencies."""
    nodes = (make_node("n1"), make_node("n2", used=8))
    for reason, limit in LIMITS:
        job = make_job(1, gang=make_gang(2), reason=reason, qos="short", account="vision", user="ada")
        yield make_snapshot([job], nodes), 1, Particulars(limit=limit)
    licence = LicenceUse(name="matlab", asked=2, total=4, free=1)
    yield make_snapshot([make_job(1, reason="Licenses")], nodes), 1, Particulars(licences=(licence,))
    for start_s, end_s in ((2 * HOUR_S, 3 * HOUR_S), (-HOUR_S, HOUR_S), (-2 * HOUR_S, -HOUR_S), (60.0, HOUR_S)):
        booked = Reservation(name="exam", start_time=TAKEN_AT + start_s, end_time=TAKEN_AT + end_s, nodes=("n1", "n2"))
        known = Particulars(reservations=(booked, replace(booked, name="service", is_maintenance=True)))
        yield make_snapshot([make_job(1, reason="Reservation", reservation="exam")], nodes), 1, known
        for limit_s in (5 * HOUR_S, None):
            yield make_snapshot([make_job(1, reason="Priority", time_limit_s=limit_s)], nodes), 1, known
    yield make_snapshot([make_job(1, reservation="exam", reason="Reservation")]), 1, Particulars(reservations=())
    reserved = tuple(replace(node, flags=("RESERVED",)) for node in nodes)
    yield make_snapshot([make_job(1, reason="Resources")], reserved), 1, NOTHING_ASKED
    yield from ((make_snapshot(jobs, nodes), 1, NOTHING_ASKED) for jobs in _dependent())
    for required, closed in (("n2", nodes), ("n2", (nodes[0], replace(nodes[1], state="DOWN", reason="bad fan")))):
        gang = make_gang(8, required_nodes=(required,), nodes_max=1)
        yield make_snapshot([make_job(1, gang=gang, reason="Resources")], closed), 1, NOTHING_ASKED
    beyond = make_gang(8, required_nodes=("n3",), nodes_max=1)
    yield make_snapshot([make_job(1, gang=beyond)], (*nodes, make_node("n3", 4))), 1, NOTHING_ASKED
    for share in SHARES:
        behind = [
            make_job(1, user="ada"),
            make_job(2, user="bob", priority=5000),
            make_job(3, priority=6000, user="ada"),
        ]
        factors = PriorityFactors(fair_share=300)
        yield make_snapshot(behind, nodes), 1, Particulars(share=share, factors=factors)


def _dependent() -> Iterator[list[Job]]:
    running = replace(make_job(5, running_on=["n2"]), end_time=TAKEN_AT + HOUR_S)
    for dependency, others in (
        ("afterok:5(unfulfilled)", [running]),
        ("afterany:5(unfulfilled),afterany:6(unfulfilled)", [running, make_job(6)]),
        ("afterok:5(unfulfilled)?afternotok:6(unfulfilled)", [running, make_job(6)]),
        ("afterok:7(unfulfilled)", []),
        ("singleton(unfulfilled)", []),
    ):
        yield [make_job(1, dependency=dependency, reason="Dependency"), *others]
    yield [make_job(1, dependency="afterok:5(failed)", reason="DependencyNeverSatisfied")]


def _explained_snapshots() -> Iterator[Snapshot]:
    seen = [read() for read in RECORDED.values()]
    yield from seen
    drawn = [random_queues.snapshot(np.random.default_rng(seed)) for seed in range(EXPLAINED_SEEDS)]
    yield from drawn
    demo = seen[0]
    yield replace(demo, partitions=tuple(replace(partition, is_up=False) for partition in demo.partitions))
    yield make_snapshot([make_job(1, gang=TWO_NODES, reason="Resources")], APART)
    running = tuple(job for job in demo.jobs if not job.is_pending)
    for job in demo.jobs[len(running) :]:
        yield replace(demo, jobs=(*running, replace(job, reason="None", priority=1)))
    for change in _CHANGES:
        yield from (replace(one, jobs=tuple(map(change, one.jobs))) for one in (demo, *drawn[:5]))


def _with_gang(**fields: Any) -> Callable[[Job], Job]:
    return lambda job: replace(job, gang=replace(job.gang, **fields))


_CHANGES: Sequence[Callable[[Job], Job]] = (
    *((lambda job, reason=reason: replace(job, reason=reason)) for reason in _REASONS),
    lambda job: replace(job, nice=100),
    *(_with_gang(cpus=count) for count in (9, 13, 16)),
    _with_gang(cpus_per_gpu=3),
    *(_with_gang(memory_mib_per_node=mib) for mib in (30_000, 60_000)),
    _with_gang(cpus=16, memory_mib_per_node=60_000),
    _with_gang(exclusive=True),
)
