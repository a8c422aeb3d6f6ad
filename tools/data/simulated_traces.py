"""Reads the published traces that the simulator is measured on, each with a cluster on which its jobs queue.

The clusters have 8-GPU nodes. The folder with `traces/ms_itp` and `traces/philly` is not part of this project.
"""

import argparse
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np

from advisor.errors import TraceError
from advisor.sim.cluster import Cluster, parse_cluster
from advisor.sim.traces.importing.formats import import_trace
from advisor.sim.traces.importing.workload_rows import ImportOptions
from advisor.sim.traces.trace import Trace

DATA_VARIABLE: Final = "SADVISE_DATA"
ITP: Final = ("01", "02", "04", "05", "07", "09", "10")
# The virtual clusters with at least a hundred jobs from October on.
PHILLY: Final = ("6214e9", "6c71a0", "b436b2", "103959", "0e4a51", "ee9e8c", "ed69ec", "7f04ca", "2869ce")
# GPU jobs of a Slurm cluster with its users, time limits and requests, at the load in the name.
GRAHAM: Final = ("0.7", "0.9", "1.0")
_GRAHAM_FILE: Final = "graham_gpu_jobs_until_2021-06-14.csv.gz"
# Earlier months of the table hold only a few long jobs.
PHILLY_FROM: Final = datetime(2017, 10, 1, tzinfo=UTC).timestamp()
GPUS_PER_NODE: Final = 8
LOAD_RATIO: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A trace and the number of 8-GPU nodes of its cluster."""

    trace: Trace
    nodes: int

    @property
    def load_ratio(self) -> float:
        """Return the GPU-time of the jobs over that of the cluster from the first to the last submission."""
        return demand_gpus(self.trace) / (self.nodes * GPUS_PER_NODE)

    def cluster(self, leaf: int = GPUS_PER_NODE) -> Cluster:
        """Return the cluster, with `leaf` nodes under a leaf switch (0: all)."""
        return parse_cluster(self.cluster_text(leaf))

    def cluster_text(self, leaf: int = GPUS_PER_NODE) -> str:
        """Return the cluster as text in the short form."""
        return f"nodes={self.nodes},gpus={GPUS_PER_NODE},leaf={leaf}"

    def first(self, jobs: int) -> "Workload":
        """Return the first jobs on the same nodes."""
        if jobs >= len(self.trace):
            return self
        return replace(self, trace=replace(self.trace, jobs=self.trace.jobs[:jobs]))


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the folder of the published data."""
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help=f"folder of the published data, default {DATA_VARIABLE}"
    )


def data_folder(given: Path | None, *, holds: str = "traces/ms_itp") -> Path:
    """Return the folder of the published data; raises `TraceError` if none is named, or it lacks the folder `holds`."""
    named = given or Path(os.environ.get(DATA_VARIABLE, ""))
    if named == Path():
        raise TraceError(f"no folder of published data: give --data DIR or set {DATA_VARIABLE}")
    if not (named / holds).is_dir():
        raise TraceError(f"{named}: holds no {holds}: --data must name the folder of the published data")
    return named


def read_workload(folder: Path, name: str) -> Workload:
    """Read a trace by name, and choose the number of nodes."""
    source, _, which = name.partition(" ")
    load_ratio = LOAD_RATIO
    if source == "itp" and which in ITP:
        imported = import_trace("itp", folder / "traces" / "ms_itp" / f"cluster{which}.csv.gz", name=name)
        trace = imported.trace
    elif source == "philly" and which in PHILLY:
        options = ImportOptions(virtual_cluster=which)
        imported = import_trace("philly", folder / "traces" / "philly" / "philly.csv.gz", options=options, name=name)
        trace = _from(imported.trace, PHILLY_FROM - imported.zero_time)
    elif source == "graham" and which in GRAHAM:
        trace = import_trace("drac", folder / "traces" / "drac_slurm" / _GRAHAM_FILE, name=name).trace
        load_ratio = float(which)
    else:
        raise TraceError(
            f"trace {name!r} is not known: known are itp {', '.join(ITP)}, philly {', '.join(PHILLY)} and"
            f" graham {', '.join(GRAHAM)}"
        )
    # Slurm numbers jobs from 1, and so does the advisor's cycle.
    trace.jobs["job_id"] += 1 - min(1, int(trace.jobs["job_id"].min()))
    return Workload(trace=trace, nodes=nodes_of(trace, load_ratio))


def demand_gpus(trace: Trace) -> float:
    """Return the GPUs that the jobs of a trace would keep busy on average while they are submitted."""
    jobs = trace.jobs
    span_s = float(jobs["submit_time"][-1] - jobs["submit_time"][0]) or 1.0
    return float((jobs["run_time_s"] * jobs["gpus"]).sum()) / span_s


def nodes_of(trace: Trace, load_ratio: float = LOAD_RATIO) -> int:
    """Return the least number of nodes that holds the largest job and keeps the load at or below `load_ratio`."""
    largest = -(-int(trace.jobs["gpus"].max()) // GPUS_PER_NODE)
    return max(largest, ceil(demand_gpus(trace) / GPUS_PER_NODE / load_ratio))


def repeated(workload: Workload, times: int) -> Workload:
    """Return a trace repeated `times` times in sequence, at the load of one copy or 1 if that is less.

    A copy begins at the last submission of the one before, or later if the load would exceed 1: above it
    a queue grows without end.
    """
    jobs, count = workload.trace.jobs, len(workload.trace)
    span_s = float(jobs["submit_time"][-1] - jobs["submit_time"][0]) or 1.0
    period_s = span_s * max(1.0, workload.load_ratio)
    copies = np.tile(jobs, times)
    copies["submit_time"] += np.repeat(np.arange(times) * period_s, count)
    copies["job_id"] = np.arange(1, len(copies) + 1)
    return replace(workload, trace=replace(workload.trace, jobs=copies))


def _from(trace: Trace, start_time: float) -> Trace:
    """Return the jobs submitted from `start_time` on, with times counted from the first of them."""
    jobs = trace.jobs[trace.jobs["submit_time"] >= start_time].copy()
    if not len(jobs):
        raise TraceError(f"{trace.name}: no job was submitted from October 2017 on: take the whole table")
    jobs["submit_time"] -= jobs["submit_time"][0]
    return replace(trace, jobs=jobs)
