"""Says at the end of a run in one line which tests it left out, and what to type to run them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pytest

# Marks that `make test` leaves out, with the command that runs them.
COMMANDS: Final = {"live": "make test-live", "slow": "make test-all"}
ALL: Final = COMMANDS["slow"]
_COUNTS = pytest.StashKey["Counter[str]"]()
_OUTPUT: Final = "left_out"


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count the tests that were not selected, by their mark."""
    for item in items:
        mark = next((name for name in COMMANDS if item.get_closest_marker(name)), "other")
        item.config.stash.setdefault(_COUNTS, Counter[str]())[mark] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the counts of a worker to the process that reports."""
    if hasattr(session.config, "workeroutput"):
        counts = session.config.stash.get(_COUNTS, Counter[str]())
        session.config.workeroutput[_OUTPUT] = dict(counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the counts of a worker; each has collected all tests."""
    node.config.stash[_COUNTS] = Counter(getattr(node, "workeroutput", {}).get(_OUTPUT, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the line."""
    skipped = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    line = sentence(terminalreporter.config.stash.get(_COUNTS, Counter[str]()), skipped)
    if line:
        terminalreporter.write_line(line)


def sentence(counts: Counter[str], skipped: Sequence[str]) -> str:
    """Return the line for the tests that were not selected, by mark, and the reasons of those that were skipped."""
    parts = [f"{counts[mark]} {mark} ({command})" for mark, command in COMMANDS.items() if counts[mark]]
    if skipped:
        needed = {reason.removeprefix("Skipped: needs ").partition(":")[0] for reason in skipped}
        parts.append(f"{len(skipped)} that need {', '.join(sorted(needed))} ({ALL})")
    return f"tests left out: {'; '.join(parts)}" if parts else ""
