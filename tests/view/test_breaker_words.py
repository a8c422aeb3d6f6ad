"""What is printed about a run-time model on probation."""

import pytest

from advisor.domain.probation import Coverage, OrderProof, Proof
from advisor.view.breaker_words import probation_line


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ("run_time default-1", "or fit your own with `sadvise fit runtime --from live`"),
        ("run_time site-2", "or fit again on more jobs with `sadvise fit runtime --from live`"),
    ],
)
def test_model_that_was_fitted_here_is_to_be_fitted_again(model: str, advice: str) -> None:
    line = probation_line(model, Proof(coverage=Coverage(jobs=40, inside=30)), 100)

    assert line.endswith(advice)
    assert "30 of the 40 jobs that ended ran within its intervals" in line


def test_without_an_ended_job_nothing_is_counted() -> None:
    line = probation_line("run_time site-1", Proof(), 100)

    assert "No job that it forecast has ended yet" in line
    assert "0 of the 0" not in line
    assert "At the last look" not in line


def test_order_at_the_last_look_is_said_beside_that_of_the_limits() -> None:
    order = OrderProof(jobs=400, users=31, ordered_ratio=0.912, limit_ratio=0.938, gain_ratio=-0.014, error_ratio=0.009)

    line = probation_line("run_time site-1", Proof(order=order), 100)
    too_few = probation_line("run_time site-1", Proof(order=OrderProof()), 100)

    assert "At the last look it orders 91.2 % of the GPU-time in question right, time limits 93.8 %" in line
    assert "(-1.4 points by user, standard error 0.9, 31 users)" in line
    assert "At the last look it has too few jobs that waited together" in too_few
