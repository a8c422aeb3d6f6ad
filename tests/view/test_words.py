"""What is printed of jobs, models, changes, rules and policies; docs/sentences.md shows tests/golden/sentences.json."""

import json
import re
from dataclasses import replace

import pytest

from advisor.diagnose.turn import JobTurn, PlaceInLine, WithoutAdvice
from advisor.domain.actions import Reason, SetNice
from advisor.domain.diagnosis import Cause
from advisor.domain.forecast import Interval, JobForecast, RunTime
from advisor.domain.job import GpuRange, Job, JobHints, Sensitivity
from advisor.domain.lease import Ending, intended
from advisor.domain.probation import Coverage, OrderProof, Proof
from advisor.domain.standings import Standing
from advisor.domain.units import DAY_S, HOUR_S
from advisor.guard import caps, change_rules, exchange_rules, job_rules
from advisor.guard.breakers import BREAKERS
from advisor.planning.beliefs import Basis
from advisor.planning.plan_trial import GAINS, TRIED
from advisor.settings import Limits, PlanningSettings
from advisor.sim.study.comparison import PairedTally
from advisor.sim.study.statistics import Pairing, RelativeChange
from advisor.view.breaker_words import probation_line
from advisor.view.lease_report import ended_change_sentence, ended_changes_of
from advisor.view.overall import Total, total_sentence
from advisor.view.prospects import TurnDocument, advice_sentences, deadline_lines, place_sentences, turn_document
from advisor.view.request_words import hint_sentences
from advisor.view.rule_words import RULES_IN_SHORT, RULES_IN_WORDS, rule_line
from advisor.view.terminal import instant
from advisor.view.wording import JctOutcome, Tone, best_first, lead, tone_of
from tests.builders import TAKEN_AT, make_hints, make_job
from tests.golden.table import FOLDER
from tests.sim.runs import NAN

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


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ("run_time default-1", "or fit your own with `sadvise fit runtime --from live`"),
        ("run_time site-2", "or fit again on more jobs with `sadvise fit runtime --from live`"),
    ],
)
def test_model_that_was_fitted_here_is_to_be_fitted_again(model: str, advice: str) -> None:
    line = probation_line(model, Proof(coverage=Coverage(jobs=40, inside=30)), 100)

    assert line.endswith(advice)
    assert "30 of the 40 jobs that ended ran within its intervals" in line


def test_without_an_ended_job_nothing_is_counted() -> None:
    line = probation_line("run_time site-1", Proof(), 100)

    assert "No job that it forecast has ended yet" in line
    assert "0 of the 0" not in line
    assert "At the last look" not in line


def test_order_at_the_last_look_is_said_beside_that_of_the_limits() -> None:
    order = OrderProof(jobs=400, users=31, ordered_ratio=0.912, limit_ratio=0.938, gain_ratio=-0.014, error_ratio=0.009)

    line = probation_line("run_time site-1", Proof(order=order), 100)
    too_few = probation_line("run_time site-1", Proof(order=OrderProof()), 100)

    assert "At the last look it orders 91.2 % of the GPU-time in question right, time limits 93.8 %" in line
    assert "(-1.4 points by user, standard error 0.9, 31 users)" in line
    assert "At the last look it has too few jobs that waited together" in too_few


def deadline_of(job: Job, start_s: Interval | None, run_s: Interval | None) -> list[tuple[str, str]]:
    run_time = None if run_s is None else RunTime(interval_s=run_s, mean_s=run_s.median)
    forecast = JobForecast(start_s=start_s, run_time=run_time)
    return [
        (label, text.removeprefix(f"{instant(TAKEN_AT + DAY_S)} "))
        for label, text in deadline_lines(job, forecast, TAKEN_AT)
    ]


SHORTER = (
    "backfill can start it sooner with a shorter time limit, which ends what runs longer: "
    "scontrol update JobId=1 TimeLimit=4:01:00"
)
FEWER = "fewer GPUs come free sooner; gpus=1-4 beside by= lets sadvise choose, if it can run on fewer"


