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
        main(["cycles"])

    assert ended.value.code == 2
    assert "invalid choice: 'cycles'" in capsys.readouterr().err


def test_cycles_are_measured_in_processes_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["cycle", "--sizes", "40:8,80:8", "--repeat", "1", "--json"])

    small, large = json.loads(capsys.readouterr().out)["runs"]
    assert status == 0
    assert (small["jobs"], large["jobs"], small["growth"]) == (40, 80, None)
    assert large["growth"] > 0.0
    assert 0.0 < small["snapshot_mib"] <= small["peak_mib"]


def test_a_row_stands_for_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    main(["cycle", "--sizes", "40:8,80:8", "--repeat", "1"])

    heads, small, large = capsys.readouterr().out.splitlines()
    assert heads.split()[:3] == ["jobs", "nodes", "cycle_s"]
    assert (small.split()[:2], large.split()[:2]) == (["40", "8"], ["80", "8"])


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


def _spend() -> None:
    """Spend some milliseconds of CPU."""
    sum(range(200_000))
