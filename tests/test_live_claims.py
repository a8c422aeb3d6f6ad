"""The program that tries claims: what it draws, and how it sums up."""

import time
from collections.abc import Callable
from random import Random

import pytest

from advisor.domain.actions import SetGpus, SizeRequest
from advisor.domain.gang import GpuCount, GpuScope
from tests.builders import make_gang, make_job
from tools import live_claims
from tools.live_claims import ClaimTrial, Found, _table, cluster, request
from tools.stage.roots import RELEASES


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
    wrong = {"release": "22.05", "seed": 3, "claim": "fits now", "request": "root: --gpus=1"}
    document = {
        "release": "22.05",
        "claims": {"fits now": 7},
        "missed": {},
        "hidden": {"fits now, wrong": 2},
        "short": {"impossible": 3},
        "wrong": [{**wrong, "slurm_says": "PENDING Resources N/A", "sadvise_says": "priority"}],
    }

    lines = list(_table([document]))

    assert lines[1].split() == ["22.05", "7", "1", "0", "2", "3"]
    assert lines[2] == "22.05 seed 3: fits now: root: --gpus=1 (PENDING Resources N/A; priority)"


class Planned:
    """A cluster whose slurmctld expects one job to start, and starts it on idle nodes or never."""

    release = "26.05"

    def __init__(self, *, starts: bool) -> None:
        self.shape = cluster("26.05", Random(7)).shape
        self.starts = starts
        self.queue = {"1", "2"}

    def run(self, *argv: str, check: bool = True) -> str:
        assert check is False or argv[0] == "squeue"
        if argv[0] == "scancel":
            self.queue -= set(argv[1:])
        if argv[:3] != ("squeue", "-h", "-a"):
            return ""
        if "-j" not in argv:
            return "\n".join(self.queue)
        if "1" not in self.queue:
            return ""
        state = "RUNNING" if self.starts and self.queue == {"1"} else "PENDING"
        return "" if "R,CG,S" in argv else argv[-1].replace("%T", state).replace("%S", "2026-11-28T16:07:54")

    def wait_for(self, predicate: Callable[[], bool], *_: float, what: str) -> None:
        assert predicate(), what


@pytest.mark.parametrize("starts", [False, True])
def test_impossible_job_that_slurm_expects_to_start_is_tried_on_the_emptied_cluster(
    monkeypatch: pytest.MonkeyPatch, *, starts: bool
) -> None:
    monkeypatch.setattr(live_claims, "PATIENCE_S", 0.0)
    found, live = Found(), Planned(starts=starts)
    trial = ClaimTrial(
        live=live,  # type: ignore[arg-type]  # what is used of a live cluster
        seed=1,
        requests={1: []},
        said={1: ""},
        cluster="",
        found=found,
    )

    planned = trial.attempt_all([make_job(1)])
    assert not found.claims
    trial.attempt_planned(planned)

    assert (found.claims["impossible"], len(found.wrong)) == (1, int(starts))
    assert not live.queue


@pytest.mark.parametrize(
    ("given", "is_short"),
    [
        ("", False),
        ("   Nodes=n03 CPU_IDs=0-3,8-11 Mem=8000 GRES=gpu:2(IDX:0-1)\n", True),
        ("   Nodes=n[01-02] CPU_IDs=0 Mem=8000 GRES=vram:20(CNT:20),gpu:a100:2(IDX:0,3)\n", False),
        ("   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:2)\n   Nodes=n2 CPU_IDs=0 Mem=0 GRES=\n",
         True),
    ],
)  # fmt: skip
def test_a_job_with_fewer_gpus_than_it_asks_for_is_short(given: str, *, is_short: bool) -> None:
    class Live:
        def run(self, *_: str, check: bool) -> str:
            assert not check
            return f"JobId=1 JobName=wrap\n   NumNodes=1\n{given}"

    trial = ClaimTrial(
        live=Live(),  # type: ignore[arg-type]  # what is used of a live cluster
        seed=1,
        requests={},
        said={},
        cluster="",
        found=Found(),
    )

    assert trial.is_short(make_job(1, gang=make_gang(4))) is is_short


class Resized:
    """A cluster that notes what is sent to it, and starts every job."""

    release = "24.11"

    def __init__(self) -> None:
        self.sent: list[tuple[str, ...]] = []

    def run(self, *argv: str, check: bool = True) -> str:
        assert not check
        self.sent.append(argv)
        return "" if "R,CG,S" in argv else "RUNNING"

    def state_of(self, _: int) -> str:
        return "RUNNING"

    def wait_for(self, predicate: Callable[[], bool], *_: float, what: str) -> None:
        assert predicate(), what


def test_a_resize_is_sent_before_its_job_is_tried() -> None:
    live, found = Resized(), Found()
    trial = ClaimTrial(
        live=live,  # type: ignore[arg-type]  # what is used of a live cluster
        seed=1,
        requests={1: []},
        said={1: ""},
        cluster="",
        found=found,
    )
    resize = SetGpus(
        job_id=1,
        before=SizeRequest(gpus=(GpuCount(count=4),)),
        after=SizeRequest(gpus=(GpuCount(count=2),)),
        scope=GpuScope.JOB,
    )

    trial.attempt(make_job(1), None, resize)

    assert live.sent[0] == ("scontrol", *resize.command())
    assert dict(found.claims) == {"starts now at another size": 1}


def test_a_busy_slurmctld_is_given_the_passes_that_it_has_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, cycles = [0.0], [10]

    class Live:
        def run(self, *argv: str, check: bool) -> str:
            assert (argv, check) == (("sdiag",), False)
            return f"Main\n\tTotal cycles: {cycles[0]}\nBackfill\n\tTotal cycles: {cycles[0]}\n"

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    patience = live_claims.Patience(Live(), 6.0)  # type: ignore[arg-type]  # what is used of a live cluster

    def is_over(seconds: float, passes: int) -> bool:
        clock[0], cycles[0] = seconds, passes
        return patience.is_over()

    assert [is_over(5.0, 20), is_over(7.0, 12), is_over(8.0, 13), is_over(25.0, 10)] == [False, False, True, True]
