"""`sadvise models compare` with a policy that names nodes: what a rollout leaves out, and what its model expects."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.model_comparison import _places
from advisor.cycle import Cycle
from advisor.domain.actions import NodeRange, SetNodeList, SetNodeRange
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.journal import SqliteJournal
from advisor.planning.case import Case
from advisor.replay.policy_comparison import PlacesCompared, PlanPair, rolled_out
from advisor.sim.live.slurm_rollout import SlurmRollout
from tests.builders import TAKEN_AT, make_gang, make_hints, make_job, make_node, make_recommendation, make_snapshot
from tests.cli.conftest import Sadvise
from tests.planning.test_gang_nodes import ON
from tests.stand_in_policy import KIND, VERSION, publish_stand_in

TYPES = {"n01": "v100", "n02": "v100", "n03": "a100", "n04": "a100"}
NAMED_ALONE = (
    "not compared: the plans differ in the nodes that they name for gangs alone, and named nodes are not simulated"
)
GANG = make_gang(8, nodes_min=2, nodes_max=2)
PAIR = NodeRange(low=2, high=2)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that names the nodes of the fastest GPU type."""
    folder = tmp_path_factory.mktemp("models")
    publish_stand_in(folder)
    return folder


def gang(job_id: int, *nodes: str) -> Job:
    """Return a gang that waits, or runs on some nodes."""
    return make_job(job_id, gang=GANG, hints=make_hints("bert"), running_on=nodes)


def seen(number: int, *jobs: Job) -> Snapshot:
    """Return the snapshot of a minute."""
    held = {name: sum(4 for job in jobs if job.allocation and name in job.allocation.nodes) for name in TYPES}
    nodes = [make_node(name, gpu_type=gpu_type, used=held[name]) for name, gpu_type in TYPES.items()]
    return make_snapshot(jobs, nodes, taken_at=TAKEN_AT + 60.0 * number)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal in which Slurm starts two gangs on the slower nodes."""
    return written(
        tmp_path,
        seen(0, gang(1)),
        seen(1, gang(1, "n01", "n02"), gang(2)),
        seen(2, gang(1, "n01", "n02"), gang(2, "n01", "n02")),
    )


def written(folder: Path, *snapshots: Snapshot) -> Path:
    """Write the journal of a daemon with the rules in force."""
    with SqliteJournal(folder / "journal.sqlite") as journal:
        journal.keeps_waits = True
        for snapshot in snapshots:
            journal.record(Cycle(planning=ON).judge(snapshot), Cycle(planning=ON))
    return folder / "journal.sqlite"


def words_of(sadvise: Sadvise, models: Path, path: Path, *arguments: str) -> str:
    """Return what a comparison with the rules prints."""
    given = ("--models", str(models), "--journal", str(path))
    answer = sadvise("models", "compare", KIND, VERSION, "rules", *arguments, *given)
    assert answer.exit_code == 0, answer.err
    return answer.out


@pytest.mark.slow
def test_named_nodes_are_compared_by_the_performance_model(sadvise: Sadvise, models: Path, path: Path) -> None:
    document: Any = json.loads(words_of(sadvise, models, path, "--json"))
    words = words_of(sadvise, models, path)

    policy, rules = document["sides"]
    assert (policy["changes"], rules["changes"], rules["places"]) == (2, 0, None)
    places = policy["places"]
    assert (places["gangs"], places["same"], places["by_name"], places["unseen"]) == (2, 0, 0, 0)
    assert -0.7 < places["change"] < -0.5
    assert places["low"] < places["change"] < places["high"]
    assert (
        f"places   {VERSION}: run time {100 * places['change']:.1f} % on the nodes that it names, "
        "against those on which Slurm started 2 gangs, 95 % interval "
    ) in words
    assert "by the performance model, not observed" in words and "rules: run time" not in words


@pytest.mark.parametrize(
    ("high", "said"),
    [(0.5, "2 gangs, 95 % interval -80.0 % to +50.0 %, by"), (900.0, "2 gangs, too few for an interval, by")],
)
def test_interval_that_says_nothing_is_not_shown(high: float, said: str) -> None:
    found = PlacesCompared(gangs=2, same=0, by_name=0, unseen=0, change=-0.4, low=-0.8, high=high)

    assert said in _places(found)


def test_rollout_says_that_named_nodes_are_not_simulated(sadvise: Sadvise, models: Path, path: Path) -> None:
    document = json.loads(words_of(sadvise, models, path, "--rollout", "--json"))
    words = words_of(sadvise, models, path, "--rollout")

    assert (document["rollout"]["differing"], document["rollout"]["named"]) == (0, 2)
    assert NAMED_ALONE in words and "no clear difference" not in words
    assert "the nodes that are named for gangs, which differ in 2 snapshots: named nodes are not simulated" in words


def test_rollout_simulates_the_other_changes_beside_named_nodes() -> None:
    names = make_recommendation(SetNodeList(job_id=1, before=(), after=("n03", "n04")), revert_after_s=120.0)
    smaller = make_recommendation(SetNodeRange(job_id=2, before=PAIR, after=NodeRange(low=1, high=1)))
    case = Case(snapshot=seen(0, gang(1), gang(2)), settings=ON)
    pairs = [PlanPair(case=case, plans=([names, smaller], [])), PlanPair(case=case, plans=([names], [names]))]

    found = rolled_out(pairs, SlurmRollout(), horizon_s=3600.0, draws=2, done=lambda: None)

    assert (found.snapshots, found.differing, found.named) == (2, 1, 1)


def test_gang_that_was_not_seen_to_start_is_named_so(sadvise: Sadvise, models: Path, tmp_path: Path) -> None:
    path = written(tmp_path, seen(0, gang(1)))

    words = words_of(sadvise, models, path)

    assert (
        f"places   {VERSION}: no gang for which it names nodes was seen to start where Slurm chose; "
        "1 more was not seen to start"
    ) in words


def test_gangs_that_started_on_named_nodes_are_counted_apart(sadvise: Sadvise, models: Path, tmp_path: Path) -> None:
    named = replace(gang(1, "n03", "n04"), gang=replace(GANG, required_nodes=("n03", "n04")))
    path = written(tmp_path, seen(0, gang(1), gang(2)), seen(1, named, gang(2)), seen(2, named, gang(2, "n03", "n04")))

    words = words_of(sadvise, models, path)

    assert "against those on which Slurm started 1 gang, by the performance model, not observed; " in words
    assert "1 of them on the same nodes; 1 more started on nodes that were named" in words
