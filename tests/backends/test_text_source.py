import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.backends import tres
from advisor.backends.process import Answer
from advisor.backends.text_source import SPLIT_ARRAYS, TextSource, new_delimiter
from advisor.clock import ManualClock
from advisor.domain.gang import GpuCount
from advisor.domain.job import Allocation
from advisor.domain.node import GpuPool
from advisor.domain.snapshot import Snapshot
from advisor.errors import DecodeError
from tests.backends import source_contract
from tests.backends.fake_slurm import JOB_ROW, FakeSlurm, job_row, node_row, printed_row, root_site, text_reader
from tests.examples import examples
from tests.programs import write_slurm

pytestmark = pytest.mark.usefixtures("filed")


def source(slurm: FakeSlurm) -> TextSource:
    return text_reader(slurm, 5000.0)


BUSY = FakeSlurm(
    jobs=(
        job_row(JobID="9", State="RUNNING", NodeList="n01", tres_per_node="gres/gpu:2", TimeLimit="1:00:00"),
        job_row(JobID="7", JobArrayID="7_[1-3]"),
        job_row(JobID="5", State="COMPLETED"),
    ),
    nodes=(node_row(), node_row(NodeList="n02"), node_row(NodeList="n02", PartitionName="debug")),
)


def test_text_source_keeps_the_contract() -> None:
    snapshot = source_contract.check(source(BUSY))

    assert [job.job_id for job in snapshot.jobs] == [7, 9]
    assert snapshot.jobs_by_id[9].allocation == Allocation(nodes=("n01",), gpus=(GpuCount(gpu_type="a100", count=2),))
    assert snapshot.nodes[0].gpus == (GpuPool(gpu_type="a100", total=8, used=2),)
    assert [partition.name for partition in snapshot.partitions] == ["debug", "gpu"]
    assert snapshot.taken_at == 5000.0


def test_rows_in_another_order_are_the_same_snapshot() -> None:
    backwards = replace(BUSY, jobs=tuple(reversed(BUSY.jobs)), nodes=tuple(reversed(BUSY.nodes)))

    assert source(backwards).snapshot() == source(BUSY).snapshot()


def test_every_call_has_its_own_delimiter() -> None:
    slurm = FakeSlurm()
    text = source(slurm)

    text.snapshot()
    text.snapshot()

    formats = [asked[asked.index("-O") + 1] for asked in slurm.asked if "-O" in asked]
    delimiters = {layout.partition(",")[0].partition(":")[2] for layout in formats}
    assert len(delimiters) == 4
    assert all(len(delimiter) == 13 for delimiter in delimiters)


def test_delimiter_is_no_part_of_a_format() -> None:
    delimiter = new_delimiter()

    assert not set(delimiter) & set(",:. ")
    assert delimiter.startswith("@")


def test_job_name_that_forges_a_row_stays_a_name() -> None:
    forged = "x@AAAAAAAAAAAA\n8@AAAAAAAAAAAA"

    snapshot = source(FakeSlurm(jobs=(job_row(Name=forged),))).snapshot()

    assert [(job.job_id, job.name) for job in snapshot.jobs] == [(7, forged)]


def test_fields_a_release_lacks_are_said_to_be_unread() -> None:
    complaints = "".join(
        f"squeue: error: Invalid job format specification: {field}\n" for field in ("ExcNodes", "Exclusive", "CronJob")
    )
    slurm = FakeSlurm(jobs=(job_row(Exclusive="", CronJob="", OverSubscribe="NO"),), complaints=complaints)

    snapshot = source(slurm).snapshot()

    assert snapshot.jobs[0].gang.exclusive
    assert snapshot.unread == (
        SPLIT_ARRAYS,
        "squeue of this release does not tell which nodes a job excludes",
        "squeue of this release does not tell scrontab jobs from others",
    )
    assert snapshot.hides_bars and not source(FakeSlurm(jobs=(job_row(),))).snapshot().hides_bars


