"""A plugin of pytest that records which lines of the package each test runs, and how long the test takes.

    python -m pytest -p tools.mutants.recorder --record FILE TESTS

A line that runs while a fixture is set up which several tests share counts for each test of the file.
"""

import json
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest
from coverage import Coverage

_COVERAGE = pytest.StashKey[Coverage]()
_SECONDS = pytest.StashKey[dict[str, float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the file to write."""
    parser.addoption("--record", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Start to record."""
    coverage = Coverage(data_file=None, source=["advisor"], config_file=False, messages=False)
    coverage.start()
    config.stash[_COVERAGE] = coverage
    config.stash[_SECONDS] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Record the lines of shared fixtures for the whole file, and those of others for the test."""
    item.config.stash[_COVERAGE].switch_context(_file(item) if _shares_fixtures(item) else item.nodeid)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Record the lines of the test, and its time."""
    item.config.stash[_COVERAGE].switch_context(item.nodeid)
    began = time.perf_counter()
    try:
        return (yield)
    finally:
        item.config.stash[_SECONDS][item.nodeid] = time.perf_counter() - began


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was recorded: the seconds of each test, and the tests of each line of each file."""
    coverage, seconds = session.config.stash[_COVERAGE], session.config.stash[_SECONDS]
    coverage.stop()
    data = coverage.get_data()
    tests_of_file = defaultdict(list)
    for test in seconds:
        tests_of_file[test.partition("::")[0]].append(test)
    lines = {
        str(Path(path).relative_to(session.config.rootpath)): {
            line: sorted({test for name in names if name for test in tests_of_file.get(name, [name])})
            for line, names in data.contexts_by_lineno(path).items()
        }
        for path in data.measured_files()
    }
    session.config.getoption("--record").write_text(json.dumps({"seconds": seconds, "lines": lines}))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _shares_fixtures(item: pytest.Item) -> bool:
    fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()  # noqa: SLF001
    return any(fixture.scope != "function" for definitions in fixtures for fixture in definitions)
