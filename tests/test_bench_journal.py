"""The benchmark of the journal measures what it says."""

import re

import pytest

from tools.bench.__main__ import main


def test_records_after_the_first_are_smaller_and_the_replay_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    main(["journal", "--size", "120:12", "--cycles", "3", "--changed", "0.05"])

    line = capsys.readouterr().out
    first_kb, next_kb = map(int, re.findall(r"(\d+) kB", line))
    assert line.startswith("120 pending jobs, 5% changed per cycle, 3 cycles: first ")
    assert line.endswith(", the same\n") and line.count("\n") == 1
    assert 0 < next_kb < first_kb
