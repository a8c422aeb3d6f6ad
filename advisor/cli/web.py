"""`sadvise web`: the web view."""

from dataclasses import replace
from typing import Annotated

from advisor.cli.options import READING, JournalFile, SeveralQueues, option
from advisor.errors import OptionsError
from advisor.site.logs import configure_logs
from advisor.watch.clusters import check_one_journal, leave, readings_of
from advisor.watch.reading import site_config
from advisor.web.application import application_of
from advisor.web.listener import serve_until_stopped
from advisor.web.served_clusters import served


def web(
    reading: SeveralQueues,
    journal: JournalFile = None,
    listen: Annotated[
        str | None,
        option(
            "--listen ADDRESS",
            'Loopback address with a port, or "unix:" and a path, instead of web.listen.',
            READING,
        ),
    ] = None,
) -> None:
    """Serve the web view until SIGTERM or Ctrl-C: pages for people, and a JSON API under /api/v1.

    Reads the queue as recommend does, at most once in web.max_age_s and only while someone looks. Changes nothing
    unless web.actions is on. Give it to more than this host through a reverse proxy (docs/web.md). Of several clusters
    (-M all), the first page shows each in a line, and the pages of each are below /clusters/NAME.
    """
    readings = readings_of(reading)
    check_one_journal(readings, journal)
    settings = readings[0].load_config() if len(readings) == 1 else site_config(reading.config)
    if listen is not None:
        try:
            settings = replace(settings, web=replace(settings.web, listen=listen))
        except ValueError as err:
            raise OptionsError(f"--listen: {err}") from err
    log = configure_logs(settings.daemon.log_level, settings.daemon.log_format)
    clusters = [served(one, journal) for one in readings]
    if len(clusters) == 1:
        clusters[0].content()

    def ready(place: str) -> None:
        for one in clusters:
            one.summary(patience_s=0.0)
        log.info("the web view is ready", address=place)

    serve_until_stopped(application_of(clusters, settings.web), settings.web, ready)
    leave()
