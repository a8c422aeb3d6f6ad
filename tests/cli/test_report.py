"""`sadvise report`: what a journal tells of the changes, in words, as JSON and as fields."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.domain.actions import Lever, SetNice
from advisor.domain.experiment import ExperimentSettings
from advisor.domain.forecast import Interval
from advisor.domain.lease import Ending, intended
from advisor.domain.memory import Wait
from advisor.domain.outcome import Arm, JobOutcome, SeenChange, SeenForecast
from advisor.domain.topology import LocalityTier
from advisor.domain.units import DAY_S
from advisor.journal import SqliteJournal
from tests.builders import make_stretch, make_wait_sum
from tests.cli.conftest import Sadvise

HOSTILE = "lab\x1b[2J|\nx"


def day_text(days_ago: float) -> str:
    """A day of UTC, so many days ago, as the configuration spells it."""
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() - days_ago * DAY_S))


EXPERIMENT = ExperimentSettings(by="day", name="spring", start=day_text(30), end=day_text(5))
BY_PARTITION = ExperimentSettings(
    by="partition", name="halves", start=day_text(60), end=day_text(4), treated_partitions="gpu", min_blocks=3
)


def outcome(job_id: int, **fields: Any) -> JobOutcome:
    """A job that was submitted ten days ago, waited 10 min and ran an hour."""
    submit_time = fields.pop("submit_time", time.time() - 10 * DAY_S)
    delay_s = fields.pop("delay_s", 600.0)
    start_time = submit_time + delay_s
    forecast = SeenForecast(
        made_time=submit_time,
        start_time=Interval(low=submit_time, median=submit_time + 60.0, high=submit_time + 900.0),
        run_time_s=Interval(low=60.0, median=600.0, high=1200.0),
    )
    known: dict[str, Any] = {
        "job_id": job_id, "submit_time": submit_time, "account": HOSTILE, "partition": "gpu",
        "start_time": start_time, "last_start_time": start_time, "end_time": start_time + 3600.0,
        "last_seen_time": start_time + 3600.0, "first_forecast": forecast,
    }  # fmt: skip
    return JobOutcome(**{**known, **fields})


def held_back(job_id: int, *, ending: Ending | None = Ending.NO_LONGER_PENDING, **fields: Any) -> JobOutcome:
    """A job that was made to wait, 5 min before it started, and was to wait 7 min at most."""
    job = outcome(job_id, **fields)
    change = SeenChange(
        lever=Lever.SWITCHES, applied_time=job.submit_time + 300.0, added_delay_s=420.0, saved_s_low=3600.0,
        saved_s_high=7200.0, ending=ending,
    )  # fmt: skip
    return replace(job, changes=(change,), changed_forecast=job.first_forecast)


def under(settings: ExperimentSettings, days: range, factor: float) -> list[JobOutcome]:
    """Jobs under an experiment that multiplies the delay of the treated, at every hour of some of its days."""
    found = []
    for day in days:
        for hour in range(24):
            submit_time = settings.start_time + day * DAY_S + hour * 3600.0
            partition = ("gpu", "debug")[hour % 2]
            arm = settings.arm_at(submit_time, [partition])
            delay_s = (600.0 + 50.0 * (day % 5) + 10.0 * hour) * (factor if arm is Arm.TREATED else 1.0)
            found.append(
                outcome(
                    1000 + 24 * day + hour,
                    submit_time=submit_time,
                    delay_s=delay_s,
                    arm=arm,
                    experiment=settings.digest if arm else "",
                    partition=partition,
                )
            )
    return found


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The file of a journal with two jobs that were held back, one that was not, and one that still waits."""
    path = tmp_path / "journal.sqlite"
    keep(path, held_back(1), held_back(2, delay_s=2000.0), outcome(3), outcome(4, start_time=None, end_time=None))
    store = SqliteJournal(path)
    in_vain = intended(SetNice(job_id=9, before=0, after=5), time.time() - DAY_S)
    store.keep(in_vain)
    store.close(in_vain, Ending.NOT_APPLIED, time.time() - DAY_S)
    store.add_waits(
        [Wait(gpus=8, tier=LocalityTier.LEAF, waited_s=60.0, got=True, ended_time=time.time() - DAY_S)], time.time()
    )
    store.close_file()
    return path


