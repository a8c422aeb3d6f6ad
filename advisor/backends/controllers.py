"""Determines which of several slurmctld acts, and whether a daemon beside one of them can apply changes.

`scontrol ping` says which are up: one request to each of them.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

from advisor.backends.process import Commands, ask_text, printable
from advisor.domain.dataclass import dataclass
from advisor.errors import AdvisorError, DecodeError

_BEGIN: Final = "Slurmctld("
_LINE: Final = re.compile(r"Slurmctld\((\w+)\) at (\S+) is (UP|DOWN)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One slurmctld, by the host that Slurm's configuration names for it, and whether it answers."""

    name: str
    is_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Whether it is a daemon's turn to apply, and in plain words why; `is_known` is False where it is in doubt."""

    may_apply: bool
    text: str
    is_known: bool = True


def acting(controllers: Sequence[Controller]) -> Controller | None:
    """Return the acting slurmctld: the first in Slurm's order that is up, since a backup yields to those before it."""
    return next((controller for controller in controllers if controller.is_up), None)


def beside_one_of_several(controllers: Sequence[Controller], host: str) -> bool:
    """Return whether a host runs one of several slurmctld, or could, since a name does not identify its host."""
    return len(controllers) > 1 and any(
        _names(controller, host) or not _names_a_host(controller) for controller in controllers
    )


def turn_of(controllers: Sequence[Controller], host: str) -> Turn:
    """Return whether it is the turn of a daemon on a host; at most one daemon beside several slurmctld has it."""
    first = acting(controllers)
    if not beside_one_of_several(controllers, host):
        where = "nowhere that answers" if first is None else f"on {first.name}"
        text = f"slurmctld acts {where}, and none stands by on {host}: a daemon here may apply"
        return Turn(may_apply=True, text=text)
    own = [controller for controller in controllers if _names(controller, host)]
    if len(own) != 1:
        listed = ", ".join(controller.name for controller in controllers)
        text = f"which slurmctld is that of this host, {host}, is not known: SlurmctldHost names {listed}"
        return Turn(may_apply=False, is_known=False, text=text)
    if first is None:
        return Turn(may_apply=False, is_known=False, text="which slurmctld acts is not known: none answers")
    if first is own[0]:
        return Turn(may_apply=True, text=f"slurmctld acts on {first.name}, this host: the daemon here may apply")
    text = f"slurmctld acts on {first.name}, this is {own[0].name}: the daemon there applies"
    return Turn(may_apply=False, text=text)


def _names(controller: Controller, host: str) -> bool:
    """Return whether a controller is on a host, compared as slurmctld does: by its full or its short name."""
    return controller.name in (host, host.partition(".")[0])


def _names_a_host(controller: Controller) -> bool:
    """Return whether the name identifies one host, unlike `localhost` or an address."""
    try:
        ipaddress.ip_address(controller.name)
    except ValueError:
        return controller.name.lower() != "localhost"
    return False


def read_controllers(commands: Commands) -> tuple[Controller, ...]:
    """Ask every slurmctld whether it is up; raises `SlurmError`, also where none is, or `DecodeError`."""
    return decode_controllers(ask_text(commands, "scontrol", "ping"))


def decode_controllers(text: str) -> tuple[Controller, ...]:
    """Decode what `scontrol ping` prints, in Slurm's order; raises `DecodeError` where one is missing or unreadable."""
    # To root it also says in stars that one is down.
    matches = [_LINE.fullmatch(line) for line in text.split("\n") if line.startswith(_BEGIN)]
    lines = [line for line in matches if line is not None]
    if len(lines) < len(matches) or [line[1] for line in lines] != _roles(len(lines)):
        raise DecodeError("scontrol ping gave an answer that is not one of its own: try again")
    return tuple(Controller(name=printable(line[2]), is_up=line[3] == "UP") for line in lines)


def _roles(count: int) -> list[str]:
    """Return scontrol's names for the roles of a number of controllers, at least one."""
    return ["primary", *(["backup"] if count == 2 else [f"backup{number}" for number in range(1, count)])]


class Standby:
    """Determines whether another daemon, beside the acting slurmctld, applies changes in place of this one.

    If the host runs none of several slurmctld, that is determined only once.
    """

    def __init__(self, commands: Commands, host: str) -> None:
        """Take the commands, and the name of the host that this daemon runs on."""
        self._commands = commands
        self._host = host
        # With -M scontrol lists the controllers of this host's slurm.conf, and asks those of the other cluster.
        self._is_concerned = commands.cluster is None

    def against_applying(self) -> str | None:
        """Return why this daemon must not apply now, None if it can; asks every slurmctld once."""
        if not self._is_concerned:
            return None
        try:
            controllers = read_controllers(self._commands)
        except AdvisorError as err:
            return f"which slurmctld acts is not known: {err}"
        self._is_concerned = beside_one_of_several(controllers, self._host)
        turn = turn_of(controllers, self._host)
        return None if turn.may_apply else turn.text
