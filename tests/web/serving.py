"""The web view on a real port, in a thread of the tests."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from waitress import wasyncore

from advisor.settings import WebSettings
from advisor.web.application import application, application_of
from advisor.web.content import Content
from advisor.web.listener import bound, server_of
from advisor.web.served_clusters import ServedCluster


@contextmanager
def in_utc() -> Iterator[None]:
    """Show times as the stage means them, wherever the tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@contextmanager
def serving(content: Content | Sequence[ServedCluster], settings: WebSettings) -> Iterator[tuple[str, int] | str]:
    """Serve one cluster or several with the limits of `sadvise web` in a thread; yields the address."""
    app = application(content) if isinstance(content, Content) else application_of(content, settings)
    with bound(settings) as (listening, _):
        server = server_of(app, listening, settings)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            # In the server's own thread: one that selects on a file closed elsewhere fails.
            server.trigger.pull_trigger(lambda: wasyncore.close_all(server._map, ignore_all=True))
            thread.join(10.0)
            server.task_dispatcher.shutdown()
