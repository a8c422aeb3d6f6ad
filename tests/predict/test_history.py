import json

import numpy as np
import pytest

from advisor.errors import ModelError
from advisor.predict.history import History, keys_of
from advisor.predict.run_time_features import (
    COLUMNS,
    MISSING,
    REQUEST_KNOWN,
    RUNS_KEPT,
    SIBLINGS_ENDED,
    TEXT_LIMIT,
    USER_KNOWN,
    features,
    name_family,
)
from tests.predict.run_time_jobs import MONDAY, make_ended, make_jobs

LATER = MONDAY + 1e6


def column(name: str, rows: np.ndarray) -> np.ndarray:
    return rows[:, COLUMNS.index(name)]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("train_0042", "train"),
        ("Train-7-of-9", "train"),
        ("12345", ""),
        ("", ""),
        ("x" * 500, "x" * TEXT_LIMIT),
        ("a\nb; rm -rf /", "a"),
    ],
)
def test_jobs_of_a_numbered_series_share_a_family(name: str, family: str) -> None:
    assert name_family(name) == family


def test_the_newest_runs_of_a_request_come_first_and_the_oldest_are_forgotten() -> None:
    history = History()

    history.add(make_ended([float(100 + number) for number in range(RUNS_KEPT + 5)]))
    found = history.recall(keys_of(make_jobs()))

    assert found.runs[0, 0, 0, 0] == 100 + RUNS_KEPT + 4
    assert found.runs[0, 0, -1, 0] == 105
    assert found.counts[0].tolist() == [RUNS_KEPT + 5, RUNS_KEPT + 5]


def test_runs_enter_in_the_order_of_their_ends() -> None:
    history = History()

    history.add(make_ended([100.0, 200.0], end_time=[LATER + 50, LATER]))

    assert history.recall(keys_of(make_jobs())).runs[0, 0, :2, 0].tolist() == [100.0, 200.0]


@pytest.mark.parametrize(
    ("changed", "group"),
    [
        ({}, REQUEST_KNOWN),
        ({"gpus": 4.0}, USER_KNOWN),
        ({"user": "bob", "gpus": 4.0}, USER_KNOWN),
        ({"user": "bob", "account": "art"}, 0),
        ({"user": "", "account": ""}, 0),
    ],
    ids=["same request", "other request", "other user of the account", "stranger", "nameless"],
)
def test_a_job_is_known_by_its_request_its_user_or_its_account(changed: dict[str, object], group: int) -> None:
    history = History()
    history.add(make_ended([3600.0]))

    jobs = make_jobs(1, submit_time=LATER, **changed)
    found = features(jobs, history.recall(keys_of(jobs)), jobs.limit_s)

    assert found.group.tolist() == [group]


def test_a_series_is_preferred_to_other_jobs_with_the_same_request() -> None:
    history = History()
    history.add(make_ended([100.0, 9000.0], name=["train_1", "test_1"]))

    found = history.recall(keys_of(make_jobs(2, name=["train_2", "plot"])))

    assert found.runs[0, 0, 0, 0] == 100.0
    assert found.runs[1, 0, 0, 0] == 9000.0


def test_runs_that_say_nothing_are_left_out() -> None:
    history = History()

    history.add(make_ended([-5.0, np.nan, 1e18]))
    history.add(make_ended([60.0], limit_s=0.0))
    history.add(make_ended([60.0], limit_s=np.inf))
    history.add(make_ended([60.0], end_time=[-1.0]))
    history.add(make_ended([60.0], user="", account=""))
    history.add(make_ended([60.0], state="NODE_FAIL"))

    assert len(history) == 0


def test_a_run_beyond_its_limit_by_the_grace_counts_as_the_limit() -> None:
    history = History()

    history.add(make_ended([86_430.0]))

    assert history.recall(keys_of(make_jobs())).runs[0, 0, 0, 0] == 86_400.0


