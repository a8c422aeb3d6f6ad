"""Starts the daemon with its log, metrics and locks on the live cluster."""

from collections.abc import Callable
from pathlib import Path

from advisor import __version__
from advisor.clock import SystemClock
from advisor.config import Config
from advisor.daemon.exclusive import only_daemon
from advisor.daemon.live_parts import LiveParts
from advisor.daemon.notify import Notifier
from advisor.daemon.outbox import Outbox
from advisor.daemon.refit import refit
from advisor.daemon.round_log import RoundLog
from advisor.daemon.run import Daemon
from advisor.daemon.service import Service
from advisor.daemon.twin_keeper import TwinKeeper, run_in_child
from advisor.daemon.weekly_tune import weekly_tune
from advisor.guard.breakers import BREAKERS
from advisor.metrics.observer import Metrics
from advisor.metrics.round import Round
from advisor.site.delivery import deliver
from advisor.site.digest_child import notices_of
from advisor.site.endpoint import served
from advisor.site.lease_socket import LeaseWindow, shown
from advisor.site.logs import configure_logs
from advisor.site.notice_state import state_file
from advisor.site.site_gate import RoundDeadline
from advisor.site.status_file import remove_status, status_after, write_status


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
    metrics = Metrics(
        version=__version__, interval_s=config.daemon.interval_s, journal=journal, breakers=tuple(BREAKERS)
    )
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
            refit=lambda now: refit(now, RoundDeadline(patience.stopping)),
            tune=lambda now: weekly_tune(now, RoundDeadline(patience.stopping)),
            notifier=Notifier(),
            clock=clock,
            log=log,
        )
        try:
            return daemon.run()
        finally:
            remove_status(folder)
