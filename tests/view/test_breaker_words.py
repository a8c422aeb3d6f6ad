"""What is printed about a run-time model on probation."""

import pytest

from advisor.domain.probation import Coverage
from advisor.view.breaker_words import probation_line


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ("run_time default-1", "or fit your own with `sadvise fit runtime --from live`"),
        ("run_time site-2", "or fit again on more jobs with `sadvise fit runtime --from live`"),
    ],
)
def test_model_that_was_fitted_here_is_to_be_fitted_again(model: str, advice: str) -> None:
    line = probation_line(model, Coverage(jobs=40, inside=30), 100)

    assert line.endswith(advice)
    assert "30 of the 40 jobs that ended ran within its intervals" in line


def test_without_an_ended_job_nothing_is_counted() -> None:
    line = probation_line("run_time site-1", Coverage(), 100)

    assert "No job that it forecast has ended yet" in line
    assert "0 of the 0" not in line
