"""Pollux's workloads: name, time, application, num_replicas, batch_size; how long a job runs is not in them.

Run times come from `RUN_TIMES_S`: each is the shortest completion that the authors' simulator published for such a
job, which holds restarts and some waiting (docs/traces.md).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from advisor.sim.traces.importing.workload_rows import (
    Cells,
    SourceJob,
    WorkloadFile,
    WorkloadRow,
    csv_rows,
    number,
    whole,
)

COLUMNS: Final = ("name", "time", "application", "num_replicas", "batch_size")

# Application, GPUs, global batch size: seconds. Tiresias at load 1.0, 8 workloads of 160 jobs on 16 nodes of 4 T4.
RUN_TIMES_S: Final[Mapping[tuple[str, int, int], float]] = {
    ("bert", 6, 384): 2921.0,
    ("bert", 8, 384): 2489.0,
    ("bert", 12, 384): 1631.0,
    ("bert", 16, 384): 1361.0,
    ("cifar10", 6, 2048): 941.0,
    ("cifar10", 8, 2048): 838.0,
    ("cifar10", 12, 4096): 654.0,
    ("cifar10", 16, 4096): 515.0,
    ("deepspeech2", 6, 320): 4174.0,
    ("deepspeech2", 8, 320): 3125.0,
    ("deepspeech2", 12, 640): 2524.0,
    ("imagenet", 24, 3200): 36734.0,
    ("imagenet", 32, 6400): 42001.0,
    ("imagenet", 48, 6400): 49585.0,
    ("ncf", 1, 32768): 77.0,
    ("yolov3", 4, 64): 14135.0,
}


def rows(source: WorkloadFile) -> Iterator[WorkloadRow]:
    """Convert a workload to rows."""
    return csv_rows(source, COLUMNS, _job)


def _job(line: int, cells: Cells) -> SourceJob:
    application, gpus, batch_size = (
        cells["application"].strip(),
        whole(cells, "num_replicas"),
        whole(cells, "batch_size"),
    )
    run_time_s = RUN_TIMES_S.get((application, gpus, batch_size))
    if run_time_s is None:
        raise ValueError(
            f"no run time was published for {application[:40]!a} on {gpus} GPUs with batch size {batch_size}"
        )
    return SourceJob(
        line=line,
        job_id=cells["name"],
        submit_time=number(cells, "time"),
        run_time_s=run_time_s,
        gpus=gpus,
        model=application,
    )
