"""The recorded answers of Slurm 25.11, decoded by every reader."""

import json
from pathlib import Path

from advisor.backends import json_decode, pyslurm_decode, scontrol_text
from advisor.backends.assembly import assemble
from advisor.backends.releases import release_of, traits_of
from advisor.backends.site_config import config_lines, site_config, topology_kind
from advisor.backends.site_reader import Site
from advisor.backends.topology_text import shown_topology
from advisor.domain.snapshot import Snapshot

FOLDER = Path(__file__).parents[1] / "recorded" / "25.11"


def text(name: str) -> str:
    """Return a recorded text."""
    return (FOLDER / name).read_text()


def site() -> Site:
    """Decode the recorded configuration and topology."""
    raw = config_lines(text("config.txt"))
    config = site_config(raw, version=raw["slurm_version"])
    return Site(config=config, topology=shown_topology(topology_kind(config), text("topology.txt")))


def text_snapshot() -> Snapshot:
    """Decode what scontrol printed; its partitions were recorded as JSON only."""
    return assemble(
        source="text",
        taken_at=0.0,
        site=site(),
        jobs=scontrol_text.job_records(text("jobs.txt")),
        nodes=scontrol_text.node_records(text("nodes.txt")),
        partitions=map(json_decode.partition, _listed("partitions")),
    )


def json_snapshot() -> Snapshot:
    """Decode the JSON answers."""
    switches_key = traits_of(release_of("25.11.7")).switches_in_json
    return assemble(
        source="json",
        taken_at=0.0,
        site=site(),
        jobs=[json_decode.job_record(raw, switches_key=switches_key) for raw in _listed("jobs", "squeue")],
        nodes=map(json_decode.node_record, _listed("nodes")),
        partitions=map(json_decode.partition, _listed("partitions")),
    )


def pyslurm_snapshot() -> Snapshot:
    """Decode what pyslurm returned."""
    raw = json.loads(text("pyslurm.json"))
    return assemble(
        source="pyslurm",
        taken_at=0.0,
        site=site(),
        jobs=[pyslurm_decode.job_record(each, gpus_counted=False) for each in raw["jobs"].values()],
        nodes=map(pyslurm_decode.node_record, raw["nodes"].values()),
        partitions=map(pyslurm_decode.partition, raw["partitions"].values()),
    )


def _listed(key: str, name: str | None = None) -> list[dict[str, object]]:
    answer = (FOLDER / f"{name or key}.json").read_bytes()
    return json_decode.parse(answer, command=f"{name or key}.json", key=key)
