"""Unknown words in the answers of Slurm: each costs its own row, with a line that says so, and nothing else."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.backends import pyslurm_decode
from advisor.backends.assembly import assemble
from advisor.backends.pyslurm_decode import Counted, Raw
from advisor.backends.records import record_or_unread, row_or_unread
from advisor.backends.text_decode import JOB_FIELDS, NODE_FIELDS
from advisor.diagnose.causes import diagnose
from advisor.domain.diagnosis import Cause
from advisor.domain.node import NodeService
from advisor.domain.snapshot import Snapshot
from tests.backends import recorded, recorded_pyslurm
from tests.backends.fake_slurm import FakeSlurm, job_row, node_row, text_reader
from tests.examples import examples

WORDS: Final = st.from_regex(
    r"[A-Z]{3,9}(_[A-Z]{2,6})?|[a-z]{2,6}:[a-z]{2,6}(:[a-z_]{2,9}){0,2}(:[0-9])?", fullmatch=True
)
# What a job, a node or a partition is called tells one from another.
NAMES: Final = frozenset(("JobID", "NodeList", "PartitionName", "name", "id"))
JOBS: Final = (job_row(JobID="7", JobArrayID="7"), job_row(JobID="8", JobArrayID="8", tres_per_node="gres/gpu:8"))
NODES: Final = (
    node_row(),
    node_row(NodeList="n02", PartitionName="gpu"),
    node_row(NodeList="n03", PartitionName="debug"),
)


pytestmark = pytest.mark.usefixtures("filed")


many_words = settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])


def text(fake: FakeSlurm) -> Snapshot:
    return text_reader(fake, 5000.0).snapshot()


def check(changed: Snapshot, whole: Snapshot, kind: str, name: object) -> None:
    """Check that all but one row was read as before, and that the one was read or is counted, with a line."""
    lines = changed.unread[len(whole.unread) :]
    jobs = dict(whole.jobs_by_id)
    nodes = {node.name: node for node in whole.nodes}
    partitions = dict(whole.partitions_by_name)
    if kind == "job":
        jobs.pop(name)  # type: ignore[call-overload]
        assert (name in changed.jobs_by_id) != (name in changed.unread_jobs)
        assert (name in changed.unread_jobs) == any(f"job {name}" in line for line in lines)
    else:
        nodes.pop(name, None) if kind == "node" else partitions.pop(name, None)  # type: ignore[call-overload]
        there = {node.name for node in changed.nodes} if kind == "node" else changed.partitions_by_name
        assert name in there or any(f"{kind} {name}" in line for line in lines)
    # A job holds GPUs of the types that its nodes have.
    if kind != "node":
        assert {job_id: changed.jobs_by_id[job_id] for job_id in jobs} == jobs
    assert {node.name: node for node in changed.nodes if node.name in nodes} == nodes
    if kind == "job":
        assert changed.partitions == whole.partitions
        diagnosis = diagnose(changed, name)  # type: ignore[arg-type]
        if name in changed.unread_jobs:
            assert diagnosis.first.cause is Cause.UNKNOWN


@many_words
@given(field=st.sampled_from(sorted(set(JOB_FIELDS) - NAMES)), word=WORDS)
def test_unknown_word_of_squeue_costs_its_own_job(field: str, word: str) -> None:
    changed = text(FakeSlurm(jobs=({**JOBS[0], field: word}, JOBS[1]), nodes=NODES))

    check(changed, text(FakeSlurm(jobs=JOBS, nodes=NODES)), "job", 7)


@many_words
@given(field=st.sampled_from(sorted(set(NODE_FIELDS) - NAMES)), word=WORDS)
def test_unknown_word_of_sinfo_costs_its_own_node_or_partition(field: str, word: str) -> None:
    changed = text(FakeSlurm(jobs=JOBS, nodes=(*NODES[:2], {**NODES[2], field: word})))

    whole = text(FakeSlurm(jobs=JOBS, nodes=NODES))
    assert changed.jobs == whole.jobs
    assert changed.nodes[:2] == whole.nodes[:2]
    assert changed.partitions_by_name["gpu"] == whole.partitions_by_name["gpu"]
    lines = " ".join(changed.unread[len(whole.unread) :])
    assert len(changed.nodes) == 3 or "node n03" in lines
    assert "debug" in changed.partitions_by_name or "partition debug" in lines
    # Whatever the word: it is no claim that the node is out of service, nor that its partition is down.
    assert all(node.service is not NodeService.OUT for node in changed.nodes)
    assert all(partition.is_up for partition in changed.partitions)


@many_words
@given(data=st.data(), kind=st.sampled_from(("job", "node", "partition")), word=WORDS)
def test_unknown_word_of_pyslurm_costs_its_own_row(data: st.DataObject, kind: str, word: str) -> None:
    records = {each: list(raws) for each, raws in recorded_pyslurm.uncounted_records().items()}
    number = data.draw(st.integers(0, len(records[kind]) - 1))
    raw = records[kind][number]
    name = raw.values["id" if kind == "job" else "name"]
    key = data.draw(st.sampled_from(sorted(set(raw.values) - NAMES)))
    whole = of_records(records)
    records[kind][number] = replace(raw, values={**raw.values, key: word})

    changed = of_records(records)

    if kind == "job" and name not in whole.jobs_by_id:
        return
    check(changed, whole, kind, name)


def of_records(records: Mapping[str, list[Raw]]) -> Snapshot:
    """Assemble what pyslurm shows, as its source does."""
    counted = Counted(gpus=False)
    return assemble(
        source="pyslurm",
        taken_at=5000.0,
        site=recorded.site(),
        jobs=[
            record_or_unread(partial(pyslurm_decode.job_record, raw, tres_counted=counted), _id(raw.values))
            for raw in records["job"]
        ],
        nodes=[
            row_or_unread(partial(pyslurm_decode.node_record, raw, gpus_counted=False), raw.values.get("name"))
            for raw in records["node"]
        ],
        partitions=[
            row_or_unread(partial(pyslurm_decode.partition, raw), raw.values.get("name"))
            for raw in records["partition"]
        ],
    )


def _id(values: Mapping[str, Any]) -> int:
    return values["id"] if isinstance(values["id"], int) else 0


@pytest.mark.parametrize("word", ["SOMETHING_NEW", "EXPEDITED_TWICE"])
def test_job_in_an_unknown_state_is_not_said_to_have_started_or_ended(word: str) -> None:
    snapshot = text(FakeSlurm(jobs=(job_row(State=word),), nodes=NODES))

    assert snapshot.unread_jobs == (7,)
    assert snapshot.unread[-1] == f"1 of the jobs, which are left out (job 7: its state is {word}, which is not known)"
    assert diagnose(snapshot, 7).first.cause is Cause.UNKNOWN


def test_job_is_not_impossible_where_a_node_could_not_be_read() -> None:
    nodes = (node_row(Gres="gpu:a100:2"), node_row(NodeList="n02", Gres="gpu:h100:by_moonlight:8"))

    snapshot = text(FakeSlurm(jobs=(JOBS[1],), nodes=nodes))

    assert [node.name for node in snapshot.nodes] == ["n01"]
    assert snapshot.unread[-1].startswith("1 of the nodes, which are left out (node n02: sinfo Gres reads ")
    diagnosis = diagnose(snapshot, 8)
    assert Cause.IMPOSSIBLE not in {finding.cause for finding in (diagnosis.first, *diagnosis.further)}


def test_gpus_that_are_not_consumed_are_always_idle() -> None:
    fake = FakeSlurm(nodes=(node_row(Gres="gpu:h100:no_consume:8", GresUsed="gpu:h100:0"),))

    (pool,) = text(fake).nodes[0].gpus

    assert (pool.gpu_type, pool.total, pool.idle) == ("h100", 8, 8)
