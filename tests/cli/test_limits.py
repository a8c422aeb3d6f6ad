"""`sadvise limits` suggests a time limit from earlier jobs, judges it on later ones, and mails those who would gain."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.domain.units import DAY_S, HOUR_S
from advisor.journal import SqliteJournal
from advisor.sim.study.limit_advice import (
    LADDER_S,
    NoAdvice,
    Suggestion,
    is_later,
    suggested,
    users_by_waste,
    wait_change,
    with_limit,
)
from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_file import write_trace
from advisor.trial.tallies import Share
from advisor.view.gate_words import slurm_time
from tests.cli.conftest import Sadvise
from tests.cli.test_report import outcome
from tests.post_office import post_office
from tests.sim.building import make_trace

CLUSTER = ("--cluster", "nodes=2,gpus=8")
FEW = ("--repeats", "4", "--workers", "1")
TWO_DAYS_S = 2 * DAY_S


def history(*, long_later: int = 0, asked_s: float = TWO_DAYS_S, jobs: int = 90) -> Trace:
    """Small jobs of ann that ask far more than they use, behind gangs of bob that leave room for short jobs alone."""
    rng = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    for number in range(jobs):
        is_long = number >= jobs - long_later
        run_time_s = 20_000.0 if is_long else float(rng.uniform(300.0, 1000.0))
        rows.append({
            "submit_time": 1200.0 * number, "user": "ann", "run_time_s": run_time_s, "time_limit_s": asked_s,
            "nice": 10_000_000,
        })  # fmt: skip
    for cycle in range(jobs // 6):
        for gpus, run_time_s, limit_s in ((12, 6000.0, 7200.0), (16, 600.0, 900.0)):
            rows.append({
                "submit_time": 7200.0 * cycle + gpus, "user": "bob", "gpus": gpus, "run_time_s": run_time_s,
                "time_limit_s": limit_s, "nodes_min": 2, "nodes_max": 2,
            })  # fmt: skip
    return make_trace(sorted(rows, key=lambda row: float(row["submit_time"])))


ANN, BOB = 0, 1


@pytest.fixture
def trace_file(tmp_path: Path) -> str:
    path = tmp_path / "history.csv"
    write_trace(history(), path)
    return str(path)


def test_a_limit_comes_from_earlier_jobs_and_is_judged_on_later_ones() -> None:
    trace = history(long_later=1)
    later = is_later(trace)
    later_of_ann = int((later & (trace.jobs["user"] == ANN)).sum())

    strict, lax = suggested(trace, ANN, killed_ratio=0.02), suggested(trace, ANN, killed_ratio=0.05)

    # One of 46 later jobs, 2.2 %, ran longer than any earlier one.
    assert isinstance(strict, NoAdvice) and strict.reason.startswith(f"1 of {later_of_ann} later jobs ran longer")
    assert isinstance(lax, Suggestion)
    assert lax.killed == Share(count=1, n=later_of_ann)
    assert lax.limit_s == 0.5 * HOUR_S and lax.asked_s == TWO_DAYS_S
    ran = trace.jobs["run_time_s"][trace.jobs["user"] == ANN]
    assert lax.used_ratio == pytest.approx(ran.sum() / (len(ran) * TWO_DAYS_S))


def test_later_jobs_do_not_change_the_suggestion() -> None:
    trace = history()
    jobs = trace.jobs.copy()
    jobs["run_time_s"][is_later(trace)] *= 0.1

    first, second = (suggested(each, ANN, killed_ratio=0.02) for each in (trace, replace(trace, jobs=jobs)))

    assert isinstance(first, Suggestion) and isinstance(second, Suggestion)
    assert first.limit_s == second.limit_s


def test_users_whose_limits_fit_and_users_with_few_jobs_get_no_suggestion() -> None:
    fits, few = (
        suggested(history(asked_s=1800.0), ANN, killed_ratio=0.02),
        suggested(history(jobs=15), ANN, killed_ratio=1.0),
    )

    assert isinstance(fits, NoAdvice) and fits.reason == "the limits that are asked fit the run times"
    assert isinstance(few, NoAdvice) and few.reason == "too few jobs"
    assert users_by_waste(history(jobs=15)) == []
    assert users_by_waste(history())[0] == ANN


def test_only_later_jobs_that_fit_get_the_limit() -> None:
    trace = history(long_later=3)
    suggestion = suggested(trace, ANN, killed_ratio=0.5)
    assert isinstance(suggestion, Suggestion)

    changed = with_limit(trace, suggestion).jobs["time_limit_s"] != trace.jobs["time_limit_s"]

    own = trace.jobs["user"] == ANN
    assert (changed == (is_later(trace) & own & (trace.jobs["run_time_s"] <= suggestion.limit_s))).all()
    assert changed.sum() == suggestion.killed.n - 3


def test_the_interval_covers_the_truth_where_nothing_changes_and_finds_what_does() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(200):
        before = rng.exponential(3600.0, (4, 100))
        after = before + rng.normal(0.0, 600.0, (4, 100))
        covered += not wait_change(before, after, np.ones(100, dtype=bool)).is_clear
    sooner = wait_change(before, before - 1800.0 + rng.normal(0.0, 600.0, (4, 100)), np.ones(100, dtype=bool))
    few = wait_change(before, after, np.arange(100) < 8)

    assert covered >= 186
    assert sooner.is_clear and sooner.low_s < -1800.0 < sooner.high_s
    assert not few.is_clear and np.isnan(few.low_s)


def test_limits_are_spelled_as_slurm_takes_them() -> None:
    assert [slurm_time(limit_s) for limit_s in (300.0, 1800.0, 4 * HOUR_S, 36 * HOUR_S, 2 * DAY_S)] == [
        "0:05:00", "0:30:00", "4:00:00", "1-12:00:00", "2-00:00:00",
    ]  # fmt: skip
    assert list(LADDER_S) == sorted(LADDER_S)


def test_the_sentence_holds_the_number_its_interval_and_what_to_type(sadvise: Sadvise, trace_file: str) -> None:
    shown = sadvise("limits", trace_file, *CLUSTER, *FEW)

    words = " ".join(shown.out.split())
    assert shown.exit_code == 0, shown.err
    assert (
        "Your jobs use 0.39 % of the time they ask (90 jobs). Ask 30 min (--time=0:30:00) and they would have" in words
    )
    # As quoted in docs/notifications.md.
    assert "they would have started 50 min sooner in the mean (95 %: 20 min to 1.3 h)." in words
    assert "None of 46 later jobs ran longer than that." in words
    assert "bob" in words and "no suggestion" in words


def test_published_advice_and_a_user_by_name(sadvise: Sadvise, trace_file: str) -> None:
    found = json.loads(sadvise("limits", trace_file, *CLUSTER, *FEW, "-u", "ann", "--json").out)

    (advice,) = found["advice"]
    assert found["meta"]["schema"] == "sadvise.limits/1" and found["no_advice"] == []
    assert (advice["user"], advice["limit_s"], advice["helps"]) == ("ann", 1800.0, True)
    assert advice["own_wait"]["high_s"] < 0.0 and advice["own_wait"]["jobs"] == 46
    assert advice["later_jobs_that_ran_longer"] == 0
    nobody = sadvise("limits", trace_file, *CLUSTER, "-u", "mallory\x1b")
    assert nobody.exit_code == 1 and "the trace has no job of this user" in nobody.err and "\x1b" not in nobody.err


def test_users_who_ask_for_mails_get_one_and_others_do_not(sadvise: Sadvise, trace_file: str, tmp_path: Path) -> None:
    journal, config = tmp_path / "journal.sqlite", tmp_path / "sadvise.toml"
    SqliteJournal(journal).close_file()
    with post_office() as office:
        config.write_text(
            f'[journal]\nfile = "{journal}"\n[notify]\nusers = "hint"\nsendmail = "{office.sendmail(tmp_path)}"\n'
        )
        run = (
            "limits",
            trace_file,
            *CLUSTER,
            *FEW,
            "--mail",
            "--config",
            str(config),
            "--store",
            str(tmp_path / "runs"),
        )
        before = sadvise(*run)
        with SqliteJournal(journal) as kept:
            kept.keep_outcomes([outcome(7, user="ann", wants_mail=True)])
        after = sadvise(*run)

    assert before.exit_code == 0 and after.exit_code == 0
    assert "mail    ann: accepted" in after.out and "mail" not in before.out
    assert [envelope.rcpt_tos for envelope in office.envelopes] == [["ann"]]
    assert "--time=0:30:00" in office.mails[0].get_content()