@pytest.mark.parametrize(
    ("starts_h", "lines"),
    [
        ((1, 2, 4), [("deadline", "is met with 16.0 h to spare at the least, if it starts and runs as forecast")]),
        ((1, 12, 21), [("deadline", "OPEN"), ("to do", SHORTER), ("to do", FEWER)]),
        (
            (25, 30, 40),
            [
                ("deadline", "is missed by 3.0 h at the least, if it starts and runs as forecast"),
                ("to do", SHORTER),
                ("to do", FEWER),
            ],
        ),
    ],
)
def test_deadline_is_met_open_or_missed_by_the_forecasts(
    starts_h: tuple[int, int, int], lines: list[tuple[str, str]]
) -> None:
    job = make_job(1, gpus=4, time_limit_s=12 * HOUR_S, hints=make_hints(by=TAKEN_AT + DAY_S))
    low, median, high = (hour * HOUR_S for hour in starts_h)
    is_open = f"whether {instant(TAKEN_AT + DAY_S)} is met is open: it takes a start within 20.0 h"

    found = deadline_of(
        job,
        Interval(low=low, median=median, high=high),
        Interval(low=2 * HOUR_S, median=3 * HOUR_S, high=4 * HOUR_S),
    )

    assert found == [(label, is_open if text == "OPEN" else text) for label, text in lines]


def test_deadline_without_forecasts_rests_on_the_time_limit_and_none_is_no_line() -> None:
    job = make_job(1, gpus=1, time_limit_s=2 * DAY_S, hints=make_hints(by=TAKEN_AT + DAY_S))
    running = make_job(1, gpus=1, running_on=["n01"], started_ago_s=HOUR_S, time_limit_s=HOUR_S, hints=job.hints)

    assert [label for label, _ in deadline_of(job, None, None)] == ["deadline"]
    assert "open" in deadline_of(job, None, None)[0][1]
    assert deadline_of(running, None, None)[0][1].startswith("is met with")
    assert deadline_of(replace(job, hints=make_hints()), None, None) == []


def test_hints_are_one_sentence_and_what_was_not_understood_another() -> None:
    hints = JobHints(
        model="bert",
        gpus=GpuRange(low=2, high=8),
        checkpoint_s=600.0,
        step_s=0.5,
        sensitivity=Sensitivity.HIGH,
        opted_out=True,
        wants_mail=True,
        deadline_time=TAKEN_AT,
        unknown=("nonsense=3",),
    )

    known, unknown = hint_sentences(hints)

    label, text = known
    assert label == "hints"
    assert text == (
        "its user declares in --comment: sadvise is to leave it alone; it trains the model bert; "
        "it can run on 2 to 8 GPUs; it saves its state every 10 min; a step takes 0.5 s; "
        f"it is to end by {instant(TAKEN_AT)}; its user wants mail; spreading it out costs much"
    )
    assert unknown == ("hints", "not understood in --comment: nonsense=3")


def test_job_without_hints_says_nothing_and_one_size_is_no_range() -> None:
    (one,) = hint_sentences(JobHints(gpus=GpuRange(low=4, high=4), sensitivity=Sensitivity.LOW))

    assert list(hint_sentences(JobHints())) == []
    assert one[1].endswith("it can run on 4 GPUs; spreading it out costs little")


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


PLACE = PlaceInLine(
    jobs=40,
    place=12,
    place_as_submitted=3,
    gpus=2,
    gpus_taken=2.0,
    tasks=1,
    run_s=720.0,
    gpu_s=1440.0,
    limit_s=HOUR_S,
    basis=Basis.RULE,
    is_lifted=False,
    lifted_ahead=9,
    lifted_ahead_gpu_s=3.1 * HOUR_S,
    passed_by=8,
)
LATE = WithoutAdvice(until=TAKEN_AT, start_time=TAKEN_AT - 2 * HOUR_S, late_s=2 * HOUR_S, bound_s=3 * HOUR_S)
NOT_LIFTED = (
    "it is not lifted: its 1000 tasks count as 600.0 GPU-hours, and at most 128.0 GPU-hours of one user are lifted at "
    "a time"
)
STANDING = Standing(
    jobs=12, waited_s=9 * HOUR_S, plain_s=Interval(low=10 * HOUR_S, median=12 * HOUR_S, high=14 * HOUR_S)
)
UNKNOWN = JobTurn(place=None, without_advice=None, standing=None, owed=0.0, credit=1.0, max_credit=3.0)


def told(**parts: object) -> dict[str, str]:
    turn = replace(UNKNOWN, **parts)  # type: ignore[arg-type]
    return dict((*place_sentences(turn), *advice_sentences(turn, "alice")))


def test_place_size_and_lifts_of_a_job() -> None:
    assert told(place=PLACE) == {
        "place": "12 of 40 jobs that wait for these GPUs; 3 in the site's own order",
        "size": "0.4 GPU-hours expected: 2 GPUs for 12 min, by 20 % of its time limit of 1.0 h, without a forecast",
        "lifts": "9 lifted jobs stand before it, with 3.1 GPU-hours expected, "
        "8 of them behind it in the site's own order",
    }


