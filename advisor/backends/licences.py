"""Reads the licences that a job asks for and how many are free; two requests to slurmctld."""

import re

from advisor.backends.process import Commands, ask_text
from advisor.backends.scontrol_text import blocks
from advisor.backends.spelling import count, is_unset
from advisor.domain.particulars import LicenceUse

_ASKED = re.compile(r"([^:,;|()]+)(?:[:=](\d{1,9}))?", re.ASCII)
# Longer than any list of licences; squeue cuts what is wider.
_WIDTH = 1024


def read_licences(commands: Commands, job_id: int) -> tuple[LicenceUse, ...]:
    """Return the licences that a job asks for, as far as slurmctld counts them."""
    local = () if commands.cluster is not None else ("--local",)
    asked = ask_text(commands, "squeue", "-h", *local, f"-j{job_id}", "-O", f"Licenses:{_WIDTH}")
    return decode_licences(asked, ask_text(commands, "scontrol", "-o", "show", "licenses"))


def decode_licences(asked: str, shown: str) -> tuple[LicenceUse, ...]:
    """Match the licences of a request, `matlab:2,ansys`, with those that scontrol shows."""
    # Under the heading of a cluster.
    wanted = asked.strip().rpartition("\n")[2].strip()
    if is_unset(wanted):
        return ()
    by_name = {block["LicenseName"]: block for block in blocks(shown, key="LicenseName")}
    found = []
    for match in _ASKED.finditer(wanted):
        block = by_name.get(match[1].strip())
        if block is None:
            continue
        total, free = (count(block[key], field=f"scontrol {key}") for key in ("Total", "Free"))
        used, reserved = (count(block.get(key, "0"), field=f"scontrol {key}") for key in ("Used", "Reserved"))
        found.append(
            LicenceUse(
                name=match[1].strip(),
                asked=int(match[2] or 1),
                total=total,
                # 22.05 counts those that a reservation holds as free.
                free=max(0, min(free, total - used - reserved)),
                reserved=reserved,
            )
        )
    return tuple(found)
