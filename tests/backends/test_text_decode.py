from collections.abc import Mapping
from itertools import accumulate, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from advisor.backends.process import text_of
from advisor.backends.records import JobRecord, NodeRecord, UnreadJob, jobs_of
from advisor.backends.text_decode import (
    NODE_FIELDS,
    NODE_WIDTHS,
    ROW_LIMIT_BYTES,
    field_list,
    job_format,
    job_record,
    job_rows,
    node_records,
    partitions_of,
    record_of,
    rows,
    unknown_fields,
)
from advisor.backends.tres import Gres
from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, HetRecord
from advisor.domain.site import Partition
from advisor.errors import DecodeError
from tests.backends.fake_slurm import JOB_ROW, job_row, node_row, printed, printed_row

DELIMITER = "@k3vQ9_xYw-2A"
# Whatever a user may put into a job name or a comment, the guessed delimiter of another call included.
HOSTILE = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.sampled_from(
        [
            "two\nlines",
            "a|b",
            "\x1b[31mred\x1b[0m",
            "nul\x00byte",
            "<script>alert(1)</script>",
            "JobId=1 Priority=9",
            "\nJobId=8 JobName=forged",
            "@guess\n8@guess8@guess",
            "@",
            "\\xff",
            "漢字 🙂",
        ]
    ),
)


def listed(*jobs: Mapping[str, str]) -> bytes:
    return printed(jobs, job_format(DELIMITER))


def decoded(*chunks: bytes, delimiter: str = DELIMITER) -> list[JobRecord]:
    records = [record_of(row, delimiter) for row in job_rows(chunks, delimiter=delimiter)]
    assert all(isinstance(record, JobRecord) for record in records)
    return [record for record in records if isinstance(record, JobRecord)]


def one_row(**changes: str) -> JobRecord:
    return job_record(job_row(**changes))


@given(names=st.lists(HOSTILE, min_size=1, max_size=4), comment=HOSTILE, reason=HOSTILE, dependency=HOSTILE)
def test_hostile_texts_stay_in_their_field(names: list[str], comment: str, reason: str, dependency: str) -> None:
    assume(not any(text == "(null)" for text in (*names, comment, dependency)))
    given_rows = [
        job_row(JobID=str(number), Name=name, Comment=comment, Reason=reason, Dependency=dependency)
        for number, name in enumerate(names, start=1)
    ]

    records = decoded(listed(*given_rows))

    assert [(record.job_id, record.name) for record in records] == list(enumerate(names, start=1))
    assert {record.comment for record in records} == {comment}


def test_row_is_read_up_to_its_longest() -> None:
    short = len(printed_row(job_row(Comment=""), DELIMITER))
    longest, longer = (
        record_of(printed_row(job_row(Comment="c" * (65_536 - short + more)), DELIMITER), DELIMITER) for more in (0, 1)
    )

    assert isinstance(longest, JobRecord) and len(longest.comment) == 65_536 - short
    assert isinstance(longer, UnreadJob)


def test_byte_that_is_no_utf8_is_kept_as_text() -> None:
    assert decoded(listed(job_row(Name="a\udcffb")))[0].name == "a\\xffb"


@given(cut=st.integers(0, 2000))
def test_answer_that_ends_early_is_refused(cut: int) -> None:
    whole = listed(job_row(JobID="1"), job_row(JobID="2"))
    row_end = len(listed(job_row(JobID="1")))
    text = whole[: min(cut, len(whole) - 1)]
    assume(len(text) not in (0, row_end))

    with pytest.raises(DecodeError, match="incomplete answer"):
        decoded(text)


@given(cuts=st.lists(st.integers(1, 400), max_size=30), name=HOSTILE)
def test_rows_are_the_same_in_whatever_chunks_they_come(cuts: list[int], name: str) -> None:
    whole = listed(job_row(JobID="1", Name=name), job_row(JobID="2"), job_row(JobID="3", Comment=name))
    ends = [0, *accumulate(cuts), len(whole)]
    chunks = [whole[start:end] for start, end in pairwise(ends)]

    assert list(job_rows(chunks, delimiter=DELIMITER)) == list(job_rows([whole], delimiter=DELIMITER))


