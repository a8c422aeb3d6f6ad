"""The text reader against real clusters: what it sees, that scontrol shows the same, and what it costs."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from advisor.backends import scontrol_text
from advisor.backends.assembly import assemble
from advisor.backends.particulars_reader import read_priority_factors
from advisor.backends.process import SlurmCommands, text_of
from advisor.backends.site_reader import SiteReader, running_config
from advisor.backends.slurm_conf import shown_topology
from advisor.backends.sources import open_source
from advisor.backends.text_decode import JOB_FIELDS, field_list, unknown_fields
from advisor.clock import SystemClock
from advisor.cycle import ClusterSource
from advisor.domain.job import Job, JobState
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import TopologyKind
from advisor.errors import SlurmUnavailableError
from tests.backends import recorded_scontrol, source_contract
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

TIMEOUT_S = 30.0
# The fields that squeue does not have, by release.
LACKING = {
    "22.05": {"ExcNodes", "Exclusive", "CronJob"},
    "24.11": {"Exclusive", "CronJob"},
    "26.05": set[str](),
}
MOST_REQUESTS = 4
HOSTILE_NAMES = (
    "two\nlines",
    "JobId=1 Priority=9",
    "x\n\nJobId=77 JobName=forged\n   Priority=9",
    "a|b <b>bold</b> \x1b[31mred",
    "",
    "n" * 1000,
    "漢字",
)


@pytest.fixture(autouse=True)
def _here(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plain commands of this process talk to the cluster."""
    monkeypatch.setenv("PATH", cluster.env["PATH"])
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    monkeypatch.delenv("SLURM_CLUSTERS", raising=False)


def opened() -> ClusterSource:
    return open_source("text", cluster=None, timeout_s=TIMEOUT_S, clock=SystemClock())


def seen_through(snapshot: Snapshot, blind: Callable[[Job], Job] | None) -> Snapshot:
    """Return a snapshot without what one of two commands does not show."""
    jobs = snapshot.jobs if blind is None else tuple(map(blind, snapshot.jobs))
    all_told = replace(snapshot, hidden_levers=(), hides_bars=False)
    return replace(all_told, source="", taken_at=0.0, unread=(), splits_told=True, jobs=jobs)


def still(read: Callable[[], Snapshot]) -> tuple[Snapshot, Snapshot]:
    """Read with the text reader and otherwise in a moment in which the queue stands still.

    Slurm plans anew all the time, so expected starts, reasons and priorities move; two equal readings on either
    side show that they did not.
    """
    for _ in range(30):
        before, other, after = opened().snapshot(), read(), opened().snapshot()
        if replace(before, taken_at=0.0) == replace(after, taken_at=0.0):
            return after, other
    raise AssertionError("the queue did not stand still")


MISSING_IN_TEXT: Mapping[str, Callable[[Job], Job]] = {
    "22.05": lambda job: replace(job, gang=replace(job.gang, excluded_nodes=())),
}


@pytest.mark.usefixtures("mixed")
def test_squeue_and_sinfo_show_what_scontrol_shows(cluster: LiveCluster) -> None:
    commands = SlurmCommands(timeout_s=TIMEOUT_S)

    def by_scontrol() -> Snapshot:
        jobs, nodes, partitions = (
            text_of(commands.ask("scontrol", "-d", "-a", "show", what).output) for what in ("job", "node", "partition")
        )
        return assemble(
            source="scontrol",
            taken_at=0.0,
            site=SiteReader(commands, SystemClock()).read(),
            jobs=recorded_scontrol.job_records(jobs),
            nodes=recorded_scontrol.node_records(nodes),
            partitions=scontrol_text.partitions(partitions),
        )

    text, shown = still(by_scontrol)

    assert len(text.jobs) > 45
    assert seen_through(text, None) == seen_through(shown, MISSING_IN_TEXT.get(cluster.release))


def test_reader_sees_the_jobs_that_were_submitted(mixed: dict[str, int]) -> None:
    jobs = opened().snapshot().jobs_by_id

    assert {name for name, job_id in mixed.items() if jobs[job_id].name != name} == set()
    assert jobs[mixed["run-gang"]].state is JobState.RUNNING
    assert jobs[mixed["held"]].held
    assert jobs[mixed["other-user"]].user == "games"
    assert jobs[mixed["nice-10"]].nice == 10
    assert jobs[mixed["unlimited"]].time_limit_s is None
    assert jobs[mixed["hint"]].hints.model == "bert"


