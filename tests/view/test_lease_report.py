"""Changes of a job in words: how each one ended."""

from dataclasses import replace

import pytest

from advisor.domain.actions import SetNice
from advisor.domain.lease import Ending, intended
from advisor.view.lease_report import ended_change_sentence, ended_changes_of

LIFT = intended(SetNice(job_id=9, before=0, after=-1007), 0.0)


@pytest.mark.parametrize(
    ("ending", "lost", "words"),
    [
        (Ending.TAKEN_BACK, "", "sadvise reverted it when it was due"),
        (Ending.TAKEN_BACK, "asks for 8 GPUs", "sadvise reverted it, since the job asks for 8 GPUs"),
        (Ending.NO_LONGER_PENDING, "asks for 8 GPUs", "the job had started or left the queue"),
    ],
)
def test_end_of_a_change_is_in_words(ending: Ending, lost: str, words: str) -> None:
    (change,) = ended_changes_of(9, (replace(LIFT, lost=lost).ended(ending, 60.0),))

    assert ended_change_sentence(change) == f"nice 0 -> nice -1007; {words}"
