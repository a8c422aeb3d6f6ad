"""Applying on live clusters: what is sent is read back, outlives a kill, gives way to people, and is taken back."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from advisor.apply.applier import Applier
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.process import Answer, SlurmCommands, failure
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.cycle import Cycle
from advisor.domain.actions import Action, NodeRange, SetGpus, SetNice, SetNodeRange, SetSwitches
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.lease import LeaseState
from advisor.domain.plan import Outcome
from advisor.errors import SlurmUnavailableError
from advisor.journal import opened
from advisor.settings import Limits
from tests.backends.actuator_contract import check
from tests.backends.fake_slurm import Streaming
from tests.builders import DAY_S, size_of
from tests.live.conftest import started
from tests.live.test_advice import EAGER, sadvise, state_of
from tests.programs import killed_after
from tests.terminals import on_terminal
from tools.advice_queue import PENDING, PRIORITY_LINES
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

ROOT = Path(__file__).parent.parent.parent
# No job is lifted or changes places, so that timers are all that changes.
HOLDING = {**EAGER, "SADVISE_GUARD__NICE_MIN": "0"}
# Runs one step with an actuator that kills the process before or after it has sent the first change.
KILLED = """
import os, signal, sys
from dataclasses import dataclass
from pathlib import Path
from advisor.apply.applier import Applier
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.process import SlurmCommands
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.cycle import Cycle
from advisor.settings import Limits
from advisor.journal import opened

@dataclass
class Deadly:
    before: bool
    def apply_all(self, changes):
        if not self.before:
            ScontrolActuator(SlurmCommands(timeout_s=30.0)).apply_all(changes)
        os.kill(os.getpid(), signal.SIGKILL)

source = open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock())
with opened(Path(sys.argv[1])) as journal:
    Applier(
        source=source, actuator=Deadly(sys.argv[2] == "before"),
        cycle=Cycle(limits=Limits(nice_min=0, min_job_age_s=0.0)),
        journal=journal, wanted=lambda job, snapshot: job.job_id == int(sys.argv[3]),
    ).step()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A cluster where one gang had better wait for one node and another for one leaf switch."""

    live: LiveCluster
    journal: Path
    running: int
    ranged: int
    spread: int

    def sadvise(self, *arguments: str) -> dict[str, Any]:
        """Run `apply` or `revert` without lifts, and return what it published."""
        arguments = (*arguments, "--json", "--journal", str(self.journal))
        document: dict[str, Any] = json.loads(sadvise(self.live, *arguments, settings=HOLDING))
        return document

    def apply(self, *job_ids: int) -> list[dict[str, Any]]:
        """Run `apply` for new changes to some jobs, and return all that was done."""
        changes: list[dict[str, Any]] = self.sadvise("apply", "-j", ",".join(map(str, job_ids)))["changes"]
        return [change for change in changes if change["done"] != "refused"]

    def states(self) -> list[str]:
        """Return what Slurm says of both jobs."""
        return [state_of(self.live, job_id) for job_id in (self.ranged, self.spread)]


@pytest.fixture(scope="module")
def small(release: str) -> Iterator[LiveCluster]:
    with started(
        LiveCluster(release, node_count=5, gpu_types=["h100"] * 5, shards={}, extra_lines=PRIORITY_LINES)
    ) as live:
        yield live


@pytest.fixture(scope="module")
def filled(small: LiveCluster) -> tuple[int, int, int]:
    live = small
    running = [
        live.submit("--time=00:20:00", "--gres=gpu:h100:8", "-n8", f"--nodelist=n0{node}") for node in range(1, 6)
    ]

    def all_run() -> bool:
        return len(live.run("squeue", "-h", "-a", "-t", "RUNNING", "-o", "%A").split()) == len(running)

    live.wait_for(all_run, 60.0, what="the first jobs run")
    # By rule the first in line never waits for a closer place.
    live.submit("--time=00:20:00", "--gres=gpu:h100:8", "-n8", "--nodelist=n01")
    ranged, spread = live.submit(*PENDING["bert-range"]), live.submit(*PENDING["gpt-ddp"])

    wait_until_considered(live)
    return running[0], ranged, spread


def wait_until_considered(live: LiveCluster) -> None:
    """Wait until Slurm has looked at every job, also after an update, which takes a job's reason away."""

    def considered() -> bool:
        return "None" not in live.run("squeue", "-h", "-a", "-t", "PENDING", "-o", "%r").split()

    live.wait_for(considered, 60.0, what="Slurm has looked at every job")


