"""Slurm's accounting: what sacct of a real 22.05 printed, and what other releases spell otherwise."""

import io
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import TraceError
from advisor.sim.traces.importing.accounted import Accounted
from advisor.sim.traces.importing.formats import Imported, import_trace
from advisor.sim.traces.importing.sacct import COMMAND, FILLED_IN, IN_DOUBT, WRITTEN, asked_rows, records
from advisor.sim.traces.trace_file import write_trace
from tests.backends.fake_slurm import FakeSlurm
from tests.sim.traces.importing.reading import by_id, imported

# What sacct of 22.05.8 printed of one queue, as `SLURM_TIME_FORMAT=%s sacct -a -X -P` with more columns than are read
# and in another order, and as `sacct --json` without steps.
RECORDED = Path(__file__).parent / "recorded"
ZERO = 1795238063

# Only what must be there.
HEADER = "JobID|Submit|Start|Elapsed|State|AllocTRES"


def recorded(kind: str) -> Imported:
    """Import a recorded answer, as text or as JSON."""
    return import_trace("sacct", RECORDED / f"sacct_22.05.{kind}")


@pytest.fixture
def utc() -> Iterator[None]:
    """Let times without a zone be UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize("kind", ["txt", "json"])
def test_recorded_accounting_becomes_a_trace(kind: str) -> None:
    found = recorded(kind)

    jobs = by_id(found.trace)
    assert list(jobs) == [1, 2, 3, 4, 5, 6, 10, 12, 13, 17, 18, 22, 24, 9]
    assert found.zero_time == ZERO
    assert found.left_out == {"ended at once": 1, "requeued or resized": 1, "still running": 2, "without GPUs": 2}
    job = jobs[2]
    assert (job["submit_time"], job["recorded_start_time"], job["run_time_s"]) == (0.0, 5.0, 3.0)
    assert (job["gpus"], job["cpus_per_gpu"], job["memory_mib_per_gpu"]) == (4, 1, 1000)
    assert (job["user"], job["account"], job["qos"]) == ("root", "root", "normal")
    assert {job["partition"] for job in jobs.values()} == {"gpu"}
    assert {job_id: job["array_id"] for job_id, job in jobs.items() if job["array_id"]} == {9: 9, 22: 9, 24: 9}
    assert {job["dependency"] for job in jobs.values()} == {""}
    assert job["time_limit_s"] == 2 * 86400.0
    assert jobs[3]["time_limit_s"] == math.inf


def test_text_and_json_of_one_queue_make_the_same_trace() -> None:
    text, answer = recorded("txt").trace, recorded("json").trace

    assert text.jobs.tobytes() == answer.jobs.tobytes()
    assert (text.partitions, text.dependencies) == (answer.partitions, answer.dependencies)
    assert (text.users, text.accounts, text.qos, text.models) == (
        answer.users, answer.accounts, answer.qos, answer.models,
    )  # fmt: skip


RECORDED_JOBS: dict[str, tuple[int, dict[str, object]]] = {
    "hints of a comment with the separator in it": (6, {"gpus": 4, "gpus_min": 1, "gpus_max": 8, "model": "bert"}),
    "interval in that comment": (6, {"checkpoint_interval_s": 300.0}),
    "exclusive, so all GPUs of its node": (10, {"gpus": 8, "cpus_per_gpu": 2}),
    "open node count: it ran on more than it asked for": (18, {"nodes_min": 1, "nodes_max": 0}),
    "two nodes": (4, {"nodes_min": 2, "nodes_max": 2}),
    "one node": (2, {"nodes_min": 1, "nodes_max": 1}),
    "heterogeneous: its components start together as one": (13, {"gpus": 12, "nodes_min": 2, "nodes_max": 2}),
    "array task, in the queue when it is eligible": (24, {"submit_time": 10.0, "recorded_start_time": 10.0}),
    "array task that is eligible later": (9, {"submit_time": 14.0}),
}


@pytest.mark.parametrize(("job_id", "columns"), RECORDED_JOBS.values(), ids=list(RECORDED_JOBS))
def test_recorded_job_has_its_columns(job_id: int, columns: dict[str, object]) -> None:
    job = by_id(recorded("txt").trace)[job_id]

    assert {name: job[name] for name in columns} == columns


def test_a_declared_range_that_the_job_did_not_keep_to_is_not_believed(tmp_path: Path) -> None:
    row = "1|0|1|60|COMPLETED|gres/gpu=16|sadvise: gpus=1-8"

    job = by_id(imported(tmp_path, "sacct", [f"{HEADER}|Comment", row.replace("|0|1|", "|100|101|")]).trace)[1]

    assert (job["gpus_min"], job["gpus_max"]) == (16, 16)


def test_two_heterogeneous_jobs_in_a_row_stay_apart(tmp_path: Path) -> None:
    rows = [f"{leader}+{part}|100|101|60|COMPLETED|gres/gpu=2,node=1" for leader in (5, 7) for part in (0, 1, 2)]

    trace = imported(tmp_path, "sacct", [HEADER, *rows]).trace

    assert trace.jobs["gpus"].tolist() == [6, 6]


def test_partition_array_and_dependency_are_kept_where_a_file_has_them(tmp_path: Path) -> None:
    header = "JobID|JobIDRaw|Partition|dependency|Submit|Start|Elapsed|State|AllocTRES"
    rows = [
        "7|7|gpu||100|101|60|COMPLETED|gres/gpu=1",
        "8_1|9|long|afterok:7|100|101|60|COMPLETED|gres/gpu=1",
        "10+0|10|gpu||100|101|60|COMPLETED|gres/gpu=1",
        "10+1|11|long|(null)|100|101|60|COMPLETED|gres/gpu=1",
        f"{'9' * 30}_1|12|gpu||100|101|60|COMPLETED|gres/gpu=1",
    ]

    jobs = by_id(imported(tmp_path, "sacct", [header, *rows]).trace)

    kept = {job_id: (job["partition"], job["array_id"], job["dependency"]) for job_id, job in jobs.items()}
    assert kept == {
        7: ("gpu", 0, ""),
        9: ("long", 8, "afterok:7"),
        10: ("", 0, ""),
        12: ("gpu", 0, ""),
    }


def test_a_trace_without_these_facts_has_no_such_columns(tmp_path: Path) -> None:
    trace = imported(tmp_path, "sacct", [HEADER, "1|100|101|60|COMPLETED|gres/gpu=1"]).trace

    write_trace(trace, tmp_path / "t.csv")

    header = (tmp_path / "t.csv").read_text().splitlines()[3]
    assert header.startswith("job_id,submit_time")
    assert not {"partition", "array_id", "dependency"} & set(header.split(","))


def test_a_dependency_in_json_is_kept(tmp_path: Path) -> None:
    job = entry(5, wrapped=True, dependency="afterany:4")

    found = imported(tmp_path, "sacct", [json.dumps({"jobs": [job]})])

    assert by_id(found.trace)[5]["dependency"] == "afterany:4"


def test_ids_that_are_no_numbers_are_numbered_in_order(tmp_path: Path) -> None:
    rows = ["9_2|100|101|60|COMPLETED|gres/gpu=1", "9_1|100|101|60|COMPLETED|gres/gpu=2"]

    jobs = by_id(imported(tmp_path, "sacct", [HEADER, *rows]).trace)

    assert {job_id: job["gpus"] for job_id, job in jobs.items()} == {0: 1, 1: 2}


def test_few_columns_without_raw_ones_in_local_time_are_enough(tmp_path: Path, utc: None) -> None:
    times = "2026-01-02T10:00:00|2026-01-02T09:59:30|1-01:00:00"
    rows = [
        "state|jobid|start|submit|elapsed|alloctres",
        f"CANCELLED by 1000|5|{times}|cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=1T",
    ]

    found = imported(tmp_path, "sacct", rows)

    job = by_id(found.trace)[5]
    assert found.zero_time == 1767347970.0
    assert (job["gpus"], job["run_time_s"], job["recorded_start_time"]) == (4, 90000.0, 30.0)
    assert (job["memory_mib_per_gpu"], job["time_limit_s"]) == (262144, math.inf)
    # What a job was given says nothing about what it would have taken.
    assert job["gpu_type"] is None


def test_a_gpu_type_that_was_asked_for_is_kept(tmp_path: Path) -> None:
    rows = [
        f"{HEADER}|ReqTRES",
        "1|100|101|60|COMPLETED|gres/gpu=4|gres/gpu:a100=4,gres/gpu=4",
        "2|100|101|60|COMPLETED||gres/gpu:a100=1,gres/gpu:v100=1",
    ]

    jobs = by_id(imported(tmp_path, "sacct", rows).trace)

    assert (jobs[1]["gpu_type"], jobs[2]["gpu_type"]) == ("a100", None)
    assert jobs[2]["gpus"] == 2


LIMITS = {
    "no limit": ("UNLIMITED", math.inf), "the partition's": ("Partition_Limit", math.inf), "unset": ("", math.inf),
    "minutes": ("90", 5400.0), "days": ("1-12:00:00", 129600.0),
}  # fmt: skip


@pytest.mark.parametrize(("text", "limit_s"), LIMITS.values(), ids=list(LIMITS))
def test_time_limits_in_every_spelling(tmp_path: Path, text: str, limit_s: float) -> None:
    row = f"1|100|101|60|COMPLETED|gres/gpu=1|{text}"

    job = by_id(imported(tmp_path, "sacct", [f"{HEADER}|Timelimit", row]).trace)[1]

    assert job["time_limit_s"] == limit_s


LEFT_OUT = {
    "pending": ("1|100|Unknown|0|PENDING|gres/gpu=1", "never started"),
    "cancelled before the start": ("1|100|None|0|CANCELLED by 7|gres/gpu=1", "never started"),
    "suspended": ("1|100|101|60|SUSPENDED|gres/gpu=1", "still running"),
    "on CPUs": ("1|100|101|60|COMPLETED|cpu=4,mem=1G", "without GPUs"),
    "on a part of a GPU": ("1|100|101|60|COMPLETED|gres/shard=4", "without GPUs"),
    "a step": ("1.batch|100|101|60|COMPLETED|gres/gpu=1", "job steps"),
    "array not yet split": ("1_[3-9]|100|Unknown|0|PENDING|gres/gpu=1", "never started"),
}


@pytest.mark.parametrize(("row", "why"), LEFT_OUT.values(), ids=list(LEFT_OUT))
def test_what_did_not_run_on_gpus_is_left_out_and_counted(tmp_path: Path, row: str, why: str) -> None:
    found = imported(tmp_path, "sacct", [HEADER, row, "2|100|101|1:00|COMPLETED|gres/gpu=1"])

    assert len(found.trace) == 1
    assert found.left_out == {why: 1}


def test_nothing_but_jobs_that_are_left_out_is_an_error_that_counts_them(tmp_path: Path) -> None:
    rows = ["1|100|101|60|COMPLETED|cpu=4", "2|100|Unknown|0|PENDING|gres/gpu=1"]

    with pytest.raises(TraceError, match=r"no GPU job that ran \(left out: 1 never started, 1 without GPUs\)"):
        imported(tmp_path, "sacct", [HEADER, *rows])


BAD = {
    "no time": ("1|yesterday|101|60|COMPLETED|gres/gpu=1", "Submit reads 'yesterday', which is not a time"),
    "no submission": ("1|Unknown|101|60|COMPLETED|gres/gpu=1", "Submit is not set"),
    "no duration": ("1|100|101|long|COMPLETED|gres/gpu=1", "Elapsed reads 'long', which is not a duration"),
    "no TRES": ("1|100|101|60|COMPLETED|four", "AllocTRES reads 'four', which is not a list of TRES"),
    "cut short": ("1|100|101", "3 columns where the header has 6"),
    "twice": ("2|100|101|60|COMPLETED|gres/gpu=1", "job '2' stands in an earlier line"),
    "escape": ("1|\x1b[2J|101|60|COMPLETED|gres/gpu=1", "Submit reads"),
}


@pytest.mark.parametrize(("row", "words"), BAD.values(), ids=list(BAD))
def test_a_bad_row_is_refused_by_its_line_or_skipped(tmp_path: Path, row: str, words: str) -> None:
    lines = [HEADER, "2|100|101|60|COMPLETED|gres/gpu=1", row]

    with pytest.raises(TraceError) as caught:
        imported(tmp_path, "sacct", lines)

    assert f"line 3: {words}" in str(caught.value)
    assert "--source" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    skipped = imported(tmp_path, "sacct", lines, skip_bad=True)
    assert (len(skipped.trace), skipped.bad.count) == (1, 1)
    assert "1 bad row skipped (line 3)" in skipped.trace.note


def test_a_missing_column_is_named_with_the_command_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        imported(tmp_path, "sacct", ["JobID|Submit|Start|State|AllocTRES", "1|1|1|COMPLETED|"])

    assert "column ElapsedRaw or Elapsed is missing" in str(caught.value)
    assert COMMAND in str(caught.value)


# Text with all columns: job ids, user, five times, state, resources, reservation; then what users write.
COLUMNS = (*FILLED_IN, *WRITTEN)
NUMBERS = "100|100|101|60|90|COMPLETED|gres/gpu=1|gres/gpu=1|1|maint"


def row(job_id: str, *texts: str, user: str = "ann", raw: str = "") -> str:
    """Make a row of text between tabs; `texts` are the account, constraints, name and comment."""
    written = texts or ("lab", "", "train", "")
    return "\t".join((raw or job_id, job_id, user, "normal", "gpu", *NUMBERS.split("|"), *written))


def text_of(tmp_path: Path, *rows: str, skip_bad: bool = False) -> Imported:
    """Import rows of text with all columns."""
    return imported(tmp_path, "sacct", ["\t".join(COLUMNS), *rows], skip_bad=skip_bad)


def test_all_columns_are_read(tmp_path: Path) -> None:
    trace = text_of(tmp_path, row("1", "lab", "a100|v100", "train\t", "model=bert")).trace

    job = by_id(trace)[1]
    assert (job["user"], job["run_time_s"], job["time_limit_s"], job["nodes_max"]) == ("ann", 60.0, 5400.0, 1)
    assert (job["account"], trace.reservations, trace.features) == ("lab", ("maint",), ("a100|v100",))
    assert trace.job_names == ("train",)


def test_constraints_with_a_bar_are_refused_between_bars(tmp_path: Path) -> None:
    rows = [each.replace("\t", "|") for each in ("\t".join(COLUMNS), row("1", "lab", "a100|v100", "train", ""))]

    with pytest.raises(TraceError, match="20 columns where the header has 19"):
        imported(tmp_path, "sacct", rows)


def test_a_row_that_newlines_in_a_name_broke_is_whole_again(tmp_path: Path) -> None:
    found = text_of(tmp_path, row("1"), row("2", "lab", "", "a\nb\nc", "x"), row("3"))

    assert sorted(by_id(found.trace)) == [1, 2, 3]
    assert set(found.trace.job_names) == {"train", "a\nb\nc"}
    assert found.left_out == {}


# The row of job 2, and the jobs that are left.
MADE_UP = {
    "a higher id": (row("2", "lab", "", f"x\t\n{row('9', 'l', '', 'y', '')[:-1]}", ""), [1, 2]),
    "a task with a lower id": (row("2", "lab", "", "x", f"\n{row('1_1', user='eve')}"), [1, 2]),
    "no id": (row("2", "lab", "", "x", f"\n{row('no', user='eve')}"), [1, 2, 3, 4]),
}


@pytest.mark.parametrize(("hostile", "left"), MADE_UP.values(), ids=list(MADE_UP))
def test_rows_out_of_the_order_of_sacct_are_left_out_and_counted(tmp_path: Path, hostile: str, left: list[int]) -> None:
    found = text_of(tmp_path, row("1"), hostile, row("3"), row("4"))

    assert sorted(by_id(found.trace)) == left
    assert "eve" not in found.trace.users
    assert set(found.left_out) == {IN_DOUBT}
    assert COMMAND in IN_DOUBT


BROKEN = {
    "a row between the pieces": row("2", "lab", "", f"x\n{row('3', user='eve')}\ny", ""),
    "a row in an account": row("2", f"x\n{row('2', user='eve')}\ny", "", "", ""),
    "a row before the rest of a comment": row("2", "lab", "", "x", f"\n{row('3', user='eve')}\ny"),
    "a row before what begins like one": row("2", "lab", "", "x", f"\n{row('3', user='eve')}\n7\t7"),
    "the start of a row and no end": row("2", "lab", "", "x", "\n3\t3\teve"),
    "a newline and a tab": row("2", "lab", "", "x\n\ty", ""),
}


def test_a_row_with_the_id_of_one_out_of_order_is_bad(tmp_path: Path) -> None:
    made_up = "\n".join((row("3", user="eve"), row("1_1", user="eve")))

    with pytest.raises(TraceError, match="line 4: job '3' stands in several lines"):
        text_of(tmp_path, row("1"), row("2", "lab", "", "x", f"\n{made_up}"), row("3"))


@pytest.mark.parametrize("broken", BROKEN.values(), ids=list(BROKEN))
@pytest.mark.parametrize("skip_bad", [False, True])
def test_text_is_refused_where_broken_rows_are_not_whole_when_joined(
    tmp_path: Path, broken: str, skip_bad: bool
) -> None:
    with pytest.raises(TraceError, match=r"line \d: a newline in a text .* write the file with sacct -a -X --json"):
        text_of(tmp_path, row("1"), broken, row("4"), skip_bad=skip_bad)


def test_tasks_components_and_steps_in_the_order_of_sacct_are_believed(tmp_path: Path) -> None:
    rows = [
        row("1"), row("1.batch"), row("13+0", raw="13"), row("13+1", raw="14"), row("20"), row("9_1", raw="22"),
        row("9_3", raw="9"), row("9_[4-7%2]", raw="9"), row("21_1", raw="23"),
    ]  # fmt: skip

    found = text_of(tmp_path, *rows, skip_bad=True)

    assert IN_DOUBT not in found.left_out
    assert {1, 13, 20, 22, 23} <= set(by_id(found.trace))


def test_a_job_in_two_rows_is_refused_or_skipped_as_either_can_be_made_up(tmp_path: Path) -> None:
    rows = [row("1"), row("2", "lab", "", "x", f"\n{row('3', user='eve')}"), row("3")]

    with pytest.raises(TraceError, match="line 4: job '3' stands in several lines"):
        text_of(tmp_path, *rows)
    assert sorted(by_id(text_of(tmp_path, *rows, skip_bad=True).trace)) == [1, 2]


def test_texts_without_job_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="column JobID is missing: write the file with sacct -a -X --json"):
        imported(tmp_path, "sacct", ["JobIDRaw|Submit|Start|Elapsed|State|AllocTRES|JobName"])


def test_commas_between_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="commas separate its columns, not tabs or bars: write the file with sacct"):
        imported(tmp_path, "sacct", [HEADER.replace("|", ","), "1,100,101,60,COMPLETED,gres/gpu=1"])


def ended(job_id: int, user: str, **texts: str) -> dict[str, str]:
    """Make the fields of an ended job, in the order of a file."""
    cells = dict(zip(COLUMNS, row(str(job_id), "", "", "", "", user=user).split("\t"), strict=True))
    return {**cells, **texts}


# What a user could write: separators, newlines, and rows of another job or of the own one.
PIECES = st.sampled_from(
    ["\n", "\t", "|", "\r", " ", "9", row("9", user="eve"), row("3", user="eve"), row("9").replace("\t", "|"),
     "\n9|lab|x|y|z|\n", '"}, {"job_id": 9}', "@", "\u2028", "\\"]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=6).map("".join)


@given(st.fixed_dictionaries(dict.fromkeys(WRITTEN, TEXTS)))
def test_texts_of_a_user_change_no_job_of_another_in_live_accounting(texts: dict[str, str]) -> None:
    jobs = [ended(1, "ann", JobName="a"), ended(2, "mallory", **texts), ended(3, "bob", JobName="b", Account="lab")]
    read = asked_rows(FakeSlurm(ended=jobs), since="now-1days")

    found = import_trace("sacct", Path("live"), read=read)

    kept = by_id(found.trace)
    assert {job_id: job["user"] for job_id, job in kept.items()} == {1: "ann", 2: "mallory", 3: "bob"}
    assert {job["run_time_s"] for job in kept.values()} == {60.0}
    names = {int(job["job_id"]): found.trace.job_names[job["name"]] for job in found.trace.jobs}
    assert (names[1], names[3], kept[3]["account"]) == ("a", "b", "lab")
    assert names[2] == texts["JobName"]


@given(st.fixed_dictionaries({"name": TEXTS, "account": TEXTS, "constraints": TEXTS, "comment": TEXTS}))
def test_texts_of_a_user_change_no_job_of_another_in_json(texts: dict[str, str]) -> None:
    jobs = [entry(1, wrapped=True), entry(2, wrapped=True, user="mallory", **texts), entry(3, wrapped=True, user="bob")]
    answer = io.StringIO(json.dumps({"jobs": jobs}, ensure_ascii=False))

    found = [*records(Path("sacct.json"), answer)]

    assert [(job.job_id, job.user) for job in found if isinstance(job, Accounted)] == [
        ("1", "ann"), ("2", "mallory"), ("3", "bob"),
    ]  # fmt: skip


def test_jobs_without_gpus_are_kept_on_request_with_their_cpus_and_memory_per_node(tmp_path: Path) -> None:
    header = "JobID|Submit|Start|Elapsed|State|NNodes|AllocTRES"
    rows = [header, "1|100|101|60|COMPLETED|2|cpu=64,mem=8G,node=2", "2|100|101|60|COMPLETED|1|cpu=8,gres/gpu=1"]

    trace = imported(tmp_path, "sacct", rows, cpu_jobs=True).trace
    without = imported(tmp_path, "sacct", rows)

    job = by_id(trace)[1]
    assert (job["gpus"], job["cpus"], job["memory_mib"], job["nodes_min"]) == (0, 64, 4096, 2)
    assert by_id(trace)[2]["cpus_per_gpu"] == 8
    assert (len(without.trace), without.left_out) == (1, {"without GPUs": 1})


def entry(own_id: int, *, wrapped: bool, **changes: object) -> dict[str, Any]:
    """Return a job as 22.05 prints it, or `wrapped` as releases from 23.11 on do."""

    def number(value: int | None) -> object:
        if not wrapped:
            return value
        return {"set": value is not None, "infinite": False, "number": value or 0}

    def tres(nodes: int) -> list[Mapping[str, object]]:
        name = "" if wrapped else None
        return [
            {"type": "cpu", "name": name, "id": 1, "count": 16},
            {"type": "mem", "name": name, "id": 2, "count": 64000},
            {"type": "energy", "name": name, "id": 3, "count": -2 if wrapped else None},
            {"type": "node", "name": name, "id": 4, "count": nodes},
            {"type": "gres", "name": "gpu", "id": 1001, "count": 8},
            {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 8},
        ]

    job = {
        "job_id": own_id,
        "account": "physics",
        "user": "ann",
        "qos": "high",
        "allocation_nodes": 2,
        "partition": "long",
        "array": {"job_id": number(3) if wrapped else 3, "task_id": number(2), "task": ""},
        "het": {"job_id": 0, "job_offset": number(None)},
        "comment": {"administrator": "", "job": "sadvise: model=bert", "system": ""},
        "state": {"current": ["COMPLETED"] if wrapped else "COMPLETED", "reason": "None"},
        "time": {
            "elapsed": 3600, "eligible": 1000, "end": 4700, "start": 1100, "submission": 990, "suspended": 0,
            "limit": number(720),
        },
        "tres": {"allocated": tres(2), "requested": tres(1)},
        "steps": [{"anything": 1}],
    }  # fmt: skip
    return {**job, **changes}


@pytest.mark.parametrize("wrapped", [False, True], ids=["22.05", "23.11 and later"])
def test_json_of_every_release_becomes_the_same_job(tmp_path: Path, wrapped: bool) -> None:
    answer = {"meta": {}, "errors": [], "jobs": [entry(5, wrapped=wrapped)]}

    found = imported(tmp_path, "sacct", ["", json.dumps(answer, indent=1)])

    job = by_id(found.trace)[5]
    assert found.zero_time == 1000.0
    assert (job["run_time_s"], job["recorded_start_time"], job["time_limit_s"]) == (3600.0, 100.0, 43200.0)
    assert (job["gpus"], job["cpus_per_gpu"], job["memory_mib_per_gpu"]) == (8, 2, 8000)
    assert (job["nodes_min"], job["nodes_max"]) == (1, 0)
    assert (job["user"], job["account"], job["qos"], job["model"]) == ("ann", "physics", "high", "bert")
    assert job["gpu_type"] == "a100"
    assert (job["partition"], job["array_id"], job["dependency"]) == ("long", 3, "")


TIMES = {"elapsed": 60, "eligible": 100, "start": 100, "submission": 100}
JSON_LIMITS = {
    "null": None,
    "infinite": {"set": False, "infinite": True, "number": 0},
    "bare mark": 0xFFFFFFFF,
}


@pytest.mark.parametrize("limit", JSON_LIMITS.values(), ids=list(JSON_LIMITS))
def test_no_limit_in_json_is_no_limit(tmp_path: Path, limit: object) -> None:
    job = entry(5, wrapped=True, time={**TIMES, "limit": limit})

    found = imported(tmp_path, "sacct", [json.dumps({"jobs": [job]})])

    assert found.trace.jobs["time_limit_s"].tolist() == [math.inf]


def test_json_leaves_out_and_joins_as_text_does(tmp_path: Path) -> None:
    jobs = [
        entry(1, wrapped=True, state={"current": ["RUNNING", "COMPLETING"]}),
        entry(2, wrapped=True, state={"current": ["PENDING"]}, time={**TIMES, "start": 0, "elapsed": 0}),
        entry(3, wrapped=True, tres={"allocated": [], "requested": []}),
        entry(4, wrapped=True, het={"job_id": 4, "job_offset": 0}),
        entry(5, wrapped=True, het={"job_id": 4, "job_offset": 1}, comment="x", account=None),
    ]

    found = imported(tmp_path, "sacct", [json.dumps({"jobs": jobs})])

    assert found.left_out == {"never started": 1, "still running": 1, "without GPUs": 1}
    assert by_id(found.trace)[4]["gpus"] == 16


BAD_ENTRIES: dict[str, tuple[object, str]] = {
    "no object": ("job", "job is no object"),
    "no times": (entry(1, wrapped=True, time=None), "time is no object"),
    "no submission": (entry(1, wrapped=True, time={**TIMES, "submission": 0}), "time.submission is not set"),
    "a list for a number": (entry(1, wrapped=True, job_id=[1]), "job_id reads '[1]', which is not a whole number"),
    "too large": (entry(1, wrapped=True, time={**TIMES, "elapsed": 10**30}), "elapsed reads 1e+30, which is too large"),
    "a truth value": (entry(1, wrapped=True, job_id=True), "job_id reads 'True', which is not a whole number"),
    "a number for a name": (entry(1, wrapped=True, user=7), "user is no text"),
    "no list of TRES": (entry(1, wrapped=True, tres={"allocated": {"a": 1}}), "tres.allocated is no list"),
}


@pytest.mark.parametrize(("bad", "words"), BAD_ENTRIES.values(), ids=list(BAD_ENTRIES))
def test_a_bad_entry_of_json_is_refused_by_its_place(tmp_path: Path, bad: object, words: str) -> None:
    answer = json.dumps({"jobs": [entry(9, wrapped=True), bad]})

    with pytest.raises(TraceError) as caught:
        imported(tmp_path, "sacct", [answer])

    assert f"entry 2: {words}" in str(caught.value)
    assert len(imported(tmp_path, "sacct", [answer], skip_bad=True).trace) == 1


BROKEN_JSON = {
    "cut short": ('{"jobs": [', "not whole JSON"),
    "deep": ("{" + '"a":[' * 100_000, "not whole JSON"),
    "other": ('{"nodes": []}', "JSON without a list of jobs"),
}


@pytest.mark.parametrize(("text", "words"), BROKEN_JSON.values(), ids=list(BROKEN_JSON))
def test_json_that_is_no_answer_of_sacct_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        imported(tmp_path, "sacct", [text])
