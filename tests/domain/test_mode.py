"""How far the daemon may go with a job, by its partitions and its account."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.mode import EVERYTHING, Mode, Modes
from tests.builders import make_job

OBSERVE, RECOMMEND, APPLY = Mode
CAREFUL_FIRST = list(Mode)


def test_nothing_is_done_but_watching_unless_it_is_configured() -> None:
    assert Modes().of(make_job()) is OBSERVE
    assert EVERYTHING.of(make_job()) is APPLY


@pytest.mark.parametrize(
    ("modes", "partitions", "mode"),
    [
        pytest.param(Modes(partitions="gpu=apply"), ("gpu",), APPLY, id="a partition that is named"),
        pytest.param(Modes(partitions="gpu=apply"), ("debug",), OBSERVE, id="another"),
        pytest.param(Modes(partitions="gpu=apply"), ("gpu", "debug"), OBSERVE, id="one of two"),
        pytest.param(
            Modes(partitions="gpu=apply,debug=recommend"), ("gpu", "debug"), RECOMMEND, id="the more careful of two"
        ),
        pytest.param(Modes(accounts="lab=apply"), ("gpu",), APPLY, id="an account that is named"),
        pytest.param(Modes(accounts="lab=apply", partitions="gpu=recommend"), ("gpu",), RECOMMEND, id="of both"),
        pytest.param(
            Modes(accounts="lab=recommend", partitions="gpu=apply"), ("gpu",), RECOMMEND, id="of both, turned"
        ),
        pytest.param(Modes(default=APPLY, accounts="other=observe"), ("gpu",), APPLY, id="another account"),
        pytest.param(Modes(default=APPLY, partitions="gpu=observe"), (), APPLY, id="no partition"),
        pytest.param(Modes(default=APPLY, partitions=" gpu = observe , "), ("gpu",), OBSERVE, id="with spaces"),
    ],
)
def test_most_careful_mode_that_applies_counts(modes: Modes, partitions: tuple[str, ...], mode: Mode) -> None:
    assert modes.of(make_job(partitions=partitions, account="lab")) is mode


@pytest.mark.parametrize("text", ["gpu", "gpu=", "=apply", "gpu=applied", "gpu=apply debug=apply", "gpu=APPLY"])
def test_modes_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="partitions must be name=mode pairs with the modes observe, recommend, apply"):
        Modes(partitions=text)


def test_a_name_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="accounts must name lab once"):
        Modes(accounts="lab=apply,lab=observe")


@pytest.mark.parametrize(
    ("modes", "mode"),
    [
        (Modes(), OBSERVE),
        (Modes(partitions="gpu=recommend"), RECOMMEND),
        (Modes(default=RECOMMEND, partitions="gpu=observe", accounts="lab=apply"), APPLY),
    ],
)
def test_farthest_mode_is_that_of_any_name_or_the_default(modes: Modes, mode: Mode) -> None:
    assert modes.farthest is mode


def pairs() -> st.SearchStrategy[str]:
    """Draw modes of some names."""
    named = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(Mode))
    return named.map(lambda modes: ",".join(f"{name}={mode}" for name, mode in modes.items()))


@given(
    default=st.sampled_from(Mode),
    partitions=pairs(),
    accounts=pairs(),
    of=st.lists(st.sampled_from(["a", "b", "d"]), max_size=3, unique=True),
    account=st.sampled_from(["", "a", "d"]),
)
def test_no_job_goes_farther_than_the_farthest(
    default: Mode, partitions: str, accounts: str, of: list[str], account: str
) -> None:
    modes = Modes(default=default, partitions=partitions, accounts=accounts)

    mode = modes.of(make_job(partitions=tuple(of), account=account))

    assert CAREFUL_FIRST.index(mode) <= CAREFUL_FIRST.index(modes.farthest)


def test_mode_of_a_partition_and_the_accounts_with_a_more_careful_one() -> None:
    modes = Modes(default=Mode.APPLY, partitions="debug=observe", accounts="a=observe, b=recommend, c=apply")

    assert (modes.of_partition("debug"), modes.of_partition("gpu")) == (Mode.OBSERVE, Mode.APPLY)
    assert modes.accounts_below(Mode.APPLY) == {"a", "b"}
    assert modes.accounts_below(Mode.OBSERVE) == frozenset()
