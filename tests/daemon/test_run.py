"""The daemon as a whole: rounds, signals, faults of its own, the end, and what the service manager hears."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from advisor.clock import Clock, SystemClock
from advisor.config import Config, adoption_file, with_adoption
from advisor.daemon.run import Beside, Daemon, Notifier
from advisor.daemon.service import Service
from advisor.domain.failing_node import FailingNode
from advisor.domain.idle_gpus import IdleJob, IdleLook, UtilisationSettings
from advisor.domain.mode import Mode, Modes
from advisor.domain.snapshot import Snapshot
from advisor.domain.tune_verdict import Adoption, Tuned, TuneVerdict
from advisor.errors import ConfigError, SlurmUnavailableError, UtilisationError
from advisor.files import replace_file
from advisor.journal import SqliteJournal
from advisor.journal.base import FAILING, IDLE, TUNED
from tests.daemon.rounds import Site
from tests.fake_cluster import fragmented


@dataclass
class Log:
    """Keeps what is logged."""

    events: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **said: self.events.append((level, event, said))

    def said(self, event: str) -> list[dict[str, Any]]:
        """Return what was said with an event."""
        return [said for _, each, said in self.events if each == event]


class ServiceManager:
    """A service manager that reads each message as it comes, since the kernel queues only a few."""

    def __init__(self, address: Path) -> None:
        """Listen on a socket file."""
        self._address = str(address)
        self._messages: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._address)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def heard(self) -> list[str]:
        """Return the messages that were sent so far, and stop reading."""
        if self._reader.is_alive():
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.settimeout(10.0)
                # The empty message is the last in the queue.
                last.sendto(b"", self._address)
            self._reader.join(10.0)
            assert not self._reader.is_alive(), "the service manager's thread does not end"
        return self._messages

    def close(self) -> None:
        """Stop reading and close the socket."""
        self.heard()
        self._socket.close()

    def _read(self) -> None:
        while message := self._socket.recv(4096):
            self._messages.append(message.decode())


@dataclass
class Running:
    """A daemon that can be started in this thread, with something to do beside it."""

    site: Site
    service: Service
    log: Log
    manager: ServiceManager
    notifier: Notifier
    reloaded: Callable[[], Config]
    refitted: list[Config] = field(default_factory=list)
    tuned: list[Config] = field(default_factory=list)
    failing: Sequence[FailingNode] = ()
    look: IdleLook | UtilisationError = field(default_factory=lambda: IdleLook(looked_time=0.0))
    clock: Clock = field(default_factory=SystemClock)

    def run(self, *beside: Callable[[], None]) -> tuple[bool, float]:
        """Run until each thing beside it is done and the daemon was told to end; return how that went, and took."""
        daemon = self.daemon()
        told: list[float] = []
        over = threading.Event()

        def play() -> None:
            try:
                for each in beside:
                    each()
            finally:
                told.append(time.monotonic())
                # Where the daemon has failed already, the signal would end the tests.
                if not over.is_set():
                    os.kill(os.getpid(), signal.SIGTERM)

        player = threading.Thread(target=play, daemon=True)
        player.start()
        try:
            whole = daemon.run()
        finally:
            over.set()
        player.join(10.0)
        return whole, time.monotonic() - told[0]

    def daemon(self) -> Daemon:
        """Return the daemon, not started."""
        return Daemon(
            self.service,
            reload=self.reloaded,
            beside=Beside(
                refit=self._refit,
                tune=self._tune,
                failing=lambda _config, _node_count: self.failing,
                idle=self._look,
            ),
            notifier=self.notifier,
            clock=self.clock,
            log=self.log,
        )

    def rounds(self, count: int) -> Callable[[], None]:
        """Return what waits until so many rounds were told."""

        def wait() -> None:
            deadline = time.monotonic() + 20.0
            while len(self.site.told) < count:
                assert time.monotonic() < deadline, "no further round"
                time.sleep(0.02)

        return wait

    def _tune(self, config: Config) -> Tuned:
        self.tuned.append(config)
        return Tuned(TuneVerdict(jobs=40, in_force="slurm"))

    def _look(self, _config: Config, _running: Snapshot) -> IdleLook:
        if isinstance(self.look, UtilisationError):
            raise self.look
        return self.look

    def _refit(self, config: Config) -> str:
        self.refitted.append(config)
        return "fitted"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A daemon over a fake cluster, with a round every second, and a service manager that listens."""
    site = Site(folder=tmp_path, cluster=fragmented())
    service = site.service()
    quick = replace(service.config.daemon, interval_s=1.0, jitter_s=0.0)
    service.reconfigure(replace(service.config, daemon=quick))
    with closing(ServiceManager(tmp_path / "notify")) as manager:
        yield Running(
            site=site,
            service=service,
            log=Log(),
            manager=manager,
            notifier=Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")}),
            reloaded=lambda: service.config,
        )
    service.close()


