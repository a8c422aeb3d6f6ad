"""Rows of squeue that did not change are not decoded again, and the snapshot is the same all the same."""

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.backends.site_reader import Identity, SiteReader
from advisor.backends.text_source import TextSource
from advisor.clock import ManualClock
from tests.backends.fake_slurm import FakeSlurm, job_row
from tests.examples import examples


@pytest.fixture(scope="module", autouse=True)
def _conf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text("ClusterName=filed\nTopologyPlugin=topology/tree\n")
    (path.parent / "topology.conf").write_text("SwitchName=leaf1 Nodes=n[01-02]\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SLURM_CONF", str(path))
        yield


def source(slurm: FakeSlurm) -> TextSource:
    """A reader of a fake cluster."""
    clock = ManualClock(5000.0)
    return TextSource(slurm, clock, SiteReader(slurm, clock, identity=Identity(uid=0, name="root")))


def test_pending_job_that_did_not_change_is_not_decoded_again() -> None:
    slurm = FakeSlurm(jobs=[job_row(JobID="7"), job_row(JobID="8")])
    reader = source(slurm)
    before = reader.snapshot()

    slurm.jobs = [job_row(JobID="7"), job_row(JobID="8", PriorityLong="101")]
    after = reader.snapshot()

    assert after.jobs_by_id[7] is before.jobs_by_id[7]
    assert after.jobs_by_id[8].priority == 101


def test_started_job_is_decoded_with_its_nodes_as_they_are_now() -> None:
    row = job_row(State="RUNNING", NodeList="n01", **{"tres-per-node": "gres/gpu:2"})
    slurm = FakeSlurm(jobs=[row])
    reader = source(slurm)
    (before,) = reader.snapshot().jobs

    slurm.nodes = [{**slurm.nodes[0], "Gres": "gpu:h100:8", "GresUsed": "gpu:h100:2(IDX:0-1)"}]
    (after,) = reader.snapshot().jobs

    assert before.allocation is not None
    assert after.allocation is not None
    assert [gpus.gpu_type for gpus in before.allocation.gpus] == ["a100"]
    assert [gpus.gpu_type for gpus in after.allocation.gpus] == ["h100"]


def test_pending_job_is_decoded_again_once_a_larger_node_joins() -> None:
    slurm = FakeSlurm(jobs=[job_row(**{"tres-per-job": "gres/gpu:16", "tres-per-node": "N/A", "MinNodes": "0"})])
    reader = source(slurm)
    (before,) = reader.snapshot().jobs

    slurm.nodes = [*slurm.nodes, {**slurm.nodes[0], "NodeList": "n99", "Gres": "gpu:a100:16", "GresUsed": "gpu:a100:0"}]
    (after,) = reader.snapshot().jobs

    assert after == source(slurm).snapshot().jobs[0] != before


def test_name_that_looks_like_the_end_of_a_field_changes_no_other_job() -> None:
    slurm = FakeSlurm(jobs=[job_row(Name="a\x1fb", UserName="c")])
    reader = source(slurm)
    reader.snapshot()

    slurm.jobs = [job_row(Name="a", UserName="b\x1fc")]
    (job,) = reader.snapshot().jobs

    assert (job.name, job.user) == ("a", "b\x1fc")


_CHANGES = st.sampled_from(
    [
        {"PriorityLong": "5"},
        {"Reason": "Resources"},
        {"State": "RUNNING", "NodeList": "n01", "StartTime": "2000"},
        {"State": "COMPLETED"},
        {"Comment": "sadvise: gpus=1-8"},
        {"tres-per-node": "gres/gpu:4"},
        {},
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["1", "2", "3"]), _CHANGES), min_size=2, max_size=5))
def test_reader_that_read_before_reads_what_a_fresh_one_does(queues: list[dict[str, Mapping[str, str]]]) -> None:
    slurm = FakeSlurm()
    reader = source(slurm)

    for queue in queues:
        slurm.jobs = [{**job_row(JobID=job_id), **changes} for job_id, changes in queue.items()]

        assert repr(reader.snapshot()) == repr(source(slurm).snapshot())
