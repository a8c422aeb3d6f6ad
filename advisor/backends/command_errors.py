"""Words the errors of Slurm's commands: what is wrong, by what a command printed, and what to do about it."""

import re
from collections.abc import Mapping
from typing import Final

from advisor.errors import (
    SlurmError,
    SlurmRefusedError,
    SlurmTimeError,
    SlurmUnavailableError,
    SlurmUnreachableError,
)
from advisor.text import escaped

_UNREACHABLE: Final = re.compile(
    r"unable to contact slurm controller|connection refused|connection timed out|socket timed out"
    r"|zero bytes were transmitted|communication connection failure|backup controller|standby"
    r"|transport endpoint is not connected|connection reset|unexpected message received",
    re.IGNORECASE,
)
_NO_CONFIGURATION: Final = re.compile(
    r"could not establish a configuration source|unable to (process configuration|status) file|s_p_parse_file",
    re.IGNORECASE,
)
_NO_MUNGE: Final = re.compile(r"munge", re.IGNORECASE)
_NO_ACCESS: Final = re.compile(r"access/permission denied|user not permitted", re.IGNORECASE)
_NO_ACCOUNTING: Final = re.compile(r"accounting storage is disabled", re.IGNORECASE)
_NO_TIME: Final = re.compile(r"invalid time specification|requested is after end time", re.IGNORECASE)
# They ask slurmdbd, and never slurmctld.
_OF_ACCOUNTING: Final = frozenset({"sacct", "sacctmgr"})


def refusal(program: str, status: int, message: str, environment: Mapping[str, str]) -> SlurmError:
    """Return the error for a program that ended with an exit status above 0 and a message on one line."""
    if _NO_CONFIGURATION.search(message):
        return _no_configuration(program, message, environment)
    if _UNREACHABLE.search(message):
        daemon, ping = (
            ("slurmdbd", "sacctmgr show cluster") if program in _OF_ACCOUNTING else ("slurmctld", "scontrol ping")
        )
        return SlurmUnreachableError(
            f"{program} cannot reach {daemon}: check that it runs (`{ping}`) and try again ({message})"
        )
    if _NO_MUNGE.search(message):
        return SlurmUnavailableError(f"{program} cannot authenticate: check that munged runs on this host ({message})")
    if _NO_ACCOUNTING.search(message):
        return SlurmRefusedError(
            f"{program}: this cluster keeps no accounting, which takes slurmdbd and "
            f"AccountingStorageType=accounting_storage/slurmdbd in slurm.conf ({message})"
        )
    if _NO_TIME.search(message):
        return SlurmTimeError(
            f"{program} does not take this time: give one in the past, such as 2026-01-31, now-90days or "
            f"now-12hours ({message})"
        )
    if _NO_ACCESS.search(message):
        return SlurmRefusedError(f"{program} was denied access: run as a user who can see the whole queue ({message})")
    return SlurmRefusedError(f"{program} failed with exit status {status}: {message or 'it gave no reason'}")


def late(program: str, timeout_s: float, message: str, environment: Mapping[str, str]) -> SlurmError:
    """Return the error for a program that gave no answer in time."""
    # Slurm's commands look for a missing file for a minute before they give up.
    if _NO_CONFIGURATION.search(message):
        return _no_configuration(program, message, environment)
    daemon = "slurmdbd" if program in _OF_ACCOUNTING else "slurmctld"
    return SlurmUnavailableError(
        f"{program} gave no answer within {timeout_s:g} s: {daemon} is possibly overloaded or rate limiting; "
        f"try again later or raise --timeout{f' ({message})' if message else ''}"
    )


def _no_configuration(program: str, message: str, environment: Mapping[str, str]) -> SlurmError:
    return SlurmRefusedError(f"{program} finds no Slurm configuration: {_hint(environment)} ({message})")


def _hint(environment: Mapping[str, str]) -> str:
    named = environment.get("SLURM_CONF")
    if named is None:
        return "set SLURM_CONF to the cluster's slurm.conf"
    return f"SLURM_CONF names {escaped(named)}: check that this file exists and can be read"
