"""What slurmctld is asked before a smaller size is written, and what comes of its answers."""

from dataclasses import dataclass, field, replace

import pytest

from advisor.backends.confirmed_start import ConfirmedStart, request_of
from advisor.backends.process import Answer
from advisor.domain.actions import SetGpus, SetNice
from advisor.domain.gang import GangRequest, GpuCount, GpuScope, GresCount
from advisor.domain.plan import Recommendation
from advisor.errors import SlurmRefusedError, SlurmUnavailableError
from tests.backends.fake_slurm import Streaming
from tests.builders import TAKEN_AT, make_job, make_recommendation, size_of

JOB = make_job(
    7,
    gang=GangRequest(per_job=(GpuCount(gpu_type="a100", count=8),), nodes_max=1, tasks=2, cpus=8),
    time_limit_s=5400.0,
)


@dataclass
class Controller(Streaming):
    """Answers sbatch."""

    says: str | Exception
    cluster: str | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, program: str, *arguments: str) -> Answer:
        self.asked.append((program, *arguments))
        if isinstance(self.says, Exception):
            raise self.says
        return Answer(output=b"", complaints=self.says.encode())


def smaller(before: int = 8, after: int = 4) -> Recommendation:
    action = SetGpus(
        job_id=7,
        scope=GpuScope.JOB,
        before=size_of(GpuCount(gpu_type="a100", count=before)),
        after=size_of(GpuCount(gpu_type="a100", count=after), limit_s=7200.0),
    )
    return make_recommendation(action)


def against(says: str | Exception, change: Recommendation | None = None, uid: int = 0) -> tuple[str | None, Controller]:
    slurm = Controller(says)
    check = ConfirmedStart(slurm, now=lambda: TAKEN_AT, uid=lambda: uid)
    return check.against(change or smaller(), JOB), slurm


def test_a_size_that_starts_now_is_confirmed_by_one_request() -> None:
    objection, slurm = against(f"sbatch: Job 9 to start at {TAKEN_AT:.0f} using 8 processors on nodes n01")

    assert objection is None
    assert slurm.asked == [
        ("sbatch", "--test-only", "--wrap=true", "--nice=-2147483000", "--uid=alice", "--account=lab", "--qos=normal",
         "--partition=gpu", "--time=120", "--gpus=a100:4", "--cpus-per-task=4", "--nodes=1-1", "--ntasks=2")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("says", "text"),
    [
        (f"Job 9 to start at {TAKEN_AT + 7200:.0f} on n01", "slurmctld: at that size it would start in 2.0 h, not now"),
        (SlurmRefusedError("allocation failure"), "slurmctld: it would not start at that size: allocation failure"),
        ("something else", "slurmctld: it does not tell when the job would start at that size"),
    ],
)
def test_a_size_that_does_not_start_now_is_not_written(says: str | Exception, text: str) -> None:
    assert against(says)[0] == text


def test_a_controller_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(SlurmUnavailableError):
        against(SlurmUnavailableError("down"))


@pytest.mark.parametrize(
    ("change", "uid"),
    [
        pytest.param(smaller(), 1000, id="not root"),
        pytest.param(smaller(4, 8), 0, id="larger"),
        pytest.param(make_recommendation(SetNice(job_id=7, before=0, after=5)), 0, id="nice"),
    ],
)
def test_nothing_else_costs_a_request(change: Recommendation, uid: int) -> None:
    objection, slurm = against("", change, uid)

    assert (objection, slurm.asked) == (None, [])


def test_request_holds_what_can_bar_the_job() -> None:
    gang = GangRequest(
        per_node=(GpuCount(count=2),),
        nodes_min=2,
        nodes_max=3,
        nodes_open=True,
        cpus_per_gpu=4,
        memory_mib_per_node=4000,
        cpus_per_node=6,
        tasks_per_node=1,
        tmp_disk_mib=500,
        gres=(GresCount(name="vram", count=40 << 30),),
        only_beside="alice",
        features="a100",
        required_nodes=("n01",),
        excluded_nodes=("n02", "n03"),
    )

    arguments = set(request_of(replace(JOB, gang=gang)))

    assert arguments >= {
        "--gpus-per-node=2", "--nodes=2", "--cpus-per-gpu=4", "--mem=4000M", "--mincpus=6", "--tmp=500M",
        "--ntasks-per-node=1", "--gres=vram:40G", "--exclusive=user", "--constraint=a100", "--nodelist=n01",
        "--exclude=n02,n03",
    }  # fmt: skip
