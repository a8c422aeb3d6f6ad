import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends import pyslurm_decode
from advisor.backends.process import SlurmCommands
from advisor.backends.pyslurm_decode import PyslurmAnswer
from advisor.backends.pyslurm_source import (
    CHILD,
    GPUS_ASKED,
    GPUS_IN_USE,
    INTERPRETER,
    PyslurmSource,
    installed_version,
)
from advisor.backends.records import JobRecord
from advisor.backends.releases import release_of
from advisor.backends.site_reader import Identity, SiteReader
from advisor.backends.tres import Gres
from advisor.clock import ManualClock, SystemClock
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.job import ArrayRecord, HetRecord
from advisor.domain.site import Partition
from advisor.errors import DecodeError, SlurmError, SlurmMissingError, SlurmRefusedError, SlurmUnavailableError
from tests.backends import recorded, source_contract
from tests.backends.fake_slurm import FakeSlurm

FAKE = Path(__file__).with_name("fake_pyslurm")
RECORDED = json.loads(recorded.text("pyslurm.json"))
JOB: Mapping[str, Any] = RECORDED["jobs"]["4022"]
NODE: Mapping[str, Any] = RECORDED["nodes"]["n01"]


def gpu(count: int, gres_type: str | None = None) -> Gres:
    return Gres(name="gpu", gres_type=gres_type, count=count)


def tres(**counts: int) -> dict[str, Any]:
    """Make a TRES object; `gpu` and `gpu_a100` stand for gres/gpu and gres/gpu:a100."""
    gres = {name.replace("_", ":"): {"count": number} for name, number in counts.items() if name.startswith("gpu")}
    plain = {name: {"count": number} for name, number in counts.items() if not name.startswith("gpu")}
    return {**plain, "gres": gres}


def job(changes: Mapping[str, object], *, gpus_counted: bool = False) -> JobRecord:
    return pyslurm_decode.job_record({**JOB, **changes}, gpus_counted=gpus_counted)


@pytest.mark.parametrize(
    ("changes", "counted", "known", "requests"),
    [
        ({}, False, True, {GpuScope.NODE: (gpu(8),)}),
        ({"gres_per_node": {}}, False, False, {}),
        ({"gres_per_node": {}}, True, True, {}),
        (
            {"gres_per_node": {}, "requested_tres": tres(cpu=4, gpu=12)},
            True,
            True,
            {GpuScope.JOB: (gpu(12),)},
        ),
        (
            {"gres_per_node": {}, "requested_tres": tres(gpu=12, gpu_a100=8)},
            True,
            True,
            {GpuScope.JOB: (gpu(4), gpu(8, "a100"))},
        ),
        ({"gres_per_node": {}, "tres_per_task": tres(gpu=2)}, False, True, {GpuScope.TASK: (gpu(2),)}),
        (
            {"gres_per_node": {"gres/gpu:a100": 4, "gres/lustre": 1}},
            False,
            True,
            {GpuScope.NODE: (gpu(4, "a100"),)},
        ),
    ],
    ids=["gres", "not shown", "counted, none", "--gpus counted", "types counted", "per task", "typed"],
)
def test_gpus_that_pyslurm_does_not_show_are_unknown(
    changes: dict[str, object], counted: bool, known: bool, requests: dict[GpuScope, tuple[Gres, ...]]
) -> None:
    record = job(changes, gpus_counted=counted)

    assert record.gpus_known is known
    assert {scope: listed for scope, listed in record.requests.items() if listed} == requests


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"array_id": 5, "array_task_id": 3}, "array", ArrayRecord(array_job_id=5, task_id=3)),
        (
            {"array_id": 5, "array_tasks_waiting": "3-6", "array_tasks_parallel": 2},
            "array",
            ArrayRecord(array_job_id=5, waiting="3-6", max_running=2),
        ),
        ({"heterogeneous_id": 7}, "het", HetRecord(het_job_id=7, offset=0)),
        ({"resource_sharing": "NO"}, "exclusive", True),
        ({"cpus_per_gpu": 6}, "cpus_per_gres", (gpu(6),)),
        ({"time_limit": "UNLIMITED"}, "limit_s", None),
        ({"time_limit_min": 30}, "limit_min_s", 1800.0),
        ({"time_limit_min": None}, "limit_min_s", None),
        ({"max_nodes": None}, "nodes_max", 0),
        ({"excluded_nodes": ["n01", "n02"]}, "excluded_nodes", ("n01", "n02")),
        ({"constraints": ["a100", "nvlink"]}, "features", "a100,nvlink"),
        (
            {"dependencies": {"afterok": ["1(failed)", 2], "singleton": True, "satisfy": "all"}},
            "dependency",
            "afterok:1(failed),afterok:2,singleton",
        ),
        (
            {"dependencies": {"afterok": [1], "afterany": [2], "satisfy": "any"}},
            "dependency",
            "afterok:1?afterany:2",
        ),
        ({"name": None}, "name", ""),
        ({"is_cronjob": True}, "cron", True),
    ],
)
def test_values_of_a_job_are_read(changes: dict[str, object], field: str, value: object) -> None:
    assert getattr(job(changes), field) == value


@pytest.mark.parametrize("changes", [{"cpus": "4"}, {"name": 4}, {"priority": 1 << 70}, {"excluded_nodes": [1]}])
def test_value_of_another_kind_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(DecodeError, match="pyslurm"):
        job(changes)


def test_counted_allocation_tells_the_gpus() -> None:
    record = job({"allocated_tres": tres(cpu=4, mem=4000, node=1, gpu=2, gpu_a100=2)})

    assert record.tres.gpus == (GpuCount(gpu_type="a100", count=2),)
    assert (record.tres.cpus, record.tres.memory_mib, record.tres.nodes) == (4, 4000, 1)


