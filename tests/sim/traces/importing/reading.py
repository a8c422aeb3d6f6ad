"""Read small workloads that tests write out in full."""

from collections.abc import Sequence
from pathlib import Path

from advisor.sim.traces.importing.formats import Imported, import_trace
from advisor.sim.traces.importing.workload_rows import ImportOptions
from advisor.sim.traces.trace import Trace

DATA_VARIABLE = "SADVISE_DATA"


def imported(
    folder: Path,
    format_name: str,
    lines: Sequence[str],
    *,
    virtual_cluster: str | None = None,
    cpu_jobs: bool = False,
    skip_bad: bool = False,
) -> Imported:
    """Write lines to a file and import it."""
    path = folder / "workload.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogateescape")
    options = ImportOptions(virtual_cluster=virtual_cluster, cpu_jobs=cpu_jobs)
    return import_trace(format_name, path, options=options, skip_bad=skip_bad)


def by_id(trace: Trace) -> dict[int, dict[str, object]]:
    """Map job ids to the columns of the job, names spelled out."""
    jobs = {}
    for row in trace.jobs:
        job = {name: row[name].item() for name in trace.jobs.dtype.names or ()}
        job["user"], job["account"] = trace.users[row["user"]], trace.accounts[row["account"]]
        job["qos"] = trace.qos[row["qos"]]
        job["partition"] = trace.partitions[row["partition"]]
        job["dependency"] = trace.dependencies[row["dependency"]]
        job["model"] = trace.models[row["model"]] if row["model"] >= 0 else None
        job["gpu_type"] = trace.gpu_types[row["gpu_type"]] if row["gpu_type"] >= 0 else None
        jobs[int(row["job_id"])] = job
    return jobs
