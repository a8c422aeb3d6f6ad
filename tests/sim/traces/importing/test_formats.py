"""Every format but Slurm's own: what a few rows become, what is refused, and what the published files hold."""

import gzip
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import TraceError
from advisor.sim.traces.importing.formats import FORMATS, import_trace
from advisor.sim.traces.importing.published import RUN_TIMES_S
from advisor.sim.traces.importing.workload_rows import ImportOptions
from advisor.sim.traces.trace_file import read_trace, write_trace
from tests.needs import measurements
from tests.sim.traces.importing.reading import by_id, imported

ITP = ("job_id,submission_time,duration,num_gpu", "c9c6-ea,5810,288476,16", "", "be63-0a,5813,292893,8")
PHILLY = (
    "timestamp,duration,num_gpus,gpu_time,cluster",
    "2017-10-09 06:13:03,2951.0,1,2951.0,6214e9",
    "2017-09-29 07:58:32,860662.0,4,3442648.0,6c71a0",
    "2017-10-09 06:13:36,2759.0,2,5518.0,6214e9",
)
DRAC = (
    "job_id,submit_time,eligible_time,start_time,elapsed_s,time_limit_s,account_id,req_cpus,req_mem_mb,req_gpus,"
    "alloc_nodes,req_tres\n"
    "57132395,2021-04-24 18:31:50,2021-04-24 18:31:50,2021-05-12 09:17:04,119761,259140,18437,28,386660,8,1,"
    '"billing=8,cpu=28,gres/gpu=8,node=1"\n'
    "57132397,2021-04-24 18:31:51,2021-04-25 18:31:50,2021-05-12 09:17:04,60,259140,18437,28,386660,4,2,"
    '"billing=8,cpu=28,gres/gpu=4,node=1"\n'
    "57132399,2021-04-24 18:31:51,2021-04-24 18:31:51,2021-05-12 09:17:04,60,259140,1,28,386660,0,1,"
    '"billing=8,cpu=28,node=1"'
).splitlines()
POLLUX = ("name,time,application,num_replicas,batch_size", "cifar10-0,498,cifar10,6,2048", "ncf-1,1427,ncf,1,32768")
MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,priority",
    "0,16,5000,4378042,vgg16,16,1453510000,3840000,332,0",
    "1,1,27069000,5190727,a2c,64,2683606500,13956000,517,1",
)
SWF = (
    "; Version: 2.2",
    "; MaxProcs: 128",
    "",
    "1 10 5 3600 8 -1 -1 8 7200 1048576 1 3 2 -1 1 1 -1 -1",
    "2 20 -1 60 4 -1 -1 -1 -1 -1 0 -1 -1 -1 1 1 -1 -1",
    "3 30 0 -1 0 -1 -1 8 7200 -1 5 3 2 -1 1 1 -1 -1 ; cancelled in the queue",
    "4 40 0 100 8 -1 -1 8 7200 -1 2 3 2 -1 1 1 -1 -1",
)


def test_itp_rows_become_jobs_numbered_in_order(tmp_path: Path) -> None:
    found = imported(tmp_path, "itp", ITP)

    jobs = by_id(found.trace)
    assert found.zero_time == 5810.0
    assert [(j["submit_time"], j["run_time_s"], j["gpus"]) for j in jobs.values()] == [(0, 288476, 16), (3, 292893, 8)]
    assert list(jobs) == [0, 1]


def test_ids_that_are_the_same_number_are_numbered_in_order(tmp_path: Path) -> None:
    rows = ["job_id,submission_time,duration,num_gpu", "7,5,60,1", "07,5,60,2"]

    jobs = by_id(imported(tmp_path, "itp", rows).trace)

    assert {job_id: job["gpus"] for job_id, job in jobs.items()} == {0: 1, 1: 2}


