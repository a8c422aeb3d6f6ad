"""What `scontrol ping` prints, and how often it is asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.budget import BudgetedCommands, RpcBudget
from advisor.backends.controllers import (
    Controller,
    Standby,
    beside_one_of_several,
    decode_controllers,
    read_controllers,
    turn_of,
)
from advisor.domain.load import RateLimit
from advisor.errors import DecodeError, SlurmError, SlurmRefusedError
from advisor.settings import BudgetSettings
from tests.backends.fake_slurm import FakeSlurm

STARS = "*****************************************\n"
# As 22.05.8, 24.11.5 and 26.05.5 print it, the stars to root alone.
ONE = "Slurmctld(primary) at ctl1 is UP\n"
PAIR = ONE + "Slurmctld(backup) at ctl2 is UP\n"
FALLEN = PAIR.replace("ctl1 is UP", "ctl1 is DOWN") + STARS + "** RESTORE SLURMCTLD DAEMON TO SERVICE **\n" + STARS
# As 22.05.8 and 26.05.5 end where none is up: what it printed is lost with the failure.
NONE_UP = SlurmRefusedError("scontrol failed with exit status 1: it gave no reason")
PING = ("scontrol", "ping")


def pinged(answer: str | SlurmError, *, cluster: str | None = None) -> FakeSlurm:
    """Return a Slurm that answers a ping."""
    return FakeSlurm(texts={"scontrol ping": answer}, cluster=cluster)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ONE, [("ctl1", True)]),
        (PAIR, [("ctl1", True), ("ctl2", True)]),
        (FALLEN, [("ctl1", False), ("ctl2", True)]),
        (
            ONE + "Slurmctld(backup1) at ctl2.hpc is DOWN\nSlurmctld(backup2) at ctl3 is UP\n",
            [("ctl1", True), ("ctl2.hpc", False), ("ctl3", True)],
        ),
        ("Slurmctld(primary) at ctl1,ctl2 is UP\n", [("ctl1,ctl2", True)]),
    ],
    ids=["one", "pair", "one of them down, to root", "three", "one address that moves"],
)
def test_controllers_are_read_in_slurms_order(text: str, expected: list[tuple[str, bool]]) -> None:
    slurm = pinged(text)

    found = read_controllers(slurm)

    assert [(each.name, each.is_up) for each in found] == expected
    assert slurm.asked == [PING]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Slurmctld(backup) at ctl2 is UP\n",
        PAIR.replace("backup", "backup1"),
        ONE + "Slurmctld(backup1) at ctl2 is UP\nSlurmctld(backup3) at ctl3 is UP\n",
        PAIR.replace("ctl2 is UP", "ctl2 is"),
        PAIR.replace("ctl2 is UP", "ctl2 is WEARY"),
        PAIR.replace("at ctl2", "at ctl2 \x1b[31m"),
    ],
    ids=["nothing", "no primary", "a third is missing", "one between is missing", "torn", "another state", "codes"],
)
def test_answer_of_which_a_controller_may_be_missing_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="scontrol ping"):
        decode_controllers(text)


@given(st.text(), st.integers(0, len(PAIR)))
def test_hostile_answer_is_read_or_refused_and_can_be_printed(noise: str, at: int) -> None:
    try:
        found = decode_controllers(PAIR[:at] + noise + PAIR[at:])
    except DecodeError:
        return

    assert found and all(each.name.isprintable() for each in found)


@pytest.mark.parametrize(
    ("answer", "host"),
    [(ONE, "ctl1"), (PAIR, "login"), ("Slurmctld(primary) at ctl1,ctl2 is UP\n", "ctl2")],
    ids=["one controller", "none of them", "one address that moves"],
)
def test_daemon_that_has_no_other_beside_it_asks_once_and_never_again(answer: str, host: str) -> None:
    slurm = pinged(answer)
    standby = Standby(slurm, host)

    said = [standby.against_applying() for _ in range(3)]

    assert said == [None, None, None]
    assert slurm.asked == [PING]


def test_daemon_beside_the_backup_follows_who_is_up() -> None:
    slurm = pinged(PAIR)
    standby = Standby(slurm, "ctl2")

    both_up = standby.against_applying()
    slurm.texts["scontrol ping"] = FALLEN
    fallen = standby.against_applying()
    slurm.texts["scontrol ping"] = PAIR
    back = standby.against_applying()

    assert both_up == back == "slurmctld acts on ctl1, this is ctl2: the daemon there applies"
    assert fallen is None
    assert slurm.asked == [PING] * 3


def test_answer_that_does_not_come_keeps_the_daemon_from_applying_and_is_asked_for_again() -> None:
    slurm = pinged(NONE_UP)
    standby = Standby(slurm, "ctl1")

    silent = standby.against_applying()
    slurm.texts["scontrol ping"] = ONE
    answered = standby.against_applying()

    assert silent == f"which slurmctld acts is not known: {NONE_UP}"
    assert answered is None


def test_budget_that_is_spent_keeps_the_daemon_from_applying() -> None:
    slurm = pinged(PAIR)
    budget = RpcBudget(BudgetSettings(), lambda: 0.0)
    budget.learn({}, RateLimit(size=15, per_s=1.0), reading=15)
    standby = Standby(BudgetedCommands(commands=slurm, budget=budget), "ctl1")

    said = [standby.against_applying() for _ in range(16)]

    assert said[:15] == [None] * 15 and "slurmctld limits the requests of this user (rl_enable)" in str(said[15])
    assert budget.rpcs == {"REQUEST_PING": 15} and len(slurm.asked) == 15


def test_controllers_of_this_host_say_nothing_about_another_cluster() -> None:
    slurm = pinged(PAIR, cluster="east")

    said = Standby(slurm, "ctl2").against_applying()

    assert said is None and slurm.asked == []


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
