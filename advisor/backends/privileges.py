"""Determines which jobs Slurm lets this user change: their own, those of some accounts, or all."""

import math
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from advisor.backends.process import Commands, ask_text, printable
from advisor.backends.site_config import config_lines
from advisor.backends.site_reader import Identity, own_identity
from advisor.domain.actions import Lever, SetNice
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.errors import AdvisorError

REFRESH_S: Final = 600.0

_OPERATORS: Final = frozenset(("operator", "administrator"))
# "Not Set" is slurmctld's word for what sacctmgr calls None.
_ORDINARY: Final = frozenset(("", "none", "not set"))


class Level(StrEnum):
    """The levels of privilege, lowest first."""

    NONE = "none"
    COORDINATOR = "coordinator"
    OPERATOR = "operator"


_LEVERS: Final = ", ".join(Lever)
# What each level lets a user change, and how to give it.
GIVES: Final[Mapping[Level, str]] = {
    Level.NONE: f"the own jobs: {_LEVERS}; nice from 0 up, which lifts no job",
    Level.COORDINATOR: "the same for every job of the coordinator's accounts and of those below them",
    Level.OPERATOR: "the same for every job; nice below 0 as well, which lifts jobs",
}
# What a user of each level lacks.
LACKS: Final[Mapping[Level, str]] = {
    Level.NONE: "only the user's own jobs can be changed, and none is lifted: no reordering",
    Level.COORDINATOR: "no job is lifted, which takes an Operator: no reordering; `sadvise tune` prints in hours what "
    "that loses on this site's own jobs, and what putting jobs back alone would gain",
    Level.OPERATOR: "",
}
TAKES: Final[Mapping[Level, str]] = {
    Level.NONE: "",
    Level.COORDINATOR: "takes `sacctmgr add coordinator account=ACCOUNT names=USER` and slurmdbd",
    Level.OPERATOR: "takes `sacctmgr modify user USER set adminlevel=Operator` and slurmdbd, SlurmUser or root",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Privilege:
    """What a user can change in Slurm, and in plain words why; `accounts` are those of a coordinator.

    `known` is False if slurmdbd's answer was incomplete, so that the privilege could be higher.
    """

    user: str
    level: Level
    accounts: frozenset[str] = frozenset()
    text: str = ""
    known: bool = True

    def against(self, change: Recommendation, job: Job) -> str | None:
        """Return why Slurm would deny a change, None if it would not."""
        if self.level is Level.OPERATOR:
            return None
        if isinstance(change.action, SetNice) and change.action.after < 0:
            return f"privilege: a nice below 0 takes an Operator, and {self.text}"
        if job.user == self.user or job.account in self.accounts:
            return None
        return f"privilege: the job belongs to another user of account {printable(job.account, 60)}, and {self.text}"


def read_privilege(commands: Commands, user: Identity | None = None) -> Privilege:
    """Determine what a user, by default the caller, can change in Slurm; costs at most three requests to slurmctld.

    An unknown privilege counts as not given.
    """
    who = user or own_identity()
    if who.uid == 0:
        return Privilege(user=who.name, level=Level.OPERATOR, text="root can change every job")
    doubts: list[str] = []
    configuration = _configuration(commands, doubts)
    if who.is_slurm_user(configuration.get("slurmuser", "")):
        return Privilege(user=who.name, level=Level.OPERATOR, text=f"{who.name} is SlurmUser and can change every job")
    if configuration and "slurmdbd" not in configuration.get("accountingstoragetype", ""):
        text = f"{who.name} has no privilege: without slurmdbd there are neither coordinators nor Operators"
        return Privilege(user=who.name, level=Level.NONE, text=text)
    level, accounts = _from_database(commands, who, doubts)
    if level is None:
        level = _from_controller(commands, who, doubts)
    return _privilege(who, level, accounts, "; ".join(doubts))


def _privilege(who: Identity, level: str | None, accounts: frozenset[str], doubts: str) -> Privilege:
    unsure = f" as far as is known ({doubts})" if doubts else ""
    if level is not None and level.lower() in _OPERATORS:
        text = f"{who.name} is {level} and can change every job"
        return Privilege(user=who.name, level=Level.OPERATOR, text=text)
    if accounts:
        text = f"{who.name} is coordinator of {printable(', '.join(sorted(accounts)))}{unsure}"
        return Privilege(user=who.name, level=Level.COORDINATOR, accounts=accounts, text=text, known=not doubts)
    text = f"{who.name} has no privilege{unsure}"
    return Privilege(user=who.name, level=Level.NONE, text=text, known=not doubts)


def _configuration(commands: Commands, doubts: list[str]) -> Mapping[str, str]:
    try:
        return config_lines(ask_text(commands, "scontrol", "show", "config"))
    except AdvisorError as err:
        doubts.append(f"slurmctld did not tell who is SlurmUser: {err}")
        return {}


def _from_database(commands: Commands, who: Identity, doubts: list[str]) -> tuple[str | None, frozenset[str]]:
    """Return the user's level and accounts; slurmdbd lists the accounts below a coordinator's as well."""
    named = (f"name={who.name}", "withcoordinator", "format=adminlevel,coordinators")
    try:
        answer = ask_text(commands, "sacctmgr", "-nP", "show", "user", "where", *named)
    except AdvisorError as err:
        doubts.append(f"the accounting database was not asked: {err}")
        return None, frozenset()
    level, _, accounts = answer.partition("\n")[0].strip().partition("|")
    return level, frozenset(filter(None, accounts.split(",")))


def _from_controller(commands: Commands, who: Identity, doubts: list[str]) -> str | None:
    """Read the level from slurmctld, which knows it without slurmdbd; it does not show the accounts of coordinators."""
    try:
        answer = ask_text(commands, "scontrol", "-o", "show", "assoc_mgr", f"users={who.name}", "flags=users")
    except AdvisorError as err:
        doubts.append(f"nor did slurmctld tell: {err}")
        return None
    for line in answer.split("\n"):
        if line.startswith(f"UserName={who.name}({who.uid}) "):
            level = line.partition("AdminLevel=")[2].strip()
            return None if level.lower() in _ORDINARY else level
    return None


class Privileges:
    """The privilege of this user, read again every ten minutes; an unknown one after one minute."""

    def __init__(
        self, commands: Commands, *, user: Identity | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._commands = commands
        self._user = user
        self._monotonic = monotonic
        self._read_at = -math.inf
        self._held: Privilege | None = None

    def read(self) -> Privilege:
        """Return the privilege, read again if the last reading is too old."""
        now = self._monotonic()
        kept_s = REFRESH_S if self._held is None or self._held.known else REFRESH_S / 10
        if self._held is None or now - self._read_at >= kept_s:
            self._held, self._read_at = read_privilege(self._commands, self._user), now
        return self._held

    def against(self, change: Recommendation, job: Job) -> str | None:
        """Return why Slurm would deny a change, None if it would not."""
        return self.read().against(change, job)
