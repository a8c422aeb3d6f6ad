"""The model's plain twin against recorded pairs of live clusters, one of them advised."""

from pathlib import Path

import pytest

from tools.live_twins.counterfactual_check import (
    first_part,
    hold,
    live_total_s,
    main,
    over_anchors,
    plain_starts,
    read_recording,
    users_inside,
)

# Each simulates a day several times.
pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parent / "recorded" / "twins"
PAIRS = sorted(RECORDED.glob("*.xz"))


def test_three_pairs_are_recorded() -> None:
    assert len(PAIRS) == 3


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.name)
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_live_difference_lies_in_the_predicted_interval(path: Path, share: float) -> None:
    recording = read_recording(path)
    shown = first_part(recording, share)

    starts = plain_starts(shown, draws=24)
    held = hold(shown, starts)

    assert held.is_inside
    assert held.rank_correlation > 0.95
    # The interval says something: it is shorter than the difference that it is about.
    assert held.predicted.high_s - held.predicted.low_s < abs(held.difference_s)
    assert held.predicted.high_s < 0.0
    assert list(users_inside(shown, starts).values()) == [True] * 4


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.name)
def test_live_sum_lies_in_the_interval_over_several_anchors(path: Path) -> None:
    recording = read_recording(path)

    total = over_anchors(recording, 4, draws=32).total

    assert total is not None
    assert total.difference_s.low < live_total_s(recording) < total.difference_s.high < 0.0


def test_table_has_a_line_for_each_recording(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["counterfactual", str(PAIRS[0]), "--draws", "4", "--anchors", "2"])

    assert main() == 0
    printed = capsys.readouterr().out
    assert f"{PAIRS[0].name} 100 %" in printed and f"{PAIRS[0].name} over 2 anchors: live -" in printed
