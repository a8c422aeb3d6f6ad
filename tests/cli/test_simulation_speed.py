"""Small traces are spared the compiler, and large ones without it are announced."""

import os
from pathlib import Path

import pytest

from advisor.cli.simulation import SLOW_JOBS, SMALL_TRACE_BYTES, spare_the_compiler, warn_if_slow


@pytest.mark.parametrize(("size", "spared"), [(SMALL_TRACE_BYTES - 1, True), (SMALL_TRACE_BYTES, False)])
def test_only_a_small_trace_is_spared_the_compiler(
    size: int, spared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMBA_DISABLE_JIT")
    path = tmp_path / "trace.csv"
    path.write_bytes(b"#" * size)

    spare_the_compiler(path)

    assert ("NUMBA_DISABLE_JIT" in os.environ) is spared
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")


def test_a_missing_trace_is_left_to_whoever_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_DISABLE_JIT")

    spare_the_compiler(tmp_path / "none.csv")

    assert "NUMBA_DISABLE_JIT" not in os.environ


def test_many_jobs_in_plain_python_are_announced(capsys: pytest.CaptureFixture[str]) -> None:
    warn_if_slow(SLOW_JOBS, ["fifo", "slurm"])
    quiet = capsys.readouterr().err
    warn_if_slow(SLOW_JOBS + 1, ["fifo", "slurm"])

    assert quiet == ""
    assert capsys.readouterr().err.startswith("sadvise: 2,001 jobs under fifo take about a hundred times longer")


def test_jobs_under_the_model_of_slurm_need_no_numba(capsys: pytest.CaptureFixture[str]) -> None:
    warn_if_slow(1000 * SLOW_JOBS, ["slurm", "rules"])

    assert capsys.readouterr().err == ""
