"""Which jobs a user may change, as slurmdbd and slurmctld tell, and what follows for a change."""

from collections.abc import Mapping

import pytest

from advisor.backends.privileges import Level, Privilege, Privileges, read_privilege
from advisor.backends.site_reader import Identity
from advisor.domain.actions import Action, NodeRange, SetNice, SetNodeRange
from advisor.errors import SlurmError, SlurmUnavailableError
from tests.backends.fake_slurm import FakeSlurm
from tests.builders import make_job, make_recommendation

ADA = Identity(uid=1000, name="ada")
CONFIG = "scontrol show config"
DATABASE = "sacctmgr -nP show user where name=ada withcoordinator format=adminlevel,coordinators"
MEMORY = "scontrol -o show assoc_mgr users=ada flags=users"
RUNNING = """ClusterName             = test
SLURM_VERSION           = 24.11.5
SlurmUser               = slurm(64030)
AccountingStorageType   = accounting_storage/slurmdbd
"""
SHOWN = """Current Association Manager state
User Records
UserName=ada(1000) DefAccount=physics DefWckey=(null) AdminLevel=LEVEL
"""
DOWN = SlurmUnavailableError("slurmdbd is down")


def held(answers: Mapping[str, str | SlurmError], user: Identity = ADA) -> Privilege:
    return read_privilege(FakeSlurm(texts={CONFIG: RUNNING, **answers}), user)


@pytest.mark.parametrize(
    ("answers", "level", "accounts", "words"),
    [
        ({DATABASE: "Operator|\n"}, Level.OPERATOR, set(), "ada is Operator and can change every job"),
        ({DATABASE: "Administrator|\n"}, Level.OPERATOR, set(), "ada is Administrator"),
        # slurmdbd lists the accounts below a coordinator's own.
        ({DATABASE: "None|sub,vision\n"}, Level.COORDINATOR, {"sub", "vision"}, "ada is coordinator of sub, vision"),
        ({DATABASE: "None|\n"}, Level.NONE, set(), "ada has no privilege"),
        ({DATABASE: ""}, Level.NONE, set(), "ada has no privilege"),
    ],
    ids=["operator", "administrator", "coordinator", "ordinary", "not in the database"],
)
def test_level_is_what_the_accounting_database_says(
    answers: Mapping[str, str | SlurmError], level: Level, accounts: set[str], words: str
) -> None:
    privilege = held(answers)

    assert (privilege.level, privilege.accounts, privilege.known) == (level, frozenset(accounts), True)
    assert privilege.text.startswith(words)


def test_root_and_slurm_user_may_change_everything() -> None:
    root = read_privilege(FakeSlurm(texts={}), Identity(uid=0, name="root"))
    by_name = held({}, Identity(uid=1, name="slurm"))
    by_number = held({}, Identity(uid=64030, name="other"))

    assert {root.level, by_name.level, by_number.level} == {Level.OPERATOR}
    assert by_name.text == "slurm is SlurmUser and can change every job"


def test_without_slurmdbd_there_is_no_privilege_to_ask_for() -> None:
    privilege = held({CONFIG: RUNNING.replace("accounting_storage/slurmdbd", "(null)")})

    assert (privilege.level, privilege.known) == (Level.NONE, True)
    assert "without slurmdbd there are neither coordinators nor Operators" in privilege.text


def test_slurmctld_knows_an_operator_while_slurmdbd_is_down() -> None:
    privilege = held({DATABASE: DOWN, MEMORY: SHOWN.replace("LEVEL", "Operator")})

    assert privilege.level is Level.OPERATOR


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({DATABASE: DOWN, MEMORY: SHOWN.replace("LEVEL", "Not Set")}, "the accounting database was not asked"),
        ({DATABASE: DOWN, MEMORY: "Current Association Manager state\n"}, "slurmdbd is down"),
        ({DATABASE: DOWN, MEMORY: SlurmUnavailableError("gone")}, "nor did slurmctld tell: gone"),
        ({CONFIG: SlurmUnavailableError("gone"), DATABASE: "None|\n"}, "did not tell who is SlurmUser: gone"),
    ],
    ids=["no operator", "not shown", "nobody answers", "no configuration"],
)
def test_what_is_not_known_counts_as_not_given_and_says_so(answers: Mapping[str, str | SlurmError], words: str) -> None:
    privilege = held(answers)

    assert (privilege.level, privilege.known) == (Level.NONE, False)
    assert privilege.text.startswith("ada has no privilege as far as is known (")
    assert words in privilege.text


NICE = SetNice(job_id=1, before=0, after=10)
BELOW_ZERO = SetNice(job_id=1, before=0, after=-10)
NODES = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))


@pytest.mark.parametrize(
    ("level", "owner", "account", "action", "denied"),
    [
        (Level.NONE, "ada", "physics", NICE, ""),
        (Level.NONE, "ada", "physics", BELOW_ZERO, "privilege: a nice below 0 takes an Operator"),
        (Level.NONE, "bob", "physics", NODES, "privilege: the job belongs to another user of account physics"),
        (Level.COORDINATOR, "bob", "physics", NODES, ""),
        (Level.COORDINATOR, "bob", "physics", BELOW_ZERO, "privilege: a nice below 0 takes an Operator"),
        (Level.COORDINATOR, "bob", "biology", NICE, "privilege: the job belongs to another user of account biology"),
        (Level.COORDINATOR, "ada", "biology", NICE, ""),
        (Level.OPERATOR, "bob", "biology", BELOW_ZERO, ""),
    ],
)
def test_change_that_slurm_would_deny_is_told(
    level: Level, owner: str, account: str, action: Action, denied: str
) -> None:
    accounts = frozenset({"physics"}) if level is Level.COORDINATOR else frozenset()
    privilege = Privilege(user="ada", level=level, accounts=accounts, text="ada is what ada is")

    said = privilege.against(make_recommendation(action), make_job(1, user=owner, account=account))

    assert (said or "").startswith(denied)
    assert (said is None) is (denied == "")


def test_privilege_is_read_anew_after_ten_minutes_and_sooner_where_it_was_not_told() -> None:
    now = [0.0]
    slurm = FakeSlurm(texts={CONFIG: RUNNING, DATABASE: DOWN, MEMORY: SlurmUnavailableError("gone")})
    privileges = Privileges(slurm, user=ADA, monotonic=lambda: now[0])
    job = make_job(1, user="bob")

    unknown = privileges.against(make_recommendation(NICE), job)
    slurm.texts[DATABASE] = "Operator|\n"
    still = privileges.against(make_recommendation(NICE), job)
    now[0] = 60.0
    known = privileges.against(make_recommendation(NICE), job)
    slurm.texts[DATABASE] = "None|\n"
    now[0] = 600.0
    kept = privileges.against(make_recommendation(NICE), job)
    now[0] = 660.0
    lost = privileges.against(make_recommendation(NICE), job)

    assert unknown == still
    assert unknown is not None
    assert (known, kept) == (None, None)
    assert lost is not None
