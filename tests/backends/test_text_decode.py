import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from advisor.backends.process import text_of
from advisor.backends.records import JobRecord, jobs_of
from advisor.backends.text_decode import (
    JOB_FIELDS,
    NODE_FIELDS,
    field_list,
    job_record,
    node_records,
    partitions_of,
    rows,
    unknown_fields,
)
from advisor.backends.tres import Gres
from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, HetRecord
from advisor.domain.site import Partition
from advisor.errors import DecodeError
from tests.backends.fake_slurm import JOB_ROW, job_row, node_row, printed

DELIMITER = "@k3vQ9_xYw-2A"
# Whatever a user may put into a job name or a comment, the guessed delimiter of another call included.
HOSTILE = st.one_of(
    st.text(max_size=40),
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


def decoded(text: str) -> list[JobRecord]:
    found = rows(text, command="squeue", fields=JOB_FIELDS, delimiter=DELIMITER)
    return [job_record(row) for row in found]


def one_row(**changes: str) -> JobRecord:
    return job_record(job_row(**changes))


@given(names=st.lists(HOSTILE, min_size=1, max_size=4), comment=HOSTILE, reason=HOSTILE, dependency=HOSTILE)
def test_hostile_texts_stay_in_their_field(names: list[str], comment: str, reason: str, dependency: str) -> None:
    assume(not any(text == "(null)" for text in (*names, comment, dependency)))
    given_rows = [
        job_row(JobID=str(number), Name=name, Comment=comment, Reason=reason, Dependency=dependency)
        for number, name in enumerate(names, start=1)
    ]

    records = decoded(text_of(printed(given_rows, JOB_FIELDS, DELIMITER).encode("utf-8", "surrogatepass")))

    shown = [text_of(name.encode("utf-8", "surrogatepass")) for name in names]
    assert [(record.job_id, record.name) for record in records] == list(enumerate(shown, start=1))
    assert {record.comment for record in records} == {text_of(comment.encode("utf-8", "surrogatepass"))}


def test_byte_that_is_no_utf8_is_kept_as_text() -> None:
    raw = printed([job_row(Name="a\udcffb")], JOB_FIELDS, DELIMITER).encode("utf-8", "surrogateescape")

    assert decoded(text_of(raw))[0].name == "a\\xffb"


@given(cut=st.integers(0, 2000))
def test_answer_that_ends_early_is_refused(cut: int) -> None:
    whole = printed([job_row(JobID="1"), job_row(JobID="2")], JOB_FIELDS, DELIMITER)
    row_end = whole.index(f"{DELIMITER}\n") + len(DELIMITER) + 1
    text = whole[: min(cut, len(whole) - 1)]
    assume(len(text) not in (0, row_end))

    with pytest.raises(DecodeError, match="incomplete answer"):
        decoded(text)


def test_no_rows_are_no_jobs() -> None:
    assert decoded("") == []


def test_rows_that_do_not_fit_their_fields_are_refused() -> None:
    text = printed([JOB_ROW] * len(JOB_FIELDS), JOB_FIELDS[:-1], DELIMITER)

    with pytest.raises(DecodeError, match="rows do not fit its fields"):
        decoded(text)


def test_absent_fields_are_unknown() -> None:
    text = printed([job_row(OverSubscribe="NO", Exclusive="")], JOB_FIELDS, DELIMITER)

    row = rows(text, command="squeue", fields=JOB_FIELDS, delimiter=DELIMITER, absent=("Exclusive", "CronJob"))[0]

    assert "Exclusive" not in row
    assert job_record(row).exclusive
    assert not job_record(row).cron


def test_fields_end_with_the_delimiter() -> None:
    assert field_list(("JobID", "Name"), "@x") == "JobID:@x,Name:@x"


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


def test_job_without_a_submit_time_is_refused() -> None:
    with pytest.raises(DecodeError, match="no submit time for job 7"):
        jobs_of([one_row(SubmitTime="N/A")], [])


def test_node_in_two_partitions_is_one_node() -> None:
    found = [
        node_row(NodeList="n01", PartitionName="gpu"),
        node_row(NodeList="n01", PartitionName="debug"),
        node_row(NodeList="n02", PartitionName="gpu", StateComplete="idle*+drain+not_responding", Reason="bad\nGPU"),
    ]

    first, second = node_records(found)

    assert (first.name, sorted(first.partitions), first.states) == ("n01", ["debug", "gpu"], ("MIXED",))
    assert (second.name, second.states, second.reason) == ("n02", ("IDLE", "DRAIN", "NOT_RESPONDING"), "bad\nGPU")


def test_partitions_are_read_from_the_same_rows() -> None:
    found = [
        node_row(NodeList="n02"),
        node_row(NodeList="n01"),
        node_row(
            NodeList="n01", PartitionName="day", Available="drain", Time="1-00:00:00", DefaultTime="n/a", Size="1-3"
        ),
    ]

    assert partitions_of(found) == (
        Partition(name="day", is_up=False, nodes=("n01",), max_time_s=86400.0, max_nodes_per_job=3),
        Partition(name="gpu", nodes=("n01", "n02"), default_time_s=86400.0),
    )


@given(reason=HOSTILE)
def test_hostile_node_reason_stays_in_its_field(reason: str) -> None:
    text = text_of(printed([node_row(Reason=reason)], NODE_FIELDS, DELIMITER).encode("utf-8", "surrogatepass"))

    found = rows(text, command="sinfo", fields=NODE_FIELDS, delimiter=DELIMITER)

    assert node_records(found)[0].reason == text_of(reason.encode("utf-8", "surrogatepass"))
    assert node_records(found)[0].name == "n01"
