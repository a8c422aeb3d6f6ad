"""A staged cluster, and a client that asks for its pages as a browser on this host does."""

from collections.abc import Iterator
from functools import partial

import pytest
from flask.testing import FlaskClient

from advisor.web.application import application
from advisor.web.content import Content
from tests.web.serving import in_utc
from tests.web.stage import Stage, set_up

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
    made = application(content).test_client()
    made.open = partial(made.open, base_url=BASE)  # type: ignore[method-assign]
    return made
