"""The readers against real clusters: what they see, that they agree, and what they cost."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from advisor.backends.json_source import JsonSource
from advisor.backends.particulars_reader import read_priority_factors
from advisor.backends.process import Answer, SlurmCommands
from advisor.backends.site_reader import SiteReader, running_config
from advisor.backends.slurm_conf import shown_topology
from advisor.backends.sources import open_source
from advisor.backends.text_decode import JOB_FIELDS, field_list, unknown_fields
from advisor.clock import SystemClock
from advisor.cycle import ClusterSource
from advisor.domain.job import Job, JobState
from advisor.domain.releases import traits_of
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import TopologyKind
from advisor.errors import SlurmUnavailableError
from tests.backends import source_contract
from tests.backends.fake_slurm import Streaming
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

TIMEOUT_S = 30.0
READERS = ("text", "json")
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


def opened(name: str) -> ClusterSource:
    return open_source(name, cluster=None, timeout_s=TIMEOUT_S, clock=SystemClock())


def seen_through(snapshot: Snapshot, blind: Callable[[Job], Job] | None) -> Snapshot:
    """Return a snapshot as another reader would see it, which cannot see everything."""
    # What squeue prints of an open node count looks like a fixed one.
    guessed = [replace(job, gang=replace(job.gang, nodes_open=False)) for job in snapshot.jobs]
    jobs = tuple(guessed if blind is None else map(blind, guessed))
    all_told = replace(snapshot, hidden_levers=(), hides_bars=False)
    return replace(all_told, source="", taken_at=0.0, unread=(), splits_told=True, jobs=jobs)


def without_default(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot as JSON before 26.05 shows it: without which partition is the default."""
    return replace(snapshot, partitions=tuple(replace(each, is_default=False) for each in snapshot.partitions))


def still(read: Callable[[], Snapshot]) -> tuple[Snapshot, Snapshot]:
    """Read with the text reader and with another in a moment in which the queue stands still.

    Slurm plans anew all the time, so expected starts, reasons and priorities move; two equal readings on either
    side show that they did not.
    """
    for _ in range(30):
        before, other, after = opened("text").snapshot(), read(), opened("text").snapshot()
        if replace(before, taken_at=0.0) == replace(after, taken_at=0.0):
            return after, other
    raise AssertionError("the queue did not stand still")


MISSING_IN_TEXT: Mapping[str, Callable[[Job], Job]] = {
    "22.05": lambda job: replace(job, gang=replace(job.gang, excluded_nodes=())),
}
MISSING_IN_JSON: Mapping[str, Callable[[Job], Job]] = {
    "22.05": lambda job: replace(job, gang=replace(job.gang, switches=None)),
    "26.05": lambda job: replace(job, gang=replace(job.gang, exclusive=False)),
}


@pytest.mark.usefixtures("mixed")
def test_text_and_json_agree_but_for_what_they_cannot_see(cluster: LiveCluster) -> None:
    text, dump = still(opened("json").snapshot)

    in_json = seen_through(text, MISSING_IN_JSON.get(cluster.release))
    if cluster.release == "24.11":
        in_json = without_default(in_json)
    assert in_json == seen_through(dump, MISSING_IN_TEXT.get(cluster.release))


@dataclass(frozen=True, slots=True, kw_only=True)
class OneParser(Streaming):
    """Slurm's commands, made to speak one version of their JSON."""

    commands: SlurmCommands
    parser: str
    cluster: str | None = None

    def ask(self, program: str, *arguments: str) -> Answer:
        """Ask for JSON of that version."""
        spoken = (f"--json={self.parser}" if each == "--json" else each for each in arguments)
        return self.commands.ask(program, *spoken)


@pytest.mark.usefixtures("mixed")
def test_every_version_of_json_that_a_release_speaks_reads_the_same(cluster: LiveCluster) -> None:
    answer = cluster.ask("squeue", "--json=list")
    spoken = sorted(set(re.findall(r"v0\.0\.\d+", answer.stdout + answer.stderr)))
    assert len(spoken) >= 3 or not traits_of(cluster.version).scontrol_json

    for parser in spoken:
        commands = OneParser(commands=SlurmCommands(timeout_s=TIMEOUT_S), parser=parser)
        site = SiteReader(commands, SystemClock())
        text, dump = still(JsonSource(commands, SystemClock(), site).snapshot)

        # What the newest version lacks, the older ones of the same release still tell.
        blind = MISSING_IN_JSON.get(cluster.release) if parser == spoken[-1] else None
        in_json, seen = seen_through(text, blind), seen_through(dump, MISSING_IN_TEXT.get(cluster.release))
        assert without_default(in_json) == without_default(seen), parser


@pytest.mark.parametrize("reader", READERS)
def test_reader_sees_the_jobs_that_were_submitted(mixed: dict[str, int], reader: str) -> None:
    jobs = opened(reader).snapshot().jobs_by_id

    assert {name for name, job_id in mixed.items() if jobs[job_id].name != name} == set()
    assert jobs[mixed["run-gang"]].state is JobState.RUNNING
    assert jobs[mixed["held"]].held
    assert jobs[mixed["other-user"]].user == "games"
    assert jobs[mixed["nice-10"]].nice == 10
    assert jobs[mixed["unlimited"]].time_limit_s is None
    assert jobs[mixed["hint"]].hints.model == "bert"


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize("reader", READERS)
def test_snapshot_costs_four_requests(cluster: LiveCluster, reader: str) -> None:
    source = opened(reader)

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


@pytest.mark.parametrize("reader", READERS)
def test_hostile_names_forge_nothing(cluster: LiveCluster, reader: str) -> None:
    cluster.reset()
    ids = [
        cluster.submit("--hold", f"--job-name={name}", f"--comment={name}", "--gres=gpu:1") for name in HOSTILE_NAMES
    ]
    cluster.run("scontrol", "update", "NodeName=n01", "State=DRAIN", "Reason=bad\nNodeName=n99 State=IDLE")

    snapshot = opened(reader).snapshot()

    assert [(job.job_id, job.name) for job in snapshot.jobs] == list(zip(ids, HOSTILE_NAMES, strict=True))
    assert [node.name for node in snapshot.nodes] == [f"n{number:02d}" for number in range(1, 9)]
    assert snapshot.nodes[0].reason == "bad\nNodeName=n99 State=IDLE"
    assert snapshot.nodes[0].flags == ("DRAIN",)


@pytest.mark.parametrize("reader", READERS)
def test_reader_keeps_the_contract(cluster: LiveCluster, reader: str) -> None:
    cluster.reset()
    for _ in range(3):
        cluster.submit("--hold", "--gpus=4")

    snapshot = source_contract.check(opened(reader))

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
            opened("text").snapshot()
    finally:
        cluster.start_controller()
