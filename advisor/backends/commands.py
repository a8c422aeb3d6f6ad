"""The scontrol commands that apply a change and take it back, as argv or as a line, never a shell.

Each pair was run on the live releases and read back: what a revert leaves behind is what stood before.
"""

import re
from collections.abc import Mapping
from typing import Final

from advisor.domain.actions import Action
from advisor.errors import OptionsError

# scontrol splits a line at blanks, and its readline takes some characters for commands: none of them is let through.
_JOB: Final = re.compile(r"[0-9]{1,10}(?:_\[[0-9,-]+\])?", re.ASCII)
# Only a list of nodes is cleared by an empty value.
_WORD: Final = re.compile(r"[A-Za-z]+=[A-Za-z0-9_.:,@/-]+|ReqNodeList=", re.ASCII)


def apply_argv(action: Action, cluster: str | None = None) -> list[str]:
    """Return the command that brings a job to the action's after value."""
    return ["scontrol", *(["-M", cluster] if cluster else []), *action.command()]


def revert_argv(action: Action, cluster: str | None = None) -> list[str]:
    """Return the command that brings a job back to the action's before value."""
    return apply_argv(action.swapped(), cluster)


def update_line(change: Action, address: str | None = None) -> str | None:
    """Return the line for scontrol that makes a change; None if a value in it is more than a word.

    `address` names tasks of an array in place of the job.
    """
    job, words = address or str(change.job_id), change.arguments()
    are_words = _JOB.fullmatch(job) and all(map(_WORD.fullmatch, words))
    return f"update JobId={job} {' '.join(words)}" if are_words else None


def chosen_cluster(cluster: str | None, variables: Mapping[str, str]) -> str | None:
    """Return the one cluster to ask, None for that of this host; raises `ConfigError` for several."""
    named = variables.get("SLURM_CLUSTERS") or None if cluster is None else cluster
    if named is not None and (not named or named.startswith("-") or "," in named or named == "all"):
        raise OptionsError(
            f"{named!r} is not one cluster, and this works on one at a time: name it with -M or in SLURM_CLUSTERS"
        )
    return named