@pytest.mark.parametrize("size", [1000, 4096, 65_536, 1 << 20])
def test_row_above_its_bound_is_known_by_its_head(size: int) -> None:
    whole = listed(job_row(JobID="1"), job_row(JobID="2", Name="n" * 500_000), job_row(JobID="3"))
    chunks = [whole[start : start + size] for start in range(0, len(whole), size)]

    records = [record_of(row, DELIMITER) for row in job_rows(chunks, delimiter=DELIMITER)]

    assert [record.job_id for record in records] == [1, 2, 3]
    assert records[1] == UnreadJob(job_id=2, why="squeue prints more than 65536 bytes about it")


@pytest.mark.parametrize("held", [ROW_LIMIT_BYTES, ROW_LIMIT_BYTES + 1])
def test_row_above_its_bound_is_refused_though_a_chunk_ends_at_the_bound(held: int) -> None:
    whole = listed(job_row(JobID="2", Name="n" * ROW_LIMIT_BYTES), job_row(JobID="3"))

    records = [record_of(row, DELIMITER) for row in job_rows([whole[:held], whole[held:]], delimiter=DELIMITER)]

    assert [record.job_id for record in records] == [2, 3]
    assert records[0] == UnreadJob(job_id=2, why="squeue prints more than 65536 bytes about it")


def test_name_of_the_cluster_is_no_part_of_the_first_row() -> None:
    row = listed(JOB_ROW)

    with_name = list(job_rows([b"CLUSTER: gre", b"en\n" + row], delimiter=DELIMITER, heading="CLUSTER: green\n"))

    assert with_name == list(job_rows([row], delimiter=DELIMITER))
    assert list(job_rows([b"CLUSTER: green\n"], delimiter=DELIMITER, heading="CLUSTER: green\n")) == []


def test_rows_that_do_not_fit_their_fields_are_refused() -> None:
    text = printed([node_row()] * len(NODE_FIELDS), field_list(NODE_FIELDS[:-1], DELIMITER))

    with pytest.raises(DecodeError, match="rows do not fit its fields"):
        rows(text, command="sinfo", fields=NODE_FIELDS, delimiter=DELIMITER)


def test_fields_end_with_the_delimiter() -> None:
    assert field_list(("JobID", "Name"), "@x", {"Name": 9}) == "JobID:@x,Name:9@x"
    assert job_format("@x").endswith(",CronJob:@x!")


def test_unknown_fields_are_named_by_the_command() -> None:
    complaints = "squeue: error: Invalid job format specification: ExcNodes\nsqueue: error: something else\n"

    assert unknown_fields(complaints) == {"ExcNodes"}


def test_requests_of_every_form_are_read() -> None:
    record = one_row(
        tres_per_job="gres:gpu:12",
        tres_per_node="gres/gpu:a100:4,gres/shard:2",
        tres_per_socket="gres/gpu:1",
        tres_per_task="cpu=2,gres/gpu=1",
        cpus_per_tres="gres/gpu:6",
    )

    assert record.requests == {
        GpuScope.JOB: (Gres(name="gpu", gres_type=None, count=12),),
        GpuScope.NODE: (
            Gres(name="gpu", gres_type="a100", count=4),
            Gres(name="shard", gres_type=None, count=2),
        ),
        GpuScope.SOCKET: (Gres(name="gpu", gres_type=None, count=1),),
        GpuScope.TASK: (Gres(name="gpu", gres_type=None, count=1),),
    }
    assert record.cpus_per_gres == (Gres(name="gpu", gres_type=None, count=6),)


@pytest.mark.parametrize(
    ("array_id", "array"),
    [
        ("7_[3-6,9%2]", ArrayRecord(array_job_id=7, waiting="3-6,9", max_running=2)),
        ("7_[5]", ArrayRecord(array_job_id=7, waiting="5")),
        ("7_5", ArrayRecord(array_job_id=7, task_id=5)),
        ("7", None),
        ("7+1", None),
    ],
)
def test_array_id_tells_tasks_from_what_waits(array_id: str, array: ArrayRecord | None) -> None:
    assert one_row(JobArrayID=array_id).array == array


