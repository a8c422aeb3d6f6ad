"""The benchmark of the journal measures what it says."""

import pytest

from tools.bench.__main__ import main
from tools.bench.journal import measure


def test_records_after_the_first_are_smaller_and_the_replay_is_the_same() -> None:
    found = measure(120, 12, 3, 0.05)

    assert found.is_same
    assert 0 < found.next_kb < found.first_kb
    assert found.mean_s > 0


def test_figures_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["journal", "--size", "40:8", "--cycles", "2", "--changed", "0.5"])

    line = capsys.readouterr().out
    assert line.startswith("40 pending jobs, 50% changed per cycle, 2 cycles: first ")
    assert line.endswith(", the same\n") and line.count("\n") == 1
