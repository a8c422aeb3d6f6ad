"""A staged cluster, and a client that asks for its pages as a browser on this host does."""

from collections.abc import Iterator, Sequence
from functools import partial

import pytest
from flask import Flask
from flask.testing import FlaskClient

from advisor.settings import WebSettings
from advisor.web.application import application, application_of
from advisor.web.content import Content
from advisor.web.served_clusters import ServedCluster
from tests.web.stage import Stage, in_utc, set_up

BASE = "https://localhost"


@pytest.fixture(scope="session", autouse=True)
def _utc() -> Iterator[None]:
    with in_utc():
        yield


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The files of a staged cluster."""
    return set_up(tmp_path_factory.mktemp("stage"))


@pytest.fixture(scope="session")
def content(stage: Stage) -> Content:
    """What pages show of the staged cluster."""
    return stage.content()


@pytest.fixture
def client(content: Content) -> FlaskClient:
    """A client of the staged cluster."""
    return client_of(content)


def client_of(content: Content) -> FlaskClient:
    """Return a client of what pages show, with the address of this host."""
    return _on_this_host(application(content))


def site_client(clusters: Sequence[ServedCluster], settings: WebSettings | None = None) -> FlaskClient:
    """Return a client of several clusters."""
    return _on_this_host(application_of(clusters, settings or WebSettings()))


def _on_this_host(app: Flask) -> FlaskClient:
    made = app.test_client()
    made.open = partial(made.open, base_url=BASE)  # type: ignore[method-assign]
    return made