def keep(path: Path, *outcomes: JobOutcome) -> None:
    """Write outcomes to a journal."""
    store = SqliteJournal(path)
    store.keep_outcomes(outcomes)
    store.close_file()


def configured(tmp_path: Path, settings: ExperimentSettings) -> str:
    """Write a configuration with an experiment."""
    path = tmp_path / "sadvise.toml"
    keys = ("by", "name", "start", "end", "treated_partitions", "figure")
    lines = [f'{key} = "{getattr(settings, key)}"' for key in keys]
    path.write_text("\n".join(["[experiment]", *lines, f"min_blocks = {settings.min_blocks}"]), encoding="utf-8")
    return str(path)


def test_levers_promises_and_forecasts_are_told_in_words(sadvise: Sadvise, journal: Path) -> None:
    said = sadvise("report", "--journal", str(journal))

    assert said.exit_code == 0 and said.err == ""
    assert "3 GPU jobs ended, 2 were changed" in said.out
    assert "started within the promised delay of the change itself: 1 of 2 (50%, 9% to 91%)" in said.out
    assert "gangs that waited for one leaf and got it: 1 of 1" in said.out
    assert "starts within their 80 % interval: 1 of 1" in said.out
    assert "run times within their 80 % interval: 0 of 3 (0%, 0% to 56%): the intervals are too narrow" in said.out
    # 60 s were forecast and 600 s came; 600 s were forecast and an hour came.
    assert "starts against their median: half were off by a factor of 10 or more" in said.out
    assert "run times against their median: half were off by a factor of 6 or more" in said.out
    assert "that takes an experiment" in said.out


def test_every_figure_stands_in_the_json(sadvise: Sadvise, journal: Path) -> None:
    said = json.loads(sadvise("report", "--journal", str(journal), "--json").out)

    switches = next(lever for lever in said["levers"] if lever["lever"] == "switches")
    nice = next(lever for lever in said["levers"] if lever["lever"] == "nice")
    assert said["meta"]["schema"] == "sadvise.report/1"
    assert (switches["applied"], switches["stayed"], switches["promised_saving_s"]) == (2, 2, [7200.0, 14400.0])
    assert (nice["applied"], nice["not_applied"], nice["in_time"]["share"]) == (0, 1, None)
    assert said["forecasts"]["run_time"]["n"] == 3
    assert said["forecasts"]["run_time"]["error_factor"] == pytest.approx(6.0)
    assert said["experiment"] is None


def test_fields_stand_in_lines_of_their_own(sadvise: Sadvise, journal: Path) -> None:
    lines = sadvise("report", "--journal", str(journal), "-P").out.splitlines()

    assert lines[0] == "section|name|figure|value|low|high|n"
    assert "lever|switches|applied|2|||" in lines
    assert any(line.startswith("lever|switches|in_time|0.5|0.0945") and line.endswith("|2") for line in lines)
    assert "forecast|start|error_factor|10|||1" in lines and "forecast|run_time|error_factor|6|||3" in lines
    assert all(line.count("|") == 6 for line in lines)
    assert sadvise("report", "--journal", str(journal), "-P", "-h").out.splitlines() == lines[1:]


def test_an_empty_journal_says_that_nothing_was_changed(sadvise: Sadvise, tmp_path: Path) -> None:
    keep(tmp_path / "journal.sqlite")

    said = sadvise("report", "--journal", str(tmp_path / "journal.sqlite"))

    assert "nothing was changed" in said.out
    assert "starts: none has come true or failed yet" in said.out
    empty = json.loads(sadvise("report", "--journal", str(tmp_path / "journal.sqlite"), "--json").out)
    assert empty["forecasts"]["start"]["error_factor"] is None


