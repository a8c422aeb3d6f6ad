"""A viewer reads the cluster no more often than it is allowed to, whoever looks, and keeps the view of before."""

import shutil
import threading
from pathlib import Path

import pytest

from advisor.config import Config
from advisor.errors import AdvisorError
from advisor.watch.reading import Reading, demo_path
from advisor.watch.viewer import Viewer


class Ticks:
    """A monotonic clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(demo_path(), tmp_path / "snapshot.json"))


@pytest.fixture
def viewer(file: Path, ticks: Ticks) -> Viewer:
    return Viewer(Reading(snapshot=file), Config(), max_age_s=30.0, monotonic=ticks)


def test_view_is_read_again_once_it_is_old(viewer: Viewer, ticks: Ticks) -> None:
    first = viewer.view()
    ticks.now = 30.0
    assert viewer.view() is first
    ticks.now = 31.0
    assert viewer.view() is not first
    assert viewer.fault == ""


def test_cluster_that_cannot_be_read_keeps_its_view_and_is_asked_no_more_often(
    viewer: Viewer, ticks: Ticks, file: Path
) -> None:
    first = viewer.view()
    text = file.read_text()
    file.unlink()
    ticks.now = 31.0
    assert viewer.view() is first
    assert str(file) in viewer.fault
    file.write_text(text)
    assert viewer.view() is first
    ticks.now = 62.0
    assert viewer.view() is not first
    assert viewer.fault == ""


def test_without_any_view_the_fault_is_raised(viewer: Viewer, file: Path) -> None:
    file.unlink()
    with pytest.raises(AdvisorError, match=r"snapshot\.json"):
        viewer.view()


def test_others_get_the_view_of_before_while_one_reads(viewer: Viewer, ticks: Ticks, file: Path) -> None:
    first = viewer.view()
    ticks.now = 31.0
    seen: list[object] = []
    with viewer._lock:
        reader = threading.Thread(target=lambda: seen.append(viewer.view()))
        reader.start()
        reader.join(10.0)
    assert seen == [first]
