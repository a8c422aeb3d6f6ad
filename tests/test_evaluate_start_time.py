"""The judgement of forecasts of start times: what is fitted on, what is judged, what is refused."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from advisor.errors import AdvisorError, ConfigError, TraceError
from tests.fit.start_time_journal import poll_rows, write
from tools.data.graham_polls import read_polls
from tools.evaluate.__main__ import app
from tools.evaluate.score_report import parsed_date, print_report
from tools.evaluate.start_time_errors import baselines, default_split, judge, read_errors_s

# Each fits or judges models.
pytestmark = pytest.mark.slow

DATA = Path(os.environ.get("SADVISE_DATA", ""), "traces", "drac_slurm")
POLLS = DATA / "graham_gpu_queue_snapshots_until_2021-06-14.csv.gz"


def run(*arguments: str | Path) -> dict[str, Any]:
    """Run the command and return what it prints as JSON; errors are raised."""
    result = CliRunner().invoke(app, ["start", *map(str, arguments), "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def scores(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return scores by the name of the predictor."""
    return {each["name"]: each for each in report["scores"]}


def test_forecast_beats_the_mean_where_the_queue_tells(tmp_path: Path) -> None:
    path = write(tmp_path / "polls.csv", poll_rows(days=30))

    report = run("--format", "drac", "--train", path, "--test", path)

    found = scores(report)
    assert report["test_rows"] == 14 * 40
    assert found["sadvise"]["further"]["squared"] < 0.5 * found["training mean"]["further"]["squared"]
    assert 0.6 < found["sadvise"]["coverage"] < 0.95
    assert {each["rows"] for each in report["scores"]} == {14 * 40}


def test_overlapping_files_are_split_and_others_are_not(tmp_path: Path) -> None:
    rows = poll_rows(days=30)
    whole, packed = write(tmp_path / "all.csv", rows), tmp_path / "late.csv.gz"
    early, late = write(tmp_path / "early.csv", rows[: 20 * 40]), write(tmp_path / "late.csv", rows[20 * 40 :])
    packed.write_bytes(gzip.compress(late.read_bytes()))

    at = [
        default_split(read_polls([train])[0], read_polls([test])[0])
        for train, test in ((whole, whole), (whole, packed), (early, packed))
    ]

    assert at == [parsed_date("2021-05-17"), parsed_date("2021-05-17"), parsed_date("2021-05-21 12:00:00")]


def test_starts_after_the_split_do_not_change_the_forecast(tmp_path: Path) -> None:
    rows = poll_rows(days=14)
    late = [row | {"poll_wait_sec": 9_000_000} if str(row["poll_time"])[:10] >= "2021-05-10" else row for row in rows]
    true, otherwise = (
        read_polls([write(tmp_path / f"{number}.csv", each)])[0] for number, each in enumerate((rows, late))
    )

    first, second = (judge(each, true, split_time=parsed_date("2021-05-10"), seed=0) for each in (true, otherwise))

    assert first.scores == second.scores


def test_files_after_one_option_are_all_taken(tmp_path: Path) -> None:
    rows = poll_rows(days=12)
    parts = [write(tmp_path / f"{number}.csv", rows[number::2]) for number in range(2)]
    estimates = [tmp_path / name for name in ("one.csv", "two.csv")]
    for path in estimates:
        path.write_text("true_start_time,estimate_start_time\n2022-12-01 12:00:00,2022-12-01 14:00:00\n")

    report = run("--train", *parts, "--test", *parts, "--estimates", *estimates, "--split", "2021-05-09")

    assert report["train_rows"] + report["test_rows"] + 40 >= len(rows)
    assert scores(report)["Slurm, two.csv"]["mean_error"] == pytest.approx(2.0)
    assert scores(report)["sadvise, hours"]["unit"] == "h"


def test_daily_fit_is_judged_on_the_same_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "polls.csv", poll_rows(days=12))

    found = scores(run("--train", path, "--test", path, "--split", "2021-05-11", "--daily"))

    assert found["sadvise, fitted before each poll"]["rows"] == found["sadvise"]["rows"] == 80


