"""What is remembered of earlier rounds is one value, and plans with it are equal."""

from pathlib import Path

import pytest

from advisor.config import Config
from advisor.cycle import Cycle
from advisor.domain.snapshot import Snapshot
from advisor.watch.planned import Remembered, plan_with, remembered_by
from advisor.watch.reading import Reading, open_queue

DEMO = Reading(demo=True)


@pytest.fixture(scope="module")
def seen() -> Snapshot:
    """The demo."""
    return open_queue(DEMO, Config()).snapshot()


def test_of_a_file_nothing_is_remembered_and_nothing_is_missing(seen: Snapshot) -> None:
    remembered = remembered_by(DEMO, Config(), None, seen, Cycle())

    assert (remembered.note, remembered.is_broken) == ("", False)
    assert remembered.journal.leases() == ()


@pytest.mark.parametrize(
    ("content", "is_broken", "note"), [(None, False, "no such journal"), (b"no journal at all" * 99, True, "")]
)
def test_journal_that_cannot_be_read_is_a_note(
    content: bytes | None, is_broken: bool, note: str, seen: Snapshot, tmp_path: Path
) -> None:
    path = tmp_path / "journal.sqlite"
    if content is not None:
        path.write_bytes(content)

    remembered = remembered_by(DEMO, Config(), path, seen, Cycle())

    assert remembered.is_broken is is_broken
    assert str(path) in remembered.note and note in remembered.note
    assert remembered.note.endswith("so outstanding changes and observed waits are unknown")


def test_a_plan_leaves_what_is_remembered_as_it_was(seen: Snapshot) -> None:
    remembered = Remembered()

    first, second = (plan_with(Cycle(), seen, remembered) for _ in range(2))

    assert first.record == second.record
    assert first.memory == second.memory


def test_a_plan_about_one_job_agrees_with_the_whole_on_whether_it_is_changed(seen: Snapshot) -> None:
    whole = plan_with(Cycle(), seen, Remembered()).record

    for job in seen.pending_gpu_jobs:
        about = plan_with(Cycle(), seen, Remembered(), about=job).record
        mine = [[change for change in record.judged if change.job_id == job.job_id] for record in (about, whole)]
        assert mine[0] == mine[1]
