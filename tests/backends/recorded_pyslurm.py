"""What pyslurm showed of recorded queues, as the child process hands it over."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from advisor.backends import pyslurm_decode
from advisor.backends.process import run
from advisor.backends.pyslurm_decode import Counted, Raw
from advisor.backends.pyslurm_source import CHILD, HIDDEN_LEVERS, INTERPRETER
from advisor.backends.site_reader import Site
from advisor.backends.snapshot_file import read_snapshot
from advisor.domain.gang import GangRequest, GpuCount
from advisor.domain.job import Job
from advisor.domain.node import Node
from advisor.domain.snapshot import Snapshot
from tests.backends import recorded

COUNTED_FOLDER = recorded.RECORDED / "25.11-tres"
FAKE_FOLDER = Path(__file__).with_name("fake_pyslurm")
# Submitted with `--gres=gpu:8 --gpus-per-node=8`.
NAMED_TWICE = 29
_KINDS = {"jobs": "job", "nodes": "node", "partitions": "partition"}


def uncounted_records() -> Mapping[str, tuple[Raw, ...]]:
    """Return the records, by kind, of a site that does not count GPUs as TRES."""
    kept = json.loads(recorded.text("pyslurm.json"))
    return {
        kind: tuple(Raw(values={key: _plain(value) for key, value in each.items()}) for each in kept[name].values())
        for name, kind in _KINDS.items()
    }


def snapshot_of(records: Mapping[str, Iterable[Raw]], site: Site, counted: Counted) -> Snapshot:
    """Make the snapshot of records."""
    return recorded.assemble(
        source="pyslurm",
        taken_at=0.0,
        site=site,
        jobs=[pyslurm_decode.job_record(raw, tres_counted=counted) for raw in records["job"]],
        nodes=[pyslurm_decode.node_record(raw, gpus_counted=counted.gpus) for raw in records["node"]],
        partitions=map(pyslurm_decode.partition, records["partition"]),
        hidden_levers=HIDDEN_LEVERS,
    )


def uncounted_snapshot() -> Snapshot:
    """Decode what pyslurm showed where GPUs are not counted."""
    return snapshot_of(uncounted_records(), recorded.site(), Counted(gpus=False))


def counted_site(folder: Path = COUNTED_FOLDER) -> Site:
    """Decode the configuration of the site that counts GPUs."""
    return recorded.site(folder)


@cache
def counted_records() -> Mapping[str, tuple[Raw, ...]]:
    """Return what the child process prints, by kind, of the queue of the site that counts GPUs."""
    variables = {**os.environ, "PYTHONPATH": str(FAKE_FOLDER)}
    answer = pyslurm_decode.parse(run((*INTERPRETER, str(CHILD)), timeout_s=60.0, variables=variables).output)
    return {"job": answer.jobs, "node": answer.nodes, "partition": answer.partitions}


def counted_snapshot(records: Mapping[str, tuple[Raw, ...]] | None = None) -> Snapshot:
    """Decode what pyslurm showed where GPUs are counted; `records` stand for those of the child."""
    seen, site = records or counted_records(), counted_site()
    return snapshot_of(seen, site, pyslurm_decode.counted(site.config.accounting_tres, seen["node"]))


def text_snapshot() -> Snapshot:
    """Return what the text reader made of the same queue.

    It was kept before a resource that a request names twice was counted once.
    """
    kept = read_snapshot(COUNTED_FOLDER / "snapshot_text.json")
    twice = kept.jobs_by_id[NAMED_TWICE]
    once = replace(twice, gang=replace(twice.gang, per_node=(GpuCount(count=8),)))
    return replace(kept, jobs=tuple(once if job is twice else job for job in kept.jobs))


def _without_type(gang: GangRequest) -> GangRequest:
    return replace(gang, per_job=tuple(replace(each, gpu_type=None) for each in gang.per_job))


def _one_form(gang: GangRequest) -> GangRequest:
    return replace(gang, per_job=()) if gang.per_node or gang.per_task else gang


def _without_sockets(gang: GangRequest) -> GangRequest:
    return replace(gang, per_socket=(), gpus_known=False) if gang.per_socket else gang


def _without_cpus_per_gpu(gang: GangRequest) -> GangRequest:
    return replace(gang, cpus_per_gpu=None)


def _without_further_options(gang: GangRequest) -> GangRequest:
    return replace(gang, cpus_per_node=1, tasks_per_node=None, tmp_disk_mib=0, uncounted=())


# What pyslurm does not show of a request, and what text then is to be compared without: all that may differ.
BLIND_SPOTS: Final[Mapping[str, Callable[[GangRequest], GangRequest]]] = {
    "the type of --gpus, unless AccountingStorageTRES counts that type": _without_type,
    "--gpus beside --gpus-per-node or --gpus-per-task": _one_form,
    "--gpus-per-socket; the job is left alone": _without_sockets,
    "--cpus-per-gpu; the job is left alone": _without_cpus_per_gpu,
    "--mincpus, --ntasks-per-node, --tmp, and options in doubt": _without_further_options,
}


def blind_node(node: Node) -> Node:
    """Return a node without what pyslurm does not show of it."""
    return replace(node, tmp_disk_mib=None, threads_per_core=1)


def blind(job: Job) -> Job:
    """Return a job without what one of the two readers does not show of it.

    Text does not show which tasks of a waiting array have a record of their own, pyslurm not in which order a job
    names those it depends on. Slurm expects another start from one moment to the next.
    """
    gang = job.gang
    for without in BLIND_SPOTS.values():
        gang = without(gang)
    array = job.array and replace(job.array, waiting="", task_id=None)
    words = ",".join(sorted(job.dependency.replace("?", ",").split(",")))
    start_time = None if job.is_pending else job.start_time
    return replace(job, gang=gang, array=array, dependency=words, start_time=start_time, unseen=())


def _plain(value: Any) -> Any:
    """Return a value of `to_dict(recursive=True)` as the child process prints it."""
    if isinstance(value, dict) and "gres" in value:
        counts = {name: None if value[name] is None else value[name]["count"] for name in ("cpu", "mem", "node")}
        return {**counts, "gres": {name: each["count"] for name, each in value["gres"].items()}}
    return value
