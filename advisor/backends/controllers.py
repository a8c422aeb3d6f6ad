"""Asks which of a cluster's slurmctld are up, with `scontrol ping`; one request to each of them."""

import re
from typing import Final

from advisor.backends.process import Commands, ask_text, printable
from advisor.domain.standby import Controller, beside_one_of_several, turn_of
from advisor.errors import AdvisorError, DecodeError

_BEGIN: Final = "Slurmctld("
_LINE: Final = re.compile(r"Slurmctld\((\w+)\) at (\S+) is (UP|DOWN)")


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