def test_philly_rows_become_jobs_with_their_virtual_cluster_as_account(tmp_path: Path) -> None:
    found = imported(tmp_path, "philly", PHILLY)

    jobs = by_id(found.trace)
    assert [job["account"] for job in jobs.values()] == ["6c71a0", "6214e9", "6214e9"]
    assert [job["submit_time"] for job in jobs.values()] == [0.0, 857671.0, 857704.0]
    assert [job["gpus"] for job in jobs.values()] == [4, 1, 2]


def test_one_virtual_cluster_of_philly_starts_at_its_own_zero(tmp_path: Path) -> None:
    found = imported(tmp_path, "philly", PHILLY, virtual_cluster="6214e9")

    assert found.trace.jobs["submit_time"].tolist() == [0.0, 33.0]
    assert found.left_out == {"of other virtual clusters": 1}
    assert "virtual cluster 6214e9" in found.trace.note
    assert found.trace.accounts == ("",)


def test_drac_rows_keep_limits_users_node_counts_and_starts(tmp_path: Path) -> None:
    found = imported(tmp_path, "drac", DRAC)

    jobs = by_id(found.trace)
    job, later = jobs[57132395], jobs[57132397]
    assert found.left_out == {"without GPUs": 1}
    assert (job["gpus"], job["run_time_s"], job["time_limit_s"]) == (8, 119761.0, 259140.0)
    assert (job["cpus_per_gpu"], job["memory_mib_per_gpu"], job["user"]) == (4, 48333, "user18437")
    assert (job["nodes_min"], job["nodes_max"]) == (1, 1)
    assert job["recorded_start_time"] == 1521914.0
    # It became eligible a day after it was submitted, and ran on more nodes than it asked for.
    assert later["submit_time"] == 86400.0
    assert (later["nodes_min"], later["nodes_max"]) == (1, 0)


def test_pollux_rows_get_their_run_time_from_the_table_which_counts_as_sampled(tmp_path: Path) -> None:
    trace = imported(tmp_path, "pollux", POLLUX).trace

    jobs = by_id(trace)
    assert [(job["model"], job["gpus"]) for job in jobs.values()] == [("cifar10", 6), ("ncf", 1)]
    assert trace.jobs["run_time_s"].tolist() == [RUN_TIMES_S["cifar10", 6, 2048], RUN_TIMES_S["ncf", 1, 32768]]
    assert (trace.sampled, trace.seed) == (("run_time_s",), None)


def test_muri_counts_in_milliseconds(tmp_path: Path) -> None:
    found = imported(tmp_path, "muri", MURI)

    jobs = by_id(found.trace)
    assert found.zero_time == 5.0
    assert (jobs[0]["submit_time"], jobs[0]["run_time_s"], jobs[0]["gpus"]) == (0.0, 1453510.0, 16)
    assert (jobs[1]["submit_time"], jobs[1]["run_time_s"], jobs[1]["model"]) == (27064.0, 2683606.5, "a2c")


def test_swf_processors_become_gpus_and_unknowns_stay_unknown(tmp_path: Path) -> None:
    found = imported(tmp_path, "swf", SWF)

    jobs = by_id(found.trace)
    assert found.left_out == {"never ran": 1, "parts of a job": 1}
    first, second = jobs[1], jobs[2]
    assert (first["submit_time"], first["recorded_start_time"], first["run_time_s"]) == (0.0, 5.0, 3600.0)
    assert (first["gpus"], first["time_limit_s"], first["memory_mib_per_gpu"]) == (8, 7200.0, 1024)
    assert (first["user"], first["account"]) == ("user3", "group2")
    assert (second["gpus"], second["time_limit_s"], second["memory_mib_per_gpu"]) == (4, math.inf, 0)
    assert (second["user"], second["account"]) == ("", "")
    assert math.isnan(second["recorded_start_time"])  # type: ignore[arg-type]