@pytest.mark.parametrize(
    ("factor", "words"),
    [(0.5, "helped by "), (1.0, "no clear difference"), (2.0, "made it worse by ")],
    ids=["helped", "nothing", "worse"],
)
@pytest.mark.parametrize(
    ("settings", "days"), [(EXPERIMENT, range(26)), (BY_PARTITION, range(-57, 57))], ids=["day", "partition"]
)
def test_the_experiment_is_judged_in_plain_words(
    sadvise: Sadvise, tmp_path: Path, settings: ExperimentSettings, days: range, factor: float, words: str
) -> None:
    path = tmp_path / "journal.sqlite"
    keep(path, *under(settings, days, factor))

    said = sadvise("report", "--journal", str(path), "--config", configured(tmp_path, settings)).out

    (verdict,) = (line for line in said.splitlines() if line.startswith("verdict"))
    assert f"by the mean of the queueing delay, as chosen: {words}" in verdict


def test_too_little_data_says_so(sadvise: Sadvise, tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    keep(path, *under(EXPERIMENT, range(10), 0.5))

    said = sadvise("report", "--journal", str(path), "--config", configured(tmp_path, EXPERIMENT))

    assert "too little data, 5 blocks of the 8 asked for" in said.out


def test_the_experiment_stands_in_json_and_fields_and_names_who_lost(sadvise: Sadvise, tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    others = [replace(each, job_id=9000 + each.job_id, account="winners") for each in under(EXPERIMENT, range(26), 0.5)]
    keep(path, *under(EXPERIMENT, range(26), 1.5), *others)
    options = ("--journal", str(path), "--config", configured(tmp_path, EXPERIMENT), "--since", "1d")

    document = json.loads(sadvise("report", *options, "--json").out)["experiment"]
    words = sadvise("report", *options).out
    fields = sadvise("report", *options, "-P").out
    nameless = sadvise("report", *options, "--no-accounts").out

    assert document["settings"]["digest"] == EXPERIMENT.digest
    assert (document["verdict"], document["accounts_compared"], document["blocks_over"]) == (
        "no clear difference",
        2,
        13,
    )
    assert [group["account"] for group in document["accounts_that_lost_most"]] == [HOSTILE]
    assert "\x1b" not in words + fields and "lost most" in words and "winners" not in words
    assert "lost most" not in nameless
    assert "experiment|queueing_delay|mean_change_percent|" in fields
    assert all(line.count("|") == 6 for line in fields.splitlines())


def test_what_was_changed_meanwhile_and_who_crossed_over_is_said(sadvise: Sadvise, tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    jobs = under(EXPERIMENT, range(26), 1.0)
    change = SeenChange(lever=Lever.NICE, applied_time=0.0)
    late = [
        replace(each, start_time=each.submit_time + 2 * DAY_S, changes=(change,)) if at % 24 == 0 else each
        for at, each in enumerate(jobs)
    ]
    keep(path, *late, outcome(5, experiment="feedfeedfeedfeed", arm=Arm.TREATED))

    said = sadvise("report", "--journal", str(path), "--config", configured(tmp_path, EXPERIMENT)).out

    assert "13 (4%) still waited as the day was over that made them treated" in said
    assert "13 were changed although in control, as they waited on" in said
    assert "the settings were changed since 1 job got a side under others" in said


def test_a_figure_without_an_interval_is_said_to_have_none(sadvise: Sadvise, tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    jobs = [replace(each, start_time=each.submit_time) for each in under(EXPERIMENT, range(26), 1.0)]
    keep(path, *[replace(jobs[0], start_time=jobs[0].submit_time + 600.0), *jobs[1:]])

    said = sadvise("report", "--journal", str(path), "--config", configured(tmp_path, EXPERIMENT)).out

    assert "mean of the queueing delay, as chosen: too little data, 13 blocks bound no interval" in said


@pytest.fixture
def compared_journal(tmp_path: Path) -> Path:
    """The file of a journal by which one user gained, one gave, and one is unsure."""
    path = tmp_path / "journal.sqlite"
    now = time.time()
    by_user = {
        HOSTILE: make_wait_sum(3600.0, (7200.0, 7300.0), jobs=2),
        "bob": make_wait_sum(7200.0, (3600.0, 3700.0), jobs=3),
        "carol": make_wait_sum(100.0, (90.0, 130.0)),
    }
    stretch = replace(
        make_stretch(anchor_time=now - 7200.0, until=now - 3600.0, notes=(f"unknown {HOSTILE}",)),
        total=make_wait_sum(10900.0, (14000.0, 14200.0), jobs=6),
        by_user=by_user,
        by_account={HOSTILE: by_user[HOSTILE]},
    )
    with SqliteJournal(path) as store:
        store.keep_stretch(stretch)
    return path


def test_waits_without_advice_stand_in_words_with_who_gained_and_gave(sadvise: Sadvise, compared_journal: Path) -> None:
    said = sadvise("report", "--journal", str(compared_journal)).out

    assert "6 jobs compared with plain Slurm: mean wait 30 min with advice, 39 min without" in said
    assert "difference per job -9 min (-9 min to -9 min)" in said
    gained, gave, unsure = (
        next(line for line in said.splitlines() if text in line) for text in ("lab\\x1b", "bob", "carol")
    )
    assert gained.startswith("gained") and "-1.0 h (-1.0 h to -1.0 h) in all, 2 jobs" in gained
    assert gave.startswith("gave") and "3 jobs" in gave and "chance" not in gave
    assert unsure.endswith("can be chance")
    assert "not known" in said and "\x1b" not in said


def test_waits_without_advice_stand_in_json_and_fields(sadvise: Sadvise, compared_journal: Path) -> None:
    options = ("report", "--journal", str(compared_journal))
    document = json.loads(sadvise(*options, "--json").out)["counterfactual"]
    lines = sadvise(*options, "-P").out.splitlines()
    nameless = json.loads(sadvise(*options, "--json", "--no-accounts").out)["counterfactual"]

    assert (document["total"]["jobs"], document["total"]["waited_s"], document["total"]["is_known"]) == (6, 10900, True)
    assert [user["user"] for user in document["week"]["users"]] == [HOSTILE, "carol", "bob"]
    assert 3600.0 <= document["age_s"] < 4200.0
    assert document["not_known"] == [f"unknown {HOSTILE}"]
    assert "counterfactual_user|bob|difference_s|3550|3510|3590|3" in lines
    assert all(line.count("|") == 6 for line in lines)
    assert nameless["week"]["users"] == nameless["week"]["accounts"] == []


def test_users_who_are_owed_are_named_with_their_weight_and_its_bound(sadvise: Sadvise, compared_journal: Path) -> None:
    options = ("report", "--journal", str(compared_journal))
    week = json.loads(sadvise(*options, "--json").out)["counterfactual"]["week"]
    lines, nameless = sadvise(*options).out, sadvise(*options, "--no-accounts").out

    assert week["max_credit"] == 3.0
    assert [round(user["credit"], 1) for user in week["users"]] == [1.0, 1.0, 2.1]
    assert "user bob: jobs weigh 2.1 times as much until that is repaid (planning.max_credit = 3)" in lines
    assert "credit" not in nameless


def test_report_without_a_run_of_plain_slurm_says_so(sadvise: Sadvise, journal: Path) -> None:
    said = sadvise("report", "--journal", str(journal))

    assert "plain Slurm was not run beside the cluster" in said.out
    assert json.loads(sadvise("report", "--journal", str(journal), "--json").out)["counterfactual"] is None
