"""Reads the indices of the GPUs that running jobs hold on each of their nodes."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from advisor.backends.process import SlurmCommands
from advisor.backends.spelling import node_names
from advisor.errors import DecodeError

# 22.05 prints all jobs whichever are asked for, with 3 to 9 KiB each.
_LIMIT_BYTES: Final = 32 << 20
_HELD: Final = re.compile(r"\bgpu(?::[^:(),]+)?:(\d{1,6})\(IDX:([0-9,-]{1,400})\)", re.ASCII)
_SPAN: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_LONGEST_RANGE: Final = 1024


def read_gpu_indices(commands: SlurmCommands, job_ids: Sequence[int]) -> Mapping[int, Mapping[str, frozenset[int]]]:
    """Map jobs to the indices of their GPUs on each node, with one request; raises `SlurmError` or `DecodeError`.

    JSON, since a newline in the name of a job forges any field of any job in what `scontrol show job` prints. A job of
    which that is not certain is left out.
    """
    wanted = ",".join(map(str, job_ids))
    answer = replace(commands, limit_bytes=_LIMIT_BYTES).ask("squeue", "-a", "-j", wanted, "--json").output
    return {job_id: held for raw in _listed(answer) for job_id, held in _held(raw) if job_id in job_ids}


def _listed(answer: bytes) -> list[dict[str, object]]:
    """Return the jobs of an answer; raises `DecodeError` unless it is whole."""
    try:
        # Slurm copies control characters and bytes of users that are no UTF-8 as they are.
        document = json.loads(answer.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as err:
        raise DecodeError("squeue --json gave no whole JSON answer: is its serializer/json plugin installed?") from err
    listed = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise DecodeError("squeue --json gave JSON without a list of jobs")
    return [raw for raw in listed if isinstance(raw, dict)]


def _held(raw: Mapping[str, object]) -> Iterator[tuple[int, dict[str, frozenset[int]]]]:
    """Yield the id of a job and its indices by node, if each node has its own."""
    job_id, detail, nodes = raw.get("job_id"), raw.get("gres_detail"), _nodes(raw)
    if not (isinstance(job_id, int) and isinstance(detail, list) and nodes and len(nodes) == len(detail)):
        return
    held = {node: _indices(str(text)) for node, text in zip(nodes, detail, strict=True)}
    if all(held.values()):
        yield job_id, held


def _nodes(raw: Mapping[str, object]) -> list[str]:
    """Return the nodes in the order of the details; none if they cannot be read."""
    resources = raw.get("job_resources")
    if not isinstance(resources, dict):
        return []
    nodes = resources.get("nodes")
    # A list of nodes from 24.11 on, and before a text beside such a list.
    listed = nodes.get("allocation") if isinstance(nodes, dict) else resources.get("allocated_nodes")
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    found = [str(row.get("name") or row.get("nodename") or "") for row in rows]
    try:
        return (
            found if sorted(found) == list(node_names(str(raw.get("nodes", "")), field="squeue --json nodes")) else []
        )
    except DecodeError:
        return []


def _indices(text: str) -> frozenset[int]:
    """Return the indices of the whole GPUs of a node, of all types; none unless they are as many as are held."""
    found: set[int] = set()
    held = 0
    for match in _HELD.finditer(text):
        held += int(match[1])
        for low, high in _SPAN.findall(match[2]):
            found.update(range(int(low), min(int(high or low), int(low) + _LONGEST_RANGE) + 1))
    return frozenset(found) if len(found) == held else frozenset()
