"""What other users can learn and change of how squeue and sinfo print: the format, its widths, and long fields."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import SiteReader
from advisor.backends.text_decode import NODE_WIDTHS
from advisor.backends.text_source import TextSource, new_delimiter
from advisor.clock import SystemClock
from advisor.domain.snapshot import Snapshot
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

TIMEOUT_S = 60.0
OTHER_USER = "games"


@pytest.fixture(autouse=True)
def _here(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plain commands of this process talk to the cluster."""
    monkeypatch.setenv("PATH", cluster.env["PATH"])
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    monkeypatch.delenv("SLURM_CLUSTERS", raising=False)


def text_source(*, delimiter: str | None = None, limit_bytes: int = 64 << 20) -> TextSource:
    clock, commands = SystemClock(), SlurmCommands(timeout_s=TIMEOUT_S, limit_bytes=limit_bytes)
    site = SiteReader(commands, clock)
    site.read()
    return TextSource(commands, clock, site, delimiter=lambda: delimiter or new_delimiter())


def processes(file: str) -> dict[int, bytes]:
    """Map the processes of this machine to a file about each, such as its arguments, which every user can read."""
    contents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                contents[int(folder.name)] = (folder / file).read_bytes()
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
    return contents


def running_squeue(delimiter: str) -> int | None:
    """Return the process that asks slurmctld for the queue; other tests on this machine ask for theirs."""
    arguments = processes("cmdline")
    given = f"SQUEUE_FORMAT2=JobID:{delimiter},".encode()
    ours = [pid for pid, lines in processes("environ").items() if given in lines]
    return next((pid for pid in ours if b"squeue\0-h\0-a\0--noconvert" in arguments.get(pid, b"")), None)


def test_delimiter_is_where_no_other_user_can_read_it(fresh: LiveCluster) -> None:
    job_id = fresh.submit("--hold", "-n1")
    delimiter = new_delimiter()
    source = text_source(delimiter=delimiter)

    fresh.hang_controller()
    with ThreadPoolExecutor(1) as pool:
        try:
            reading = pool.submit(source.snapshot)
            fresh.wait_for(lambda: running_squeue(delimiter) is not None, what="squeue runs")
            squeue, arguments = running_squeue(delimiter), processes("cmdline")
            environment = f"/proc/{squeue}/environ"
            by_other = subprocess.run(["cat", environment], user=OTHER_USER, capture_output=True, check=False)
        finally:
            fresh.wake_controller()
        snapshot = reading.result()

    assert squeue in arguments
    assert not [line for line in arguments.values() if delimiter.encode() in line]
    assert (by_other.returncode, by_other.stdout) == (1, b"")
    assert b"Permission denied" in by_other.stderr
    assert [job.job_id for job in snapshot.jobs] == [job_id]


def test_name_that_holds_the_delimiter_costs_its_own_job_alone(fresh: LiveCluster) -> None:
    delimiter = "@guessed"
    ghost = delimiter.join(["66", "66", *["0"] * 42]) + f"{delimiter}!\n"
    forger = fresh.submit("--hold", "-n1", f"--job-name=x{delimiter}!\n{ghost}", user=OTHER_USER)
    others = [fresh.submit("--hold", "-n1") for _ in range(2)]

    snapshot = text_source(delimiter=delimiter).snapshot()

    assert [job.job_id for job in snapshot.jobs] == others
    assert forger in snapshot.unread_jobs


def test_reason_of_a_node_that_holds_the_delimiter_forges_no_node(fresh: LiveCluster) -> None:
    delimiter = "@guessed"
    reason = f"down{delimiter}\nn99{delimiter}gpu{delimiter}" * 9 + "ä"
    fresh.run("scontrol", "update", "NodeName=n01", "State=DRAIN", f"Reason={reason}")
    fresh.run("scontrol", "update", "NodeName=n02", "State=DRAIN", "Reason=bäd fan ")

    nodes = text_source(delimiter=delimiter).snapshot().nodes

    assert [node.name for node in nodes] == [f"n{number:02d}" for number in range(1, 9)]
    assert nodes[0].reason == reason.encode()[: NODE_WIDTHS["Reason"]].decode()
    assert nodes[1].reason == "bäd fan"


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--job-name", "n" * 1100),
        ("--comment", "n" * 1100),
        ("--account", "n" * 1100),
        ("--qos", "n" * 1100),
        ("--constraint", "|".join(["a100"] * 221)),
        ("--partition", ",".join(["gpu"] * 300)),
        ("--gres", ",".join(["gpu:1"] * 200)),
        ("--gpus", ",".join(["a100:1"] * 200)),
    ],
)
def test_text_that_is_not_cut_is_short(cluster: LiveCluster, option: str, text: str) -> None:
    answer = cluster.ask("sbatch", "--hold", "-n1", f"{option}={text}", "--wrap=true")

    assert answer.returncode != 0
    assert "parameter too long" in answer.stderr


def test_long_dependencies_blind_no_reader(fresh: LiveCluster) -> None:
    first = [fresh.submit("--hold", "-n1") for _ in range(60)]
    on_all = "--dependency=" + ",".join(f"afterany:{job_id}" for job_id in first)
    dependent = [fresh.submit("-n1", on_all) for _ in range(60)]
    # Far below what squeue would print of these dependencies in full, and of these jobs.
    source = text_source(limit_bytes=20_000)

    by_text = source.snapshot()

    assert set(dependencies(by_text)) == {*first, *dependent}
    shown = fresh.run("scontrol", "-o", "show", "job", str(dependent[0])).partition(" Dependency=")[2]
    assert shown.startswith(by_text.jobs_by_id[dependent[0]].dependency.removesuffix("..."))
    assert {job_id for job_id, text in dependencies(by_text).items() if text} == set(dependent)
    assert by_text.jobs_by_id[dependent[0]].dependency.endswith("...")


def dependencies(snapshot: Snapshot) -> dict[int, str]:
    return {job.job_id: job.dependency for job in snapshot.jobs}
