"""What sdiag shows of slurmctld's passes and requests, as recorded from several releases."""

from pathlib import Path

import pytest

from tools.stage.sdiag import Cycles, cycles_of, together

RECORDED = Path(__file__).parents[1] / "recorded"


def text_of(release: str) -> str:
    """Return the recorded output."""
    return (RECORDED / release / "sdiag.txt").read_text()


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_passes_and_requests_are_read_of_every_release(release: str) -> None:
    cycles = cycles_of(text_of(release))

    assert cycles.main_passes > 0 and 0.0 < cycles.main_mean_s < 1.0
    assert cycles.backfill_passes > 0 and 0.0 < cycles.backfill_mean_s < 1.0
    assert cycles.requests["REQUEST_SUBMIT_BATCH_JOB"] > 0
    # Users are listed in the same form after the requests.
    assert all(name.isupper() for name in cycles.requests)
    assert cycles.request_s == pytest.approx(sum(cycles.request_s_by_type.values()))


def test_the_passes_of_the_main_scheduler_are_not_those_of_backfill() -> None:
    cycles = cycles_of(text_of("22.05"))

    assert (cycles.main_passes, cycles.backfill_passes) == (13, 4)
    assert cycles.main_mean_s == pytest.approx(386e-6)
    assert cycles.backfill_mean_s == pytest.approx(2681e-6)
    assert cycles.requests["REQUEST_PARTITION_INFO"] == 122
    assert cycles.request_s_by_type["REQUEST_PARTITION_INFO"] == pytest.approx(0.026342)


def test_runs_count_by_their_passes() -> None:
    def run(passes: int, mean_s: float) -> Cycles:
        return Cycles(
            main_passes=passes,
            main_mean_s=mean_s,
            backfill_passes=0,
            backfill_mean_s=0.0,
            requests={"A": passes},
            request_s=1.0,
            request_s_by_type={"A": 1.0},
        )

    both = together([run(10, 1.0), run(30, 2.0)])

    assert (both.main_passes, both.main_mean_s) == (40, 1.75)
    assert (both.requests, both.request_s, both.request_s_by_type) == ({"A": 40}, 2.0, {"A": 2.0})
    assert both.backfill_mean_s == 0.0