@pytest.mark.parametrize(
    ("fields", "exclusive"),
    [
        ({"Exclusive": "NODE", "OverSubscribe": "NO"}, True),
        ({"Exclusive": "NO", "OverSubscribe": "NO"}, False),
        ({"Exclusive": "USER", "OverSubscribe": "NO"}, False),
    ],
)
def test_exclusive_field_counts_where_there_is_one(fields: dict[str, str], exclusive: bool) -> None:
    assert one_row(**fields).exclusive is exclusive


def test_plain_values_of_a_job_are_read() -> None:
    record = one_row(
        HetJobID="7",
        HetJobOffset="1",
        Partition="gpu,debug",
        ReqSwitch="1",
        Wait4Switch="30:00",
        Feature="a100&nvlink",
        ReqNodes="n[05-06]",
        ExcNodes="n01",
        MinTime="10:00",
        Nice="-20",
        Account="(null)",
        CronJob="Yes",
        Requeue="0",
    )

    assert record.het == HetRecord(het_job_id=7, offset=1)
    assert record.partitions == ("gpu", "debug")
    assert (record.switch_count, record.switch_wait_s) == (1, 1800.0)
    assert (record.features, record.required_nodes, record.excluded_nodes) == ("a100&nvlink", ("n05", "n06"), ("n01",))
    assert (record.limit_min_s, record.nice, record.account) == (600.0, -20, "")
    assert record.cron
    assert not record.requeueable


@pytest.mark.parametrize(
    ("field", "text"),
    [("JobID", "x"), ("NodeList", "n["), ("TimeLimit", "soon"), ("Nice", "low"), ("tres-alloc", "cpu")],
)
def test_field_that_cannot_be_read_is_named(field: str, text: str) -> None:
    with pytest.raises(DecodeError, match=f"squeue {field} reads '"):
        job_record({**JOB_ROW, field: text})


def test_job_without_an_id_is_refused() -> None:
    with pytest.raises(DecodeError, match="a job that cannot be: job id 0"):
        jobs_of([one_row(JobID="0")], [])


def test_node_in_two_partitions_is_one_node() -> None:
    found = [
        node_row(NodeList="n01", PartitionName="gpu"),
        node_row(NodeList="n01", PartitionName="debug"),
        node_row(NodeList="n02", PartitionName="gpu", StateComplete="idle*+drain+not_responding", Reason="bad\nGPU"),
    ]

    first, second = (node for node in node_records(found) if isinstance(node, NodeRecord))

    assert (first.name, sorted(first.partitions), first.states) == ("n01", ["debug", "gpu"], ("MIXED",))
    assert (second.name, second.states, second.reason) == ("n02", ("IDLE", "DRAIN", "NOT_RESPONDING"), "bad\nGPU")


def test_partitions_are_read_from_the_same_rows() -> None:
    found = [
        node_row(NodeList="n02"),
        node_row(NodeList="n01"),
        node_row(
            NodeList="n01",
            PartitionName="day",
            Available="drain",
            Time="1-00:00:00",
            DefaultTime="n/a",
            Size="2-3",
            PriorityJobFactor="9",
            Partition="day",
            OverSubscribe="FORCE:4",
        ),
    ]

    assert partitions_of(found) == (
        Partition(
            name="day",
            is_up=False,
            nodes=("n01",),
            max_time_s=86400.0,
            min_nodes_per_job=2,
            max_nodes_per_job=3,
            priority_job_factor=9,
            over_subscribe="FORCE:4",
        ),
        Partition(name="gpu", nodes=("n01", "n02"), default_time_s=86400.0, is_default=True),
    )


@given(reason=HOSTILE)
def test_hostile_node_reason_stays_in_its_field(reason: str) -> None:
    layout = field_list(NODE_FIELDS, DELIMITER, NODE_WIDTHS)
    text = printed([node_row(Reason=reason), node_row(NodeList="n02")], layout)

    found = rows(text, command="sinfo", fields=NODE_FIELDS, delimiter=DELIMITER, widths=NODE_WIDTHS)

    first, second = (node for node in node_records(found) if isinstance(node, NodeRecord))
    assert first.reason == text_of(reason.encode()[:128]).rstrip(" ")
    assert (first.name, second.name, second.reason) == ("n01", "n02", "none")
