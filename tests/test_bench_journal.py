"""The benchmark of the journal measures what it says."""

import pytest

from tools.bench.__main__ import main
from tools.bench.journal import measure


def test_records_after_the_first_are_smaller_and_the_replay_is_the_same() -> None:
    figures = measure(120, 12, 3, 0.05)

    assert figures.is_same
    assert 0 < figures.next_kb < figures.first_kb
    assert figures.mean_s > 0


def test_figures_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["journal", "--size", "40:8", "--cycles", "2", "--changed", "0.5"])

    line = capsys.readouterr().out
    assert line.startswith("40 pending jobs, 50% changed per cycle, 2 cycles: first ")
    assert line.endswith(", the same\n") and line.count("\n") == 1
