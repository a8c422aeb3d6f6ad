"""`sadvise web`: the web view."""

from typing import Annotated

import typer

from advisor.cli.options import READING, Cluster, ConfigFile, Demo, JournalFile, SnapshotFile, Source, Timeout


def web(
    snapshot: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Cluster = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
    journal: JournalFile = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="ADDRESS",
            help='Loopback address with a port, or "unix:" and a path, instead of web.listen.',
            rich_help_panel=READING,
        ),
    ] = None,
) -> None:
    """Serve the web view until SIGTERM or Ctrl-C: pages for people, and a JSON API under /api/v1.

    Reads the queue as recommend does, at most once in web.max_age_s and only while someone looks. Changes nothing
    unless web.actions is on. Give it to more than this host through a reverse proxy (docs/web.md).
    """
    from dataclasses import replace

    from advisor.daemon.logs import configure_logs
    from advisor.errors import ConfigError
    from advisor.watch.departure import leave
    from advisor.watch.reading import Reading
    from advisor.web.application import application
    from advisor.web.content import Content
    from advisor.web.listener import serve_until_stopped

    reading = Reading(snapshot=snapshot, demo=demo, source=source, cluster=cluster, timeout_s=timeout, config=config)
    settings = reading.load_config()
    if listen is not None:
        try:
            settings = replace(settings, web=replace(settings.web, listen=listen))
        except ValueError as err:
            raise ConfigError(f"--listen: {err}") from err
    log = configure_logs(settings.daemon.log_level, settings.daemon.log_format)
    content = Content(reading, settings, journal=journal)

    def ready(place: str) -> None:
        content.viewer.latest(patience_s=0.0)
        log.info("the web view is ready", address=place)

    serve_until_stopped(application(content), settings.web, ready)
    leave()