@pytest.mark.parametrize(
    ("version", "unique"), [("slurm-wlm 22.05.8\n", True), ("slurm 24.11.5\n", False)], ids=["22.05", "24.11"]
)
def test_array_records_are_asked_for_one_by_one_where_squeue_can(version: str, unique: bool) -> None:
    slurm = FakeSlurm()
    slurm.texts["sinfo --version"] = version

    snapshot = source(slurm).snapshot()

    asked = next(asked for asked in slurm.asked if asked[0] == "squeue")
    assert ("--array-unique" in asked) is unique
    assert (SPLIT_ARRAYS in snapshot.unread) is not unique


@pytest.mark.parametrize(("cluster", "local"), [(None, True), ("green", False)])
def test_jobs_of_a_federation_are_left_to_their_own_clusters(cluster: str | None, local: bool) -> None:
    slurm = FakeSlurm(cluster=cluster)

    source(slurm).snapshot()

    assert [("--local" in asked) for asked in slurm.asked if "-O" in asked] == [local, local]


def test_name_of_the_cluster_before_its_rows_is_no_row() -> None:
    class Named(FakeSlurm):
        def ask(self, program: str, *arguments: str) -> Answer:
            answer = super().ask(program, *arguments)
            return replace(answer, output=b"CLUSTER: green\n" + answer.output) if "-O" in arguments else answer

    assert [job.job_id for job in source(Named(cluster="green")).snapshot().jobs] == [7]


def test_partition_without_nodes_and_node_without_partition_are_left_out() -> None:
    slurm = FakeSlurm(nodes=(node_row(), node_row(NodeList="n02", PartitionName="gpu")))

    assert [partition.nodes for partition in source(slurm).snapshot().partitions] == [("n01", "n02")]


def test_job_whose_rows_are_the_same_is_one_job() -> None:
    snapshot = source(FakeSlurm(jobs=(JOB_ROW, JOB_ROW, job_row(JobID="8")))).snapshot()

    assert [job.job_id for job in snapshot.jobs] == [7, 8]
    assert snapshot.unread_jobs == ()


def test_job_whose_rows_disagree_is_left_out() -> None:
    snapshot = source(FakeSlurm(jobs=(JOB_ROW, job_row(UserName="eve"), job_row(JobID="8")))).snapshot()

    assert [job.job_id for job in snapshot.jobs] == [8]
    assert snapshot.unread_jobs == (7,)
    assert snapshot.unread[-1] == (
        "1 of the jobs, which are left out (job 7: Slurm lists job 7 twice, with different values)"
    )


def test_job_that_was_listed_twice_is_read_from_its_own_row_afterwards() -> None:
    slurm = FakeSlurm(jobs=(JOB_ROW, job_row(State="COMPLETED")))
    reader = source(slurm)
    reader.snapshot()

    slurm.jobs = (job_row(State="COMPLETED"), job_row(JobID="8"))

    assert [job.job_id for job in reader.snapshot().jobs] == [8]


FORGED = job_row(JobID="9", UserName="eve")


@pytest.mark.parametrize(
    ("name", "left", "unread"),
    [
        # A whole row of another job, and of one that is not there, if the delimiter were known.
        ("x" + printed_row(FORGED, "@known").decode() + "@known!\n", [8, 9], (0, 7)),
        ("x@known!\n" + printed_row(FORGED, "@known").decode() + "@known!\n", [8], (0, 7, 9)),
        ("x@known!\n" + printed_row(job_row(JobID="66"), "@known").decode() + "@known!\n", [8, 9, 66], (0, 7)),
        ("x@known", [8, 9], (7,)),
        ("x@known!\n", [8, 9], (0, 7)),
        ("@known" * 60, [8, 9], (7,)),
    ],
    ids=["joined", "row", "ghost", "field", "end of a row", "fields"],
)
def test_row_that_is_forged_with_a_known_delimiter_costs_no_other_job(
    name: str, left: list[int], unread: tuple[int, ...]
) -> None:
    slurm = FakeSlurm(jobs=(job_row(JobID="7", Name=name), job_row(JobID="8"), job_row(JobID="9")))
    clock = ManualClock(5000.0)
    site = root_site(slurm, clock)

    snapshot = TextSource(slurm, clock, site, delimiter=lambda: "@known").snapshot()

    assert [job.job_id for job in snapshot.jobs] == left
    assert snapshot.unread_jobs == unread


