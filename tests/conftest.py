"""Settings of every test: what it needs of its machine, what was left out, and the second limit of time."""

import faulthandler
import gc
import os
from collections.abc import Generator
from typing import Any, Final, TextIO

import pytest
from hypothesis import HealthCheck, settings

from tests import groups, left_out, needs, tried_once
from tests.built_packages import packages
from tests.examples import examples

__all__ = ["packages"]

# How long an example takes says how busy the machine is. Every run draws other examples, so that they add up.
settings.register_profile(
    "untimed", max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")

# At its limit, pytest-timeout raises in the test, shows the stacks of all threads and lets the other tests run. A test
# that waits again on its way out, in a `with` block or a fixture, or that never leaves compiled code, does not end so:
# at the limit times this factor, the process prints the stacks of all threads and exits.
_SECOND_LIMIT: Final = 1.5
_LIMIT_S = pytest.StashKey[float]()
_STDERR = pytest.StashKey[TextIO]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep a way to write to stderr while the output of tests is captured, and register the modules beside this one."""
    config.pluginmanager.register(needs)
    config.pluginmanager.register(left_out)
    config.pluginmanager.register(groups)
    config.pluginmanager.register(tried_once)
    config.stash[_STDERR] = os.fdopen(os.dup(2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close it."""
    config.stash[_STDERR].close()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests of drawn examples out of the coverage: it counts what the named examples of other tests reach.

    Tracing takes as long as the code itself, and these run the same lines again for every example. They are marked once
    tests are selected by their marks, since it is what people type that depends most on the version of Python.
    """
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.no_cover)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among the modules and tests that are collected, now or later: all of them stay.

    It takes a third of the time of the collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Note the limit of a test; pytest-timeout calls this before it sets its own timer."""
    item.stash[_LIMIT_S] = settings.timeout


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test within the second limit, which is set once: each time starts a thread and waits for it to end."""
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _limit(item: pytest.Item) -> None:
    """Let the process print its stacks and exit when the second limit has passed from now on."""
    if _LIMIT_S in item.stash:
        limit_s = _SECOND_LIMIT * item.stash[_LIMIT_S]
        faulthandler.dump_traceback_later(limit_s, exit=True, file=item.config.stash[_STDERR])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set the second limit."""
    _limit(item)


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: object) -> None:
    """Set it again: pytest cancels it when a phase fails."""
    if isinstance(node, pytest.Item):
        _limit(node)
