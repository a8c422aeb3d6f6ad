"""Starts the daemon with its log, metrics and locks on the live cluster."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from advisor import __version__
from advisor.backends.commands import chosen_cluster
from advisor.backends.failures_reader import read_failed_runs
from advisor.backends.process import SlurmCommands
from advisor.clock import SystemClock
from advisor.config import Config
from advisor.daemon.live_parts import LiveParts
from advisor.daemon.outbox import Outbox
from advisor.daemon.round_log import RoundLog
from advisor.daemon.run import Beside, Daemon, Notifier
from advisor.daemon.service import Service
from advisor.daemon.twin_keeper import TwinKeeper, run_in_child
from advisor.daemon.weekly_tune import refit, weekly_tune
from advisor.diagnose.failing_nodes import SINCE, failing_nodes
from advisor.domain.failing_node import FailingNode
from advisor.domain.idle_gpus import IdleLook
from advisor.domain.snapshot import Snapshot
from advisor.errors import ConfigError
from advisor.journal.file import taken
from advisor.metrics.observer import Metrics
from advisor.metrics.round import Round
from advisor.site.delivery import deliver, state_file
from advisor.site.digests import notices_of
from advisor.site.endpoint import served
from advisor.site.idle_watch import look_for_idle
from advisor.site.lease_socket import LeaseWindow, shown
from advisor.site.logs import configure_logs
from advisor.site.site_gate import RoundDeadline
from advisor.site.status_file import remove_status, status_after, write_status


@contextmanager
def only_daemon(folder: Path, journal: Path) -> Iterator[None]:
    """Hold the locks of the daemon, one in the runtime folder and one beside the journal, while the block runs.

    They end with the process, however that ends. Raises `ConfigError` if another daemon holds one.
    """
    beside = journal.with_name(f"{journal.name}.daemon")
    with _held(folder / "sadvised.lock", "daemon.runtime_folder"), _held(beside, "journal.file"):
        yield


@contextmanager
def _held(path: Path, key: str) -> Iterator[None]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as err:
        raise ConfigError(f"{path}: {err.strerror}: make its folder for this user, or set {key}") from err
    try:
        if not taken(descriptor):
            raise ConfigError(f"{path}: another sadvised runs here: stop that one first")
        yield
    finally:
        os.close(descriptor)


def one_round(config: Config) -> Round:
    """Run one round of the daemon; raises `ConfigError` if a daemon runs, or its folders do not exist."""
    rounds: list[Round] = []
    with only_daemon(Path(config.daemon.runtime_folder), Path(config.journal.file)):
        service = Service(LiveParts(SystemClock(), RoundDeadline()).build, config, SystemClock(), rounds.append)
        try:
            return service.round()
        finally:
            service.close()


def run(load: Callable[[], Config]) -> bool:
    """Run the daemon until it is asked to stop, and return whether all of it ended.

    `load` reads the configuration, now and at every reload. Raises `ConfigError` if a daemon already runs, its folders
    do not exist, or the address of its metrics is in use.
    """
    clock, patience, config = SystemClock(), RoundDeadline(), load()
    journal = Path(config.journal.file)
    log = configure_logs(config.daemon.log_level, config.daemon.log_format)
    metrics = Metrics(version=__version__, interval_s=config.daemon.interval_s, journal=journal)
    round_log = RoundLog(log)
    twin = TwinKeeper(lambda task: run_in_child(task, RoundDeadline(patience.stopping)))

    def reload() -> Config:
        config = load()
        configure_logs(config.daemon.log_level, config.daemon.log_format)
        outbox.adopt(config)
        return config

    folder, window = Path(config.daemon.runtime_folder), LeaseWindow()
    outbox = Outbox(
        config,
        state_file(journal),
        clock,
        log,
        deliver=lambda notice, target, settings: deliver(notice, target, settings, RoundDeadline(patience.stopping)),
        make=lambda task: notices_of(task, RoundDeadline(patience.stopping)),
        count=metrics.count_notice,
    )

    def tell(done: Round) -> None:
        unfilled = metrics.observe(done)
        outbox.observe(done)
        fault = write_status(folder, status_after(done, undelivered=outbox.fault))
        round_log.tell(done, [*unfilled, *([f"status: {fault}"] if fault else [])])

    with (
        only_daemon(folder, journal),
        served(config.metrics.listen, metrics) as where,
        shown(window, folder) as hidden_by,
        outbox.running(),
    ):
        if hidden_by:
            log.warning("users cannot ask for the leases of their jobs", fault=hidden_by)
        log.info("serving", version=__version__, metrics=where or "nowhere", journal=str(journal))
        daemon = Daemon(
            Service(LiveParts(clock, patience).build, config, clock, tell, window.show, twin),
            reload=reload,
            beside=Beside(
                refit=lambda now: refit(now, RoundDeadline(patience.stopping)),
                tune=lambda now: weekly_tune(now, RoundDeadline(patience.stopping)),
                failing=lambda now, node_count: _failing(now, node_count, RoundDeadline(patience.stopping)),
                idle=lambda now, running: _idle(now, running, RoundDeadline(patience.stopping)),
            ),
            notifier=Notifier(),
            clock=clock,
            log=log,
        )
        try:
            return daemon.run()
        finally:
            remove_status(folder)


def _failing(config: Config, node_count: int, patience: RoundDeadline) -> tuple[FailingNode, ...]:
    """Return the nodes that fail more often than chance makes, by accounting; raises `SlurmError` or `DecodeError`."""
    cluster = chosen_cluster(None, os.environ)
    commands = SlurmCommands(timeout_s=config.source.timeout_s, cluster=cluster, patience=patience)
    return failing_nodes(read_failed_runs(commands, SINCE), node_count)


def _idle(config: Config, running: Snapshot, patience: RoundDeadline) -> IdleLook:
    """Return the running jobs that hold idle GPUs; raises `UtilisationError`."""
    cluster = chosen_cluster(None, os.environ)
    commands = SlurmCommands(timeout_s=config.source.timeout_s, cluster=cluster, patience=patience)
    return look_for_idle(running, config.utilisation, commands, SystemClock(), patience)
