"""`sadvise status` says how the daemon is doing and why nothing happens, and its exit status is for monitoring."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.backends.snapshot_file import read_snapshot
from advisor.cli.advice import print_stops
from advisor.cli.check import _interactive, _notices, _trust
from advisor.clock import SystemClock
from advisor.config import load_config
from advisor.domain.idle_gpus import IdleJob, IdleLook
from advisor.domain.lease import LeaseState
from advisor.domain.mode import Mode
from advisor.domain.probation import OrderLook, OrderProof
from advisor.domain.topology import Topology, TopologyKind
from advisor.domain.waiting_gangs import GangLook, StarvedGang
from advisor.guard.breakers import BreakerState, OpenBreaker
from advisor.journal import SqliteJournal, opened
from advisor.metrics.round import Round
from advisor.settings import BreakerSettings
from advisor.site.breaker_events import write_breakers
from advisor.site.pause_file import pause
from advisor.site.status_file import NAME, DaemonStatus, remove_status, status_after, write_status
from advisor.watch.planned import plan_now
from advisor.watch.reading import Reading, demo_path
from tests.builders import make_gang, make_job, make_snapshot
from tests.cli.conftest import Outcome, Sadvise
from tests.made_rounds import change, lease, make_round, put_off, receipt, step

Status = Callable[..., Outcome]
BAR = OpenBreaker(
    name="slurm_errors", keys=("max_reads_failed",), cause="5 reads failed", opened_time=0.0, looked_time=0.0
)

IDLE = (
    IdleJob(job_id=7, gpus=8, idle_gpus=8, since_time=0.0),
    IdleJob(job_id=9, gpus=8, idle_gpus=4, since_time=60.0, is_at_least=True),
)


@pytest.fixture
def status(sadvise: Sadvise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Status:
    """Return a function that runs `sadvise status` on a folder that is the daemon's."""
    monkeypatch.setenv("SADVISE_DAEMON__RUNTIME_FOLDER", str(tmp_path))
    monkeypatch.setenv("SADVISE_JOURNAL__FILE", str(tmp_path / "journal.sqlite"))
    monkeypatch.setenv("SADVISE_MODE__DEFAULT", "apply")
    return lambda *arguments: sadvise("status", *arguments)


def now_round(done: Round) -> Round:
    """Return a round that started just now, in mode apply."""
    return replace(done, started_time=SystemClock().now() - 5.0, mode=Mode.APPLY)


def written(folder: Path, done: Round, **fields: Any) -> DaemonStatus:
    """Write the status of a round as the daemon does."""
    last = status_after(done).model_copy(update=fields)
    assert write_status(folder, last) == ""
    return last


def written_for(cluster: str, folder: Path) -> None:
    """Write the status of a daemon that works on a cluster."""
    done = now_round(make_round(WAITING))
    planned = status_after(done).planned
    assert planned is not None
    written(folder, done, planned=planned.model_copy(update={"cluster": cluster}))


def labelled(outcome: Outcome) -> Mapping[str, str]:
    """Return the text beside each label."""
    return {line[:10].strip(): line[10:] for line in outcome.out.splitlines()}


WAITING = step(jobs=[make_job(1, gang=make_gang(4))])


def test_without_a_daemon_it_says_so_and_what_to_do(status: Status) -> None:
    outcome = status()

    assert outcome.exit_code == 5
    assert labelled(outcome)["daemon"] == "not running"
    assert "systemctl status sadvised" in labelled(outcome)["idle"]


def test_daemon_that_works_is_well(status: Status, tmp_path: Path) -> None:
    written(tmp_path, now_round(make_round(step(judged=[change()], applied=[receipt()], leases=[lease()]))))
    with opened(tmp_path / "journal.sqlite") as held:
        held.claim("live")
        held.keep(lease(due_time=SystemClock().now() + 600.0))

    shown, document = labelled(status()), json.loads(status("--json").out)

    assert status().exit_code == 0
    assert shown["daemon"].startswith(f"running, pid {os.getpid()}, sadvise ")
    assert "1 recommended, 1 sent" in shown["round"] and shown["out"].startswith(
        "1 change in effect; the next is taken"
    )
    assert "idle" not in shown and "stopped" not in shown
    assert (document["meta"]["schema"], document["state"], document["is_well"]) == ("sadvise.status/1", "running", True)
    assert document["last_round"]["planned"]["sent"] == document["out"] == 1


