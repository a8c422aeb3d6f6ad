"""Reads from accounting with which options jobs were submitted; accounting keeps the command line as it was typed.

Changes after that do not show there, whereas `ReqNodes` and `ReqTRES` follow them. Options in a batch script show in no
release, so that an option which is not on the line is unknown.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from advisor.backends.process import Commands, text_of
from advisor.domain.actions import NodeRange
from advisor.planning.strays import Submitted

# Ids on one command line; the newest jobs are asked for.
MOST_JOBS: Final = 1000

_NICE: Final = re.compile(r"(?:^|\s)--nice(?:=(-?\d{1,10}))?(?=\s|$)")
_NODES: Final = re.compile(r"(?:^|\s)(?:-N\s*|--nodes[=\s])(\d{1,6})(?:-(\d{1,6}))?(?=\s|$)")
_SWITCHES: Final = re.compile(r"(?:^|\s)--switches[=\s]\d")
# The nice of `--nice` without a value.
_DEFAULT_NICE: Final = 100


def read_submitted(commands: Commands, job_ids: Collection[int]) -> Mapping[int, Submitted]:
    """Return the options of jobs as submitted, as far as accounting knows them; raises `SlurmError`.

    Users can write what looks like the row of another job into their line: a job with several rows is left out.
    """
    asked = sorted(job_ids)[-MOST_JOBS:]
    if not asked:
        return {}
    answer = commands.ask("sacct", "-a", "-n", "-X", "-P", "-j", ",".join(map(str, asked)), "-o", "JobIDRaw,SubmitLine")
    rows = [line.partition("|") for line in text_of(answer.output).split("\n")]
    known = [(int(job_id), line) for job_id, _, line in rows if job_id.isascii() and job_id.isdigit()]
    times = Counter(job_id for job_id, _ in known)
    return {job_id: submitted_of(line) for job_id, line in known if times[job_id] == 1 and job_id in set(asked)}


def submitted_of(line: str) -> Submitted:
    """Return the options of a command line."""
    nice, nodes = _NICE.search(line), _NODES.search(line)
    return Submitted(
        nice=None if nice is None else int(nice[1] or _DEFAULT_NICE),
        nodes=None if nodes is None else NodeRange(low=int(nodes[1]), high=int(nodes[2] or nodes[1])),
        has_switches=_SWITCHES.search(line) is not None,
    )
