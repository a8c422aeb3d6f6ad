import csv
import gzip
import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from advisor.errors import AdvisorError, ConfigError, TraceError
from tests.predict.run_time_jobs import make_ended, make_site
from tools.data.drac_tables import read_tables
from tools.evaluate.__main__ import app
from tools.evaluate.run_time_errors import (
    LAST_TWO,
    LIMIT,
    MEDIAN,
    RATIO,
    FitTrial,
    baselines,
    by_burst,
    judge,
    pinball,
    quantiles_of,
    trial,
    unseen_users,
)
from tools.evaluate.score_report import parsed_date

# Each fits or judges models.
pytestmark = pytest.mark.slow

Rows = list[dict[str, str]]
REAL = Path(os.environ.get("SADVISE_DATA", "/nowhere")) / "traces/drac_slurm/graham_gpu_jobs_until_2021-06-14.csv.gz"


def site_rows(rows: int = 1200, *, seed: int = 0) -> Rows:
    site = make_site(rows, seed=seed)
    return [
        {
            "job_id": str(1000 * seed + row),
            "cluster": "here",
            "submit_time": in_words(site.jobs.submit_time[row]),
            "start_time": in_words(site.end_time[row] - site.run_s[row]),
            "end_time": in_words(site.end_time[row]),
            "elapsed_s": f"{site.run_s[row]:.0f}",
            "time_limit_s": "86400",
            "state": "COMPLETED",
            "account_id": site.jobs.user[row],
            "partition_id": "7",
            "req_cpus": "8",
            "req_mem_mb": "32000",
            "req_gpus": "1",
            "alloc_nodes": "1",
            "req_tres": "billing=1,cpu=8,gres/gpu=1",
        }
        for row in range(rows)
    ]


def in_words(instant: float) -> str:
    return datetime.fromtimestamp(round(instant), UTC).strftime("%Y-%m-%d %H:%M:%S")


def written(path: Path, rows: Rows) -> Path:
    opened: Callable[..., object] = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as stream:  # type: ignore[attr-defined]
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["runtime", *arguments], catch_exceptions=True)
    if isinstance(result.exception, AdvisorError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def tried_on(train: Path, test: Path, *, split_time: float | None = None) -> FitTrial:
    return trial(read_tables([train, test]), [train], [test], split_time=split_time)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("site") / "jobs.csv.gz", site_rows())


def test_the_last_three_weeks_of_one_file_are_judged(table: Path) -> None:
    report = json.loads(run("--format", "drac", "--train", str(table), "--test", str(table), "--json"))

    ours, *others = report["scores"]
    assert report["train_rows"] + report["test_rows"] <= 1200 and report["test_rows"] > 300
    assert {each["rows"] for each in report["scores"]} == {report["test_rows"]}
    assert [each["name"] for each in others if each["name"].startswith("sadvise")] == [
        "sadvise, half-way",
        "sadvise, at the start",
    ]
    # Jobs of this site start when they are submitted, so that all moments are one.
    others = [each for each in others if each["name"].endswith("at submission")]
    assert 0.7 < ours["coverage"] < 0.9
    # This site was made so that a user's median says all there is; nothing can beat it by more than chance.
    best = min(others, key=lambda each: float(each["further"]["pinball, h"]))
    assert best["name"].startswith(MEDIAN)
    assert all(
        ours["further"]["pinball, h"]
        < (1.1 if each["name"].startswith(MEDIAN) else 1.0) * each["further"]["pinball, h"]
        for each in others
    )
    assert ours["further"]["rank correlation"] > 0.8


def test_users_left_out_are_judged_whole_by_fits_that_never_saw_them(table: Path) -> None:
    tables = read_tables([table])

    parts = list(unseen_users(tables, folds=3, seed=0))

    users = np.array(tables.ended.jobs.user)
    assert all(set(users[of.fitted_on]).isdisjoint(users[of.judged]) for of in parts)
    assert (np.sum([of.judged for of in parts], axis=0) == 1).all()
    with pytest.raises(ConfigError, match="there are 12 users"):
        list(unseen_users(tables, folds=13, seed=0))