@pytest.mark.parametrize(
    ("done", "reason"),
    [
        (step(jobs=[make_job(1, gang=make_gang(0))]), "no GPU job waits"),
        (WAITING, "no change would help: 1 GPU job waiting"),
        (
            replace(WAITING, record=replace(WAITING.record, left_alone={1: "too_young"})),
            "1 of them left alone by a rule",
        ),
        (step(jobs=[make_job(1, gang=make_gang(4))], judged=[change()], held_back=[put_off()]), "1 change held back"),
    ],
)
def test_it_says_why_nothing_was_changed(done: Any, reason: str, status: Status, tmp_path: Path) -> None:
    written(tmp_path, now_round(make_round(done)))

    outcome = status()

    assert reason in labelled(outcome)["idle"]
    assert outcome.exit_code == 0


@pytest.mark.parametrize(
    ("mode", "reason"),
    [(Mode.OBSERVE, "mode observe proposes nothing"), (Mode.RECOMMEND, "mode recommend sends nothing")],
)
def test_mode_that_sends_nothing_is_the_reason(mode: Mode, reason: str, status: Status, tmp_path: Path) -> None:
    written(tmp_path, replace(now_round(make_round(WAITING)), mode=mode))

    assert labelled(status())["idle"].startswith(reason)


def test_pause_is_shown_and_is_no_fault(status: Status, tmp_path: Path) -> None:
    pause(tmp_path, by="root", reason="maintenance \x1b[31m", freeze=False)
    written(
        tmp_path, replace(now_round(make_round(WAITING, held_to={"paused": "paused by root"})), mode=Mode.RECOMMEND)
    )

    outcome = status()

    assert outcome.exit_code == 0
    assert "paused by root: maintenance" in labelled(outcome)["stopped"] and "`sadvise resume`" in outcome.out
    assert labelled(outcome)["idle"] == labelled(outcome)["stopped"]
    assert labelled(outcome)["mode"] == "apply, recommend in force"
    assert "\x1b" not in outcome.out


def test_open_breaker_is_shown_with_its_remedy_and_wants_attention(status: Status, tmp_path: Path) -> None:
    written(tmp_path, now_round(make_round(WAITING, held_to={"slurm_errors": "5 reads failed"})))
    with SqliteJournal(tmp_path / "journal.sqlite") as held:
        write_breakers(held, BreakerState(open=(BAR,)), BreakerSettings(), 0.0)

    outcome = status()

    assert outcome.exit_code == 4
    assert labelled(outcome)["stopped"].count("5 reads failed") == 1
    assert "`sadvise acknowledge slurm_errors`" in labelled(outcome)["stopped"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"started_time": 1_000_000.0}, "stale"),
        ({"fault": "squeue does not answer", "planned": None}, "not done: squeue does not answer"),
        ({"overdue": 2}, "2 changes should have been taken back"),
        ({"held_to": {"standby": "another daemon applies on this cluster"}}, "another daemon applies on this cluster"),
    ],
)
def test_daemon_that_does_not_work_as_it_should_wants_attention(
    fields: dict[str, Any], words: str, status: Status, tmp_path: Path
) -> None:
    written(tmp_path, now_round(make_round(WAITING)), **fields)

    outcome = status()

    assert words in outcome.out
    assert outcome.exit_code == 4


