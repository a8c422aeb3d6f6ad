"""Reads from accounting with which options jobs were submitted; accounting keeps the command line as it was typed.

Changes after that do not show there, whereas `ReqNodes` and `ReqTRES` follow them. Options in a batch script show in no
release, so that an option which is not on the line is unknown.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from advisor.backends.process import Commands, ask_text
from advisor.backends.text_source import new_delimiter
from advisor.domain.actions import NodeRange
from advisor.errors import DecodeError
from advisor.planning.strays import Submitted

# Ids on one command line; the newest jobs are asked for.
MOST_JOBS: Final = 1000

_NICE: Final = re.compile(r"(?:^|\s)--nice(?:=(-?\d{1,10}))?(?=\s|$)")
_NODES: Final = re.compile(r"(?:^|\s)(?:-N\s*|--nodes[=\s])(\d{1,6})(?:-(\d{1,6}))?(?=\s|$)")
_TASKS: Final = re.compile(r"(?:^|\s)(?:-n\s*|--ntasks[=\s])(\d{1,6})(?=\s|$)")
_SWITCHES: Final = re.compile(r"(?:^|\s)--switches[=\s]\d")
_MOST_NODES: Final = 10**6
# The nice of `--nice` without a value.
_DEFAULT_NICE: Final = 100


def read_submitted(commands: Commands, job_ids: Collection[int]) -> Mapping[int, Submitted]:
    """Return the options of jobs as submitted, as far as accounting knows them; raises `SlurmError`."""
    asked = sorted(job_ids)[-MOST_JOBS:]
    if not asked:
        return {}
    lines = accounted_texts(commands, ("SubmitLine",), "-j", ",".join(map(str, asked)))
    return {job_id: submitted_of(*lines[str(job_id)]) for job_id in asked if str(job_id) in lines}


def accounted_texts(commands: Commands, fields: Sequence[str], *options: str) -> Mapping[str, Sequence[str]]:
    """Ask sacct for texts that users write, and return those of each job by its id; raises `SlurmError`.

    sacct escapes nothing: a text can hold newlines and what looks like the row of another job. So a random delimiter
    ends each field. Other users can see it on the command line while sacct runs: one who writes a second
    row of a job in that time only hides its texts, since an id that has two rows is left out.
    """
    delimiter, names = new_delimiter(), ",".join(("JobIDRaw", *fields))
    shown = ask_text(commands, "sacct", "-a", "-n", "-X", "-p", f"--delimiter={delimiter}", *options, "-o", names)
    *cells, rest = shown.split(delimiter)
    job_ids = [job_id.removeprefix("\n") for job_id in cells[:: 1 + len(fields)]]
    is_whole = len(cells) == len(job_ids) * (1 + len(fields)) and not rest.strip("\n")
    if not is_whole or not all(job_id.isascii() and job_id.isdecimal() for job_id in job_ids):
        raise DecodeError("sacct gave an incomplete answer: try again")
    times = Counter(job_ids)
    texts = (cells[start + 1 : start + 1 + len(fields)] for start in range(0, len(cells), 1 + len(fields)))
    return {job_id: text for job_id, text in zip(job_ids, texts, strict=True) if times[job_id] == 1}


def submitted_of(line: str) -> Submitted:
    """Return the options of a command line."""
    nice, nodes, tasks = (option.search(line) for option in (_NICE, _NODES, _TASKS))
    most = _MOST_NODES if tasks is None else int(tasks[1])
    return Submitted(
        nice=None if nice is None else int(nice[1] or _DEFAULT_NICE),
        nodes=nodes and NodeRange(low=min(int(nodes[1]), most), high=min(int(nodes[2] or nodes[1]), most)),
        has_switches=_SWITCHES.search(line) is not None,
    )
