"""The list of sentences, tests/golden/sentences.json, holds those of every reason and every cause."""

import json

from advisor.domain.actions import Reason
from advisor.domain.diagnosis import Cause
from tests.golden.digests import FOLDER

LISTED = json.loads((FOLDER / "sentences.json").read_text())


def test_every_reason_has_a_sentence_and_what_its_saving_rests_on() -> None:
    for reason in Reason:
        assert LISTED[f"{reason} 1"] and LISTED[f"{reason} if 1"]


def test_every_cause_has_a_sentence() -> None:
    for cause in Cause:
        assert LISTED[f"{cause} 1"]