@pytest.mark.usefixtures("mixed")
def test_snapshot_costs_four_requests(cluster: LiveCluster) -> None:
    source = opened()

    costs = []
    for _ in range(2):
        before = cluster.rpc_counts()
        source.snapshot()
        after = cluster.rpc_counts()
        # slurmd registers on its own time.
        costs.append(sum(count - before.get(name, 0) for name, count in after.items() if name.startswith("REQUEST_")))

    assert costs == [MOST_REQUESTS, MOST_REQUESTS]


def test_fields_that_squeue_lacks_are_known(cluster: LiveCluster) -> None:
    answer = SlurmCommands(timeout_s=TIMEOUT_S).ask("squeue", "-h", "-O", field_list(JOB_FIELDS, "@"))

    assert unknown_fields(answer.complaints.decode()) == LACKING[cluster.release]


def test_slurm_conf_says_what_slurmctld_runs_with(cluster: LiveCluster) -> None:
    clock = SystemClock()
    commands = SlurmCommands(timeout_s=TIMEOUT_S)

    before = cluster.rpc_counts()
    site = SiteReader(commands, clock).read()
    asked = cluster.rpc_counts().get("REQUEST_BUILD_INFO", 0) - before.get("REQUEST_BUILD_INFO", 0)

    assert asked == 0
    assert site.config == running_config(SlurmCommands(timeout_s=TIMEOUT_S))
    assert site.topology == shown_topology(TopologyKind.TREE, cluster.run("scontrol", "show", "topology"))


def test_slurmctld_is_asked_where_there_is_no_file(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    by_file = SiteReader(SlurmCommands(timeout_s=TIMEOUT_S), SystemClock()).read()
    (cluster.folder / "included.conf").write_text(f"Include {cluster.folder}/%c.conf\n")
    monkeypatch.setattr("advisor.backends.site_reader.conf_path", lambda: cluster.folder / "included.conf")

    by_request = SiteReader(SlurmCommands(timeout_s=TIMEOUT_S), SystemClock()).read()

    assert by_request == by_file


def test_hostile_names_forge_nothing(cluster: LiveCluster) -> None:
    cluster.reset()
    ids = [
        cluster.submit("--hold", f"--job-name={name}", f"--comment={name}", "--gres=gpu:1") for name in HOSTILE_NAMES
    ]
    cluster.run("scontrol", "update", "NodeName=n01", "State=DRAIN", "Reason=bad\nNodeName=n99 State=IDLE")

    snapshot = opened().snapshot()

    assert [(job.job_id, job.name) for job in snapshot.jobs] == list(zip(ids, HOSTILE_NAMES, strict=True))
    assert [node.name for node in snapshot.nodes] == [f"n{number:02d}" for number in range(1, 9)]
    assert snapshot.nodes[0].reason == "bad\nNodeName=n99 State=IDLE"
    assert snapshot.nodes[0].flags == ("DRAIN",)


def test_reader_keeps_the_contract(cluster: LiveCluster) -> None:
    cluster.reset()
    for _ in range(3):
        cluster.submit("--hold", "--gpus=4")

    snapshot = source_contract.check(opened())

    assert [job.job_id for job in snapshot.jobs] == [1, 2, 3]


def test_priority_factors_are_one_request(cluster: LiveCluster, mixed: dict[str, int]) -> None:
    commands = SlurmCommands(timeout_s=TIMEOUT_S)

    before = cluster.rpc_counts()
    found = read_priority_factors(commands, mixed["nice-10"])
    after = cluster.rpc_counts()

    assert found is not None and found.nice == 10
    assert read_priority_factors(commands, mixed["run-gang"]) is None
    assert sum(after.get(name, 0) - before.get(name, 0) for name in after if name.startswith("REQUEST_")) == 1


def test_slurmctld_that_is_down_can_be_asked_again_later(cluster: LiveCluster) -> None:
    cluster.stop_controller()
    try:
        with pytest.raises(SlurmUnavailableError, match="squeue cannot reach slurmctld: check that it runs"):
            opened().snapshot()
    finally:
        cluster.start_controller()
