"""Reads step times as published with ElasticFlow and with Rubick, beside those in the form of a site's own files."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from advisor.errors import TraceError
from advisor.fit.fitted import Fitted
from advisor.fit.throughput_data import (
    Lines,
    MeasuredPlacement,
    StepTimes,
    files_of,
    finite,
    gpus_on_nodes,
    positive,
    read_step_times,
    site_rows,
    sources_of,
)
from advisor.fit.throughput_fit import fit_measured

FORMS: Final = ("auto", "pollux", "elasticflow", "rubick")
# ElasticFlow states GPU counts only; its nodes had eight.
GPUS_PER_NODE: Final = 8
# Rubick states no batch: one for the whole job, which stays as it is where the GPUs change. Its plans are programs of
# their own; this one is data parallelism without more.
RUBICK_BATCH, RUBICK_PLAN = 64.0, "ga"
# Why a measurement is left out.
COULD_NOT_RUN, OTHER_PLAN = "could not run", "of another plan of execution"
# The column that shows the form of a file.
_MARKS: Final = {"elasticflow": "global_batch_size", "rubick": "exec_plan"}


def fit_throughput(files: Sequence[Path], *, form: str, seed: int) -> Fitted:
    """Fit to files or folders of step times; `form` is one of `FORMS`. Raises `TraceError`."""
    read = files_of(files)
    measured = read_measured(read, form)
    return fit_measured(measured, seed=seed, sources=sources_of(read, measured))


def read_measured(files: Sequence[Path], form: str, gpus_per_node: int = GPUS_PER_NODE) -> StepTimes:
    """Read files of one form, or, with `auto`, of the form that each header shows; raises `TraceError`."""
    return read_counted(files, form, gpus_per_node)[0]


def read_counted(
    files: Sequence[Path], form: str, gpus_per_node: int = GPUS_PER_NODE
) -> tuple[StepTimes, Counter[str]]:
    """Read files of one form, and count the measurements that are left out by reason; raises `TraceError`."""
    if form not in FORMS:
        raise TraceError(f"unknown format {form!r}: it is one of {', '.join(FORMS)}")
    left_out = Counter[str]()

    def rows_of(file: Path, names: Sequence[str], lines: Lines) -> Iterator[MeasuredPlacement]:
        of_file = next((form for form, name in _MARKS.items() if name in names), "pollux") if form == "auto" else form
        match of_file:
            case "elasticflow":
                rows = _elasticflow(file, names, lines, gpus_per_node)
            case "rubick":
                rows = _rubick(file, names, lines)
            case _:
                rows = site_rows(file, names, lines)
        for row in rows:
            if isinstance(row, MeasuredPlacement):
                yield row
            else:
                left_out[row] += 1

    return read_step_times(files, rows_of), left_out


def _rubick(file: Path, names: Sequence[str], lines: Lines) -> Iterator[MeasuredPlacement | str]:
    missing = [name for name in ("exec_plan", "placement", "iter_time") if name not in names]
    if missing:
        raise TraceError(f"{file}: column {missing[0]} is missing: it has to have exec_plan, placement and iter_time")
    for number, line in lines:
        where = f"{file}: line {number}"
        if (line["exec_plan"] or "").strip() != RUBICK_PLAN:
            yield OTHER_PLAN
            continue
        if not finite(where, line, "iter_time"):
            yield COULD_NOT_RUN
            continue
        on_node, step_s = gpus_on_nodes(where, line), positive(where, line, "iter_time")
        yield MeasuredPlacement(
            gpus=sum(on_node), nodes=len(on_node), least=min(on_node), most=max(on_node), batch_asked=RUBICK_BATCH,
            batch=RUBICK_BATCH / sum(on_node), step_s=step_s,
        )  # fmt: skip


def _elasticflow(
    file: Path, names: Sequence[str], lines: Lines, gpus_per_node: int
) -> Iterator[MeasuredPlacement | str]:
    sizes = [name for name in names if re.fullmatch(r"[1-9]\d{0,5}", name)]
    if "global_batch_size" not in names or not sizes:
        raise TraceError(f"{file}: its header has to be global_batch_size and numbers of GPUs, as 1,2,4")
    for number, line in lines:
        where = f"{file}: line {number}"
        batch = positive(where, line, "global_batch_size")
        for name in sizes:
            rate = finite(where, line, name) if (line[name] or "").strip() else 0.0
            if rate < 0.0:
                raise TraceError(f"{where}: {rate:g} iterations/s on {name} GPUs: it cannot be negative")
            if rate == 0.0:
                yield COULD_NOT_RUN
                continue
            gpus = int(name)
            nodes = math.ceil(gpus / gpus_per_node)
            yield MeasuredPlacement(
                gpus=gpus, nodes=nodes, least=gpus // nodes, most=math.ceil(gpus / nodes), batch=batch / gpus,
                batch_asked=batch, step_s=1.0 / rate,
            )  # fmt: skip
