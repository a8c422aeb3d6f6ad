import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends import json_decode
from advisor.backends.records import JobRecord
from advisor.backends.tres import Gres, Tres
from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, HetRecord
from advisor.domain.site import Partition
from advisor.errors import DecodeError
from tests.backends import recorded

HOSTILE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(['"}], "jobs": [{"job_id": 8}', "two\nlines", "\x1b[31m", "nul\x00", "</script>", "\\u0000", "\\"]),
)


def wrapped(number: int | None, *, infinite: bool = False) -> dict[str, Any]:
    """Make a number as newer releases write it."""
    return {"set": number is not None, "infinite": infinite, "number": number or 0}


# The same job as 22.05 and as 26.05 write it.
OLD_JOB: Mapping[str, Any] = {
    "account": "",
    "array_job_id": 0,
    "array_task_id": None,
    "array_task_string": "",
    "comment": "sadvise: off",
    "cpus": 4,
    "cpus_per_tres": "gres:gpu:2",
    "dependency": "",
    "eligible_time": 1000,
    "end_time": 0,
    "excluded_nodes": "n[03-04]",
    "features": "a100",
    "flags": [],
    "het_job_id": 0,
    "het_job_offset": 0,
    "job_id": 7,
    "job_state": "PENDING",
    "max_nodes": 2,
    "name": "train",
    "nice": None,
    "node_count": 1,
    "nodes": "",
    "partition": "gpu,debug",
    "priority": 70,
    "qos": "",
    "requeue": True,
    "required_nodes": "",
    "resv_name": "",
    "shared": "none",
    "start_time": 0,
    "state_description": "",
    "state_reason": "Priority",
    "submit_time": 1000,
    "tasks": 2,
    "time_limit": 60,
    "time_minimum": 10,
    "tres_alloc_str": "",
    "tres_per_job": "",
    "tres_per_node": "gres:gpu:a100:4",
    "tres_per_socket": "",
    "tres_per_task": "",
    "tres_req_str": "cpu=4,mem=4000M,node=1,billing=4",
    "user_name": "ada",
}
NEW_JOB: Mapping[str, Any] = {
    **OLD_JOB,
    "array_job_id": wrapped(0),
    "array_task_id": wrapped(None),
    "cpus": wrapped(4),
    "cpus_per_tres": "gres/gpu:2",
    "eligible_time": wrapped(1000),
    "end_time": wrapped(0),
    "het_job_id": wrapped(0),
    "het_job_offset": wrapped(0),
    "job_state": ["PENDING"],
    "max_nodes": wrapped(2),
    "nice": 0,
    "node_count": wrapped(1),
    "priority": wrapped(70),
    "required_switches": 0,
    "maximum_switch_wait_time": 0,
    "shared": ["none"],
    "start_time": wrapped(0),
    "submit_time": wrapped(1000),
    "tasks": wrapped(2),
    "time_limit": wrapped(60),
    "time_minimum": wrapped(10),
    "tres_per_node": "gres/gpu:a100:4",
}
JOB = JobRecord(
    job_id=7,
    states=("PENDING",),
    reason="Priority",
    name="train",
    user="ada",
    partitions=("gpu", "debug"),
    comment="sadvise: off",
    nodes_shown=1,
    nodes_max=2,
    tasks=2,
    tasks_asked=False,
    cpus=4,
    tres=Tres(cpus=4, memory_mib=4000, nodes=1),
    requests={
        GpuScope.JOB: (),
        GpuScope.NODE: (Gres(name="gpu", gres_type="a100", count=4),),
        GpuScope.SOCKET: (),
        GpuScope.TASK: (),
    },
    cpus_per_gres=(Gres(name="gpu", gres_type=None, count=2),),
    exclusive=True,
    features="a100",
    excluded_nodes=("n03", "n04"),
    submit_time=1000.0,
    limit_s=3600.0,
    limit_min_s=600.0,
    priority=70,
    requeueable=True,
    nodes_open=False,
    eligible_time=1000.0,
)


def job(changes: Mapping[str, object]) -> JobRecord:
    return json_decode.job_record({**NEW_JOB, **changes})


