"""What a live slurmctld does with a job, and what sadvise says of it: public reports, each with nodes of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from advisor.backends.particulars_reader import read_particulars
from advisor.backends.process import SlurmCommands
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.diagnose.causes import diagnose
from advisor.diagnose.site_checks import Status, site_checks
from advisor.diagnose.survey import overview
from advisor.domain.diagnosis import Cause
from advisor.domain.job import JobState
from advisor.domain.overview import GpuTypeOverview
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import node_table
from advisor.settings import Limits
from advisor.view.explanations import Explanation, explanation
from tests.live.reading import sadvise_on
from tools.stage import LiveCluster
from tools.stage.node_states import LINES

pytestmark = pytest.mark.live

LONG, SHORT = "--time=06:00:00", "--time=00:20:00"
SETTLED_S = 40.0


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[LiveCluster], Snapshot]:
    """Read a cluster."""

    def read(live: LiveCluster) -> Snapshot:
        monkeypatch.setenv("PATH", live.env["PATH"])
        monkeypatch.setenv("SLURM_CONF", live.env["SLURM_CONF"])
        return open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock()).snapshot()

    return read


def explained(snapshot: Snapshot, job_id: int) -> Explanation:
    job = snapshot.jobs_by_id[job_id]
    particulars = read_particulars(SlurmCommands(timeout_s=30.0), job, snapshot.config)
    return explanation(diagnose(snapshot, job_id, particulars=particulars))


def gpus(snapshot: Snapshot, gpu_type: str = "a100") -> GpuTypeOverview:
    return next(each for each in overview(snapshot).gpu_types if each.gpu_type == gpu_type)


def startable(snapshot: Snapshot) -> tuple[int, int]:
    """Return the idle GPUs that jobs can start on, and those of nodes that start none."""
    (found,) = overview(snapshot).gpu_types
    assert found.idle is not None and found.unavailable is not None
    return found.idle.startable, found.unavailable


def in_state(live: LiveCluster, job_id: int, *states: str) -> None:
    live.wait_for(
        lambda: live.run("squeue", "-h", "-a", "-j", str(job_id), "-o", "%T").strip() in states,
        SETTLED_S,
        what=f"job {job_id} is {' or '.join(states)}",
    )


def for_reason(live: LiveCluster, job_id: int, reason: str) -> None:
    live.wait_for(
        lambda: live.run("squeue", "-h", "-a", "-j", str(job_id), "-o", "%r").startswith(reason),
        SETTLED_S,
        what=f"job {job_id} waits for {reason}",
    )


@contextmanager
def cloud(release: str, *, private_data: str = "cloud") -> Iterator[LiveCluster]:
    """Run a cluster of a small node and three of eight GPUs that are powered down."""
    hidden = (f"PrivateData={private_data}",) if private_data and release == "22.05" else ()
    with LiveCluster(
        release,
        topology="flat",
        node_count=4,
        cloud_count=3,
        gpu_types=["a100"] * 4,
        shards={},
        extra_lines=(*LINES, *hidden),
    ) as live:
        yield live


def test_nodes_that_boot_take_jobs(release: str, shown: Callable[[LiveCluster], Snapshot]) -> None:
    with cloud(release) as live:
        first = live.submit("--nodelist=n02", "--gres=gpu:5", "-n2", "--mem=100", LONG)
        in_state(live, first, "CONFIGURING")
        second = live.submit("--nodelist=n02", "--gres=gpu:3", "-n2", "--mem=100", SHORT, "--hold")

        snapshot = shown(live)

        assert startable(snapshot) == (27, 0)
        assert Cause.NODES_UNAVAILABLE not in {each.cause for each in explained(snapshot, second).further}
        live.run("scontrol", "release", str(second))
        in_state(live, second, "CONFIGURING")


@pytest.mark.releases("22.05")
def test_hidden_nodes_are_no_impossibility(release: str, shown: Callable[[LiveCluster], Snapshot]) -> None:
    with cloud(release, private_data="") as live:
        busy = live.submit("--nodelist=n03", "--gres=gpu:8", "-n2", "--mem=100", SHORT)
        in_state(live, busy, "CONFIGURING")
        wide = live.submit("-N3", "--gres=gpu:8", "--exclude=n01", "--ntasks-per-node=1", "--mem=100", SHORT)
        for_reason(live, wide, "Resources")

        snapshot = shown(live)
        answer = explained(snapshot, wide)
        checks = {check.name: check for check in site_checks(snapshot, Limits())}

        assert answer.first.cause is Cause.NODES_UNAVAILABLE
        assert "powered down and hidden" in answer.first.text
        assert checks["PrivateData"].status is Status.LACKS
        assert "powered down" in checks["PrivateData"].text


@pytest.mark.releases("22.05")
def test_commands_answer_where_every_node_is_hidden(release: str) -> None:
    with LiveCluster(
        release, topology="flat", node_count=2, cloud_count=2, shards={}, start_slurmd=False, extra_lines=LINES
    ) as live:
        waiting = live.submit("-N1", "--gres=gpu:8", "-n1", "--mem=100", SHORT, "--hold")
        assert live.run("sinfo", "-h", "-N") == ""

        for arguments in (["recommend"], ["explain", str(waiting)], ["check"]):
            answer = sadvise_on(live, *arguments)
            assert (answer.exit_code, "PrivateData=nodes" in answer.out + answer.err) == (0, False), answer


def test_reservation_counts_by_what_it_holds(release: str, shown: Callable[[LiveCluster], Snapshot]) -> None:
    with LiveCluster(release, node_count=2, gpu_types=["a100"] * 2, shards={}) as live:
        for node, part in (("n01", "corecnt=6"), ("n02", "")):
            what = [f"nodes={node}", *([part] if part else []), "users=root", "duration=01:00:00", "starttime=now"]
            live.run("scontrol", "create", "reservation", f"reservation=r{node}", *what)
        live.wait_for(
            lambda: "reserved" in live.run("sinfo", "-h", "-N", "-n", "n01", "-O", "StateComplete"), SETTLED_S
        )
        job = live.submit("--nodelist=n01", "--gres=gpu:7", "-n10", "--mem=100", SHORT, "--hold")
        wide = live.submit("--nodelist=n01", "--gres=gpu:1", "-n11", "--mem=100", SHORT)
        live.wait_for(
            lambda: live.run("squeue", "-h", "-j", str(wide), "-o", "%r").strip() not in ("None", ""), SETTLED_S
        )

        snapshot = shown(live)
        assert node_table(snapshot).gpus_startable.sum() == 8
        assert gpus(snapshot).unavailable == 8
        assert [node.cpus_reserved for node in snapshot.nodes] == [6, None]
        assert explained(snapshot, wide).first.cause is not Cause.NODES_UNAVAILABLE
        live.run("scontrol", "release", str(job))
        in_state(live, job, "RUNNING")


def test_jobs_share_the_cpus_of_a_partition_that_forces_them_to(
    release: str, shown: Callable[[LiveCluster], Snapshot]
) -> None:
    with LiveCluster(release, topology="flat", node_count=1, gpu_types=["a100"], shards={}) as live:
        for partition in ("gpu", "debug"):
            live.run("scontrol", "update", f"PartitionName={partition}", "OverSubscribe=FORCE:2")
        running = live.submit("--gres=gpu:5", "-n16", "--mem=100", LONG)
        in_state(live, running, "RUNNING")
        second = live.submit("--gres=gpu:2", "-n16", "--mem=100", SHORT, "--hold")

        beside = shown(live)
        live.run("scontrol", "release", str(second))
        in_state(live, second, "RUNNING")
        full = shown(live)

        assert startable(beside) == (3, 0)
        assert gpus(full).idle is not None and gpus(full).idle.by_cpus == 1  # type: ignore[union-attr]


def test_licences_that_a_reservation_holds_are_not_free(release: str, shown: Callable[[LiveCluster], Snapshot]) -> None:
    with LiveCluster(release, topology="flat", node_count=1, shards={}, extra_lines=("Licenses=matlab:5",)) as live:
        live.run(
            "scontrol", "create", "reservation", "reservation=course", "starttime=now", "duration=03:00:00",
            "licenses=matlab:3", "users=root", "flags=LICENSE_ONLY",
        )  # fmt: skip
        waiting = live.submit("--gres=gpu:1", "-n1", "--mem=100", "-L", "matlab:4", SHORT)
        for_reason(live, waiting, "Licenses")

        answer = explained(shown(live), waiting)

        assert answer.first.cause is Cause.LICENSES
        assert "of which 2 of 5 are free; 3 are reserved (reservation course) until" in answer.first.text
        assert answer.first.remedies == ("wait until the reservation ends: scontrol show reservation",)


def test_slice_of_a_gpu_does_not_stand_in_for_a_whole_one(
    release: str, shown: Callable[[LiveCluster], Snapshot]
) -> None:
    with LiveCluster(release, topology="flat", node_count=2, gpu_types=["h200", "h200_2g.35gb"], shards={}) as live:
        running = live.submit("--gpus=h200:8", "-n1", "--mem=100", LONG)
        in_state(live, running, "RUNNING")
        whole = live.submit("--gpus=h200:1", "-n1", "--mem=100", SHORT)
        for_reason(live, whole, "Resources")

        answer = explained(shown(live), whole)

        assert answer.first.cause is Cause.GPUS
        assert not any("any type of GPU" in remedy for remedy in answer.first.remedies)


@pytest.mark.timeout(400)
@pytest.mark.releases("22.05")
def test_job_whose_reservation_has_ended_is_pending_and_held(
    release: str, shown: Callable[[LiveCluster], Snapshot]
) -> None:
    with LiveCluster(release, topology="flat", node_count=1, gpu_types=["a100"], shards={}) as live:
        live.run(
            "scontrol", "create", "reservation", "reservation=lab", "starttime=now", "duration=1", "nodes=n01",
            "users=root", "flags=IGNORE_JOBS",
        )  # fmt: skip
        fills = live.submit("--reservation=lab", "--gres=gpu:8", "-n1", "--mem=100", "--time=1")
        in_state(live, fills, "RUNNING")
        left = live.submit("--reservation=lab", "--gres=gpu:3", "-n1", "--mem=100", SHORT)
        live.wait_for(
            lambda: "RESV_DEL_HOLD" in live.run("squeue", "-h", "-j", str(left), "-o", "%T"),
            240.0,
            what="the reservation has ended",
        )

        snapshot = shown(live)
        answer = explained(snapshot, left)

        assert (snapshot.jobs_by_id[left].state, snapshot.jobs_by_id[left].held) == (JobState.PENDING, True)
        assert answer.first.cause is Cause.HELD
        assert answer.first.remedies[0] == f"the user or an operator: scontrol release {left}"
        assert overview(snapshot).jobs.held == 1
        live.run("scontrol", "release", str(left))
        live.wait_for(lambda: "RESV_DEL" not in live.run("squeue", "-h", "-j", str(left), "-o", "%T"), SETTLED_S)


# Options, whether they fit now in the partition with three nodes that have 2 of 4 GPUs idle and one that has none, and
# whether Slurm starts them there. Where it does and nothing is promised, Slurm does not show enough of the request. The
# jobs with None are started on some of the releases.
NODE_COUNTS: Final[dict[str, tuple[bool, bool | None]]] = {
    "--gpus-per-task=1 --ntasks=4 --nodes=4": (False, False),
    "--gpus-per-task=1 --ntasks=4 --nodelist=n04": (False, False),
    "--gpus=6 --ntasks-per-node=2": (False, None),
    "--gpus=6 --nodes=2": (False, False),
    "--gpus=4 --nodes=1-2 --ntasks-per-node=2": (False, None),
    "--gpus-per-node=1 --nodes=2 --cpus-per-task=4 --mincpus=6": (False, None),
    "--gpus-per-node=1 --nodes=2 --cpus-per-task=4 --mincpus=8": (True, True),
    "--partition=narrow --gres=gpu:1 --nodes=1-3": (False, False),
    "--partition=narrow --gpus=4 --nodes=2-3": (False, False),
    "--partition=narrow --gpus=2 --nodes=2-3": (True, True),
    "--gpus=6": (False, True),
    "--gpus=6 --nodes=2-3": (True, True),
    "--gpus=4 --nodes=3-4": (True, True),
    "--gpus-per-task=1 --ntasks=4 --nodes=2-3": (True, True),
    "--partition=narrow --gpus-per-task=1 --ntasks=2 --nodes=1-2": (True, True),
}


def test_node_counts_beyond_what_slurm_gives_are_not_promised(
    release: str, shown: Callable[[LiveCluster], Snapshot]
) -> None:
    narrow = "PartitionName=narrow Nodes=n[01-04] MaxTime=UNLIMITED State=UP MaxNodes=2"
    with LiveCluster(
        release,
        topology="flat",
        node_count=4,
        gpus_per_node=4,
        gpu_types=["a100"] * 4,
        shards={},
        extra_lines=(narrow,),
    ) as live:
        for node, gpus in (("n01", 2), ("n02", 2), ("n03", 2), ("n04", 4)):
            in_state(live, live.submit(f"--nodelist={node}", "--nodes=1", f"--gres=gpu:{gpus}", LONG), "RUNNING")
        jobs = {
            live.submit(*options.split(), SHORT, "--begin=now+1day", user="games"): options for options in NODE_COUNTS
        }
        snapshot = shown(live)
        for job_id, options in jobs.items():
            promised = diagnose(snapshot, job_id).tier_now is not None
            assert promised == NODE_COUNTS[options][0], options

        for job_id, options in jobs.items():
            if NODE_COUNTS[options][1] is not None:
                live.run("scontrol", "update", f"JobId={job_id}", "StartTime=now")
            if NODE_COUNTS[options][1]:
                in_state(live, job_id, "RUNNING")
                live.run("scancel", str(job_id))
                in_state(live, job_id, "CANCELLED", "")
        for job_id, options in jobs.items():
            if NODE_COUNTS[options][1] is False:
                assert live.run("squeue", "-h", "-j", str(job_id), "-o", "%T").strip() == "PENDING", options


# Options, and whether Slurm starts them on nodes of 4 GPUs, which is promised.
LONE_TASKS: Final[dict[str, bool]] = {
    "--gpus=6 --ntasks=1": False,
    "--gpus=6": True,
    "--gpus=6 --ntasks=2": True,
    "--gpus=4 --ntasks=1": True,
}


@pytest.mark.releases("24.11", "26.05")
def test_one_task_is_not_promised_gpus_of_several_nodes(release: str, shown: Callable[[LiveCluster], Snapshot]) -> None:
    with LiveCluster(
        release, topology="flat", node_count=2, gpus_per_node=4, gpu_types=["a100"] * 2, shards={}
    ) as live:
        jobs = {live.submit(*options.split(), SHORT, "--begin=now+1day"): options for options in LONE_TASKS}
        snapshot = shown(live)
        for job_id, options in jobs.items():
            answer, promised = diagnose(snapshot, job_id), LONE_TASKS[options]
            if (release, options) == ("24.11", "--gpus=6"):
                # It looks there like the first.
                promised = False
            assert (answer.tier_now is not None) == promised, options
            causes = {finding.cause for finding in (answer.first, *answer.further)}
            assert Cause.IMPOSSIBLE not in causes, options

        for job_id, options in jobs.items():
            live.run("scontrol", "update", f"JobId={job_id}", "StartTime=now")
            if LONE_TASKS[options]:
                in_state(live, job_id, "RUNNING")
                live.run("scancel", str(job_id))
                in_state(live, job_id, "CANCELLED", "")
        [lone] = (job_id for job_id, options in jobs.items() if not LONE_TASKS[options])
        assert live.run("squeue", "-h", "-j", str(lone), "-o", "%T").strip() == "PENDING"
