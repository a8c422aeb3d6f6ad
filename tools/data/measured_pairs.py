"""Reads pairs of jobs as published with Blox and with Lucid, beside those in the forms of a site's own files."""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from advisor.errors import ConfigError
from advisor.fit import interference_files
from advisor.fit.interference_files import (
    Form,
    MeasuredJob,
    MeasuredSpeed,
    PairTable,
    Row,
    Sides,
    both_sides,
    number,
    text,
)
from advisor.predict.interference_items import Shared, name_key

# Why a side of a pair is no measured speed.
ALONE: Final = "of jobs alone"


def read_counted(path: Path, form: str, singles: Path | None = None) -> tuple[list[MeasuredSpeed], Counter[str]]:
    """Read the measured pairs of a file, and count the sides that are left out by reason; raises `ConfigError`."""
    return interference_files.read_counted(path, FORMS[form], singles)


def _blox(table: PairTable) -> Sides:
    alone: dict[tuple[str, float, str], float] = {}
    paired: list[tuple[int, MeasuredJob, MeasuredJob]] = []
    for line in range(len(table.rows)):
        job = _blox_job(table, line, "1")
        if text(table, line, "model2") == "Empty":
            alone[job.model, job.gpus, job.variant] = number(table, line, "speed1")
            yield ALONE
        else:
            paired.append((line, job, _blox_job(table, line, "2")))
    for line, *jobs in paired:
        # Speeds are relative to the fastest plan of the model alone; divide by the same plan alone if it was measured.
        bases = [alone.get((job.model, job.gpus, job.variant), 0.0) or 1.0 for job in jobs]
        speeds = [number(table, line, f"speed{side}") for side in "12"]
        yield from both_sides(jobs, [speed / base for speed, base in zip(speeds, bases, strict=True)])


def _blox_job(table: PairTable, line: int, side: str) -> MeasuredJob:
    plan = (table.rows[line].get("pipeline_strategy") or "").strip() if side == "1" else ""
    sizes = (table.rows[line].get(f"batch_size{side}") or "").strip().split("/")
    try:
        batch = float(sizes[0]) if sizes[0] else math.nan
    except ValueError as err:
        raise ConfigError(
            f"{table.path}: line {line + 2}: batch_size{side} is {'/'.join(sizes)!r}: give a number, or two as 256/16"
        ) from err
    return MeasuredJob(
        model=text(table, line, f"model{side}"),
        variant="" if plan in {"", "NA"} else plan,
        batch=batch if batch > 0 else math.nan,
        gpus=number(table, line, f"gpu_num{side}"),
    )


def _lucid(table: PairTable) -> Sides:
    single_table = PairTable(path=table.path, header=(), rows=table.singles)
    alone = {
        _lucid_key(single, "", "batchsize"): (
            number(single_table, line, "speed", empty=math.nan),
            number(single_table, line, "gpu_util", empty=math.nan),
            number(single_table, line, "gmem_util", empty=math.nan),
            number(single_table, line, "gmem", empty=math.nan),
        )
        for line, single in enumerate(table.singles)
    }
    for line, row in enumerate(table.rows):
        jobs = []
        for side in "12":
            figures = alone.get(_lucid_key(row, side, f"batchsize{side}"), (math.nan,) * 4)
            jobs.append(
                MeasuredJob(
                    model=text(table, line, f"model{side}"),
                    variant=" ".join(_lucid_key(row, side, f"batchsize{side}")[i] for i in (1, 3)),
                    batch=number(table, line, f"batchsize{side}", empty=math.nan),
                    gpus=number(table, line, f"gpu_num{side}", empty=1.0),
                    steps_per_s=figures[0],
                    gpu_busy=figures[1],
                    memory_busy=figures[2],
                    memory=figures[3],
                )
            )
        yield from both_sides(jobs, [number(table, line, f"speed{side}") for side in "12"])


def _lucid_key(row: Row, side: str, batch: str) -> tuple[str, str, str, str]:
    cells = (
        (row.get(column) or "").strip().lower() for column in (f"model{side}", f"dataset{side}", batch, f"amp{side}")
    )
    model, data_set, size, amp = cells
    return name_key(model), data_set, size.removesuffix(".0"), amp.removesuffix(".0")


_BLOX: Final = Form(
    name="blox",
    columns=(
        "model1",
        "gpu_num1",
        "batch_size1",
        "speed1",
        "pipeline_strategy",
        "model2",
        "gpu_num2",
        "batch_size2",
        "speed2",
    ),
    shared=Shared.GPU,
    sides=_blox,
)
_LUCID: Final = Form(
    name="lucid",
    columns=("model1", "batchsize1", "amp1", "speed1", "model2", "batchsize2", "amp2", "speed2"),
    shared=Shared.GPU,
    sides=_lucid,
    singles=("model", "dataset", "batchsize", "amp", "speed", "gpu_util", "gmem_util", "gmem"),
)

FORMS: Final[Mapping[str, Form]] = {form.name: form for form in (*interference_files.FORMS, _BLOX, _LUCID)}