def hang_up() -> None:
    """Ask for a reload, as `systemctl reload` does."""
    os.kill(os.getpid(), signal.SIGHUP)


def test_rounds_follow_each_other_and_the_end_leaves_nothing_out(running: Running) -> None:
    before = dict(running.site.cluster.jobs)

    whole, took_s = running.run(running.rounds(3))

    started = [done.started_time for done in running.site.told]
    assert whole and took_s < 5.0
    assert len(running.site.told) >= 3
    assert running.site.told[0].step is not None and len(running.site.told[0].step.applied) == 1
    assert running.log.said("ended") == [{"taken_back": 1, "still_out": 0}]
    assert running.site.cluster.jobs == before
    assert started == sorted(started)
    heard = running.manager.heard()
    # A round that was under way when the end began still feeds the watchdog.
    assert heard[0] == "READY=1" and [state for state in heard if state != "WATCHDOG=1"][-1] == "STOPPING=1"
    assert "WATCHDOG=1" in heard and any(state.startswith("STATUS=apply: 1 recommended, 1 sent") for state in heard)


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[Notifier]:
    """A notifier whose service manager reads nothing; its queue is full already."""
    address = str(tmp_path / "unread")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        filler = Notifier({"NOTIFY_SOCKET": address})
        while not filler.dropped:
            filler.alive()
        yield Notifier({"NOTIFY_SOCKET": address})


def test_rounds_and_the_orderly_end_do_not_wait_for_a_service_manager_that_does_not_read(
    running: Running, unread: Notifier
) -> None:
    running.notifier = unread

    whole, took_s = running.run(running.rounds(3))

    assert whole and took_s < 5.0
    assert len(running.site.told) >= 3
    assert running.log.said("ended") == [{"taken_back": 1, "still_out": 0}]
    # One status and one watchdog message per round; the log says it once.
    assert unread.dropped >= 6
    (warning,) = running.log.said("messages to the service manager are dropped")
    assert 1 <= warning["dropped"] <= unread.dropped


def test_a_service_manager_that_reads_late_still_gets_ready(running: Running, tmp_path: Path) -> None:
    address = str(tmp_path / "late")
    messages: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(5.0)
        running.notifier = Notifier({"NOTIFY_SOCKET": address})
        while not running.notifier.dropped:
            running.notifier.alive()

        def read_until_ready() -> None:
            while "READY=1" not in messages:
                messages.append(manager.recv(4096).decode())

        running.run(running.rounds(1), read_until_ready)

    assert messages.count("READY=1") == 1


def test_a_reload_counts_from_the_next_round_on(running: Running) -> None:
    running.reloaded = lambda: replace(running.service.config, mode=Modes(default=Mode.OBSERVE))

    running.run(running.rounds(1), hang_up, running.rounds(3))

    assert (running.site.told[0].mode, running.site.told[-1].mode) == (Mode.APPLY, Mode.OBSERVE)
    assert running.log.said("configuration read again") == [{"mode": "observe"}]
    assert any(state.startswith("RELOADING=1\nMONOTONIC_USEC=") for state in running.manager.heard())


def test_a_broken_configuration_leaves_the_old_one_in_force(running: Running) -> None:
    def broken() -> Config:
        raise ConfigError("sadvise.toml: not valid TOML")

    running.reloaded = broken

    running.run(running.rounds(1), hang_up, running.rounds(3))

    assert [said["fault"] for said in running.log.said("configuration not taken, the old one stays in force")] == [
        "sadvise.toml: not valid TOML"
    ]
    assert running.site.told[-1].mode is Mode.APPLY
    heard = running.manager.heard()
    assert "STATUS=configuration not taken: sadvise.toml: not valid TOML" in heard
    assert heard.count("READY=1") == 2


def test_no_model_is_fitted_unless_configured(running: Running) -> None:
    running.daemon()._fit()

    assert running.refitted == []


def test_settings_are_tried_where_configured_and_the_audit_has_what_is_advised(running: Running) -> None:
    daemon = running.daemon()
    daemon._tune_week()
    assert running.tuned == []

    config = running.service.config
    running.service.reconfigure(replace(config, daemon=replace(config.daemon, tune=True)))
    daemon._tune_week()
    running.run(running.rounds(2))

    assert len(running.tuned) == 1
    with SqliteJournal.read_only(running.site.folder / "journal.sqlite") as journal:
        rows = [row for row in journal.audit() if row.event == TUNED]
    assert [TuneVerdict(**row.detail) for row in rows] == [TuneVerdict(jobs=40, in_force="slurm")]  # type: ignore[arg-type]
    assert [said["advised"] for said in running.log.said("tuned")] == [
        "tried on the last 40 GPU jobs, no preset lowers the mean JCT clearly; in force is slurm"
    ]