def test_each_row_of_the_test_is_judged_or_counted_with_a_reason(tmp_path: Path) -> None:
    rows = site_rows()
    rows[0] |= {"end_time": "", "elapsed_s": ""}
    rows[1] |= {"time_limit_s": ""}
    rows[-1] |= {"time_limit_s": "0"}
    table = str(written(tmp_path / "jobs.csv", [*rows, rows[5]]))

    by_time = json.loads(run("--train", table, "--test", table, "--json"))
    by_user = json.loads(run("--train", table, "--test", table, "--unseen-users", "3", "--json"))

    left_out = by_time["left_out"]
    assert by_time["test_rows"] + sum(left_out.values()) == by_user["test_rows"] + 4 == 1201
    assert left_out.pop("fitted on") == by_time["train_rows"]
    assert left_out.pop("submitted before the split, not fitted on") > 0
    assert left_out == {
        "not ended": 1,
        "there twice": 1,
        "without a run time, a time limit or a submission": 2,
    }
    assert by_user["left_out"] == {"not ended": 1, "there twice": 1, "no time limit": 2}


def test_a_burst_counts_once_in_its_share() -> None:
    inside = np.array([True, True, True, False, False])

    assert by_burst(inside, np.array([7, 7, 7, 7, 2])) == pytest.approx((0.75 + 0.0) / 2)


def test_the_order_of_rows_and_further_columns_do_not_matter(table: Path, tmp_path: Path) -> None:
    rows = site_rows()
    order = np.random.default_rng(5).permutation(len(rows)).tolist()
    other = written(tmp_path / "shuffled.csv", [rows[row] | {"note": "x,y"} for row in order])

    first, second = (judge(tried_on(path, path), seed=0) for path in (table, other))

    assert first.test_rows == second.test_rows
    assert second.scores[1].mean_error == pytest.approx(first.scores[1].mean_error)
    assert second.scores[0].mean_error == pytest.approx(first.scores[0].mean_error, rel=0.05)


def test_files_apart_in_time_are_split_at_the_first_submission_of_the_test(tmp_path: Path) -> None:
    rows = site_rows()
    train, test = written(tmp_path / "a.csv", rows[:900]), written(tmp_path / "b.csv", rows[900:])

    tried = tried_on(train, test)

    submitted = tried.jobs.jobs.submit_time
    assert np.flatnonzero(tried.judged).tolist() == list(range(900, 1200))
    assert (tried.jobs.end_time[tried.fitted_on] < submitted[900]).all()
    assert not (tried.fitted_on & tried.judged).any()


def test_shuffled_files_are_judged_with_a_caution(tmp_path: Path) -> None:
    rows = site_rows()
    train, test = written(tmp_path / "a.csv", rows[::2]), written(tmp_path / "b.csv", rows[1::2])

    tried = tried_on(train, test)

    assert np.count_nonzero(tried.fitted_on) == 600 and np.count_nonzero(tried.judged) == 600
    assert any(note.startswith("CAUTION") for note in tried.notes)


def test_a_date_splits_whatever_the_files_are(table: Path) -> None:
    at = parsed_date(in_words(make_site().jobs.submit_time[800]))

    tried = tried_on(table, table, split_time=at)

    assert np.count_nonzero(tried.judged) == 400
    assert not any(note.startswith("CAUTION") for note in tried.notes)


def test_a_job_in_both_files_is_one_job(tmp_path: Path) -> None:
    rows = site_rows(400)
    train, test = written(tmp_path / "a.csv", rows[:300] + rows[:10]), written(tmp_path / "b.csv", rows[250:])

    tried = tried_on(train, test)

    assert len(tried.jobs) == 400
    assert tried.left_out == {} and np.count_nonzero(tried.judged) == 150
    twice = read_tables([train, test]).left_out
    assert (twice[train]["there twice"], twice[test]["there twice"]) == (10, 0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"elapsed_s": "fast"}, r"line 2: elapsed_s 'fast' is no number"),
        ({"elapsed_s": "-5"}, "line 2: elapsed_s"),
        ({"req_cpus": "inf"}, "line 2: req_cpus 'inf'"),
        ({"time_limit_s": "nan"}, "line 2: time_limit_s"),
        ({"end_time": "yesterday"}, "line 2: end_time 'yesterday' is no date"),
    ],
)
def test_a_wrong_cell_is_one_line_with_its_place(tmp_path: Path, change: Mapping[str, str], says: str) -> None:
    rows = site_rows(3)
    rows[0] |= change

    with pytest.raises(TraceError, match=says) as refused:
        read_tables([written(tmp_path / "jobs.csv", rows)])

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "column account_id is missing"),
        (b"account_id,submit_time\n", "column end_time is missing"),
        (b"\x1f\x8bnonsense", "damaged gzip|cannot be read"),
        (b"\xff\xfe\x00\x01", "column account_id is missing"),
    ],
    ids=["empty", "columns", "gzip", "binary"],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(content)

    with pytest.raises(TraceError, match=says):
        read_tables([path])