@pytest.mark.parametrize(
    ("changed", "label", "text"),
    [
        ({"is_lifted": True, "lifted_ahead": 0}, "lifts", "it was lifted"),
        (
            {"basis": Basis.FORECAST, "gpus": 1, "gpus_taken": 8.0, "gpu_s": 5760.0},
            "size",
            "1.6 GPU-hours expected: 1 GPU (it keeps 8 from other jobs) for 12 min, by the mean of its forecast",
        ),
        (
            {"lifted_ahead": 0, "tasks": 1000, "most_gpu_s": 600 * HOUR_S, "liftable_gpu_s": 128 * HOUR_S},
            "lifts",
            NOT_LIFTED,
        ),
        (
            {"is_lifted": True, "lifted_ahead": 1, "passed_by": 0},
            "lifts",
            "it was lifted; 1 lifted job stands before it, with 3.1 GPU-hours expected",
        ),
        ({"basis": Basis.FORECAST}, "size", "0.4 GPU-hours expected: 2 GPUs for 12 min, by the mean of its forecast"),
        (
            {"basis": Basis.FORECAST, "tasks": 30, "gpu_s": 43200.0},
            "size",
            "12.0 GPU-hours expected: 2 GPUs for 12 min for each of 30 tasks, by the mean of its forecast",
        ),
        (
            {"run_s": None, "gpu_s": None, "limit_s": None},
            "size",
            "2 GPUs for a time that is not known: it has neither a time limit nor a forecast",
        ),
        ({"place_as_submitted": 12}, "place", "12 of 40 jobs that wait for these GPUs, as in the site's own order"),
    ],
)
def test_other_places(changed: dict[str, object], label: str, text: str) -> None:
    assert told(place=replace(PLACE, **changed))[label] == text  # type: ignore[arg-type]


def test_nothing_is_said_of_lifts_where_there_are_none() -> None:
    assert "lifts" not in told(place=replace(PLACE, lifted_ahead=0))
    assert told() == {}


@pytest.mark.parametrize(
    ("bound_s", "end"),
    [
        (3 * HOUR_S, "2.0 h ago; once it is 3.0 h late, it goes before all others"),
        (HOUR_S, "2.0 h ago; that is beyond the bound of 1.0 h, so that it goes before all others"),
        (None, "2.0 h ago"),
    ],
)
def test_late_job_and_its_bound(bound_s: float | None, end: str) -> None:
    start = f"without advice it would most likely have started at {instant(TAKEN_AT - 2 * HOUR_S)}, "

    assert told(without_advice=replace(LATE, bound_s=bound_s))["without"] == start + end


def test_job_that_would_wait_too() -> None:
    without = told(without_advice=replace(LATE, start_time=None, late_s=0.0))["without"]

    assert without == f"without advice it would most likely wait too, as of {instant(TAKEN_AT)}"


def test_user_who_gained_and_one_who_gave_perhaps_by_chance() -> None:
    gave = replace(STANDING, waited_s=13 * HOUR_S)

    assert told(standing=STANDING)["user"] == (
        "alice gained in the last week: wait -3.0 h (-5.0 h to -1.0 h) in all by the advice, 12 jobs"
    )
    assert told(standing=gave)["user"] == (
        "alice gave in the last week: wait +1.0 h (-1.0 h to +3.0 h) in all by the advice, 12 jobs; can be chance"
    )


def test_weight_for_what_a_user_is_owed_is_shown_with_its_bound() -> None:
    lines = told(standing=STANDING, credit=2.25)

    assert lines["credit"] == "jobs weigh 2.2 times as much until that is repaid (planning.max_credit = 3)"
    assert "credit" not in told(standing=STANDING)


def test_document_holds_the_same_as_values() -> None:
    document = turn_document(
        JobTurn(place=PLACE, without_advice=LATE, standing=STANDING, owed=-1.5, credit=1.0, max_credit=3.0), "alice"
    )

    assert document.place == PLACE
    assert document.without_advice is not None and not document.without_advice.is_late
    week = document.user_week
    assert week is not None and (week.user, week.owed, week.credit, week.max_credit) == ("alice", -1.5, 1.0, 3.0)
    assert (week.jobs, week.difference_s) == (STANDING.jobs, STANDING.difference_s)
    assert turn_document(UNKNOWN, "alice") == TurnDocument(place=None, without_advice=None, user_week=None)