def test_node_reason_that_holds_the_delimiter_forges_nothing() -> None:
    reason = "@known\nn99@known" + "mixed@known" * 30
    slurm = FakeSlurm(nodes=(node_row(Reason=reason), node_row(NodeList="n02", Reason="bäd", features_act="ä")))
    clock = ManualClock(5000.0)
    site = root_site(slurm, clock)

    nodes = TextSource(slurm, clock, site, delimiter=lambda: "@known").snapshot().nodes

    assert [(node.name, node.reason) for node in nodes] == [("n01", reason[:128]), ("n02", "bäd")]
    assert nodes[1].features == ("ä",)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"Nice": "low"}, "squeue Nice reads 'low', which is not a whole number"),
        ({"SubmitTime": "N/A"}, "Slurm gives no submit time for job 7"),
        ({"TimeLimit": "soon"}, "squeue TimeLimit reads 'soon', which is not a duration"),
        ({"ExcNodes": "n01," * 20_000}, "squeue prints more than 65536 bytes about it"),
    ],
    ids=["number", "time", "limit", "long"],
)
def test_job_that_cannot_be_read_costs_no_other_job(changes: dict[str, str], why: str) -> None:
    snapshot = source(FakeSlurm(jobs=(job_row(JobID="7", **changes), job_row(JobID="8")))).snapshot()

    assert [job.job_id for job in snapshot.jobs] == [8]
    assert snapshot.unread_jobs == (7,)
    assert snapshot.unread[-1].startswith(f"1 of the jobs, which are left out (job 7: {why}")


def test_request_for_billions_of_gpus_costs_no_other_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(gpus: int) -> Snapshot:
        request = job_row(JobID="7", tres_per_node=f"gres/gpu:{gpus}")
        return source(FakeSlurm(jobs=(request, job_row(JobID="8")))).snapshot()

    bounded = read(4_000_000_000)
    monkeypatch.setattr(tres, "MOST", 1 << 62)
    unbounded = read(4_000_000_001)

    assert [job.job_id for job in bounded.jobs] == [7, 8]
    assert ([job.job_id for job in unbounded.jobs], unbounded.unread_jobs) == ([8], (7,))


def test_queue_of_which_no_job_can_be_read_is_no_snapshot() -> None:
    with pytest.raises(DecodeError, match="squeue Nice reads 'low', which is not a whole number"):
        source(FakeSlurm(jobs=(job_row(Nice="low"), job_row(JobID="8", Nice="high")))).snapshot()


def test_many_jobs_that_cannot_be_read_are_one_short_sentence() -> None:
    bad = [job_row(JobID=str(number), Nice="x" * 500) for number in range(1, 200)]

    snapshot = source(FakeSlurm(jobs=(*bad, job_row(JobID="500")))).snapshot()

    assert snapshot.unread[-1].startswith("199 of the jobs, which are left out (job 1: ")
    assert snapshot.unread[-1].endswith("; and 196 more)")
    assert len(snapshot.unread[-1]) < 1200
    assert snapshot.unread_jobs == tuple(range(1, 200))


@pytest.mark.parametrize(
    ("on", "shown"),
    [
        (0, ""),
        (2, "afterok:10000(failed),afterok:10001(failed)"),
        (4000, "afterok:10000(failed),afterok:10001(failed),afterok:..."),
    ],
)
def test_long_dependency_is_read_by_its_head(on: int, shown: str) -> None:
    text = ",".join(f"afterok:{number}(failed)" for number in range(10_000, 10_000 + on))

    (job,) = source(FakeSlurm(jobs=(job_row(JobID="7", Dependency=text),))).snapshot().jobs

    assert job.dependency == shown


