"""The one entry of the benchmarks."""

import json

import pytest

from tools.bench.__main__ import BENCHES, main
from tools.bench.measuring import Stages


@pytest.mark.parametrize("name", BENCHES)
def test_every_benchmark_lists_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])

    assert ended.value.code == 0
    assert f"usage: python -m tools.bench {name}" in capsys.readouterr().out


def test_a_name_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["soaks"])

    assert ended.value.code == 2
    assert "invalid choice: 'soaks'" in capsys.readouterr().err


def test_a_stage_within_another_counts_for_itself_alone() -> None:
    stages = Stages()

    with stages.timed("outer"):
        _spend()
        with stages.timed("inner"):
            _spend()
            _spend()

    assert 0.0 < stages.cpu_s["outer"] < stages.cpu_s["inner"]


def test_a_method_is_counted_only_within_the_block() -> None:
    class Worker:
        def work(self) -> int:
            _spend()
            return 7

    stages = Stages()

    with stages.counting(Worker, "work", "working"):
        inside = Worker().work()
    counted_s = stages.cpu_s["working"]
    Worker().work()

    assert inside == 7
    assert stages.cpu_s["working"] == counted_s > 0.0


@pytest.mark.slow
def test_commands_are_measured_on_a_queue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["commands", "--jobs", "12", "--nodes", "4", "--repeat", "1", "--json"]) == 0

    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [row["command"] for row in rows] == ["--version", "recommend --demo", "recommend", "explain"]
    assert all(row["cpu_s"] > 0.0 for row in rows)


def _spend() -> None:
    """Spend some milliseconds of CPU."""
    sum(range(200_000))
