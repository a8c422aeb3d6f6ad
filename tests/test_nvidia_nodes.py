"""NVIDIA's tables over several nodes become files of step times."""

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.data.nvidia_nodes import main

ACCUMULATED = (
    *("Nodes", "GPUs / node", "Batch size / GPU (TF32 and FP16)", "Accumulated Batch size / GPU (TF32 and FP16)"),
    *("Sequence length", "Mixed Precision Throughput", "TF32 Throughput", "Speedup (Mixed Precision to TF32)"),
)
WHOLE_JOB = (
    *("Num Nodes", "Sequence Length", "Batch size / GPU: mixed precision, TF32"),
    *("Global Batch Size: mixed precision, FP32", "Throughput - mixed precision", "Throughput - TF32"),
)
SAME = ("Nodes", "Sequence Length", "Batch size / GPU (TF32, BF16)", "Throughput - TF32", "Throughput - BF16")


def _written(folder: Path, rows: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> dict[str, list[list[str]]]:
    tables, out = folder / "tables.csv.gz", folder / "out"
    with gzip.open(tables, "wt", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("readme_path", "header_cells_json", "row_cells_json"))
        writer.writerows((path, json.dumps(names), json.dumps(cells)) for path, names, cells in rows)
    assert main([str(tables), str(out)]) == 0
    return {
        str(file.relative_to(out)): list(csv.reader(file.read_text("utf-8").splitlines()))[1:]
        for file in out.rglob("*.csv")
    }


def test_a_batch_that_stays_is_that_of_its_precision(tmp_path: Path) -> None:
    rows = [
        ("PyTorch/BART/README.md", SAME, ("1", "128", "100, 200", "1600", "3200")),
        ("PyTorch/BART/README.md", SAME, ("2", "128", "100, 200", "3,200.0", "5,000.0")),
    ]
    assert _written(tmp_path, rows) == {
        "same-batch/pytorch_bart_128_full.csv": [["8", "100", "0.5"], ["88", "100", "0.5"]],
        "same-batch/pytorch_bart_128_mixed.csv": [["8", "200", "0.5"], ["88", "200", "0.64"]],
    }


def test_a_step_has_all_batches_that_it_accumulates(tmp_path: Path) -> None:
    rows = [
        ("A/README.md", ACCUMULATED, ("1", "8", "16 and 32", "4096 and 4096", "512", "2048", "1024", "2")),
        ("A/README.md", ACCUMULATED, ("2", "8", "16 and 32", "2048 and 2048", "512", "4096", "2048", "2")),
        ("B/README.md", WHOLE_JOB, ("1", "128", "32 , 16", "1600 , 800", "800", "400")),
        ("B/README.md", WHOLE_JOB, ("2", "128", "32 , 16", "1600 , 800", "1600", "800")),
    ]
    assert _written(tmp_path, rows) == {
        "smaller-batch/a_512_full.csv": [["8", "4096", "32"], ["88", "2048", "16"]],
        "smaller-batch/a_512_mixed.csv": [["8", "4096", "16"], ["88", "2048", "8"]],
        "smaller-batch/b_128_full.csv": [["8", "100", "2"], ["88", "50", "1"]],
        "smaller-batch/b_128_mixed.csv": [["8", "200", "2"], ["88", "100", "1"]],
    }


def test_tables_of_one_node_are_left_out(tmp_path: Path) -> None:
    assert _written(tmp_path, [("A/README.md", ("GPUs", "Throughput"), ("8", "100"))]) == {}


def test_another_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.csv"
    other.write_text("gpus,speed\n1,2\n", encoding="utf-8")
    assert main([str(other), str(tmp_path)]) == 1
    assert "column readme_path is missing" in capsys.readouterr().err
    assert main([str(tmp_path / "none.csv"), str(tmp_path)]) == 1
    assert "none.csv" in capsys.readouterr().err
