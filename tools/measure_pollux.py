"""Measure the run times of Pollux's jobs from the published results, and compare them with the step times.

    python -m tools.measure_pollux [DATA]

DATA holds traces/pollux_workloads, results/pollux, throughput/pollux_aws_t4 and throughput/pollux_stat_efficiency;
without it, the folder that SADVISE_DATA names. For each application, number of GPUs and batch size it prints the
shortest completion under Tiresias at load 1.0, which `advisor/sim/traces/importing/pollux.py` holds, and steps times
step time on the fewest nodes where such a placement was measured.
"""

import argparse
import csv
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from advisor.errors import TraceError
from tools.simulated_traces import data_folder

RESULTS = "results/pollux/results-jobload-tiresias-1.0.json.gz"
WORKLOADS = "traces/pollux_workloads"
PLACEMENTS = "throughput/pollux_aws_t4"
EPOCHS = "throughput/pollux_stat_efficiency"


class PolluxKind(NamedTuple):
    """The properties that determine the run time of a job."""

    application: str
    gpus: int
    batch_size: int


def main() -> None:
    """Read the folder and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure_pollux", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, help="folder of the data")
    try:
        data = data_folder(parser.parse_args().data, holds=WORKLOADS)
        completions_s = published_completions_s(data)
        print(f"{'application':<14}{'GPUs':>5}{'batch':>7}{'jobs':>6}{'shortest s':>12}{'from steps s':>14}")
        for kind, times_s in sorted(completions_s.items()):
            steps_s = measured_run_time_s(data, kind)
            beside = "-" if steps_s is None else f"{steps_s:.0f}"
            row = f"{kind.application:<14}{kind.gpus:>5}{kind.batch_size:>7}{len(times_s):>6}"
            print(f"{row}{min(times_s):>12.0f}{beside:>14}")
    except TraceError as err:
        sys.exit(f"error: {err}")
    except OSError as err:
        sys.exit(f"error: {err.filename}: {err.strerror}: the data set is not whole")


def published_completions_s(data: Path) -> Mapping[PolluxKind, list[float]]:
    """Read the published completion times of all jobs, by kind."""
    with gzip.open(data / RESULTS, "rt", encoding="utf-8") as stream:
        by_workload = json.load(stream)["jcts"]
    by_kind: defaultdict[PolluxKind, list[float]] = defaultdict(list)
    for workload, completions_s in by_workload.items():
        for row in _rows(data / WORKLOADS / f"{workload}.csv"):
            kind = PolluxKind(row["application"], int(row["num_replicas"]), int(row["batch_size"]))
            by_kind[kind].append(float(completions_s[row["name"]]))
    return by_kind


def measured_run_time_s(data: Path, kind: PolluxKind) -> float | None:
    """Return steps times step time on the fewest nodes; None if no placement of that size was measured."""
    table = data / PLACEMENTS / f"{kind.application}-placements.csv"
    if not table.exists():
        return None
    rows = [row for row in _rows(table) if sum(map(int, row["placement"])) == kind.gpus]
    if not rows:
        return None
    fewest = min(len(row["placement"]) for row in rows)
    placements = {row["placement"] for row in rows if len(row["placement"]) == fewest}
    last = _rows(data / EPOCHS / kind.application / f"validation-{kind.batch_size}.csv")[-1]
    local = kind.batch_size / kind.gpus
    return int(last["iteration"]) * min(
        _step_s([row for row in rows if row["placement"] == placement], local) for placement in placements
    )


def _step_s(rows: list[dict[str, str]], local: float) -> float:
    """Interpolate the step time; a batch too large for the GPU is split into parts, of which only the last syncs."""
    measured = sorted((float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])) for row in rows)
    sizes, steps_s, syncs_s = zip(*measured, strict=True)
    parts = max(1, int(np.ceil(local / sizes[-1])))
    step_s = float(np.interp(local / parts, sizes, steps_s))
    return parts * step_s - (parts - 1) * float(np.interp(local / parts, sizes, syncs_s))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


if __name__ == "__main__":
    main()