@pytest.mark.parametrize("raw", [OLD_JOB, NEW_JOB], ids=["22.05", "26.05"])
def test_old_and_new_json_are_the_same_job(raw: Mapping[str, Any]) -> None:
    assert json_decode.job_record(raw) == JOB


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"time_limit": wrapped(None, infinite=True)}, "limit_s", None),
        ({"time_limit": 0xFFFFFFFF}, "limit_s", None),
        ({"flags": ["EXACT_TASK_COUNT_REQUESTED"]}, "tasks_asked", True),
        ({"priority": wrapped(None)}, "priority", None),
        ({"comment": {"job": "note", "administrator": "x"}}, "comment", "note"),
        ({"comment": None}, "comment", ""),
        ({"name": "(null)"}, "name", ""),
        ({"name": "a\ud800b"}, "name", "a\\ud800b"),
        ({"state_description": "ReqNodeNotAvail, n08"}, "reason", "ReqNodeNotAvail, n08"),
        ({"job_state": ["RUNNING", "COMPLETING"]}, "states", ("RUNNING", "COMPLETING")),
        ({"flags": ["CRON_JOB"]}, "cron", True),
        ({"cron": "0 5 * * *"}, "cron", True),
        ({"shared": []}, "exclusive", False),
        ({"shared": None}, "exclusive", False),
        ({"nice": -1000}, "nice", -1000),
        ({"nice": 4294966296}, "nice", -1000),
        ({"nice": 4294967295}, "nice", -1),
        ({"nice": 2147483645}, "nice", 2147483645),
        ({"tasks": wrapped(0)}, "tasks", 1),
        ({"nodes": "n[01-02]"}, "nodes", ("n01", "n02")),
        ({"required_switches": 1, "maximum_switch_wait_time": 1800}, "switch_wait_s", 1800.0),
        ({"required_switches": 1}, "switch_count", 1),
        ({"max_nodes": wrapped(0)}, "nodes_max", 0),
        ({"max_nodes": wrapped(0)}, "nodes_open", True),
        ({"max_nodes": 4}, "nodes_open", False),
        ({"max_nodes": 4, "flags": ["JOB_IMPLICIT_MAX_NODES"]}, "nodes_open", True),
        ({"max_nodes": 1, "flags": ["JOB_IMPLICIT_MAX_NODES"]}, "nodes_open", False),
        ({"max_nodes": 1, "eligible_time": wrapped(0)}, "nodes_open", None),
        ({"minimum_tmp_disk_per_node": 500}, "tmp_disk_mib", 500),
        ({"minimum_cpus_per_node": wrapped(6)}, "cpus_per_node", 6),
        ({"tasks_per_node": wrapped(2)}, "tasks_per_node", 2),
        ({"shared": ["USER"]}, "only_user", True),
        ({"shared": ["MCS"]}, "uncounted", ("--exclusive",)),
        ({"sockets_per_node": 65534, "threads_per_core": wrapped(1)}, "uncounted", ("--threads-per-core",)),
        ({"core_spec": 2, "contiguous": True}, "uncounted", ("--core-spec", "--contiguous")),
        ({"max_nodes": None}, "nodes_max", 0),
        ({"job_id": (1 << 64) - 3}, "job_id", (1 << 64) - 3),
        ({"het_job_id": wrapped(7), "het_job_offset": wrapped(1)}, "het", HetRecord(het_job_id=7, offset=1)),
        (
            {"array_job_id": wrapped(5), "array_task_string": "3-6%2"},
            "array",
            ArrayRecord(array_job_id=5, waiting="3-6", max_running=2),
        ),
        (
            {"array_job_id": wrapped(5), "array_task_string": "3-6"},
            "array",
            ArrayRecord(array_job_id=5, waiting="3-6"),
        ),
        (
            {"array_job_id": wrapped(5), "array_task_id": wrapped(0), "array_max_tasks": wrapped(2)},
            "array",
            ArrayRecord(array_job_id=5, task_id=0),
        ),
    ],
)
def test_values_of_a_job_are_read(changes: dict[str, object], field: str, value: object) -> None:
    assert getattr(job(changes), field) == value


def test_older_name_of_the_switches_is_used_where_it_stands() -> None:
    older = {key: value for key, value in NEW_JOB.items() if key != "required_switches"}

    assert json_decode.job_record({**older, "minimum_switches": 1}).switch_count == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": None},
        {"job_id": "7"},
        {"job_id": True},
        {"job_id": 1 << 64},
        {"node_count": wrapped(None)},
        {"name": 7},
        {"nodes": "n["},
        {"tres_req_str": "cpu"},
        {"time_limit": wrapped(None) | {"set": True, "number": "60"}},
    ],
)
def test_value_of_another_kind_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(DecodeError, match="which is not"):
        job(changes)


def test_old_node_has_its_flags_beside_its_state() -> None:
    raw = {
        "name": "n08",
        "state": "mixed",
        "state_flags": ["DRAIN"],
        "cpus": 16,
        "alloc_cpus": 1,
        "real_memory": 64000,
        "alloc_memory": 1000,
        "gres": "gpu:v100:8",
        "gres_used": "gpu:v100:8(IDX:0-7),shard:0",
        "partitions": ["gpu", "debug"],
        "active_features": "a,b",
        "weight": 1,
        "reason": None,
    }

    record = json_decode.node_record(raw)

    assert record.states == ("MIXED", "DRAIN")
    assert (record.partitions, record.features, record.reason) == (("gpu", "debug"), ("a", "b"), "")


