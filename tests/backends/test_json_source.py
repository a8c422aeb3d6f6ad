import json

import pytest

from advisor.backends.json_source import NO_EXCLUSIVE, NO_SWITCHES, JsonSource
from advisor.clock import ManualClock
from tests.backends import recorded, source_contract
from tests.backends.fake_slurm import FakeSlurm, root_site
from tests.backends.test_scontrol_text import PARTITIONS

pytestmark = pytest.mark.usefixtures("filed")


def slurm(version: str) -> FakeSlurm:
    """A cluster that dumps the recorded answers."""
    nodes = recorded.text("nodes.json")
    fake = FakeSlurm()
    fake.texts |= {
        "sinfo --version": f"slurm {version}\n",
        "squeue -a --json": recorded.text("squeue.json"),
        "scontrol -a show node --json": nodes,
        "scontrol -a show partition --json": recorded.text("partitions.json"),
        "sinfo -a --json": nodes,
        "scontrol -a show partition": PARTITIONS.replace("n[01-02]", "n[01-08]").split("\n\n")[0],
    }
    return fake


def source(fake: FakeSlurm) -> JsonSource:
    clock = ManualClock(5000.0)
    return JsonSource(fake, clock, root_site(fake, clock))


def test_json_source_keeps_the_contract() -> None:
    snapshot = source_contract.check(source(slurm("25.11.7")))

    assert recorded.as_asked(snapshot).jobs == recorded.json_snapshot().jobs
    assert recorded.as_asked(snapshot).nodes == recorded.json_snapshot().nodes
    assert snapshot.unread == ()


@pytest.mark.parametrize(
    ("version", "commands", "unread"),
    [
        ("22.05.8", ["squeue -a --json", "sinfo -a --json", "scontrol -a show partition"], (NO_SWITCHES,)),
        (
            "24.11.5",
            ["squeue -a --json", "scontrol -a show node --json", "scontrol -a show partition --json"],
            (),
        ),
        (
            "26.05.5",
            ["squeue -a --json", "scontrol -a show node --json", "scontrol -a show partition --json"],
            (NO_EXCLUSIVE,),
        ),
    ],
)
def test_each_release_is_asked_for_what_it_has(version: str, commands: list[str], unread: tuple[str, ...]) -> None:
    fake = slurm(version)

    snapshot = source(fake).snapshot()

    assert [" ".join(asked) for asked in fake.asked[1:]] == commands
    assert snapshot.unread == unread
    # Which switches and whole nodes a job waits for can bar it from nodes.
    assert snapshot.hides_bars is bool(unread)


def test_jobs_in_another_order_are_the_same_snapshot() -> None:
    fake = slurm("25.11.7")
    listed = json.loads(recorded.text("squeue.json"))
    listed["jobs"].reverse()
    fake.texts["squeue -a --json"] = json.dumps(listed)

    assert source(fake).snapshot() == source(slurm("25.11.7")).snapshot()


def test_job_that_cannot_be_read_costs_no_other_job() -> None:
    fake = slurm("25.11.7")
    dump = json.loads(recorded.text("squeue.json"))
    broken, twice = dump["jobs"][0], dump["jobs"][1]
    broken["tasks"] = "many"
    dump["jobs"].append({**twice, "user_name": "eve"})
    fake.texts["squeue -a --json"] = json.dumps(dump)

    snapshot = source(fake).snapshot()

    left_out = {broken["job_id"], twice["job_id"]}
    expected = [job for job in recorded.json_snapshot().jobs if job.job_id not in left_out]
    assert list(recorded.as_asked(snapshot).jobs) == expected
    assert set(snapshot.unread_jobs) == left_out
    assert snapshot.unread[-1].startswith("2 of the jobs, which are left out (job ")


def test_jobs_of_exclusive_partitions_share_no_nodes_where_only_the_partition_tells() -> None:
    fake = slurm("26.05.5")
    dump = json.loads(recorded.text("partitions.json"))
    own, whole = ({**dump["partitions"][0], "name": name} for name in ("own", "whole"))
    own["partition"], whole["partition"] = (
        {**own["partition"], "oversubscribe": "NO", "exclusive": word} for word in ("USER", "NODE")
    )
    dump["partitions"] += [own, whole]
    jobs = json.loads(recorded.text("squeue.json"))
    names = ("own", "whole", "gpu,own", "gpu,whole")
    jobs["jobs"] = [
        {**jobs["jobs"][0], "job_id": number, "partition": name, "shared": []} for number, name in enumerate(names, 1)
    ]
    fake.texts |= {
        "scontrol -a show partition --json": json.dumps(dump),
        "squeue -a --json": json.dumps(jobs),
    }

    snapshot = source(fake).snapshot()

    user = snapshot.jobs[0].user
    asked = [(job.gang.only_beside, job.gang.exclusive) for job in snapshot.jobs]
    assert asked == [(user, False), ("", True), (user, False), ("", False)]
    assert snapshot.partitions_by_name["whole"].gives_whole_nodes
    assert not snapshot.partitions_by_name["own"].gives_whole_nodes
