"""Hands mails to the site's `sendmail`."""

import os
from collections.abc import Sequence
from typing import Final

from advisor.backends.process import Deadline, ProgramEnd, printable, run_to_end, text_of
from advisor.errors import NoticeError, SlurmError

# Programs find the configuration of the mail system and the user by these; the secrets of others stay here.
_KEPT_VARIABLES: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ")
_OUTPUT_BYTES: Final = 1 << 16


def send_mail(
    program: str,
    mail: bytes,
    recipients: Sequence[str],
    *,
    sender: str,
    timeout_s: float,
    patience: Deadline | None = None,
) -> None:
    """Hand a mail to a program that takes the options of sendmail; raises `NoticeError` if it does not accept it.

    The recipients are arguments after `--`, so that no header of the mail adds one and none counts as an option.
    """
    argv = (program, "-i", "-f", sender, "--", *recipients)
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    try:
        ended = run_to_end(
            argv, environment, timeout_s=timeout_s, limit_bytes=_OUTPUT_BYTES, patience=patience, content=mail
        )
    except SlurmError as err:
        raise NoticeError(f"mail: {err}") from err
    if ended.status != 0:
        raise NoticeError(f"mail: {program} {_why(ended, timeout_s)}")


def _why(ended: ProgramEnd, timeout_s: float) -> str:
    message = printable(text_of(ended.complaints or ended.output)) or "it gave no reason"
    if ended.status is None:
        return f"took no mail within {timeout_s:g} s"
    if ended.status < 0:
        return f"was ended by signal {-ended.status}: {message}"
    return f"refused a mail with exit status {ended.status}: {message}"