def test_a_missing_file_and_a_short_line_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "jobs.csv", site_rows(2))
    path.write_text(path.read_text() + "1,2,3\n")

    with pytest.raises(TraceError, match="no such file"):
        read_tables([tmp_path / "none.csv"])
    with pytest.raises(TraceError, match="line 4: 3 cells"):
        read_tables([path])


def test_a_table_of_jobs_that_have_not_ended_is_refused(tmp_path: Path) -> None:
    rows = [row | {"end_time": "", "elapsed_s": ""} for row in site_rows(3)]

    with pytest.raises(TraceError, match="no job that ended"):
        read_tables([written(tmp_path / "jobs.csv", rows)])


@pytest.mark.parametrize("split", ["tomorrow", "2021-13-45", ""])
def test_a_split_that_is_no_date_is_refused(split: str) -> None:
    with pytest.raises(ConfigError, match="is no date"):
        parsed_date(split)


@pytest.mark.parametrize(("split", "says"), [("1999-01-01", "0 usable jobs"), ("2099-01-01", "no job of the test")])
def test_a_split_that_leaves_too_little_is_refused(table: Path, split: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        tried_on(table, table, split_time=parsed_date(split))


def test_baselines_use_only_what_had_ended() -> None:
    begin = 1.6e9
    jobs = make_ended(
        [1000.0, 3000.0, 8000.0, 500.0, 500.0],
        user=["a", "a", "a", "a", "b"],
        submit_time=begin + np.array([0.0, 10.0, 20.0, 8010.0, 9000.0]),
    )
    everything = np.ones(5, dtype=np.bool_)

    said = baselines(jobs, everything, everything)

    share_s = 1000.0
    np.testing.assert_allclose(said[LIMIT], 86_400.0)
    np.testing.assert_allclose(said[RATIO], share_s)
    np.testing.assert_allclose(said[LAST_TWO], [share_s, share_s, share_s, 2000.0, share_s])
    np.testing.assert_allclose(said[MEDIAN], [share_s, share_s, share_s, 2000.0, share_s])


def test_quantiles_of_a_baseline_never_exceed_the_limit() -> None:
    said_s, limit_s = np.array([10.0, 20.0, 40.0]), np.array([15.0, 25.0, 100.0])

    found = quantiles_of(said_s, np.array([10.0, 20.0, 80.0]), limit_s, np.ones(3, dtype=np.bool_))

    assert (found <= limit_s[:, None]).all() and (np.diff(found, axis=1) >= 0).all()


def test_pinball_loss_is_that_of_its_definition() -> None:
    assert pinball(np.array([10.0]), np.array([[4.0, 8.0, 10.0, 14.0, 20.0]])) == pytest.approx(
        (0.1 * 6 + 0.25 * 2 + 0 + 0.25 * 4 + 0.1 * 10) / 5
    )


@pytest.mark.needs("measurements")
def test_graham_is_forecast_better_than_any_baseline_does_it() -> None:
    scores = judge(tried_on(REAL, REAL), seed=0).scores

    for moment, share in (("at submission", 0.85), ("half-way", 0.9), ("at the start", 0.85)):
        ours, *others = (each for each in scores if each.name.endswith(moment))
        assert ours.coverage is not None and 0.74 < ours.coverage < 0.88
        assert ours.further["pinball, h"] < share * min(each.further["pinball, h"] for each in others)
        assert ours.further["pinball, log10"] < min(each.further["pinball, log10"] for each in others)
