import pytest

from advisor.domain.gang import GpuCount, GpuScope, share_of_gpu, whole_gpus
from tests.builders import make_gang


@pytest.mark.parametrize(
    ("gpu_type", "sevenths"),
    [
        ("1g.10gb", 1),
        ("nvidia_h200_nvl_4g.71gb", 4),
        ("a100_3g.20gb", 3),
        ("1g.5gb+me", 1),
        ("1c.3g.20gb", 3),
        ("A100-MIG-2g-10gb", 2),
        ("7g.80gb", 7),
        ("a100", 7),
        ("a100_80gb", 7),
        ("gh200_96gb", 7),
        ("rtx_6000", 7),
        (None, 7),
    ],
)
def test_slice_is_its_share_of_a_gpu(gpu_type: str | None, sevenths: int) -> None:
    assert share_of_gpu(gpu_type) == pytest.approx(sevenths / 7)


def test_gang_of_slices_counts_as_its_share() -> None:
    slices = make_gang(0).with_counts(GpuScope.JOB, (GpuCount(gpu_type="h100_2g.20gb", count=7),))

    assert (slices.gpu_count, slices.has_slices) == (7, True)
    assert slices.gpu_share == pytest.approx(2 / 7)
    assert (make_gang(4).gpu_share, make_gang(4).has_slices) == (1.0, False)


def test_totals_are_whole_gpus_rounded_up() -> None:
    assert whole_gpus([("1g.10gb", 7), ("a100", 2)]) == 3
    assert whole_gpus([("1g.10gb", 1)]) == 1
    assert whole_gpus([]) == 0
