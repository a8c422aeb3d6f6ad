"""`sadvise serve`: the daemon, also installed as `sadvised`."""

from typing import Annotated

import typer

from advisor.cli.options import ConfigFile


def serve(
    config: ConfigFile = None,
    once: Annotated[bool, typer.Option("--once", help="Run one round, then end; leases stay out.")] = False,
) -> None:
    """Run the daemon: read the cluster every minute, and recommend or apply as [mode] says; observes by default.

    SIGHUP reads the configuration anew, SIGTERM takes back what nobody else would and ends.
    """
    import os
    from pathlib import Path

    from advisor import __version__
    from advisor.clock import SystemClock
    from advisor.config import load_config
    from advisor.daemon.endpoint import served
    from advisor.daemon.exclusive import only_daemon
    from advisor.daemon.hold import Patience
    from advisor.daemon.logs import configure_logs
    from advisor.daemon.notify import Notifier
    from advisor.daemon.outfit import LiveParts
    from advisor.daemon.refit import refit
    from advisor.daemon.round_log import RoundLog
    from advisor.daemon.run import Daemon
    from advisor.daemon.service import Service
    from advisor.guard.breakers import BREAKERS
    from advisor.metrics.observer import Metrics
    from advisor.round import Round

    clock, patience = SystemClock(), Patience()
    settings = load_config(config, os.environ)
    journal = Path(settings.journal.file)
    log = configure_logs(settings.daemon.log_level, settings.daemon.log_format)
    metrics = Metrics(
        version=__version__, interval_s=settings.daemon.interval_s, journal=journal, breakers=tuple(BREAKERS)
    )
    round_log = RoundLog(log)

    def told(done: Round) -> None:
        round_log.tell(done, metrics.observe(done))

    with only_daemon(Path(settings.daemon.runtime_folder), journal):
        service = Service(
            LiveParts(clock, patience).build,
            settings,
            clock,
            told=told,
        )
        if once:
            typer.echo(service.round().summary)
            return
        with served(settings.metrics.listen, metrics) as where:
            daemon = Daemon(
                service,
                reload=lambda: load_config(config, os.environ),
                refit=lambda now: refit(now, Patience(patience.stopping)),
                notifier=Notifier(),
                clock=clock,
                log=log,
            )
            log.info("serving", version=__version__, metrics=where or "nowhere", journal=str(journal))
            whole = daemon.run()
        if not whole:
            # A worker that does not end would keep the process; what it left is in the journal.
            os._exit(1)
