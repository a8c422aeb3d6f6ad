"""The recorded answers of real releases, decoded by every reader."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.backends import assembly, text_decode
from advisor.backends.site_config import config_lines, site_config, topology_kind
from advisor.backends.site_reader import Site
from advisor.backends.slurm_conf import shown_topology
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot
from tests.backends import recorded_scontrol

RECORDED = Path(__file__).parents[1] / "recorded"
FOLDER = RECORDED / "25.11"
LIVE_RELEASES = ("22.05", "24.11", "26.05")


def text(name: str) -> str:
    """Return a recorded text."""
    return (FOLDER / name).read_text()


def site(folder: Path = FOLDER) -> Site:
    """Decode the recorded configuration and topology."""
    raw = config_lines((folder / "config.txt").read_text())
    config = site_config(raw, version=raw["slurm_version"])
    shown = (folder / "topology.txt").read_text()
    return Site(config=config, topology=shown_topology(topology_kind(config), shown))


def text_snapshot() -> Snapshot:
    """Decode what scontrol printed of jobs and nodes; its one partition, of all nodes, was not recorded as text."""
    nodes = recorded_scontrol.node_records(text("nodes.txt"))
    return assemble(
        source="text",
        taken_at=0.0,
        site=site(),
        jobs=recorded_scontrol.job_records(text("jobs.txt")),
        nodes=nodes,
        partitions=[Partition(name="gpu", nodes=tuple(node.name for node in nodes))],
    )


def assemble(**parts: Any) -> Snapshot:
    """Make a snapshot as the text answers show it."""
    return as_asked(assembly.assemble(**parts))


def as_asked(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot without what the text answers were not asked for when they were recorded."""
    unasked: dict[str, Any] = {
        "nodes_open": False,
        "cpus_per_node": 1,
        "tasks_per_node": None,
        "tmp_disk_mib": 0,
        "gres": (),
        "uncounted": (),
    }
    return replace(
        snapshot,
        jobs=tuple(replace(job, gang=replace(job.gang, **unasked)) for job in snapshot.jobs),
        nodes=tuple(replace(node, tmp_disk_mib=None, threads_per_core=1, gres=()) for node in snapshot.nodes),
    )


def printed_snapshot(release: str, *, jobs_by_scontrol: bool = False) -> Snapshot:
    """Decode what squeue and sinfo of a live release printed; or scontrol, as to the jobs."""
    folder = RECORDED / release
    blocks = (folder / "scontrol_job.txt").read_text()
    rows = [dict(row) for row in _rows(folder, "squeue.txt", text_decode.JOB_FIELDS)]
    if release == "26.05":
        # squeue was not asked for this field when it was recorded; what it says stands in the other answer.
        exclusive = {block["JobId"]: block["Exclusive"] for block in recorded_scontrol.blocks(blocks, key="JobId")}
        rows = [row | {"Exclusive": exclusive[row["JobID"]]} for row in rows]
    nodes = _rows(folder, "sinfo.txt", text_decode.NODE_FIELDS)
    printed = map(text_decode.job_record, rows)
    return assemble(
        source="text",
        taken_at=0.0,
        site=site(folder),
        jobs=recorded_scontrol.job_records(blocks) if jobs_by_scontrol else printed,
        nodes=text_decode.node_records(nodes),
        partitions=text_decode.partitions_of(nodes),
    )


def _rows(folder: Path, name: str, ours: Sequence[str]) -> list[text_decode.Row]:
    """Split a recorded answer, whose fields commands.json names, into rows under our names."""
    how = json.loads((folder / "commands.json").read_text())
    names = {field.lower(): field for field in ours}
    asked = [each.partition(":")[0] for each in how["commands"][name][-1].split(",")]
    return text_decode.rows(
        (folder / name).read_bytes(),
        command=name,
        fields=[names.get(field.lower(), field) for field in asked],
        delimiter=how["separator"],
    )