def test_settings_that_were_taken_up_are_in_force_from_the_next_round_on_and_logged(running: Running) -> None:
    config = running.service.config
    allowed = replace(config, daemon=replace(config.daemon, tune_presets="gentle"))
    running.service.reconfigure(allowed)
    taken_up = Adoption(
        fairness="lane",
        priority_decades=2.0,
        configured_fairness="trade",
        configured_decades=2.0,
        since_time=0.0,
        why="",
    )
    replace_file(adoption_file(config), json.dumps(asdict(taken_up)).encode())
    running.reloaded = lambda: with_adoption(allowed)

    running.run(running.rounds(2))

    assert running.service.config.guard.fairness == "lane"
    assert len(running.log.said("configuration read again")) == 1


def test_nodes_that_fail_are_in_the_status_the_log_and_the_audit_also_of_the_next_daemon(running: Running) -> None:
    running.failing = [FailingNode(name="n1", failures=3, runs=4, users=2, gpu_s=3600.0)]
    text = running.failing[0].text

    running.daemon()._look_at_nodes()
    running.run(running.rounds(2))
    later = running.site.service()
    later.round()

    with SqliteJournal.read_only(running.site.folder / "journal.sqlite") as journal:
        rows = [row.detail for row in journal.audit() if row.event == FAILING]
    assert rows == [{"nodes": text}]
    assert [said["nodes"] for said in running.log.said("nodes fail more often than chance makes")] == [text]
    assert [done.failing_nodes for done in running.site.told[-2:]] == [text, text]


def test_idle_gpus_are_in_the_status_and_hourly_in_the_audit_and_a_fault_is_said(running: Running) -> None:
    daemon, service = running.daemon(), running.service
    before = service.running
    daemon._look_at_gpus()
    on = UtilisationSettings(prometheus="http://127.0.0.1:9090")
    service.reconfigure(replace(service.config, utilisation=on))
    service.round()
    assert service.running is not None and all(job.allocation for job in service.running.jobs)
    held = service.running.jobs[0]
    found = IdleJob(job_id=held.job_id, gpus=8, idle_gpus=4, since_time=1000.0)
    running.look = IdleLook(looked_time=9000.0, jobs=(found,))

    daemon._look_at_gpus()
    daemon._look_at_gpus()
    first = service.round()
    running.look = UtilisationError("prometheus: monitor gave no answer within 10 s")
    daemon._look_at_gpus()
    second = service.round()

    with SqliteJournal.read_only(running.site.folder / "journal.sqlite") as journal:
        rows = [row.detail["jobs"] for row in journal.audit() if row.event == IDLE]
    assert [json.loads(str(row)) for row in rows] == [[[held.job_id, held.user, 4, 1000, 9000]]]
    assert before is None
    assert first.idle is not None and first.idle.jobs == (found,)
    assert second.idle is not None and second.idle.fault == str(running.look) and not second.idle.jobs
    service.reconfigure(replace(service.config, utilisation=UtilisationSettings()))
    assert service.round().idle is None


def test_a_fault_of_our_own_does_not_end_the_rounds(running: Running) -> None:
    read = running.site.cluster.snapshot
    faults = iter([ZeroDivisionError("a fault")])

    def faulty() -> Any:
        for fault in faults:
            raise fault
        return read()

    running.site.cluster.snapshot = faulty  # type: ignore[method-assign]

    running.run(running.rounds(2))

    assert [level for level, event, _ in running.log.events if event.startswith("a round failed")] == ["exception"]
    assert running.site.told[-1].step is not None


def test_rounds_come_seldom_while_slurm_is_silent(running: Running) -> None:
    running.site.silent = SlurmUnavailableError("no answer")

    running.run(running.rounds(2), lambda: time.sleep(1.5))

    assert [done.interval_s for done in running.site.told] == [2.0, 4.0]


@dataclass
class SetClock:
    """The clock of the machine, set by so much."""

    set_by_s: float = 0.0

    def now(self) -> float:
        """Return the time as it is set."""
        return time.time() + self.set_by_s


def test_a_clock_that_is_set_is_noticed_once(running: Running) -> None:
    clock = SetClock()

    def set_back() -> None:
        clock.set_by_s = -7200.0

    running.clock = clock
    running.run(running.rounds(1), set_back, running.rounds(4))

    assert [round(said["step_s"], -1) for said in running.log.said("the clock was set")] == [-7200.0]