REFUSED: dict[str, tuple[str, Sequence[str], str | None, str]] = {
    "no such virtual cluster": (
        "philly",
        PHILLY,
        "nine",
        "'nine' is not there: choose one of 6214e9 (2 jobs), 6c71a0 (1",
    ),
    "no virtual clusters": ("itp", ITP, "6214e9", "itp has no virtual clusters: leave --vc out"),
    "no published run time": (
        "pollux",
        [*POLLUX, "bert-2,1500,bert,5,384"],
        None,
        "line 4: no run time was published for 'bert' on 5 GPUs with batch size 384",
    ),
    "quotes that never close": ("itp", [*ITP, '"x,1,60,1'], None, "not CSV"),
}


@pytest.mark.parametrize(("format_name", "lines", "virtual_cluster", "words"), REFUSED.values(), ids=list(REFUSED))
def test_a_workload_is_refused(
    tmp_path: Path, format_name: str, lines: Sequence[str], virtual_cluster: str | None, words: str
) -> None:
    with pytest.raises(TraceError, match=re.escape(words)):
        imported(tmp_path, format_name, lines, virtual_cluster=virtual_cluster)


SAMPLES = {"itp": ITP, "philly": PHILLY, "drac": DRAC, "pollux": POLLUX, "muri": MURI, "swf": SWF}

BAD_ROWS = {
    "itp no time": ("itp", "x,soon,60,1", "line 5: column submission_time: 'soon' is not a number"),
    "itp half a GPU": ("itp", "x,1,60,1.5", "line 5: column num_gpu: '1.5' is not a whole number"),
    "itp no GPU": ("itp", "x,1,60,0", "line 5: column gpus: '0' is not a whole number from 1"),
    "itp ran for nothing": ("itp", "x,1,0,1", "line 5: column run_time_s: '0' is not a number of seconds above 0"),
    "itp endless": ("itp", "x,1,inf,1", "line 5: column duration: 'inf' is not a number"),
    "itp underscore": ("itp", "x,1,1_0,1", "line 5: column duration: '1_0' is not a number"),
    "itp too many GPUs": ("itp", "x,1,60,1e30", "line 5: column num_gpu: '1e30' is not a whole number"),
    "itp cells": ("itp", "x,1,60", "line 5: 3 cells where the header has 4"),
    "itp twice": ("itp", "c9c6-ea,1,60,1", "line 5: job 'c9c6-ea' stands in an earlier line"),
    "philly no time": ("philly", "then,1,1,1,6214e9", "line 5: column timestamp: 'then' is not a date and time"),
    "philly empty time": ("philly", ",1,1,1,6214e9", "line 5: column timestamp is empty"),
    "muri escape": ("muri", "9,\x1b[2J,1,1,x,1,1,1,1,1", r"line 4: column num_gpu: '\x1b[2J' is not a number"),
    "swf columns": ("swf", "1 2 3", "line 8: 3 columns, where the format has 18"),
    "swf negative": ("swf", "9 -5 0 60 1 -1 -1 1 -1 -1 1 -1 -1 -1 1 1 -1 -1", "line 8: column submit_time: '-5'"),
    "swf no processors": ("swf", "9 5 0 60 -1 -1 -1 -1 -1 -1 1 -1 -1 -1 1 1 -1 -1", "line 8: column gpus: '-1'"),
}  # fmt: skip


@pytest.mark.parametrize(("format_name", "row", "words"), BAD_ROWS.values(), ids=list(BAD_ROWS))
def test_a_bad_row_is_refused_by_its_line_or_skipped(tmp_path: Path, format_name: str, row: str, words: str) -> None:
    lines = [*SAMPLES[format_name], row]

    with pytest.raises(TraceError, match=re.escape(words)):
        imported(tmp_path, format_name, lines)

    whole = imported(tmp_path, format_name, SAMPLES[format_name])
    skipped = imported(tmp_path, format_name, lines, skip_bad=True)
    assert skipped.bad.count == 1
    assert skipped.trace.jobs.tobytes() == whole.trace.jobs.tobytes()


