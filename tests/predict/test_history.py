import json

import numpy as np
import pytest

from advisor.errors import ModelError
from advisor.predict.history import ACCOUNT, FAMILY, REQUEST, SERIES, USER, History, keys_of, runs_of
from advisor.predict.run_time_features import (
    COLUMNS,
    LONGEST_S,
    MISSING,
    REQUEST_KNOWN,
    RUNS_KEPT,
    SIBLINGS_ENDED,
    TEXT_LIMIT,
    USER_KNOWN,
    EndedJobs,
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
        ("[train] 7", "train]"),
        ("x/(4)", "x"),
        ("A.B-2", "a.b"),
        ("x\x7fy", "x"),
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


DAY_S = 86_400.0


def first_runs(history: History, **job: object) -> list[float | None]:
    """The newest run time of each block, that of the request and that of the user, for one job."""
    blocks = history.recall(keys_of(make_jobs(1, **job))).runs[0, :, 0, 0]
    return [None if np.isnan(run_s) else float(run_s) for run_s in blocks]


def test_jobs_of_one_account_are_known_by_their_own_users() -> None:
    history = History()
    history.add(make_ended([100.0, 900.0], user=["ada", "bob"], account="physics"))

    assert first_runs(history, user="ada") == [100.0, 100.0]
    assert first_runs(history, user="bob") == [900.0, 900.0]
    # Of a new user only the account is known, by the job that ended last.
    assert first_runs(history, user="eve") == [None, 900.0]


def test_user_with_several_accounts_is_one_user() -> None:
    history = History()
    history.add(make_ended([100.0], user="ada", account="physics"))

    assert first_runs(history, user="ada", account="art") == [100.0, 100.0]


def test_account_stands_in_for_a_user_that_is_not_known() -> None:
    history = History()
    history.add(make_ended([100.0], user="", account="physics", name="train_1"))

    assert first_runs(history, user="", account="physics", name="train_2") == [100.0, 100.0]
    assert first_runs(history, user="", account="art", name="train_2") == [None, None]


@pytest.mark.parametrize("column", ["gpus", "cpus", "nodes", "memory_mib", "limit_s"])
def test_another_request_is_known_by_its_user_alone(column: str) -> None:
    history = History()
    history.add(make_ended([100.0]))

    assert first_runs(history) == [100.0, 100.0]
    assert first_runs(history, **{column: 3600.0}) == [None, 100.0]


def test_each_block_looks_for_the_most_telling_key_first() -> None:
    history = History()
    names, gpus, users = ["train_1", "train_1", "plot", "", ""], [1.0, 2.0, 4.0, 8.0, 8.0], ["ada"] * 4 + ["bob"]
    history.add(make_ended([10.0, 20.0, 30.0, 40.0, 50.0], name=names, gpus=gpus, user=users))

    # The series of this size; the family at another size; a request of the user; the user; the account.
    assert first_runs(history, name="train_7", gpus=1.0) == [10.0, 20.0]
    assert first_runs(history, name="train_7", gpus=4.0) == [30.0, 20.0]
    assert first_runs(history, name="new", gpus=1.0) == [10.0, 40.0]
    assert first_runs(history, name="new", gpus=16.0) == [None, 40.0]
    assert first_runs(history, user="eve", gpus=1.0) == [None, 50.0]


def test_keys_of_a_job_without_a_name_leave_out_its_series() -> None:
    (keys,) = keys_of(make_jobs(name=""))

    assert keys[SERIES] is None and keys[FAMILY] is None
    assert None not in (keys[REQUEST], keys[USER], keys[ACCOUNT])
    assert len({keys[REQUEST], keys[USER], keys[ACCOUNT]}) == 3


def test_keys_of_a_job_of_no_account_leave_out_the_account() -> None:
    (keys,) = keys_of(make_jobs(user="ada", account=""))

    assert keys[ACCOUNT] is None and keys[USER] is not None


def test_long_texts_are_cut_and_those_that_agree_so_far_share_a_key() -> None:
    one, other, shorter = keys_of(make_jobs(3, user=["u" * TEXT_LIMIT, "u" * TEXT_LIMIT + "x", "u" * (TEXT_LIMIT - 1)]))

    assert one[USER] == other[USER] != shorter[USER]


def test_history_keeps_what_it_knows_while_it_grows() -> None:
    history = History()
    users = [f"user{number}" for number in range(300)]
    history.add(make_ended([float(10 + number) for number in range(300)], user=users, account=""))

    recalled = history.recall(keys_of(make_jobs(300, user=users, account="")))

    # Two keys each, in a table that begins with 64.
    assert len(history) == 600
    assert recalled.runs[:, 0, 0, 0].tolist() == [float(10 + number) for number in range(300)]
    assert (recalled.counts == 1).all()
    assert np.isnan(recalled.runs[:, :, 1:]).all()


def test_a_quarter_of_the_keys_is_forgotten_those_that_ended_longest_ago() -> None:
    history = History(keys_kept=8)
    ends = [MONDAY + hours * 3600.0 for hours in (5, 1, 4, 2)]
    users = ["ada", "bob", "eve", "kim"]

    # Eight keys of four users are all there is room for; the fifth user takes the place of the one that ended first.
    history.add_rows(
        keys_of(make_jobs(4, user=users, account="")),
        runs_of(make_ended([60.0] * 4, user=users, account="", end_time=ends)),
    )
    assert len(history) == 8
    history.add(make_ended([70.0], user="new", account=""))

    assert len(history) == 8
    counts = history.recall(keys_of(make_jobs(5, user=[*users, "new"], account=""))).counts
    assert counts[:, 1].tolist() == [1, 0, 1, 1, 1]
    assert first_runs(history, user="kim", account="") == [60.0, 60.0]
    assert first_runs(history, user="new", account="") == [70.0, 70.0]


def test_stamp_of_a_key_is_that_of_its_last_run() -> None:
    history = History()
    history.add(make_ended([60.0], account=""))
    before = history.stamps(keys_of(make_jobs(2, user=["ada", "bob"], account="")))
    version = history.version

    history.add(make_ended([60.0], user="bob", account=""))
    after = history.stamps(keys_of(make_jobs(2, user=["ada", "bob"], account="")))

    assert version == 2 and history.version == 4
    assert before.tolist() == [[1, 2], [0, 0]]
    assert after.tolist() == [[1, 2], [3, 4]]


def test_history_that_was_read_goes_on_with_the_counts_it_had() -> None:
    history = History()
    history.add(make_ended([60.0 + number for number in range(RUNS_KEPT + 3)], account=""))

    again = History.from_json(history.to_json())
    again.add(make_ended([7.0], account="", submit_time=MONDAY + DAY_S))

    recalled = again.recall(keys_of(make_jobs(account="")))
    assert recalled.counts.tolist() == [[RUNS_KEPT + 4] * 2]
    assert recalled.runs[0, 0, :2, 0].tolist() == [7.0, 60.0 + RUNS_KEPT + 2]
    assert again.version == 4


def test_count_below_the_runs_that_are_there_is_raised_to_them() -> None:
    key = keys_of(make_jobs(account=""))[0][USER]
    kept = {"key": key, "count": 1, "runs": [60, 3600, 1000, 50, 3600, 900]}

    history = History.from_json(json.dumps({"format": "sadvise.history/1", "kept": [kept]}))

    recalled = history.recall(keys_of(make_jobs(account="")))
    assert recalled.counts.tolist() == [[0, 2]]
    assert recalled.runs[0, 1, :2].tolist() == [[60, 3600, 1000], [50, 3600, 900]]


def test_runs_that_are_written_are_rounded_to_seconds() -> None:
    history = History()
    history.add(make_ended([60.4], account="", end_time=[MONDAY + 100.0]))

    (kept, _) = json.loads(history.to_json())["kept"]

    assert kept["runs"] == [60.0, DAY_S, MONDAY + 100.0] and kept["count"] == 1


@pytest.mark.parametrize("runs", [[0.5, 2, 3], [1, 2, 1.1e10], [1, 2] * 3 * RUNS_KEPT])
def test_history_beyond_its_bounds_is_refused(runs: list[float]) -> None:
    kept = {"key": "u", "count": 1, "runs": runs}

    with pytest.raises(ModelError):
        History.from_json(json.dumps({"format": "sadvise.history/1", "kept": [kept]}))


def test_run_counts_between_a_second_and_its_limit() -> None:
    ended = make_ended([0.2, 100.0, 4000.0], limit_s=3600.0, end_time=[MONDAY] * 3)

    assert runs_of(ended).tolist() == [[1.0, 3600.0, MONDAY], [100.0, 3600.0, MONDAY], [3600.0, 3600.0, MONDAY]]


def usable(ended: EndedJobs) -> bool:
    good, dropped = ended.usable()
    assert bool(good[0]) is (not dropped)
    return bool(good[0])


@pytest.mark.parametrize(
    ("run_s", "limit_s", "counts"),
    [
        (3600.0 * 2.5, 3600.0, True),
        (3600.0 * 2.5 + 1, 3600.0, False),
        (7200.0 * 2, 7200.0, True),
        (1.0, LONGEST_S - 1, True),
        (1.0, LONGEST_S, False),
        (1.0, 1.0, True),
        (0.0, 3600.0, False),
        (1e-3, 3600.0, True),
    ],
)
def test_run_counts_up_to_half_and_an_hour_beyond_its_limit(run_s: float, limit_s: float, counts: bool) -> None:
    assert usable(make_ended([run_s], limit_s=limit_s)) is counts


@pytest.mark.parametrize(
    ("submit", "end", "counts"),
    [
        (0.0, 60.0, True),
        (60.0, 60.0, True),
        (61.0, 60.0, False),
        (-1.0, 60.0, False),
        (np.nan, 60.0, False),
        (60.0, np.nan, False),
        (60.0, 7_258_118_399.0, True),
        (60.0, 7_258_118_400.0, False),
    ],
)
def test_run_counts_if_its_instants_can_be(submit: float, end: float, counts: bool) -> None:
    assert usable(make_ended([60.0], submit_time=submit, end_time=[end])) is counts


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        ("COMPLETED", True),
        ("CANCELLED by 1000", True),
        ("TIMEOUT", True),
        ("PREEMPTED", False),
        ("node_fail", False),
        ("REQUEUED by x", False),
    ],
)
def test_run_that_the_cluster_ended_does_not_count(state: str, counts: bool) -> None:
    assert usable(make_ended([60.0], state=state)) is counts


@pytest.mark.parametrize(
    ("user", "account", "counts"), [("ada", "", True), ("", "physics", True), ("ada", "physics", True), ("", "", False)]
)
def test_run_counts_if_its_user_or_account_is_known(user: str, account: str, counts: bool) -> None:
    assert usable(make_ended([60.0], user=user, account=account)) is counts


def test_rows_are_counted_by_their_first_fault() -> None:
    ended = make_ended([60.0, np.nan, -1.0, 60.0, 60.0], limit_s=[3600.0, 3600.0, np.nan, np.nan, np.inf])

    good, dropped = ended.usable()

    assert good.tolist() == [True, False, False, False, False]
    assert dropped == {"no run time, or a negative one": 2, "no time limit": 2}


def test_unusable_runs_take_no_place_among_the_good() -> None:
    history = History()
    history.add(make_ended([100.0, -1.0, 300.0, 200.0], end_time=[MONDAY + end for end in (1e5, 2e5, 4e5, 3e5)]))

    assert history.recall(keys_of(make_jobs())).runs[0, 0, :4, 0].tolist()[:3] == [300.0, 200.0, 100.0]
    assert history.recall(keys_of(make_jobs())).counts[0, 0] == 3
