"""Words what an account and its user have used of their shares, which lowers or lifts the priority of their jobs."""

import math
from collections.abc import Mapping

from advisor.domain.particulars import FairShare
from advisor.domain.plan import Evidence
from advisor.domain.units import duration, plural

# Closer to the share than this is all of it.
_NEAR = 0.05


def share_sentence(share: FairShare, priority: Mapping[str, Evidence]) -> str:
    """Return the use of a job's account in words; `priority` is the evidence of who comes before it, empty for none."""
    half = "" if share.half_life_s is None else f" (past use counts half after {duration(share.half_life_s)})"
    accounts = share.accounts
    parts = [f"user {share.user.name} has lately used {_of_share(share.user.used_of_share)}{half}"]
    if accounts:
        own = accounts[0]
        parts = [f"account {own.name} has lately used {_of_share(own.used_of_share)}{half}"]
        above = max(accounts[1:], key=lambda account: account.used_of_share, default=own)
        if above.used_of_share > own.used_of_share:
            parts.append(f"account {above.name} above it {_of_share(above.used_of_share)}")
        if own.used_of_share > 0.0 and abs(share.user.used_of_share - 1.0) > _NEAR:
            parts.append(f"user {share.user.name} {_of_share(share.user.used_of_share)} in it")
    sentence = ", ".join(parts)
    if "priority_fair_share" in priority:
        points = priority["priority_fair_share"]
        sentence += f"; fair share gives {points} of the job's {priority['priority']} points of priority"
    if users := int(priority.get("users_ahead", 0)):
        sentence += f"; {plural(users, 'other user')} {'stands' if users == 1 else 'stand'} before it"
    return sentence


def _of_share(ratio: float) -> str:
    if math.isinf(ratio):
        return "resources, and has no share"
    if ratio == 0.0:
        return "none of its share"
    return f"{ratio:.1f} times its share" if ratio > 1.0 + _NEAR else f"{100.0 * ratio:.0f} % of its share"