@pytest.mark.parametrize(
    ("allocated", "used"),
    [
        ({"cpu": 1}, ()),
        ({"cpu": 1, "gres/gpu": 3}, (gpu(3),)),
        ({"gres/gpu": 3, "gres/gpu:a100": 3}, (gpu(3, "a100"),)),
        (None, ()),
    ],
)
def test_gpus_in_use_are_known_where_they_are_counted(allocated: object, used: tuple[Gres, ...]) -> None:
    assert pyslurm_decode.node_record({**NODE, "allocated_tres": allocated}).gres_used == used


def test_partition_is_read() -> None:
    raw = {**RECORDED["partitions"]["gpu"], "state": "DRAIN", "max_time": 90, "max_nodes": 3, "nodes": "n01"}

    assert pyslurm_decode.partition(raw) == Partition(
        name="gpu", is_up=False, nodes=("n01",), max_time_s=5400.0, max_nodes_per_job=3
    )


WHOLE = b'{"version": "25.11.2"}\n{"kind": "node", "values": {}}\n{"kind": "end", "lines": 1}\n'


def test_lines_of_the_child_are_parsed() -> None:
    assert pyslurm_decode.parse(WHOLE) == PyslurmAnswer(version="25.11.2", jobs=(), nodes=({},), partitions=())


@given(st.integers(0, len(WHOLE) - 2))
def test_answer_that_ends_early_is_refused(cut: int) -> None:
    with pytest.raises(DecodeError, match="pyslurm gave"):
        pyslurm_decode.parse(WHOLE[:cut])


@pytest.mark.parametrize("answer", [b"[]\n", b'{"kind": "job"}\n{"kind": "end", "lines": 0}', b"\xff\n"])
def test_answer_of_another_shape_is_refused(answer: bytes) -> None:
    with pytest.raises(DecodeError, match="pyslurm gave"):
        pyslurm_decode.parse(answer)


@pytest.fixture
def fake_pyslurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=t25\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setenv("PYTHONPATH", str(FAKE), prepend=os.pathsep)
    return monkeypatch


def source(*, timeout_s: float = 20.0, slurm: FakeSlurm | None = None) -> PyslurmSource:
    clock = ManualClock(5000.0)
    site = SiteReader(slurm or FakeSlurm(), clock, identity=Identity(uid=0, name="root"))
    return PyslurmSource(clock, site, timeout_s=timeout_s)


@pytest.mark.usefixtures("fake_pyslurm")
def test_pyslurm_source_keeps_the_contract() -> None:
    snapshot = source_contract.check(source())

    assert snapshot.jobs == recorded.pyslurm_snapshot().jobs
    assert snapshot.nodes == recorded.pyslurm_snapshot().nodes
    assert snapshot.unread == (GPUS_IN_USE, GPUS_ASKED)


def test_counted_gpus_leave_nothing_unread(fake_pyslurm: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=t25\nAccountingStorageTRES=gres/gpu\n")

    snapshot = source().snapshot()

    assert snapshot.unread == ()
    assert all(job.gang.gpus_known for job in snapshot.jobs)


@pytest.mark.parametrize(
    ("trick", "kind", "said"),
    [
        ("missing", SlurmMissingError, r"pip install 'sadvise\[pyslurm\]' with the pyslurm of this Slurm release"),
        ("fatal", SlurmRefusedError, "finds no Slurm configuration"),
        ("dies", DecodeError, "pyslurm gave an incomplete answer"),
        ("old", SlurmRefusedError, r"pyslurm 24\.5\.0 does not fit Slurm 25\.11\.7"),
        ("hang", SlurmUnavailableError, "gave no answer within 2 s"),
    ],
)
def test_pyslurm_that_misbehaves_is_a_clear_line(
    fake_pyslurm: pytest.MonkeyPatch, trick: str, kind: type[Exception], said: str
) -> None:
    fake_pyslurm.setenv("FAKE_PYSLURM", trick)

    with pytest.raises(kind, match=said):
        source(timeout_s=2.0 if trick == "hang" else 20.0).snapshot()


@pytest.mark.usefixtures("fake_pyslurm")
def test_installed_version_is_asked_of_the_child() -> None:
    assert installed_version(timeout_s=20) == "25.11.2"


def test_pyslurm_is_missing_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent = tmp_path / "pyslurm.py"
    absent.write_text("raise ModuleNotFoundError(\"No module named 'pyslurm'\")\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(SlurmMissingError, match="pyslurm cannot be imported here"):
        installed_version(timeout_s=20)


def test_child_imports_nothing_of_ours() -> None:
    imported = re.findall(r"^(?:import|from) (\w+)", CHILD.read_text(), re.MULTILINE)

    assert imported == ["json", "sys", "pyslurm"]
    assert INTERPRETER[1:] == ("-P",)


def test_child_asks_for_keys_that_pyslurm_has() -> None:
    keys = set(re.findall(r'^    "(\w+)",$', CHILD.read_text(), re.MULTILINE))

    assert keys
    assert keys <= {*JOB, *NODE, *RECORDED["partitions"]["gpu"]}


@pytest.mark.pyslurm
def test_installed_pyslurm_reads_the_cluster_of_this_host() -> None:
    try:
        version = installed_version(timeout_s=20)
    except SlurmError as err:
        pytest.skip(str(err))
    clock = SystemClock()
    site = SiteReader(SlurmCommands(timeout_s=20), clock)

    snapshot = source_contract.check(PyslurmSource(clock, site, timeout_s=60))

    assert snapshot.config.release == release_of(version)