def test_rows_never_seen_to_start_are_counted_not_judged(tmp_path: Path) -> None:
    rows = poll_rows(days=12)
    rows[-1]["poll_wait_sec"] = ""
    path = write(tmp_path / "polls.csv", rows)

    report = run("--train", path, "--test", path, "--split", "2021-05-11")

    assert report["test_rows"] == 79
    assert report["left_out"] == {
        "polled before the split, in the time of the fit": 10 * 40,
        "polled later, of jobs never seen to start": 1,
    }


def test_table_says_how_many_rows_are_judged_and_why_not_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "polls.csv", poll_rows(days=12))
    polls, _ = read_polls([path])

    print_report(judge(polls, polls, split_time=parsed_date("2021-05-11"), seed=0), as_json=False)

    said = capsys.readouterr().out
    assert "rows not judged: 400: 400 polled before the split, in the time of the fit\n" in said
    assert (
        "The files overlap in time, and only polls after the fit are judged: those from 2021-05-11 00:00:00 on" in said
    )


def test_polls_after_the_fit_and_before_the_split_are_counted_apart(tmp_path: Path) -> None:
    rows = poll_rows(days=14)
    early, late = write(tmp_path / "early.csv", rows[: 10 * 40]), write(tmp_path / "late.csv", rows[10 * 40 :])

    report = run("--train", early, "--test", late, "--split", "2021-05-13")

    assert report["test_rows"] == 2 * 40
    assert report["left_out"]["polled before the split, after the fit"] == 2 * 40
    assert not any("overlap" in note for note in report["notes"])


def test_baselines_answer_for_accounts_and_partitions_never_seen(tmp_path: Path) -> None:
    rows = poll_rows(days=8)
    unseen = [row | {"account_id": "new", "partition_id_y": "new", "r_gpus_above": 0} for row in poll_rows(days=1)]
    train, test = (read_polls([write(tmp_path / f"{n}.csv", each)])[0] for n, each in enumerate((rows, unseen)))

    said = {name: guess[0] for name, guess in baselines(train, test).items()}

    assert all(np.isfinite(middle).all() for middle in said.values())
    assert said["last wait of the account"] == pytest.approx(said["training mean"])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        pytest.param(("--split", "soon"), ConfigError, "--split 'soon' is no date", id="date"),
        pytest.param(("--split", "2031-01-01"), ConfigError, "give an earlier --split", id="nothing to judge"),
        pytest.param(("--split", "2011-01-01"), ConfigError, "give a later --split", id="nothing to fit on"),
        pytest.param(("--split", "2021-05-03"), ConfigError, "are too few to fit", id="too little to fit on"),
        pytest.param(("--estimates", "none.csv"), TraceError, "none.csv", id="file"),
    ],
)
def test_wrong_request_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], error: type[AdvisorError], message: str
) -> None:
    path = write(tmp_path / "polls.csv", poll_rows(days=10))

    with pytest.raises(error, match=message) as caught:
        run("--train", path, "--test", path, *arguments)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("true_start_time\n", "there is no estimate", id="column"),
        pytest.param("true_start_time,estimate_start_time\n", "there is no estimate", id="empty"),
        pytest.param("true_start_time,estimate_start_time\nx,y\n", "is no table of Slurm's estimates", id="cell"),
    ],
)
def test_wrong_table_of_estimates_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "estimates.csv"
    path.write_text(content)

    with pytest.raises(TraceError, match=message):
        read_errors_s(path)


@pytest.mark.needs("measurements")
def test_forecast_of_june_beats_the_mean_of_may_where_bursts_count_as_one() -> None:
    found = scores(run("--train", POLLS, "--test", POLLS))

    ours, mean = (found[name]["further"] for name in ("sadvise", "training mean"))
    assert ours["squared, bursts"] < mean["squared, bursts"]


def test_parts_of_the_polls_and_their_mean_are_judged_on_the_same_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "polls.csv", poll_rows(days=30))

    found = scores(run("--format", "drac", "--train", path, "--test", path, "--parts", "2021-05-09"))

    names = [name for name in found if "poll" in name or "mean of both" in name]
    assert names == ["polls before 2021-05-09 00:00:00", "polls from 2021-05-09 00:00:00 on", "mean of both"]
    squared = [found[name]["further"]["squared"] for name in names]
    # The error of a mean of two is at most the mean of theirs.
    assert squared[2] <= (squared[0] + squared[1]) / 2
    with pytest.raises(ConfigError, match="there are no polls on one side"):
        run("--format", "drac", "--train", path, "--test", path, "--parts", "1999-01-01")