def test_a_round_that_does_not_end_does_not_keep_the_daemon(running: Running) -> None:
    free = threading.Event()
    reading = threading.Event()

    def stuck() -> Any:
        reading.set()
        free.wait(20.0)
        raise SlurmUnavailableError("late")

    def wait_until_reading() -> None:
        assert reading.wait(5.0)

    running.site.cluster.snapshot = stuck  # type: ignore[method-assign]

    whole, took_s = running.run(wait_until_reading)
    free.set()
    # The round that was left ends by itself.
    running.rounds(1)()

    assert not whole and took_s < 5.0
    assert running.log.said("ended in the middle of a round: the next start, or `sadvise revert`, sees to its leases")


def test_a_round_that_fails_since_the_daemon_is_told_to_end_leaves_time_to_take_back(running: Running) -> None:
    reading, read = threading.Event(), running.site.cluster.snapshot

    def cut_short() -> Any:
        if not running.site.told or running.site.stopping.is_set():
            return read()
        reading.set()
        assert running.site.stopping.wait(10.0)
        # What fails makes the interval longer, just while the scheduler shuts down.
        time.sleep(0.2)
        raise SlurmUnavailableError("squeue was not started: stopping")

    def wait_until_reading() -> None:
        assert reading.wait(5.0)

    running.site.cluster.snapshot = cut_short  # type: ignore[method-assign]

    whole, took_s = running.run(running.rounds(1), wait_until_reading)

    assert whole and took_s < 2.5
    assert running.log.said("ended") == [{"taken_back": 1, "still_out": 0}]


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket that listens as systemd does, and its name."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@sadvise-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        listening.settimeout(5.0)
        yield listening, name


def test_each_state_is_one_message(manager: tuple[socket.socket, str]) -> None:
    listening, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})

    notifier.ready()
    notifier.reloading()
    notifier.alive()
    notifier.status("apply: 3 out\nREADY=1\x1b")
    notifier.stopping()
    heard = [listening.recv(4096).decode() for _ in range(5)]

    assert heard[0] == "READY=1"
    assert heard[1].startswith("RELOADING=1\nMONOTONIC_USEC=") and heard[1].rpartition("=")[2].isdecimal()
    assert heard[2:] == ["WATCHDOG=1", "STATUS=apply: 3 out READY=1 ", "STOPPING=1"]


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/notify"}])
def test_nobody_listening_is_no_fault(environ: dict[str, str]) -> None:
    Notifier(environ).ready()


def queue_limit() -> int:
    """Return how many messages the kernel queues for one socket before it takes no more."""
    return int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())


def waiting(listening: socket.socket) -> list[str]:
    """Read the messages that wait in a socket."""
    messages = []
    listening.setblocking(False)
    while True:
        try:
            messages.append(listening.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_sends_to_a_service_manager_that_does_not_read_return_at_once_and_are_counted(
    manager: tuple[socket.socket, str],
) -> None:
    listening, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    count = queue_limit() + 50

    begun = time.monotonic()
    for _ in range(count):
        notifier.alive()
    took_s = time.monotonic() - begun

    assert took_s < 5.0
    assert notifier.dropped == count - len(waiting(listening)) >= 49


def test_latest_state_is_kept_until_the_service_manager_takes_it(manager: tuple[socket.socket, str]) -> None:
    listening, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    while not notifier.dropped:
        notifier.alive()

    notifier.ready()
    notifier.stopping()
    notifier.alive()
    notifier.resend()
    dropped = notifier.dropped
    waiting(listening)
    notifier.resend()
    notifier.resend()
    notifier.alive()

    # Dropped since the queue was full: the first WATCHDOG, the READY that STOPPING replaced, the second WATCHDOG.
    assert dropped == notifier.dropped == 3
    assert waiting(listening) == ["STOPPING=1", "WATCHDOG=1"]


def test_a_state_that_was_not_taken_goes_before_the_next_message(manager: tuple[socket.socket, str]) -> None:
    listening, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    while not notifier.dropped:
        notifier.alive()
    notifier.ready()

    waiting(listening)
    notifier.status("apply: 3 out")

    assert waiting(listening) == ["READY=1", "STATUS=apply: 3 out"]


@pytest.mark.parametrize(("environ", "dropped"), [({}, 0), ({"NOTIFY_SOCKET": "/nowhere/notify"}, 1)])
def test_only_what_was_addressed_to_a_service_manager_counts_as_dropped(environ: dict[str, str], dropped: int) -> None:
    notifier = Notifier(environ)

    notifier.alive()

    assert notifier.dropped == dropped


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "90000000"}, 90.0),
        ({"WATCHDOG_USEC": "90000000", "WATCHDOG_PID": str(os.getpid())}, 90.0),
        ({"WATCHDOG_USEC": "90000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_watchdog_interval_is_that_of_this_process(environ: dict[str, str], interval_s: float | None) -> None:
    assert Notifier(environ).watchdog_s == interval_s
