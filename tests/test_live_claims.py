"""The program that tries claims: what it draws, and how it sums up."""

from random import Random

import pytest

from tools.live_claims import _table, cluster, request
from tools.live_slurm.roots import RELEASES


@pytest.mark.parametrize("release", RELEASES)
def test_equal_seeds_draw_equal_clusters_and_requests(release: str) -> None:
    first, second = (cluster(release, Random(7)).shape for _ in range(2))

    assert first == second
    assert request(Random(7), 8, ["n01"]) == request(Random(7), 8, ["n01"])


def test_requests_are_of_every_form_and_hold_what_can_bar_a_job() -> None:
    draw = Random(1)
    drawn = {word.partition("=")[0] for _ in range(400) for word in request(draw, 4, ["n01", "n02"])}

    assert {"--gpus", "--gres", "--gpus-per-node", "--gpus-per-task", "--nodes", "--tmp", "--exclusive"} <= drawn


def test_wrong_claims_are_listed_below_the_counts() -> None:
    wrong = {"release": "22.05", "seed": 3, "source": "text", "claim": "fits now", "request": "root: --gpus=1"}
    document = {
        "release": "22.05",
        "claims": {"fits now": 7},
        "missed": {},
        "hidden": {"fits now, wrong": 2},
        "wrong": [{**wrong, "slurm_says": "PENDING Resources N/A", "sadvise_says": "priority"}],
    }

    lines = list(_table([document]))

    assert lines[1].split() == ["22.05", "7", "1", "0", "2"]
    assert lines[2] == "22.05 seed 3 text: fits now: root: --gpus=1 (PENDING Resources N/A; priority)"
