"""The opening sentence of a report says what is better, by how much, and at whose cost."""

from dataclasses import replace

import pytest

from advisor.sim.study.comparison import PairedTally
from advisor.sim.study.statistics import Pairing, RelativeChange
from advisor.view.wording import JctOutcome, Tone, best_first, lead, tone_of
from tests.sim.runs import NAN

JOBS, USERS = PairedTally(lower=60, higher=30, same=10), PairedTally(lower=7, higher=10, same=0)


def change_of(percent: float, low: float = NAN, high: float = NAN) -> RelativeChange:
    """Build a change of the mean JCT."""
    return RelativeChange(percent=percent, low=low, high=high, pairing=Pairing.JOBS, pairs=100, left_out=0, units=10)


def outcome_of(change: RelativeChange, policy: str = "rules") -> JctOutcome:
    """Build the outcome of a policy against slurm."""
    return JctOutcome(policy=policy, against="slurm", change=change, jobs=JOBS, users=USERS)


BETTER, WORSE, UNCLEAR = change_of(-9.8, -16.0, -3.1), change_of(5.0, 2.0, 8.0), change_of(-1.5, -22.9, 25.7)
COST = "; JCT is longer for 30 % of the jobs and for 10 of 17 users."


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (BETTER, f"rules lowers the mean JCT by 9.8 % against slurm (95 % interval 3.1 to 16.0 %){COST}"),
        (WORSE, f"rules raises the mean JCT by 5.0 % against slurm (95 % interval 2.0 to 8.0 %){COST}"),
        (
            UNCLEAR,
            (
                "rules makes no clear difference against slurm: "
                f"the mean JCT changes by -1.5 % (95 % interval -22.9 to +25.7 %){COST}"
            ),
        ),
        (
            change_of(-7.0),
            f"rules lowers the mean JCT by 7.0 % against slurm, on too little data for an interval{COST}",
        ),
        (change_of(NAN), f"rules cannot be compared against slurm: no job finished under both{COST}"),
    ],
    ids=["better", "worse", "unclear", "no interval", "no change"],
)
def test_one_policy_is_judged_in_one_sentence(change: RelativeChange, sentence: str) -> None:
    assert lead([outcome_of(change)], traces=1) == sentence


def test_the_cost_is_left_out_where_nothing_was_counted() -> None:
    nothing = replace(outcome_of(BETTER), jobs=PairedTally(lower=0, higher=0, same=0))
    no_users = replace(outcome_of(BETTER), users=None)

    assert lead([nothing], traces=1).endswith("(95 % interval 3.1 to 16.0 %).")
    assert lead([no_users], traces=1).endswith("JCT is longer for 30 % of the jobs.")


def test_the_best_of_several_policies_leads() -> None:
    outcomes = [outcome_of(UNCLEAR, "fifo"), outcome_of(WORSE, "sjf"), outcome_of(BETTER)]

    assert [outcome.policy for outcome in best_first(outcomes)] == ["rules", "fifo", "sjf"]
    assert lead(outcomes, traces=3).startswith(
        "Over 3 traces, rules is the best of 3 policies compared with slurm: it lowers the mean JCT by 9.8 % (95"
    )


def test_a_large_change_that_chance_explains_does_not_lead_over_a_clear_one() -> None:
    outcomes = [outcome_of(change_of(-40.0, -80.0, 10.0), "las"), outcome_of(BETTER)]

    assert best_first(outcomes)[0].policy == "rules"


def test_no_policy_is_called_best_where_none_is_clearly_better() -> None:
    outcomes = [outcome_of(UNCLEAR, "fifo"), outcome_of(WORSE, "sjf")]

    assert lead(outcomes, traces=1).startswith(
        "None of 2 policies compared with slurm is clearly better: fifo makes no clear difference against slurm: "
    )


@pytest.mark.parametrize(
    ("change", "tone"),
    [(BETTER, Tone.BETTER), (WORSE, Tone.WORSE), (UNCLEAR, Tone.UNCLEAR), (change_of(-9.0), Tone.UNCLEAR)],
    ids=["better", "worse", "unclear", "no interval"],
)
def test_the_colour_follows_the_interval(change: RelativeChange, tone: Tone) -> None:
    assert tone_of(change) is tone