def test_empty_queue_is_a_snapshot() -> None:
    snapshot = source(FakeSlurm(jobs=())).snapshot()

    assert snapshot.jobs == ()
    assert [node.name for node in snapshot.nodes] == ["n01"]


def test_answer_without_any_node_is_no_snapshot() -> None:
    with pytest.raises(DecodeError, match="Slurm lists no node"):
        source(FakeSlurm(jobs=(), nodes=())).snapshot()


def test_half_an_answer_is_no_snapshot() -> None:
    class Cut(FakeSlurm):
        def ask(self, program: str, *arguments: str) -> Answer:
            whole = super().ask(program, *arguments)
            return replace(whole, output=whole.output[:-20]) if program == "squeue" else whole

    with pytest.raises(DecodeError, match="squeue gave an incomplete answer"):
        source(Cut()).snapshot()


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


LIMIT_BYTES = 64 << 20
# Prints what is left of the largest queue: the jobs that were read, the others, and the memory that it took.
_READER = """
import json
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from tools.bench.measuring import peak_mib

source = open_source("text", cluster=None, timeout_s=800.0, clock=SystemClock())
before = peak_mib()
snapshot = source.snapshot()
print(json.dumps({
    "jobs": len(snapshot.jobs),
    "unread": len(snapshot.unread_jobs),
    "dependent": sum(bool(job.dependency) for job in snapshot.jobs),
    "more_mib": peak_mib() - before,
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a reader made of a queue."""

    jobs: int
    unread: int
    dependent: int
    more_mib: float


def read(folder: Path, *, jobs: int, changes: Mapping[str, str], obeys_widths: bool = True) -> Read:
    """Read a queue of like jobs in a process of its own."""
    variables = write_slurm(folder, jobs=jobs, changes=changes, obeys_widths=obeys_widths)
    answer = subprocess.run(
        [sys.executable, "-c", _READER], env=variables, capture_output=True, text=True, timeout=850, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return Read(**json.loads(answer.stdout))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_thousand_jobs_are_read_in_two_kib_each(tmp_path: Path) -> None:
    jobs = 200_000

    seen = read(tmp_path, jobs=jobs, changes={"Name": "train-%d", "PriorityLong": "%d"})

    assert (seen.jobs, seen.unread) == (jobs, 0)
    assert seen.more_mib < jobs * 2 / 1024


# Of 580 jobs, each of which depends on 4,000 others.
DEPENDENCY = ",".join(f"afterany:{job_id}(unfulfilled)" for job_id in range(100_000, 104_000))
QUEUE = {"Dependency": DEPENDENCY, "Reason": "Dependency"}


def test_dependencies_on_thousands_of_jobs_blind_nothing(tmp_path: Path) -> None:
    assert 580 * len(DEPENDENCY) > LIMIT_BYTES

    seen = read(tmp_path, jobs=580, changes=QUEUE)

    assert (seen.jobs, seen.unread, seen.dependent) == (580, 0, 580)
    assert seen.more_mib < 10


def test_rows_above_their_bound_cost_no_other_job(tmp_path: Path) -> None:
    seen = read(tmp_path, jobs=1200, changes=QUEUE, obeys_widths=False)

    # The program prints one job in three without a dependency then.
    assert (seen.jobs, seen.unread, seen.dependent) == (400, 800, 0)
    assert seen.more_mib < 20


def test_answer_of_any_length_takes_the_memory_of_its_jobs(tmp_path: Path) -> None:
    nodes = ",".join(f"n{number:05}" for number in range(1, 30_000, 7))
    assert 3000 * len(nodes) > LIMIT_BYTES

    seen = read(tmp_path, jobs=3000, changes={"ExcNodes": nodes})

    assert (seen.jobs, seen.unread) == (3000, 0)
    assert seen.more_mib < 20