@pytest.mark.parametrize("partitions", [None, 3, [1]])
def test_node_without_its_partitions_is_refused(partitions: object) -> None:
    listed = json.loads((recorded.FOLDER / "nodes.json").read_bytes())["nodes"]

    with pytest.raises(DecodeError, match="a list of names"):
        json_decode.node_record({**listed[0], "partitions": partitions})


def test_partition_is_read() -> None:
    raw = {
        "name": "day",
        "nodes": {"configured": "n[01-02]"},
        "partition": {"state": ["DRAIN"], "exclusive": "NO"},
        "maximums": {"time": wrapped(60), "nodes": wrapped(3)},
        "minimums": {"nodes": 2},
        "defaults": {"time": wrapped(None)},
        "priority": {"job_factor": 7, "tier": 5},
        "qos": {"assigned": "short"},
        "flags": ["DEFAULT"],
    }

    assert json_decode.partition(raw) == Partition(
        name="day",
        is_up=False,
        nodes=("n01", "n02"),
        max_time_s=3600.0,
        priority_tier=5,
        min_nodes_per_job=2,
        max_nodes_per_job=3,
        priority_job_factor=7,
        is_default=True,
        qos="short",
    )


@pytest.mark.parametrize(
    ("shown", "spelled"),
    [
        ({"jobs": 0, "flags": []}, "EXCLUSIVE"),
        ({"jobs": 1, "flags": []}, "NO"),
        ({"jobs": 4, "flags": []}, "YES:4"),
        ({"jobs": 4, "flags": ["force"]}, "FORCE:4"),
    ],
)
def test_sharing_of_a_partition_is_spelled_as_by_scontrol(shown: object, spelled: str) -> None:
    (first, *_) = json.loads((recorded.RECORDED / "24.11" / "partitions.json").read_bytes())["partitions"]
    raw = first | {"maximums": first["maximums"] | {"oversubscribe": shown}}

    assert json_decode.partition(raw).over_subscribe == spelled


def test_partition_without_its_parts_is_refused() -> None:
    with pytest.raises(DecodeError, match="no object maximums"):
        json_decode.partition({"name": "day"})


def parse(answer: bytes) -> list[dict[str, Any]]:
    return json_decode.parse(answer, command="squeue --json", key="jobs")


@given(name=HOSTILE, comment=HOSTILE)
def test_hostile_texts_stay_in_their_field(name: str, comment: str) -> None:
    answer = json.dumps({"jobs": [{**NEW_JOB, "name": name, "comment": comment}], "errors": []}).encode()

    (raw,) = parse(answer)
    record = json_decode.job_record(raw)

    assert record.job_id == 7
    assert record.name == ("" if name == "(null)" else name.encode("utf-8", "backslashreplace").decode())


def test_byte_that_is_no_utf8_is_kept_as_text() -> None:
    answer = b'{"jobs": [{"name": "a\xff\xfeb"}]}'

    assert parse(answer) == [{"name": "a\\xff\\xfeb"}]


def test_control_characters_do_not_break_the_json() -> None:
    assert parse(b'{"jobs": [{"name": "a\nb\x1b"}]}') == [{"name": "a\nb\x1b"}]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "no whole JSON"),
        (b"slurm_load_jobs error", "no whole JSON"),
        (b"[" * 200_000, "no whole JSON"),
        (b"[]", "without a list of jobs"),
        (b'{"jobs": {}}', "without a list of jobs"),
        (b'{"jobs": [7]}', "without a list of jobs"),
        (b'{"jobs": [], "errors": [{"error": "x"}]}', "reported errors"),
    ],
    ids=["empty", "text", "deep", "list", "object", "number", "errors"],
)
def test_answer_of_another_shape_is_refused(answer: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        parse(answer)


@given(cut=st.integers(0, 10_000))
def test_answer_that_ends_early_is_refused(cut: int) -> None:
    whole = (recorded.FOLDER / "partitions.json").read_bytes().rstrip()

    with pytest.raises(DecodeError, match="no whole JSON"):
        json_decode.parse(whole[: min(cut, len(whole) - 1)], command="scontrol", key="partitions")


@given(
    raw=st.dictionaries(
        st.sampled_from(sorted(NEW_JOB)),
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=9), st.just(["RUNNING"]), st.just({})),
        max_size=6,
    )
)
def test_any_job_is_decoded_or_refused(raw: dict[str, Any]) -> None:
    refused = ""
    try:
        job(raw)
    except DecodeError as err:
        refused = str(err)

    assert "\n" not in refused
