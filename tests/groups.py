"""Keeps tests that share a cluster, a machine or a browser together when pytest-xdist runs them.

With `--dist loadgroup` each group goes to a worker as a whole. With `--dist worksteal` each worker gets a part of all
tests, in their order, and a worker that has run its own takes from the end of another's: those of groups come first.

Marks of pytest-xdist's own, `xdist_group`, have no effect with pytest 9.2: it no longer takes the node ids that 3.8
writes.
"""

import re
from pathlib import PurePosixPath
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

from tools.stage.roots import RELEASES

LIVE: Final = "tests/live/"
# The tests of each file run one after the other, in its order.
TOGETHER: Final = (LIVE, "tests/browser/", "tests/test_packages.py", "tests/test_package_index.py")
# pytest-xdist gives a worker its next group before the last test of the one before begins. So those that are one long
# test begin first, and the short ones that come right after the longest wait behind them; all others by their time.
ORDER: Final = (
    *("evening", "array_jobs", "node_states", "live_arms", "adversary", "fidelity", "metarl", "advice", "soft_limit"),
    *("what_slurm_knows", "daemon_site", "accounting", "apply", "lost_journal", "daemon_faults", "delay"),
    *("site_cluster", "late_lifts", "kills", "budget", "batches", "faults"),
    *("shared_database", "exchange", "readers", "submit_lifts", "sizes", "privileges", "hour", "clusters"),
)
_RELEASE: Final = re.compile(rf"[\[-]({'|'.join(map(re.escape, RELEASES))})[\]-]")


def group_of(node_id: str) -> str:
    """Return the group of a test: its file, and its release of Slurm if it has one; itself if it shares nothing."""
    path, _, rest = node_id.partition("::")
    if not path.startswith(TOGETHER):
        return node_id
    release = _RELEASE.search(rest) if path.startswith(LIVE) else None
    return f"{path} {release[1]}" if release else path


def rank_of(node_id: str) -> int:
    """Return the place of a test's file in the order in which files begin."""
    name = PurePosixPath(node_id.partition("::")[0]).stem.removeprefix("test_")
    return ORDER.index(name) if name in ORDER else len(ORDER)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives each worker whole groups of tests."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    """Return the scheduler of `--dist loadgroup`, which takes the groups in the order of the tests."""
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a worker that takes groups, let the longest begin first; on one that can be stolen from, all groups."""
    if not hasattr(config, "workerinput"):
        return
    if config.getvalue("dist") == "loadgroup":
        items.sort(key=lambda item: rank_of(item.nodeid))
    else:
        items.sort(key=lambda item: group_of(item.nodeid) == item.nodeid)
