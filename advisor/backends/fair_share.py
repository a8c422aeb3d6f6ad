"""Reads what the accounts above a job's user have used of their shares, with sshare; one request to slurmctld."""

import math

from advisor.backends.process import Commands, ask_text
from advisor.backends.spelling import PLAIN_NAME
from advisor.domain.particulars import AccountUse, FairShare
from advisor.errors import DecodeError

_COLUMNS = ("Account", "User", "NormShares", "EffectvUsage")


def read_fair_share(commands: Commands, *, account: str, user: str) -> FairShare | None:
    """Return the use of an account and one of its users; None if slurmctld shows none, as it does without slurmdbd."""
    if not PLAIN_NAME.fullmatch(user):
        return None
    shown = ask_text(commands, "sshare", "-h", "-P", "-u", user, "-o", ",".join(_COLUMNS))
    return decode_fair_share(shown, account=account, user=user)


def decode_fair_share(text: str, *, account: str, user: str) -> FairShare | None:
    """Decode sshare's tree, which shows depth by leading spaces; raises `DecodeError` for what is no such tree."""
    above: list[tuple[int, str, float]] = []
    for line in text.split("\n"):
        # With several clusters each has a heading.
        if not line.strip() or line.startswith("CLUSTER: "):
            continue
        fields = line.split("|")
        if len(fields) != len(_COLUMNS):
            raise DecodeError(f"sshare shows {len(fields)} columns in place of {len(_COLUMNS)}: see sshare -P")
        depth, name = len(fields[0]) - len(fields[0].lstrip(" ")), fields[0].strip()
        above = [level for level in above if level[0] < depth]
        used = _used_of_share(fields[2].strip(), fields[3].strip())
        if not fields[1].strip():
            above.append((depth, name, used))
        elif (fields[1].strip(), name) == (user, account):
            # The root has no share and no siblings.
            accounts = tuple(AccountUse(name=level, used_of_share=use) for _, level, use in reversed(above[1:]))
            return FairShare(user=AccountUse(name=user, used_of_share=used), accounts=accounts)
    return None


def _used_of_share(share: str, use: str) -> float:
    """Return the use over the share: infinite for use without a share, 0 for no use."""
    try:
        shared, used = float(share or 0), float(use or 0)
    except ValueError as err:
        raise DecodeError("sshare shows a share or a use that is no number: see sshare -P") from err
    if not (math.isfinite(shared) and math.isfinite(used)):
        raise DecodeError("sshare shows a share or a use that is no number: see sshare -P")
    if used <= 0.0:
        return 0.0
    return used / shared if shared > 0.0 else math.inf