@pytest.fixture
def queue(
    small: LiveCluster, filled: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Queue]:
    """The queue as its users submitted it, with an empty journal; also for what runs in this process."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, small.env[name])
    running, ranged, spread = filled
    wait_until_considered(small)
    queue = Queue(live=small, journal=tmp_path / "journal.sqlite", running=running, ranged=ranged, spread=spread)
    before = queue.states()
    yield queue
    queue.live.run("scontrol", "update", f"JobId={ranged}", "NumNodes=1-4")
    queue.live.run("scontrol", "update", f"JobId={spread}", "Switches=0@0")
    assert queue.states() == before


def test_timers_are_applied_read_back_kept_and_taken_back(queue: Queue) -> None:
    before = queue.states()

    first = queue.apply(queue.ranged, queue.spread)
    during = queue.states()
    second = queue.apply(queue.ranged, queue.spread)
    reverted = queue.sadvise("revert", "--all")["changes"]

    assert [(row["job_id"], row["lever"], row["outcome"]) for row in first] == [
        (queue.ranged, "node_range", "applied"),
        (queue.spread, "switches", "applied"),
    ]
    assert all(now != then for now, then in zip(during, before, strict=True))
    assert second == []
    assert [(row["job_id"], row["done"], row["outcome"]) for row in reverted] == [
        (queue.ranged, "taken_back", "applied"),
        (queue.spread, "taken_back", "applied"),
    ]
    assert queue.states() == before
    assert queue.sadvise("revert", "--all")["changes"] == []


class SocketConnection(HTTPConnection):
    """A connection to a Unix socket, as a proxy on this host has it."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60.0)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Administrator:
    """Uses the web view as root's browser does, through a proxy that names root."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cookie = ""

    def get(self, page: str) -> tuple[int, str]:
        return self._ask("GET", page, {})

    def confirm(self, page: str) -> str:
        """Open the page of an operation and send its form; return the page that follows."""
        token = re.search(r'name="csrf_token" value="([^"]+)"', self.get(page)[1])
        assert token is not None
        form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://localhost"}
        status, text = self._ask("POST", page, form, f"csrf_token={token[1]}")
        assert status == 200, text
        return text

    def _ask(self, method: str, page: str, headers: dict[str, str], body: str = "") -> tuple[int, str]:
        connection = SocketConnection(self._path)
        sent = {"Host": "localhost", "X-Remote-User": "root", "Cookie": self._cookie, **headers}
        connection.request(method, page, body, sent)
        answer = connection.getresponse()
        self._cookie = (answer.getheader("Set-Cookie") or self._cookie).partition(";")[0]
        text = answer.read().decode()
        connection.close()
        return answer.status, text


def test_forms_of_the_web_view_apply_and_revert_as_the_commands_do(queue: Queue, tmp_path: Path) -> None:
    before, path = queue.states(), tmp_path / "web.sock"
    web = {"ACTIONS": "true", "ADMIN_GROUP": "root", "USER_HEADER": "X-Remote-User", "LISTEN": f"unix:{path}"}
    settings = {**queue.live.env, **HOLDING, **{f"SADVISE_WEB__{name}": value for name, value in web.items()}}
    argv = [sys.executable, "-m", "advisor.cli.main", "web", "--journal", str(queue.journal)]

    with killed_after(subprocess.Popen(argv, env=settings)) as process:
        root = Administrator(path)
        queue.live.wait_for(lambda: path.exists() and root.get("/")[0] == 200, 180.0, what="the web view has read")
        shown = root.get("/advice")[1]
        applied = root.confirm(f"/do/apply/{queue.spread}")
        during = queue.states()
        reverted = root.confirm(f"/do/revert/{queue.spread}")
        process.terminate()
        assert process.wait(30.0) == 0

    assert f"/do/apply/{queue.spread}" in shown
    assert "switches" in applied and "applied" in applied
    assert during[0] == before[0] and during[1] != before[1]
    assert "taken back" in reverted
    assert queue.states() == before
    assert not path.exists()


def test_keys_of_top_apply_and_revert_as_the_commands_do(queue: Queue) -> None:
    before, argv = queue.states(), [sys.executable, "-m", "advisor.cli.main", "top", "--journal", str(queue.journal)]

    with on_terminal(argv, {**queue.live.env, **HOLDING}) as shown:
        shown.until("Waiting 3")
        shown.press(f"/{queue.spread}\r")
        shown.until("Waiting 1 of 3")
        shown.press("a")
        shown.until(f"sadvise apply -j {queue.spread} --journal")
        shown.press("y")
        shown.until(f"applied: job {queue.spread} switches")
        during = queue.states()
        # Esc with a key right behind it is another key, and the line of keys is drawn again once the box is closed.
        shown.forget()
        shown.press("q")
        shown.until("Filter")
        shown.until("In effect 1")
        shown.press("v")
        shown.until(f"sadvise revert {queue.spread} --journal")
        shown.press("y")
        shown.until(f"taken back: job {queue.spread} switches")
        shown.forget()
        shown.press("q")
        shown.until("Filter")
        shown.until("no change of sadvise is in effect")
        shown.press("q")
        assert shown.ended() == 0

    assert during[0] == before[0] and during[1] != before[1]
    assert queue.states() == before
    with opened(queue.journal) as journal:
        assert journal.leases() == ()


def test_node_range_is_relaxed_when_its_timer_ends(queue: Queue) -> None:
    before = queue.states()
    queue.apply(queue.ranged)
    early = queue.apply(queue.running)
    with opened(queue.journal) as journal:
        (lease,) = journal.leases()
        assert lease.due_time is not None and lease.due_time - lease.applied_time >= 60.0
        journal.keep(replace(lease, due_time=lease.applied_time))

    late = queue.apply(queue.running)

    assert early == []
    assert [(row["job_id"], row["done"], row["outcome"]) for row in late] == [(queue.ranged, "taken_back", "applied")]
    assert queue.states() == before


def test_what_a_user_changes_later_stays_and_the_job_is_left_alone(queue: Queue) -> None:
    queue.apply(queue.ranged)
    queue.live.run("scontrol", "update", f"JobId={queue.ranged}", "NumNodes=1-2")

    found = queue.apply(queue.ranged)
    later = queue.sadvise("apply", "-j", str(queue.ranged))
    reverted = queue.sadvise("revert", str(queue.ranged))["changes"]

    assert [(row["job_id"], row["done"]) for row in found] == [(queue.ranged, "hands_off")]
    assert later["changes"] == []
    assert {"job_id": queue.ranged, "rule": "no_person_objected"} in later["skipped"]
    assert [(row["job_id"], row["done"]) for row in reverted] == [(queue.ranged, "hands_off")]
    assert "1-2" in queue.live.run("scontrol", "show", "job", str(queue.ranged))


def test_what_is_due_is_reverted_when_squeue_fails_on_the_whole_queue(queue: Queue, tmp_path: Path) -> None:
    before = queue.states()
    queue.apply(queue.ranged)
    with opened(queue.journal) as journal:
        (lease,) = journal.leases()
        journal.keep(replace(lease, due_time=lease.applied_time))
    blind = tmp_path / "bin" / "squeue"
    blind.parent.mkdir()
    folders = map(Path, queue.live.env["PATH"].split(os.pathsep))
    real = next(folder / "squeue" for folder in folders if (folder / "squeue").exists())
    blind.write_text(f'#!/bin/sh\ncase " $* " in *" -j "*) exec {real} "$@";; esac\necho "too long" >&2; exit 1\n')
    blind.chmod(0o755)
    argv = [sys.executable, "-m", "advisor.cli.main", "apply", "-P", "-h", "--source", "text"]
    env = {**queue.live.env, "PATH": f"{blind.parent}:{queue.live.env['PATH']}"}

    answer = subprocess.run(
        [*argv, "--journal", str(queue.journal)], env=env, capture_output=True, text=True, check=False
    )

    assert answer.returncode == 1 and "too long" in answer.stderr
    assert answer.stderr.endswith("; reverted 1 of 1 due change\n")
    assert answer.stdout.startswith(f"{queue.ranged}|node_range|taken_back|applied||")
    assert queue.states() == before


@pytest.mark.parametrize("when", ["before", "after"])
def test_next_step_finds_out_what_a_killed_one_has_sent(queue: Queue, when: str) -> None:
    before = queue.states()
    argv = [sys.executable, "-c", KILLED, str(queue.journal), when, str(queue.ranged)]
    killed = subprocess.run(argv, env=dict(os.environ), cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    source = open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock())

    with opened(queue.journal) as journal:
        (intent,) = journal.leases()
        applier = Applier(
            source=source,
            actuator=ScontrolActuator(SlurmCommands(timeout_s=30.0)),
            cycle=Cycle(),
            journal=journal,
            grace_s=0.0,
        )
        applier.reconcile(source.snapshot())
        known = journal.leases()
        applier.revert(source.snapshot())
        left = journal.leases()

    assert intent.state is LeaseState.INTENDED
    assert [(lease.job_id, lease.state) for lease in known] == (
        [(queue.ranged, LeaseState.OUT)] if when == "after" else []
    )
    assert left == ()
    assert queue.states() == before


def test_actuator_keeps_to_the_contract(queue: Queue) -> None:
    switches = SwitchRequest(count=1, max_wait_s=600.0)
    one, four = NodeRange(low=1, high=1), NodeRange(low=1, high=4)
    actions: list[Action] = [
        SetNice(job_id=queue.ranged, before=0, after=25),
        SetSwitches(job_id=queue.spread, before=None, after=switches),
        SetNodeRange(job_id=queue.ranged, before=four, after=one),
        SetGpus(
            job_id=queue.ranged,
            scope=GpuScope.JOB,
            before=size_of(GpuCount(gpu_type="h100", count=8)),
            after=size_of(GpuCount(gpu_type="h100", count=4)),
        ),
        SetGpus(
            job_id=queue.ranged,
            scope=GpuScope.JOB,
            before=size_of(GpuCount(gpu_type="h100", count=8), limit_s=DAY_S),
            after=size_of(GpuCount(gpu_type="h100", count=4), limit_s=2 * DAY_S),
        ),
    ]
    # Or the smaller gang might start.
    queue.live.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")

    check(
        ScontrolActuator(SlurmCommands(timeout_s=30.0)),
        open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock()),
        actions,
        running=queue.running,
    )
    queue.live.run("scontrol", "update", "PartitionName=gpu", "State=UP")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsUser(Streaming):
    """Slurm's commands as another user runs them."""

    live: LiveCluster
    user: str
    cluster: str | None = None

    def ask(self, program: str, *arguments: str) -> Answer:
        """Run a command as the user."""
        answer = self.live.ask(program, *arguments, user=self.user)
        if answer.returncode != 0:
            raise failure(program, answer.returncode, answer.stderr.encode(), self.live.env)
        return Answer(output=answer.stdout.encode(), complaints=answer.stderr.encode())

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Run a command that reads lines."""
        return self.live.ask(program, stdin="".join(f"{line}\n" for line in lines), user=self.user).stderr


def test_what_slurm_denies_is_a_receipt_that_says_who_may(queue: Queue) -> None:
    before = queue.states()
    change = SetNice(job_id=queue.ranged, before=0, after=25)

    receipt = ScontrolActuator(AsUser(live=queue.live, user="games")).apply(change)

    assert receipt.outcome is Outcome.FAILED
    assert receipt.text.startswith("Slurm denies it: it takes the owner of the job")
    assert queue.states() == before


def test_value_changed_meanwhile_is_not_overwritten(queue: Queue) -> None:
    stale = SetNodeRange(job_id=queue.ranged, before=NodeRange(low=1, high=3), after=NodeRange(low=1, high=1))
    before = queue.states()

    receipt = ScontrolActuator(SlurmCommands(timeout_s=30.0)).apply(stale)

    assert (receipt.outcome, receipt.text) == (Outcome.FAILED, "somebody else has changed the field meanwhile")
    assert queue.states() == before


def test_slurmctld_that_cannot_be_reached_leaves_an_intent(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock())
    snapshot = source.snapshot()
    # Nothing listens at the port that is reserved for nothing.
    elsewhere = re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=1", (queue.live.folder / "slurm.conf").read_text())
    (queue.live.folder / "elsewhere.conf").write_text(elsewhere)
    monkeypatch.setenv("SLURM_CONF", str(queue.live.folder / "elsewhere.conf"))

    with opened(queue.journal) as journal:
        applier = Applier(
            source=source,
            actuator=ScontrolActuator(SlurmCommands(timeout_s=1.0)),
            cycle=Cycle(limits=Limits(nice_min=0, min_job_age_s=0.0)),
            journal=journal,
            wanted=lambda job, _: job.job_id == queue.ranged,
        )
        with pytest.raises(SlurmUnavailableError):
            applier.step(snapshot)
        intents = journal.leases()

    assert [(lease.job_id, lease.state) for lease in intents] == [(queue.ranged, LeaseState.INTENDED)]


def test_restart_of_slurmctld_does_not_keep_a_node_range_tight(
    small: LiveCluster, filled: tuple[int, int, int], tmp_path: Path
) -> None:
    running, ranged, spread = filled
    queue = Queue(live=small, journal=tmp_path / "journal.sqlite", running=running, ranged=ranged, spread=spread)
    applied = queue.apply(ranged)
    small.stop_controller()
    small.start_controller()

    reverted = queue.sadvise("revert", "--all")["changes"]

    assert [row["outcome"] for row in applied] == ["applied"]
    assert [(row["job_id"], row["done"], row["outcome"]) for row in reverted] == [(ranged, "taken_back", "applied")]
    assert "NumNodes=1-1 " not in small.run("scontrol", "show", "job", str(ranged))
    assert queue.sadvise("revert", "--all")["changes"] == []
