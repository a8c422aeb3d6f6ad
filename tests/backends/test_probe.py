"""What check learns on the spot."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.backends.probe import COMMANDS, probes
from advisor.backends.site_reader import Identity, SiteReader
from advisor.backends.sources import AutoSource
from advisor.backends.text_source import TextSource
from advisor.clock import ManualClock
from advisor.cycle import ClusterSource
from advisor.diagnose.site_checks import Check, Status
from advisor.domain.snapshot import Snapshot
from advisor.errors import SlurmError, SlurmUnavailableError
from tests.backends.fake_slurm import FakeSlurm
from tests.builders import make_config, make_snapshot
from tests.fake_cluster import FakeCluster

BY_NAME = FakeCluster({})
ROOT = Identity(uid=0, name="root")
ADA = Identity(uid=1000, name="ada")
ASKED = "sacctmgr -nP show user where name=ada withcoordinator format=adminlevel,coordinators"
SDIAG = """sdiag output at Sat Nov 21 02:49:45 2026 (1795229385)
Server thread count:  3
Agent queue size:     0
Remote Procedure Call statistics by message type
"""
ONE = "Slurmctld(primary) at ctl2 is UP\n"
IN_MEMORY = "scontrol -o show assoc_mgr users=ada flags=users"
RUNNING = """SLURM_VERSION           = 24.11.5
ClusterName             = test
SchedulerType           = sched/backfill
SchedulerParameters     = max_switch_wait=86400
SelectTypeParameters    = CR_CORE_MEMORY
TopologyPlugin          = topology/tree
PriorityType            = priority/multifactor
AccountingStorageType   = accounting_storage/slurmdbd
"""


def probed(
    texts: Mapping[str, str | SlurmError],
    *,
    user: Identity = ROOT,
    snapshot: Snapshot | None = None,
    source: ClusterSource = BY_NAME,
) -> dict[str, Check]:
    """Probe a site whose commands give these answers."""
    slurm = FakeSlurm(texts={"scontrol show config": RUNNING, "sdiag": SDIAG, "scontrol ping": ONE, **texts})
    seen = snapshot or make_snapshot([])
    return {check.name: check for check in probes(seen, slurm, source=source, user=user, host=lambda: "ctl2")}


@pytest.mark.parametrize(
    ("answer", "status", "words", "levels"),
    [
        ("Operator|\n", Status.OK, "Operator and can change every job", ["ok", "ok", "ok"]),
        ("None|physics,biology\n", Status.LACKS, "coordinator of biology, physics", ["ok", "ok", "lacks"]),
        ("None|\n", Status.LACKS, "no privilege", ["ok", "lacks", "lacks"]),
        (SlurmUnavailableError("slurmdbd is down"), Status.UNKNOWN, "slurmdbd is down", ["ok", "unknown", "unknown"]),
    ],
    ids=["operator", "coordinator", "ordinary", "not told"],
)
def test_privileges_tell_what_each_level_gives_and_which_this_user_has(
    answer: str | SlurmError, status: Status, words: str, levels: list[str]
) -> None:
    in_memory = SlurmUnavailableError("slurmctld does not tell")

    checks = probed({ASKED: answer, IN_MEMORY: in_memory}, user=ADA)

    rows = [checks[f"privilege {level}"] for level in ("none", "coordinator", "operator")]
    assert checks["privileges"].status is status
    assert words in checks["privileges"].text
    assert ("no reordering" in checks["privileges"].cost) is (status is Status.LACKS)
    assert [row.status for row in rows] == levels
    assert [bool(row.cost) for row in rows] == [row.status is not Status.OK for row in rows]
    assert "gpu_count" in rows[0].text


def test_root_may_move_every_lever_without_asking() -> None:
    checks = probed({})

    assert checks["privileges"].text == "root can change every job"
    assert checks["privilege operator"].status is Status.OK


def test_missing_commands_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in COMMANDS[:-1]:
        (tmp_path / command).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    check = probed({})["commands"]

    assert (check.status, check.text) == (Status.LACKS, "not on PATH: sdiag")


def test_all_commands_on_path_are_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in COMMANDS:
        (tmp_path / command).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert probed({})["commands"].status is Status.OK


@pytest.mark.parametrize(
    ("version", "status"), [("24.11.5", Status.OK), ("23.02.7", Status.UNKNOWN), ("", Status.UNKNOWN)]
)
def test_release_says_whether_it_is_tested(version: str, status: Status) -> None:
    check = probed({}, snapshot=make_snapshot([], config=make_config(slurm_version=version)))["Slurm release"]

    assert check.status is status


def test_reader_that_was_asked_for_is_named() -> None:
    check = probed({})["reader"]

    assert (check.status, check.text) == (Status.OK, "text, as configured")


def test_reader_that_was_chosen_is_named_with_the_reason() -> None:
    clock, slurm = ManualClock(5000.0), FakeSlurm()
    site = SiteReader(slurm, clock, identity=ROOT)
    source = AutoSource(TextSource(slurm, clock, site), None, site, slurm, clock)
    seen = source.snapshot()

    check = probed({}, source=source, snapshot=seen)["reader"]
    failed = probed({}, source=source, snapshot=replace(seen, reader_fault="pyslurm failed"))["reader"]

    assert (check.status, check.text) == (Status.OK, "text: pyslurm reads only the cluster of this host")
    assert failed.status is Status.LACKS and "set source.reader" in failed.cost


def test_file_that_differs_from_what_runs_is_named_field_by_field() -> None:
    snapshot = make_snapshot([])
    stale = replace(snapshot, config=replace(snapshot.config, priority_type="priority/basic"))

    check = probed({}, snapshot=stale)["slurm.conf"]

    assert check.status is Status.LACKS
    assert "priority_type (priority/basic against priority/multifactor)" in check.text


def test_configuration_that_cannot_be_asked_is_not_compared() -> None:
    check = probed({"scontrol show config": SlurmUnavailableError("slurmctld is down")})["slurm.conf"]

    assert (check.status, check.text) == (Status.UNKNOWN, "not compared: slurmctld is down")


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (SDIAG, Status.OK, "3 server threads, 0 messages in the agent queue"),
        (SDIAG.replace("count:  3", "count:  99"), Status.LACKS, "99 server threads (strained from 64)"),
        (
            SDIAG.replace("Server thread", "Other").replace("Agent queue", "Other"),
            Status.OK,
            "nothing that shows strain",
        ),
        (SlurmUnavailableError("slurmctld is down"), Status.UNKNOWN, "unknown: slurmctld is down"),
    ],
    ids=["quiet", "strained", "not shown", "no answer"],
)
def test_load_of_slurmctld_is_told(answer: str | SlurmError, status: Status, words: str) -> None:
    check = probed({"sdiag": answer})["slurmctld load"]

    assert (check.status, check.text) == (status, words)
    assert bool(check.cost) is (status is not Status.OK)


@pytest.mark.parametrize(
    ("names", "states", "status", "words"),
    [
        (("ctl1", "ctl2"), ("UP", "UP"), Status.OK, "acts on ctl1, this is ctl2: the daemon there applies"),
        (("ctl1", "ctl2"), ("DOWN", "UP"), Status.OK, "acts on ctl2, this host: the daemon here may apply"),
        (("ctl1", "ctl3"), ("UP", "UP"), Status.OK, "acts on ctl1, and none stands by on ctl2"),
        (("10.0.0.1", "10.0.0.2"), ("UP", "UP"), Status.UNKNOWN, "which slurmctld is that of this host, ctl2"),
    ],
    ids=["stands by", "acts", "runs none", "not told by name"],
)
def test_of_several_controllers_it_is_told_which_acts_and_whether_a_daemon_here_would_apply(
    names: tuple[str, str], states: tuple[str, str], status: Status, words: str
) -> None:
    roles = ("primary", "backup")
    lines = [
        f"Slurmctld({role}) at {name} is {state}\n" for role, name, state in zip(roles, names, states, strict=True)
    ]

    check = probed({"scontrol ping": "".join(lines)})["controllers"]

    assert check.status is status and words in check.text
    assert bool(check.cost) is (status is not Status.OK)


def test_controllers_that_do_not_answer_are_not_known() -> None:
    check = probed({"scontrol ping": SlurmUnavailableError("scontrol gave no answer")})["controllers"]

    assert check.status is Status.UNKNOWN
    assert check.text == "which slurmctld acts is not known: scontrol gave no answer"


def test_one_controller_and_those_of_another_cluster_get_no_line() -> None:
    elsewhere = FakeSlurm(texts={"scontrol show config": RUNNING, "sdiag": SDIAG}, cluster="east")

    other = probes(make_snapshot([]), elsewhere, source=BY_NAME, user=ROOT)

    assert "controllers" not in probed({})
    assert "controllers" not in {check.name for check in other}
