"""Runs the daemon: a scheduler with one worker, signals, what the service manager is shown, and an orderly end."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from advisor.clock import Clock
from advisor.config import Config
from advisor.daemon.service import Service
from advisor.domain.dataclass import dataclass
from advisor.domain.failing_node import FailingNode
from advisor.domain.idle_gpus import IdleLook
from advisor.domain.snapshot import Snapshot
from advisor.domain.tune_verdict import Tuned
from advisor.errors import AdvisorError
from advisor.text import blanked
from advisor.view.digest_words import tune_words

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.interval import IntervalTrigger


_STATUS_LENGTH: Final = 200


class Notifier:
    """Sends states over the socket that systemd names in NOTIFY_SOCKET; does nothing where there is none.

    No method blocks. A message that the service manager does not take at once is dropped and counted. The exception is
    the latest READY, RELOADING or STOPPING: it is kept and sent before the next message, because systemd ends a unit
    that never reports READY.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        """Take the socket and the watchdog's interval from the environment."""
        self._address = environ.get("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog_s(environ)
        # The main thread, the rounds and the heartbeat all send.
        self._lock = threading.Lock()
        self._unsent_state: str | None = None
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """The number of messages that were dropped; the state that is kept for another attempt is not among them."""
        return self._dropped

    def ready(self) -> None:
        """Report that the daemon is up, or that a reload is done."""
        self._send_state("READY=1")

    def reloading(self) -> None:
        """Report that a reload of the configuration begins."""
        self._send_state(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the daemon ends."""
        self._send_state("STOPPING=1")

    def alive(self) -> None:
        """Feed the watchdog; called only by the worker that runs the rounds."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._send(f"STATUS={blanked(text)[:_STATUS_LENGTH]}")

    def resend(self) -> None:
        """Try to send the kept state, if there is one."""
        with self._lock:
            self._sent_kept_state()

    def _send_state(self, state: str) -> None:
        """Send a state, or keep it in place of an older one."""
        with self._lock:
            if self._unsent_state is not None:
                self._dropped += 1
            self._unsent_state = state
            self._sent_kept_state()

    def _send(self, message: str) -> None:
        """Send a message after the state that is kept; drop it if either does not go out."""
        with self._lock:
            if not (self._sent_kept_state() and self._sent(message)):
                self._dropped += 1

    def _sent_kept_state(self) -> bool:
        """Send the kept state; return whether none is kept now. The caller holds the lock."""
        if self._unsent_state is not None and self._sent(self._unsent_state):
            self._unsent_state = None
        return self._unsent_state is None

    def _sent(self, message: str) -> bool:
        """Send a message without blocking; return whether it went out."""
        if not self._address:
            return True
        # A leading @ stands for the zero byte of an abstract socket.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                # The kernel queues net.unix.max_dgram_qlen messages; with more than that a blocking send waits for the
                # reader, and a service manager that does not read is no reason to stop advising.
                out.setblocking(False)
                out.sendto(message.encode(), address)
        except OSError:
            return False
        return True


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's timeout in seconds; None if systemd does not watch this process."""
    pid, interval_us = environ.get("WATCHDOG_PID", ""), environ.get("WATCHDOG_USEC", "")
    if not interval_us.isdecimal() or (pid and pid != str(os.getpid())):
        return None
    return int(interval_us) / 1e6 or None


# Signals that stop the daemon, and the one that makes it reload its configuration.
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_RELOAD: Final = signal.SIGHUP
# No signal has this number. Only the thread that waits for signals uses the scheduler: during its shutdown the
# scheduler holds its locks and waits for its workers, which must therefore never wait for it.
_PLAN: Final = 0
# The maximum duration of the shutdown: running commands are cancelled, then changes are reverted.
END_S: Final = 5.0
_WORK_ENDS_S: Final = 3.0
_SPARE_S: Final = 0.5
_HEARTBEAT_S: Final = 10.0
_LOOK_S: Final = 1.0
# From one look at idle GPUs to the next, and from the start to the first, after a round.
_IDLE_S: Final = 600.0
_FIRST_IDLE_S: Final = 60.0
# A step of the wall clock beyond this reschedules the rounds, since the scheduler plans them by that clock.
_CLOCK_STEP_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a daemon does beside its rounds: fits run times, tunes, and finds failing nodes and idle GPUs.

    `failing` is called with the number of nodes, `idle` with a snapshot of the started jobs.
    """

    refit: Callable[[Config], str]
    tune: Callable[[Config], Tuned]
    failing: Callable[[Config, int], Sequence[FailingNode]]
    idle: Callable[[Config, Snapshot], IdleLook]


class Daemon:
    """A service under a scheduler with one worker: rounds, reloads and the heartbeat never overlap."""

    def __init__(
        self,
        service: Service,
        reload: Callable[[], Config],
        beside: Beside,
        notifier: Notifier,
        clock: Clock,
        log: Any,
    ) -> None:
        """Take the service; what reloads the configuration, and what else is done; notifier, clock and log."""
        self._service = service
        self._reload = reload
        self._beside = beside
        self._notifier = notifier
        self._clock = clock
        self._log = log
        self._signals: SimpleQueue[int] = SimpleQueue()
        self._scheduler = _scheduler()
        self._planned_s = service.interval_s
        self._drops_logged = False

    def run(self) -> bool:
        """Run until asked to stop; return whether everything ended, or a worker is still stuck."""
        with self._heard():
            self._start()
            self._watch()
            return self._end()

    def _start(self) -> None:
        config = self._service.config.daemon
        self._scheduler.add_job(self._round, self._trigger(), id="round", next_run_time=self._now())
        self._scheduler.add_job(self._notifier.alive, "interval", seconds=_HEARTBEAT_S, id="heartbeat")
        self._scheduler.add_job(self._prune, "cron", hour=config.night_hour, id="prune", jitter=600)
        # Beside the rounds, since it takes minutes; the work is done by another process.
        self._scheduler.add_job(
            self._fit, "cron", hour=config.night_hour, minute=30, id="fit", jitter=600, executor="beside"
        )
        self._scheduler.add_job(
            self._tune_week, "cron", day_of_week="sun", hour=config.night_hour, minute=45, id="tune", jitter=600,
            executor="beside",
        )  # fmt: skip
        self._scheduler.add_job(
            self._look_at_nodes, "cron", hour=config.night_hour, minute=15, id="nodes", jitter=600, executor="beside"
        )
        first = self._now() + timedelta(seconds=_FIRST_IDLE_S)
        self._scheduler.add_job(
            self._look_at_gpus, "interval", seconds=_IDLE_S, id="idle", next_run_time=first, executor="looks"
        )
        # No round sends its status before the daemon has reported READY.
        self._scheduler.start(paused=True)
        self._notifier.ready()
        self._log.info("started", mode=str(self._service.config.mode.farthest), pid=os.getpid())
        self._scheduler.resume()

    def _watch(self) -> None:
        """Wait for signals until one stops the daemon; reschedule the rounds if the clock was set."""
        offset_s = self._clock.now() - time.monotonic()
        while True:
            try:
                heard = self._signals.get(timeout=_LOOK_S)
            except Empty:
                heard = None
            if heard in _ENDING:
                self._log.info("received a signal to stop", signal=signal.Signals(heard).name)
                return
            if heard == _RELOAD:
                self._read_again_soon()
            if heard == _PLAN:
                self._plan_rounds()
            self._check_notifier()
            step_s = self._clock.now() - time.monotonic() - offset_s
            if abs(step_s) > _CLOCK_STEP_S:
                offset_s += step_s
                self._log.warning("the clock was set", step_s=round(step_s, 1))
                self._plan_rounds()
                self._scheduler.reschedule_job("heartbeat", trigger="interval", seconds=_HEARTBEAT_S)

    def _check_notifier(self) -> None:
        """Resend a state that the service manager did not take; log the first time that messages were dropped."""
        self._notifier.resend()
        if self._notifier.dropped and not self._drops_logged:
            self._drops_logged = True
            self._log.warning("messages to the service manager are dropped", dropped=self._notifier.dropped)

    def _round(self) -> None:
        """Run one round, and reschedule the next if the interval has changed."""
        try:
            self._notifier.status(self._service.round().summary)
        except Exception:
            # An error here must not stop the process that reverts leases; it is logged, and the next round tries again.
            self._log.exception("a round failed: a fault of sadvise itself")
        self._notifier.alive()
        if self._service.interval_s != self._planned_s:
            self._signals.put(_PLAN)
        if self._service.is_outdated:
            self._signals.put(_RELOAD)

    def _plan_rounds(self) -> None:
        self._planned_s = self._service.interval_s
        self._scheduler.reschedule_job("round", trigger=self._trigger())

    def _trigger(self) -> "IntervalTrigger":
        from apscheduler.triggers.interval import IntervalTrigger

        jitter_s = self._service.config.daemon.jitter_s
        return IntervalTrigger(seconds=self._planned_s, jitter=jitter_s or None, timezone=UTC)

    def _read_again_soon(self) -> None:
        """Have the worker reload the configuration between two rounds; a second request waits for the first."""
        self._scheduler.add_job(self._read_again, "date", run_date=self._now(), max_instances=8)

    def _read_again(self) -> None:
        """Read, check and swap the configuration; an invalid one changes nothing."""
        self._notifier.reloading()
        try:
            self._service.reconfigure(self._reload())
        except AdvisorError as err:
            self._log.warning("configuration not taken, the old one stays in force", fault=str(err))
            self._notifier.status(f"configuration not taken: {err}")
        else:
            self._log.info("configuration read again", mode=str(self._service.config.mode.farthest))
            self._signals.put(_PLAN)
        self._notifier.ready()
        self._notifier.alive()

    def _prune(self) -> None:
        try:
            self._service.prune()
        except AdvisorError as err:
            self._log.warning("the journal was not pruned", fault=str(err))

    def _fit(self) -> None:
        """Fit run times in another process, as configured, then load what it put in use."""
        config = self._service.config
        if config.daemon.refit:
            try:
                self._log.info("models fitted again", result=self._beside.refit(config))
                self._signals.put(_RELOAD)
            except AdvisorError as err:
                self._log.warning("models were not fitted again, the old ones stay in use", fault=str(err))

    def _tune_week(self) -> None:
        """Try other settings on the last weeks in another process, as configured, and record what that advises."""
        config = self._service.config
        if config.daemon.tune:
            try:
                tuned = self._beside.tune(config)
                self._service.note_tune(tuned)
                self._log.info("tuned", advised=tune_words(tuned.advised))
            except AdvisorError as err:
                self._log.warning("settings were not tried", fault=str(err))

    def _look_at_nodes(self) -> None:
        """Find the nodes that fail more often than chance makes, and record them."""
        try:
            found = self._beside.failing(self._service.config, self._service.node_count)
        except AdvisorError as err:
            self._log.info("accounting has not shown which nodes fail", fault=str(err))
            return
        nodes = "; ".join(node.text for node in found)
        self._service.note_failing(nodes)
        if nodes:
            self._log.warning("nodes fail more often than chance makes", nodes=nodes)

    def _look_at_gpus(self) -> None:
        """Find the GPUs that running jobs hold idle, where the site measures them, and have them published."""
        config, running = self._service.config, self._service.running
        if running is None:
            return
        try:
            look = self._beside.idle(config, running)
        except AdvisorError as err:
            self._log.info("idle GPUs are not known", fault=str(err))
            look = IdleLook(looked_time=running.taken_at, fault=str(err))
        self._service.note_idle(look, running)

    def _end(self) -> bool:
        """Cancel running commands, revert changes that do not expire, and log the changes that stay in effect."""
        until = time.monotonic() + END_S - _SPARE_S
        self._notifier.stopping()
        self._service.stop()
        ender = threading.Thread(target=self._scheduler.shutdown, daemon=True)
        ender.start()
        ender.join(_WORK_ENDS_S)
        if ender.is_alive():
            self._log.warning("ended in the middle of a round: the next start, or `sadvise revert`, sees to its leases")
            return False
        left = self._service.leave(until - time.monotonic())
        self._log.info("ended", **left)
        return True

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC)

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Handle signals for the duration of the block."""
        before = {
            number: signal.signal(number, lambda heard, _frame: self._signals.put(heard))
            for number in (*_ENDING, _RELOAD)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _scheduler() -> "BackgroundScheduler":
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    # A heartbeat that is skipped because a round still runs is not logged.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    return BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(1), "beside": ThreadPoolExecutor(1), "looks": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone=UTC,
        daemon=True,
    )
