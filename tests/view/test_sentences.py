"""The list of sentences, tests/golden/sentences.json, holds those of every reason, cause, rule and breaker.

docs/sentences.md shows the list as a page.
"""

import json
import re

import pytest

from advisor.domain.actions import Reason
from advisor.domain.diagnosis import Cause
from advisor.guard import caps, change_rules, exchange_rules, job_rules
from advisor.guard.breakers import BREAKERS
from advisor.planning.plan_trial import GAINS, TRIED
from advisor.settings import Limits, PlanningSettings
from advisor.view.overall import Total, total_sentence
from advisor.view.rule_words import RULES_IN_SHORT, RULES_IN_WORDS, rule_line
from tests.builders import HOUR_S
from tests.golden.table import FOLDER

LISTED: dict[str, str] = json.loads((FOLDER / "sentences.json").read_text())
REASONS = tuple(map(str, Reason))
PROSE = {
    name: text
    for name, text in LISTED.items()
    if name.startswith(("rule ", "breaker ", "probation", *REASONS)) and not name.endswith((" apply", " revert"))
}
BANNED = re.compile(r"\b(told|said|brought|nobody|whoever|so many|in vain|anew|foretold|whom)\b")
MOST_WORDS = 30
MOST_WORDS_OF_A_REASON = 36


def rules() -> set[str]:
    """Return the names of all rules that refuse a job or a change."""
    tables = [
        value
        for module in (job_rules, change_rules, caps, exchange_rules)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, dict)
    ]
    return {rule for table in tables for rule in table} | {GAINS, TRIED}


def test_every_reason_has_a_sentence_what_its_saving_rests_on_and_a_command() -> None:
    for reason in Reason:
        assert LISTED[f"{reason} 1"] and LISTED[f"{reason} if 1"]
        assert LISTED[f"{reason} apply"].startswith("scontrol ")


def test_every_cause_has_a_sentence() -> None:
    for cause in Cause:
        assert LISTED[f"{cause} 1"]


def test_every_rule_and_every_breaker_has_a_sentence() -> None:
    assert rules() <= RULES_IN_WORDS.keys()
    assert RULES_IN_SHORT.keys() == job_rules.JOB_RULES.keys()
    assert {f"rule {rule}" for rule in RULES_IN_WORDS} <= LISTED.keys()
    assert {f"breaker {name}" for name in BREAKERS} <= LISTED.keys()


def test_a_rule_counts_its_jobs_and_states_the_setting_in_force() -> None:
    line = rule_line("old_enough", 2, Limits(min_job_age_s=300.0), PlanningSettings())

    assert line == "2 jobs, old_enough: It was submitted less than 5 min ago (guard.min_job_age_s). Wait."


def test_changes_that_cost_more_than_they_save_are_no_saving() -> None:
    late = Total(
        changes=2, saved_s=-2 * HOUR_S, saved_s_low=-9 * HOUR_S, saved_s_high=HOUR_S,
        jobs_delayed=0, delay_s_max=0.0, is_complete=True,
    )  # fmt: skip

    assert total_sentence(late).startswith("2 changes cost 2.0 h (-1.0 to 9.0) of job completion time; ")


@pytest.mark.parametrize("name", PROSE)
def test_sentence_is_short_and_plain(name: str) -> None:
    text = PROSE[name]

    longest = max(len(sentence.split()) for sentence in re.split(r"(?<=[.:]) ", text))
    assert longest <= MOST_WORDS, text
    assert ";" not in text or name.endswith("in the log")
    assert not BANNED.search(text)
    if re.fullmatch(rf"({'|'.join(REASONS)}) \d+", name):
        assert len(text.split()) <= MOST_WORDS_OF_A_REASON