@pytest.mark.parametrize("format_name", ["itp", "philly", "drac", "pollux", "muri"])
def test_a_missing_column_is_named_with_the_columns_of_the_format(tmp_path: Path, format_name: str) -> None:
    with pytest.raises(TraceError, match=r"column .* is missing: this format has the columns "):
        imported(tmp_path, format_name, ["a,b", "1,2"])


@pytest.mark.parametrize("format_name", sorted(FORMATS))
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x89PNG\r\n\x00", "holds binary data"),
        (b"\n\n", "is empty"),
    ],
    ids=["empty", "binary", "blank"],
)
def test_what_is_no_workload_is_refused(tmp_path: Path, format_name: str, content: bytes, words: str) -> None:
    path = tmp_path / "w.txt"
    path.write_bytes(content)

    with pytest.raises(TraceError, match=words):
        import_trace(format_name, path)


def test_a_missing_file_and_an_unknown_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        import_trace("itp", tmp_path / "none.csv")
    with pytest.raises(TraceError, match="format 'excel' is not known: choose one of sacct, swf"):
        import_trace("excel", tmp_path / "none.csv")


@pytest.mark.parametrize("format_name", sorted(SAMPLES))
def test_an_imported_trace_reads_back_the_same(tmp_path: Path, format_name: str) -> None:
    trace = imported(tmp_path, format_name, SAMPLES[format_name]).trace

    write_trace(trace, tmp_path / "t.csv")

    found = read_trace(tmp_path / "t.csv")
    assert found.jobs.tobytes() == trace.jobs.tobytes()
    assert (found.users, found.accounts, found.models) == (trace.users, trace.accounts, trace.models)
    assert (found.name, found.note, found.sampled) == ("workload", trace.note, trace.sampled)
    assert found.jobs["submit_time"][0] == 0.0


def test_a_compressed_workload_is_read_by_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "cluster.csv"
    path.write_bytes(gzip.compress("\n".join(ITP).encode()))

    found = import_trace("itp", path, name="mine")

    assert found.trace.name == "mine"
    assert len(found.trace) == 2


PUBLISHED = {
    "itp cluster02": ("itp", ("ms_itp", "cluster02.csv.gz"), 5778, 5156),
    "itp cluster09": ("itp", ("ms_itp", "cluster09.csv.gz"), 11134, 1625),
    "philly": ("philly", ("philly", "philly.csv.gz"), 65782, 39017),
    "drac": ("drac", ("drac_slurm", "graham_gpu_jobs_until_2021-06-14.csv.gz"), 15282, 5327),
    "pollux workload-6": ("pollux", ("pollux_workloads", "workload-6.csv"), 160, 70),
    "muri cluster_trace": ("muri", ("muri", "cluster_trace.csv"), 400, 2556),
    "muri trace2": ("muri", ("muri", "trace2.csv.gz"), 5755, 34337),
}


@pytest.mark.parametrize(("format_name", "parts", "count", "gpu_days"), PUBLISHED.values(), ids=list(PUBLISHED))
def test_a_published_workload_is_imported_whole(
    format_name: str, parts: tuple[str, ...], count: int, gpu_days: float
) -> None:
    found = import_trace(format_name, measurements("traces", *parts))

    jobs = found.trace.jobs
    assert (len(jobs), found.bad.count, found.left_out) == (count, 0, {})
    assert float(jobs["gpus"] @ jobs["run_time_s"]) / 86400 == pytest.approx(gpu_days, abs=0.5)
    assert jobs["submit_time"][0] == 0.0
    assert np.all(np.diff(jobs["submit_time"]) >= 0)


def test_every_published_pollux_workload_has_run_times() -> None:
    counts = [
        len(import_trace("pollux", measurements("traces", "pollux_workloads", f"workload-{number}.csv")).trace)
        for number in range(1, 9)
    ]

    assert counts == [160] * 8


def test_a_published_virtual_cluster_can_be_chosen() -> None:
    options = ImportOptions(virtual_cluster="ee9e8c")

    found = import_trace("philly", measurements("traces", "philly", "philly.csv.gz"), options=options)

    assert len(found.trace) == 1511