def test_process_that_has_ended_is_no_daemon(status: Status, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    written(tmp_path, now_round(make_round(WAITING)), pid=ended.pid)

    assert status().exit_code == 5


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": "sadvise.status/9"}', b"\xff\xfe"])
def test_file_that_is_no_status_is_one_line(content: bytes, status: Status, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(content)

    outcome = status()

    assert outcome.exit_code == 1
    assert outcome.err.count("\n") == 1 and "restart the daemon" in outcome.err


def test_journal_that_cannot_be_read_is_a_note(status: Status, tmp_path: Path) -> None:
    written(tmp_path, now_round(make_round(WAITING)))
    (tmp_path / "journal.sqlite").write_bytes(b"no journal")

    outcome = status()

    assert outcome.exit_code == 0
    assert labelled(outcome)["out"] == "0 changes in effect"
    assert "journal.sqlite" in labelled(outcome)["unread"]


def test_status_holds_no_name_of_a_job_or_a_user(tmp_path: Path) -> None:
    jobs = [make_job(1, name="secret-job", user="secret-user", gang=make_gang(4))]
    written(tmp_path, make_round(step(jobs=jobs, judged=[change()], leases=[lease(state=LeaseState.OUT)])))

    assert b"secret" not in (tmp_path / NAME).read_bytes()
    remove_status(tmp_path)
    assert not (tmp_path / NAME).exists()


def test_folder_that_cannot_be_written_is_a_reason_and_no_error(tmp_path: Path) -> None:
    assert "No such file" in write_status(tmp_path / "gone", status_after(make_round(WAITING)))


def test_recommend_and_check_say_that_the_daemon_is_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SADVISE_DAEMON__RUNTIME_FOLDER", str(tmp_path))
    monkeypatch.setenv("SADVISE_JOURNAL__FILE", str(tmp_path / "journal.sqlite"))
    pause(tmp_path, by="root", reason="maintenance", freeze=False)
    settings = load_config(None, os.environ)
    seen = read_snapshot(demo_path())

    live, demo = (plan_now(Reading(demo=demo), settings, None, seen) for demo in (False, True))
    print_stops(live)
    checks = list(_trust(settings, 0.0))

    assert demo.pause is None
    assert capsys.readouterr().out.startswith("stopped paused by root: maintenance, since 20")
    assert [check.name for check in checks] == ["pause"] and "`sadvise resume`" in checks[0].text


def test_notices_that_are_not_delivered_are_said(status: Status, tmp_path: Path) -> None:
    settings = load_config(None, os.environ)
    written(tmp_path, now_round(make_round(step())))
    assert list(_notices(settings)) == []

    written(tmp_path, now_round(make_round(step())), undelivered="mail: no answer")

    assert "settings" not in labelled(status())
    assert labelled(status())["notices"] == "not delivered: mail: no answer; to do: `sadvise notify --test`"
    (check,) = _notices(settings)
    assert "mail: no answer" in check.text


def test_settings_that_the_daemon_took_up_are_named(status: Status, tmp_path: Path) -> None:
    written(tmp_path, now_round(replace(make_round(step()), settings="preset gentle since noon")))

    assert labelled(status())["settings"] == "preset gentle since noon"


def test_levers_that_the_site_lacks_are_asleep_in_the_status_and_the_report_says_why(
    status: Status, sadvise: Sadvise, tmp_path: Path
) -> None:
    flat = make_snapshot([], topology=Topology(kind=TopologyKind.FLAT))
    seen = step()
    written(tmp_path, now_round(make_round(replace(seen, record=replace(seen.record, snapshot=flat)))))
    why = "because the topology is flat; only topology/tree waits for switches"

    assert f"switches, {why}; " in labelled(status())["asleep"]
    with opened(tmp_path / "journal.sqlite") as held:
        held.claim("live")
    shown = " ".join(sadvise("report").out.split())
    assert f"asleep switches, proposed for no job, {why}" in shown
    assert "asleep nice, proposed for no job, because no round called for it" in shown


def test_nodes_that_fail_are_named(status: Status, tmp_path: Path) -> None:
    written(tmp_path, now_round(replace(make_round(step()), failing_nodes="n1 failed 3 times")))

    assert labelled(status())["nodes"].startswith("n1 failed 3 times, in 7 days; `sadvise check` has")


@pytest.mark.parametrize(
    ("look", "line"),
    [
        (IdleLook(looked_time=0.0, jobs=IDLE), "12 GPUs of 2 running jobs idle, {}; `sadvise idle` lists them"),
        (IdleLook(looked_time=0.0), "no running job holds idle GPUs, {}"),
        (
            IdleLook(looked_time=0.0, unmapped=(7,), gap="squeue is late"),
            "no running job holds idle GPUs, {}; 1 job on shared nodes not mapped to GPUs: squeue is late",
        ),
        (IdleLook(looked_time=0.0, fault="prometheus: no answer"), "idle GPUs are not known: prometheus: no answer"),
    ],
    ids=["some", "none", "not mapped", "a fault"],
)
def test_idle_gpus_of_running_jobs_are_counted(status: Status, tmp_path: Path, look: IdleLook, line: str) -> None:
    looked = replace(look, looked_time=SystemClock().now() - 300.0)
    written(tmp_path, now_round(replace(make_round(step()), idle=looked)))

    assert labelled(status())["GPUs"] == line.format("5 min ago")
    document = json.loads(status("--json").out)["last_round"]["idle"]
    assert [job["job_id"] for job in document["jobs"]] == [job.job_id for job in look.jobs]
    assert "user" not in json.dumps(document)


def test_gangs_that_starve_and_scattered_gpus_have_a_line_each_where_there_are_any(
    status: Status, tmp_path: Path
) -> None:
    now = SystemClock().now()
    gang = StarvedGang(
        job_id=7,
        gpus=8,
        eligible_time=0.0,
        since_time=now - 7200.0,
        work_gpu_s=1.0,
        passed_gpu_s=1.0,
        passed_by=1,
        users=1,
    )
    look = GangLook(looked_time=now, starved=(gang,), scattered=(("n1", 5),))
    written(tmp_path, now_round(replace(make_round(step()), gangs=GangLook(looked_time=now))))
    before = labelled(status())
    written(tmp_path, now_round(replace(make_round(step()), gangs=look)))
    after = labelled(status())

    assert not {"starved", "fragments"} & before.keys()
    assert after["starved"].startswith("job 7 (for 2.0 h); `sadvise explain 7`")
    assert after["fragments"].startswith("5 GPUs idle beside small jobs on n1: ")
    assert json.loads(status("--json").out)["last_round"]["gangs"]["starved"][0]["job_id"] == 7


def test_several_clusters_stand_in_one_table_and_the_worst_decides(sadvise: Sadvise, tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    for name in ("alpha", "beta"):
        (tmp_path / name).mkdir()
        text = f'[journal]\nfile = "{tmp_path}/{name}/journal.sqlite"\n[daemon]\nruntime_folder = "{tmp_path}/{name}"\n'
        (tmp_path / "clusters" / f"{name}.toml").write_text(text)
    written_for("alpha", tmp_path / "alpha")
    options = ("status", "--config", str(tmp_path / "sadvise.toml"), "-M")

    well, both, document = (
        sadvise(*options, "alpha"),
        sadvise(*options, "all"),
        json.loads(sadvise(*options, "beta,alpha", "--json").out),
    )
    (tmp_path / "clusters" / "broken.toml").write_text("nonsense")
    broken = sadvise(*options, "all")

    assert (well.exit_code, both.exit_code, broken.exit_code) == (0, 5, 1)
    assert [line.split()[:2] for line in both.out.splitlines()[1:]] == [["alpha", "running"], ["beta", "not"]]
    assert "not valid TOML" in broken.out and "alpha" in broken.out
    assert [entry["cluster"] for entry in document["clusters"]] == ["beta", "alpha"]
    assert document["clusters"][1]["is_well"] is True


@pytest.mark.parametrize("command", ["status", "pause", "resume"])
def test_daemon_of_another_cluster_is_not_that_of_the_one_named(
    command: str, status: Status, sadvise: Sadvise, tmp_path: Path
) -> None:
    written_for("live", tmp_path)

    other, own = sadvise(command, "-M", "nosuch"), sadvise(command, "-M", "Live")

    assert (other.exit_code, own.exit_code) == (1, 0)
    assert other.err == "sadvise: error: -M nosuch: the daemon of this configuration works on cluster live\n"
    assert not other.out and labelled(status())["mode"] == "apply"


def test_lifts_that_the_journal_does_not_know_are_named_and_make_the_exit_status_1(
    status: Status, tmp_path: Path
) -> None:
    written(tmp_path, replace(now_round(make_round(step())), strays=(4, 7, 9), unknown_lifts=(7, 9)))

    outcome = status()

    assert outcome.exit_code == 1
    assert labelled(outcome)["strays"] == (
        "lifts that the journal does not know, on jobs 7, 9; to do: `sadvise revert --strays`"
    )
    assert json.loads(status("--json").out)["is_well"] is False


def test_order_of_the_run_time_model_stands_beside_that_of_limits_unless_its_probation_tells_it(
    status: Status, tmp_path: Path
) -> None:
    order = OrderProof(jobs=400, users=31, ordered_ratio=0.95, limit_ratio=0.9, gain_ratio=0.04, error_ratio=0.01)
    look = OrderLook(model="run_time site-1", looked_time=SystemClock().now(), order=order)
    written(tmp_path, now_round(make_round(step())), run_time_order=look)

    text, document = status().out, json.loads(status("--json").out)
    written(tmp_path, now_round(make_round(step())), run_time_order=look, on_probation={"run_time site-1": "is not"})
    aside = status().out

    assert "order     run_time site-1 orders 95.0 % of the GPU-time in question right, time limits 90.0 %" in text
    assert document["last_round"]["run_time_order"]["order"]["ordered_ratio"] == 0.95
    assert "\norder" not in aside and "probation" in aside


def test_check_says_what_interactive_jobs_lack_to_be_lifted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, script = tmp_path / "submit-table", tmp_path / "sadvise_lift.lua"
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    off = load_config(None, {})
    alone = load_config(None, {"SADVISE_GUARD__INTERACTIVE_RATIO": "0.1"})
    wanted = load_config(None, {"SADVISE_GUARD__INTERACTIVE_RATIO": "0.1", "SADVISE_DAEMON__SUBMIT_TABLE": str(table)})

    found = [list(_interactive(off)), list(_interactive(alone)), list(_interactive(wanted))]
    table.touch()
    found.append(list(_interactive(wanted)))
    script.touch()
    found.append(list(_interactive(wanted)))

    assert [[str(check.status) for check in checks] for checks in found] == [
        [], ["lacks"], ["lacks"], ["unknown"], ["ok"],
    ]  # fmt: skip
    assert "daemon.submit_table" in found[1][0].text and str(table) in found[2][0].text