def test_unknown_fields_become_a_number_the_model_can_split_off() -> None:
    jobs = make_jobs(memory_mib=np.nan, gpus=np.nan, cpus=0.0)

    found = features(jobs, History().recall(keys_of(jobs)), jobs.limit_s)

    assert np.isfinite(found.rows).all()
    assert column("gpus", found.rows)[0] == MISSING
    assert column("near_last", found.rows)[0] == MISSING


def test_runs_of_seconds_do_not_set_the_anchor() -> None:
    history = History()
    history.add(make_ended([5.0, 4.0, 7200.0, 6.0], submit_time=MONDAY + np.arange(4) * 10_000.0))

    jobs = make_jobs(submit_time=LATER)
    found = features(jobs, history.recall(keys_of(jobs)), jobs.limit_s)

    assert np.exp(found.anchor[0]) == pytest.approx(7200.0)
    assert column("near_instant_ratio", found.rows)[0] == 0.75


def test_the_oldest_keys_are_forgotten_when_there_are_too_many() -> None:
    history = History(keys_kept=8)

    for number in range(10):
        history.add(make_ended([100.0], user=f"user{number}", account="", submit_time=MONDAY + 1000.0 * number))

    assert len(history) <= 8
    assert history.recall(keys_of(make_jobs(user="user9", account=""))).counts.tolist() == [[1, 1]]
    assert history.recall(keys_of(make_jobs(user="user0", account=""))).counts.tolist() == [[0, 0]]


def test_a_history_survives_being_written_and_read() -> None:
    history = History()
    history.add(make_ended([float(number) for number in range(1, 90)], user=[f"user{n % 7}" for n in range(89)]))

    again = History.from_json(history.to_json())

    keys = keys_of(make_jobs(7, user=[f"user{n}" for n in range(7)]))
    np.testing.assert_array_equal(history.recall(keys).runs, again.recall(keys).runs)
    np.testing.assert_array_equal(history.recall(keys).counts, again.recall(keys).counts)
    assert again.to_json() == history.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": "sadvise.history/2", "kept": []}',
        '{"format": "sadvise.history/1", "kept": [{"key": "u", "count": 1, "runs": [1, 2]}]}',
        '{"format": "sadvise.history/1", "kept": [{"key": "u", "count": 1, "runs": [1, 2, 3, 4]}]}',
        '{"format": "sadvise.history/1", "kept": [{"key": "u", "count": 1, "runs": [-1, 2, 3]}]}',
        '{"format": "sadvise.history/1", "kept": [{"key": "u", "count": 1, "runs": [1, 2, 3], "code": ""}]}',
    ],
)
def test_a_damaged_history_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ModelError) as refused:
        History.from_json(text)

    assert "\n" not in str(refused.value)


def test_a_key_that_is_there_twice_is_refused() -> None:
    kept = {"key": "u", "count": 1, "runs": [1, 2, 3]}

    with pytest.raises(ModelError, match="twice"):
        History.from_json(json.dumps({"format": "sadvise.history/1", "kept": [kept, kept]}))


def test_hostile_texts_do_not_reach_into_other_keys() -> None:
    history = History()
    history.add(make_ended([100.0], user="ada\x1ftrain", account=""))

    found = history.recall(keys_of(make_jobs(user="ada", account="", name="train")))

    assert found.counts.tolist() == [[0, 0]]


def test_ten_thousand_jobs_are_looked_up_at_once() -> None:
    history = History()
    history.add(make_ended([100.0] * 2000, user=[f"user{n % 200}" for n in range(2000)]))
    jobs = make_jobs(10_000, user=[f"user{n % 300}" for n in range(10_000)])

    found = features(jobs, history.recall(keys_of(jobs)), jobs.limit_s)

    assert found.rows.shape == (10_000, len(COLUMNS)) and found.rows.dtype == np.float32
    # Jobs of these users ended since the first ones were submitted; the other users are known by their account.
    by_user = [set(found.group[np.arange(10_000) % 300 == n].tolist()) for n in range(300)]
    assert all(groups <= {REQUEST_KNOWN, SIBLINGS_ENDED} for groups in by_user[:200])
    assert all(groups == {USER_KNOWN} for groups in by_user[200:])
