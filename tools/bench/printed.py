"""A snapshot as squeue and sinfo print it, and what the daemon's reader makes of that."""

from collections.abc import Iterable, Iterator, Mapping

from advisor.backends.assembly import assemble
from advisor.backends.kept_rows import KeptRows
from advisor.backends.site_reader import Site
from advisor.backends.text_decode import (
    JOB_FIELDS,
    NODE_FIELDS,
    NODE_WIDTHS,
    job_rows,
    node_records,
    partitions_of,
    rows,
)
from advisor.domain.gang import GpuCount
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from tools.bench.measuring import Stages

_END = "\x1f\x1e"
# As much as a pipe gives at once.
_CHUNK_BYTES = 1 << 16
_NOT_SET = {"HetJobID": "N/A", "HetJobOffset": "N/A", "StartTime": "N/A", "EndTime": "N/A"}
_NULL = ("Comment", "Feature", "Dependency", "Reservation", "tres-per-socket", "tres-per-task", "cpus-per-tres")


def read_back(snapshot: Snapshot, kept: KeptRows, stages: Stages) -> Snapshot:
    """Print a snapshot and read what was printed, which counts as the stage `decode`; `kept` are the rows so far."""
    jobs_text = "".join(f"{_printed(JOB_FIELDS, _job_row(job))}!\n" for job in snapshot.jobs).encode()
    nodes_text = "".join(f"{_printed(NODE_FIELDS, row)}\n" for row in _node_rows(snapshot)).encode()
    with stages.timed("decode"):
        node_rows = rows(nodes_text, command="sinfo", fields=NODE_FIELDS, delimiter=_END, widths=NODE_WIDTHS)
        nodes = node_records(node_rows)
        chunks = (jobs_text[start : start + _CHUNK_BYTES] for start in range(0, len(jobs_text), _CHUNK_BYTES))
        printed = job_rows(chunks, delimiter=_END)
        read = assemble(
            source="text",
            taken_at=snapshot.taken_at,
            site=Site(config=snapshot.config, topology=snapshot.topology),
            jobs=kept.read(printed, _END, frozenset(), nodes),
            nodes=nodes,
            partitions=partitions_of(node_rows),
        )
        kept.keep(read.jobs)
    return read


def _printed(fields: Iterable[str], row: Mapping[str, str]) -> str:
    return "".join(f"{row.get(name, '')}{_END}" for name in fields)


def _gres(counts: tuple[GpuCount, ...]) -> str:
    return ",".join(
        f"gres/gpu:{gpu.gpu_type}:{gpu.count}" if gpu.gpu_type else f"gres/gpu:{gpu.count}" for gpu in counts
    )


def _limit(seconds: float | None) -> str:
    minutes, rest = divmod(int(seconds or 0), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if seconds else "UNLIMITED"


def _instant(seconds: float | None) -> str:
    return "N/A" if seconds is None else str(int(seconds))


def _job_row(job: Job) -> dict[str, str]:
    gang, elastic = job.gang, job.hints.gpus
    comment = f"sadvise: gpus={elastic.low}-{elastic.high} ckpt={job.hints.checkpoint_s:.0f}" if elastic else "(null)"
    memory_mib = (gang.memory_mib_per_node or 0) * gang.nodes_min
    return {
        **dict.fromkeys(_NULL, "(null)"),
        **_NOT_SET,
        "JobID": str(job.job_id),
        "JobArrayID": str(job.job_id),
        "State": job.state.value.upper(),
        "Reason": job.reason or "None",
        "Name": job.name or "(null)",
        "UserName": job.user or "(null)",
        "Account": job.account or "(null)",
        "Partition": ",".join(job.partitions),
        "QOS": "normal",
        "Comment": comment,
        "NumNodes": str(gang.nodes_min),
        "MaxNodes": str(gang.nodes_max or 0),
        "NumTasks": str(gang.tasks),
        "NumCPUs": str(gang.cpus),
        "tres-alloc": f"cpu={gang.cpus},mem={memory_mib}M,node={gang.nodes_min},billing=1",
        "tres-per-job": _gres(gang.per_job) or "N/A",
        "tres-per-node": _gres(gang.per_node) or "N/A",
        "OverSubscribe": "OK",
        "Exclusive": "NO",
        "ReqSwitch": str(gang.switches.count if gang.switches else 0),
        "Wait4Switch": _limit(gang.switches.max_wait_s) if gang.switches else "0:00",
        "NodeList": ",".join(job.allocation.nodes) if job.allocation else "",
        "SubmitTime": _instant(job.submit_time),
        "EligibleTime": _instant(job.eligible_time),
        "StartTime": _instant(job.start_time),
        "EndTime": _instant(job.end_time),
        "TimeLimit": _limit(job.time_limit_s),
        "MinTime": _limit(job.time_min_s) if job.time_min_s else "0:00",
        "PriorityLong": str(0 if job.held else job.priority or 0),
        "Nice": str(job.nice),
        "Requeue": "1",
        "CronJob": "No",
    }


def _node_rows(snapshot: Snapshot) -> Iterator[dict[str, str]]:
    for node in snapshot.nodes:
        (pool,) = node.gpus
        yield {
            "NodeList": node.name,
            "PartitionName": node.partitions[0],
            "StateComplete": "+".join((node.state, *node.flags)).lower(),
            "Reason": "none".ljust(NODE_WIDTHS["Reason"]),
            "CPUs": str(node.cpus),
            "CPUsState": f"{node.cpus_used}/{node.cpus - node.cpus_used}/0/{node.cpus}",
            "Memory": str(node.memory_mib),
            "AllocMem": str(node.memory_used_mib),
            "Gres": f"gpu:{pool.gpu_type}:{pool.total}",
            "GresUsed": f"gpu:{pool.gpu_type}:{pool.used}(IDX:0-7)",
            "features_act": "(null)",
            "Weight": "1",
            "Available": "up",
            "Time": "infinite",
            "DefaultTime": "1-00:00:00",
            "PriorityTier": "1",
            "Size": "1-infinite",
            "PriorityJobFactor": "1",
            "Partition": "gpu*",
            "OverSubscribe": "NO",
        }
