"""What one user can teach the performance model."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.fit.performance_caps import capped_by_user
from advisor.fit.performance_fit import Rows, Samples, no_samples


def samples_of(count: int) -> Samples:
    """Return samples that are told apart by their speeds."""
    numbers = np.arange(count)
    none = no_samples(2)
    zeros = np.zeros(count, np.intp)
    return replace(
        none, model=zeros, gpu_type=zeros, place=np.zeros(count), others=np.zeros((count, 3)),
        log_speed=numbers.astype(np.float64), noise=np.ones(count), family=zeros,
    )  # fmt: skip


def kept(users: Rows, share: float, seed: int = 0) -> Rows:
    """Return which samples are kept."""
    samples = capped_by_user(samples_of(len(users)), users, share=share, seed=seed)
    return samples.log_speed.astype(np.intp)


@given(
    users=st.lists(st.integers(0, 30), max_size=200).map(lambda drawn: np.array(drawn, np.intp)),
    share=st.floats(0.05, 1.0),
)
def test_no_user_has_more_than_the_share_of_what_is_kept(users: Rows, share: float) -> None:
    rows = kept(users, share)

    counts = np.unique(users[rows], return_counts=True)[1]
    assert (np.diff(rows) > 0).all()
    assert counts.max(initial=0) <= share * len(rows) + 1e-6
    # One more of each user who has been cut would be too many.
    all_counts = np.unique(users, return_counts=True)[1]
    most = int(counts.max(initial=0)) + 1
    if (all_counts >= most).any():
        assert most > share * np.minimum(all_counts, most).sum()


def test_all_samples_are_kept_where_no_user_has_many() -> None:
    users = np.arange(40) % 20

    assert kept(users, 0.1).tolist() == list(range(40))


def test_flood_of_one_user_is_cut_to_a_tenth_and_by_chance() -> None:
    users = np.concatenate([np.arange(90) % 30, np.full(900, 99)])

    rows, again, other = (kept(users, 0.1, seed) for seed in (1, 1, 2))

    assert rows.tolist() == again.tolist() != other.tolist()
    assert (users[rows] == 99).sum() == 10 and (users[rows] != 99).sum() == 90
    assert rows[-1] > 500


def test_too_few_users_teach_nothing() -> None:
    assert len(kept(np.arange(90) % 9, 0.1)) == 0
    assert len(kept(np.arange(90) % 9, 0.2)) == 90


def test_users_and_share_have_to_fit() -> None:
    with pytest.raises(ValueError, match="2 users for 3 samples"):
        capped_by_user(samples_of(3), np.zeros(2, np.intp), seed=0)
    with pytest.raises(ValueError, match="a share of 0 is not above 0"):
        capped_by_user(samples_of(3), np.zeros(3, np.intp), seed=0, share=0.0)
