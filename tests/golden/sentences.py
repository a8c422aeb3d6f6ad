"""Every sentence of a reason, filled in with real values: one of each form, in a list to be read."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.job import Job
from advisor.domain.memory import Memory
from advisor.domain.snapshot import Snapshot
from advisor.planning.causes import diagnose
from advisor.settings import Fairness, Limits
from advisor.view.explanations import explanation
from advisor.view.sentences import assumption, sentence
from tests.builders import make_cluster, make_job, make_snapshot
from tests.golden import digests, random_queues
from tests.planning import exploring_site as exploring
from tests.planning import test_gang_nodes as gang_nodes
from tests.planning.test_causes import APART, TWO_NODES
from tests.planning.test_checkpoint_requeue import FULL, GANG, judged
from tests.planning.test_counterfactual import delayed
from tests.planning.test_running_sizes import restarts

SEEDS = 300
SCOPES: tuple[Fairness, ...] = ("user", "account")
SCOPED_SEEDS = 60
EXPLAINED_SEEDS = 20
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


def sentences() -> Mapping[str, str]:
    """Return the first text of each form about proposals and about jobs that wait."""
    return {**numbered(_sentences()), **numbered(_explanations())}


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
    yield from map(digests.random_record, range(SEEDS))
    # A job that is lifted gets no other change, so that some reasons show without lifts alone.
    yield from (digests.random_record(seed, Limits(nice_min=0)) for seed in range(SEEDS))
    for scope in SCOPES:
        yield from (digests.random_record(seed, Limits(fairness=scope)) for seed in range(SCOPED_SEEDS))
    yield from (Cycle().judge(later) for _, later in digests.later_snapshots())
    yield judged(make_cluster([*FULL, GANG]))
    yield from restarts()
    yield gang_nodes.cycle(policy=gang_nodes.LastFirst()).judge(gang_nodes.site(gang_nodes.waiting()))
    yield exploring.planned(exploring.queue(exploring.pending(), exploring.resident()))
    lease, jobs = delayed()
    yield Cycle().judge(make_snapshot(jobs), Memory(leases=(lease,)))


def _explanations() -> Iterator[tuple[str, str]]:
    for snapshot in _explained_snapshots():
        for job_id in (*snapshot.jobs_by_id, 99):
            explained = explanation(diagnose(snapshot, job_id))
            for obstacle in (explained.first, *explained.further):
                yield str(obstacle.cause), obstacle.text
                yield from ((f"{obstacle.cause} remedy", remedy) for remedy in obstacle.remedies)
            if explained.disagreement is not None:
                yield "disagreement", explained.disagreement
            yield from (("unread", text) for text in explained.unread)


def _explained_snapshots() -> Iterator[Snapshot]:
    seen = [snapshot for _, snapshot in digests.recorded_snapshots()]
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
