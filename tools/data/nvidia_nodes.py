"""Writes NVIDIA's published throughput over several nodes as files of step times, one for each model and precision.

    python -m tools.data.nvidia_nodes DIR/throughput/nvidia_training_tables.csv.gz OUT
    python -m tools.evaluate throughput --train ALL --test OUT/same-batch --profile "nodes==1"

A step is an update of the weights, with all batches that it accumulates. `OUT/same-batch` has the models whose batch
per GPU stays as it is over more nodes, `OUT/smaller-batch` those that keep the batch of the whole job. Nodes have eight
GPUs and InfiniBand.
"""

import argparse
import csv
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from advisor.errors import AdvisorError, TraceError
from advisor.sim.traces.text_file import opened_text

GPUS_PER_NODE: Final = 8
FULL_PRECISION: Final = ("tf32", "fp32")
COLUMNS: Final = ("readme_path", "header_cells_json", "row_cells_json")


class NodesRow(NamedTuple):
    """What a model reaches on some nodes; `batch` is that of a step, per GPU."""

    model: str
    nodes: int
    batch: float
    samples_per_s: float


def rows_over_nodes(path: Path) -> Iterator[NodesRow]:
    """Yield the rows of the tables that count nodes; raises `TraceError`."""
    with opened_text(path) as stream:
        reader = csv.DictReader(stream)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise TraceError(f"{path}: column {missing[0]} is missing: it has to have {', '.join(COLUMNS)}")
        for line in reader:
            names, cells = json.loads(line["header_cells_json"]), json.loads(line["row_cells_json"])
            row = {name.lower(): cell for name, cell in zip(names, cells, strict=False)}
            if "nodes" in row or "num nodes" in row:
                yield from _of_row("_".join(Path(line["readme_path"]).parts[:-1]).lower(), row)


def _of_row(readme: str, row: Mapping[str, str]) -> Iterator[NodesRow]:
    """Yield what a row of a table says of each precision."""
    nodes = int(row.get("nodes") or row["num nodes"])
    for name, cell in row.items():
        if "throughput" not in name or "speedup" in name:
            continue
        is_full = _is_full(name)
        model = f"{readme}_{row['sequence length']}_{'full' if is_full else 'mixed'}"
        batch = _batch(row, nodes * GPUS_PER_NODE, is_full=is_full)
        yield NodesRow(model=model, nodes=nodes, batch=batch, samples_per_s=float(cell.replace(",", "")))


def _batch(row: Mapping[str, str], gpus: int, *, is_full: bool) -> float:
    """Return the batch of a step per GPU: what the row states of the whole job or accumulated, else the batch."""
    for start, parts in (("global batch", gpus), ("accumulated batch", 1), ("batch size", 1)):
        for name, cell in row.items():
            if name.startswith(start):
                given = [float(text) for text in re.findall(r"\d+", cell)]
                first_is_full = _is_full(re.split(r"\band\b|,", name)[0])
                return given[0 if is_full is first_is_full else -1] / parts
    raise TraceError(f"no batch in a row with {', '.join(row)}")


def _is_full(name: str) -> bool:
    return any(precision in name.lower() for precision in FULL_PRECISION)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, and return the exit code."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tools.data.nvidia_nodes", description=summary)
    parser.add_argument("tables", type=Path, help="the published tables, .csv or .csv.gz")
    parser.add_argument("out", type=Path, help="folder for the two folders of files")
    options = parser.parse_args(arguments)
    try:
        by_model = defaultdict[str, list[NodesRow]](list)
        for row in rows_over_nodes(options.tables):
            by_model[row.model].append(row)
    except AdvisorError as err:
        print(f"nvidia nodes: {err}", file=sys.stderr)
        return err.exit_code
    for model, rows in by_model.items():
        kept = len({row.batch for row in rows}) == 1
        file = options.out / ("same-batch" if kept else "smaller-batch") / f"{model}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("placement", "local_bsz", "step_time"))
            for row in rows:
                step_s = row.batch * row.nodes * GPUS_PER_NODE / row.samples_per_s
                writer.writerow((str(GPUS_PER_NODE) * row.nodes, f"{row.batch:g}", f"{step_s:.6g}"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
