"""Which daemon applies where a cluster has several slurmctld."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.controllers import Controller, beside_one_of_several, turn_of


def controllers(*words: str) -> tuple[Controller, ...]:
    """Make controllers of words such as `ctl1+`, up, and `ctl2-`, down."""
    return tuple(Controller(name=word[:-1], is_up=word[-1] == "+") for word in words)


@pytest.mark.parametrize(
    ("listed", "host", "may_apply", "is_known", "words"),
    [
        ("ctl1+ ctl2+", "ctl1", True, True, "slurmctld acts on ctl1, this host: the daemon here may apply"),
        ("ctl1+ ctl2-", "ctl1.hpc.example", True, True, "acts on ctl1, this host"),
        ("ctl1.hpc.example+ ctl2+", "ctl1.hpc.example", True, True, "acts on ctl1.hpc.example, this host"),
        ("ctl1+ ctl2+", "ctl2", False, True, "slurmctld acts on ctl1, this is ctl2: the daemon there applies"),
        ("ctl1- ctl2+", "ctl1", False, True, "slurmctld acts on ctl2, this is ctl1: the daemon there applies"),
        ("ctl1- ctl2+ ctl3+", "ctl2", True, True, "acts on ctl2, this host"),
        ("ctl1- ctl2+ ctl3+", "ctl3", False, True, "acts on ctl2, this is ctl3"),
        ("ctl1- ctl2-", "ctl2", False, False, "which slurmctld acts is not known: none answers"),
        ("ctl1+ ctl2+", "login", True, True, "acts on ctl1, and none stands by on login"),
        ("ctl1+ ctl2+", "CTL2", True, True, "none stands by on CTL2"),
        ("ctl1- ctl2-", "login", True, True, "acts nowhere that answers"),
        ("ctl1+", "ctl1", True, True, "acts on ctl1, and none stands by"),
        ("10.0.0.1+", "ctl1", True, True, "none stands by"),
        ("10.0.0.1+ 10.0.0.2+", "ctl1", False, False, "this host, ctl1, is not known: SlurmctldHost names 10.0"),
        ("fe80::1+ ctl2+", "login", False, False, "is not known"),
        ("ctl1+ localhost+", "login", False, False, "is not known"),
        ("ctl2+ ctl2+", "ctl2", False, False, "is not known: SlurmctldHost names ctl2, ctl2"),
        ("10.0.0.1+ ctl2+", "ctl2", False, True, "acts on 10.0.0.1, this is ctl2"),
    ],
)  # fmt: skip
def test_one_that_acts_is_the_first_that_is_up_and_the_daemon_beside_it_applies(
    listed: str, host: str, may_apply: bool, is_known: bool, words: str
) -> None:
    turn = turn_of(controllers(*listed.split()), host)

    assert (turn.may_apply, turn.is_known) == (may_apply, is_known)
    assert words in turn.text


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", "b.x", "10.0.0.1", "localhost"]), st.booleans()), max_size=4))
def test_one_daemon_at_most_applies_on_the_hosts_of_several_slurmctld(listed: list[tuple[str, bool]]) -> None:
    found = [Controller(name=name, is_up=is_up) for name, is_up in listed]
    hosts = {host: turn_of(found, host) for host in ("a", "b", "c", "a.x", "b.x")}

    applying = {host for host, turn in hosts.items() if turn.may_apply and beside_one_of_several(found, host)}

    # A host and its full name are one.
    assert len({host.partition(".")[0] for host in applying}) <= 1


@given(st.lists(st.booleans(), max_size=4))
def test_host_without_a_slurmctld_may_apply_whichever_is_up(ups: list[bool]) -> None:
    found = [Controller(name=f"ctl{number}", is_up=is_up) for number, is_up in enumerate(ups)]

    turn = turn_of(found, "login")

    assert turn.may_apply and turn.is_known
