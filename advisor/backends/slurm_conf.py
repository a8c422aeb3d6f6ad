"""Reads slurm.conf and topology.conf where Slurm's own commands find them, so that slurmctld need not be asked.

Switches and blocks come in the order of the domain, also where `scontrol show topology` is what shows them.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from advisor.backends.process import printable
from advisor.backends.scontrol_text import blocks
from advisor.backends.spelling import count, node_names
from advisor.domain.dataclass import dataclass
from advisor.domain.topology import Switch, Topology, TopologyKind
from advisor.errors import DecodeError
from advisor.files import opened

_SIZE_LIMIT_BYTES: Final = 8 << 20
_DEEPEST_INCLUDE: Final = 8
# A line that starts with one of these describes a part of the cluster; its other keys are not the site's.
_PARTS: Final = frozenset(
    ("nodename", "partitionname", "nodeset", "downnodes", "frontendname", "switchname", "blockname", "include")
)
FOR_SYSTEM: Final = frozenset(("corespeccount", "cpuspeclist", "memspeclimit"))
_WORD = re.compile(r"""([A-Za-z][A-Za-z0-9_]*(?:\[\d+\])?)\s*=\s*("[^"]*"|'[^']*'|\S*)""")
_WITH_FILE: Final = (TopologyKind.TREE, TopologyKind.BLOCK)
_DEFAULT_PATHS: Final = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")


_DEEPEST_SWITCH: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A switch with what hangs on it directly, or a block with its nodes."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


class ConfigFileError(Exception):
    """slurm.conf or topology.conf cannot be used; slurmctld has to be asked instead."""


def conf_path(variables: Mapping[str, str] | None = None) -> Path:
    """Name the slurm.conf that Slurm's commands use here: SLURM_CONF, or the one place where there is one.

    Raises `ConfigFileError` where there is none, or where several places hold one and only Slurm's build knows
    which of them counts.
    """
    environment = os.environ if variables is None else variables
    named = environment.get("SLURM_CONF")
    if named:
        return Path(named)
    paths = [path for path in map(Path, _candidates(environment)) if path.exists()]
    # slurmd's copy in /run is used only by sites without a file of their own.
    if len(paths) > 1 and paths[-1] == Path(_DEFAULT_PATHS[-1]):
        paths.pop()
    if len(paths) != 1:
        raise ConfigFileError("no slurm.conf in a place that is known" if not paths else "several slurm.conf files")
    return paths[0]


def read_conf(path: Path) -> dict[str, str]:
    """Read the site's own keys of slurm.conf, in small letters, `Include` followed; the last of a key counts."""
    values: dict[str, str] = {}
    for words in _statements(path):
        if words[0][0].lower() not in _PARTS:
            values.update((key.lower(), value) for key, value in words)
    if "clustername" not in values:
        raise ConfigFileError(f"{path} names no ClusterName")
    return values


def reserves_for_system(path: Path) -> bool:
    """Return whether slurm.conf keeps CPUs or memory of any node from jobs."""
    return any(key.lower() in FOR_SYSTEM for words in _statements(path) for key, _ in words)


def read_topology(path: Path, kind: TopologyKind) -> Topology:
    """Read the topology file beside slurm.conf; of releases with topology.yaml, that one counts, whatever the plugin.

    Raises `ConfigFileError` where there is no such file or it does not describe a topology.
    """
    described = path.with_name("topology.yaml")
    try:
        if described.exists():
            return _yaml_topology(described)
        return Topology(kind=kind) if kind not in _WITH_FILE else topology_of(kind, _conf_links(path))
    except DecodeError as err:
        raise ConfigFileError(str(err)) from err


def _candidates(variables: Mapping[str, str]) -> Sequence[str]:
    """List where builds of Slurm look for slurm.conf, its copy for sites without files last."""
    command = shutil.which("scontrol", path=variables.get("PATH"))
    prefix = Path(command).resolve().parent.parent if command else Path("/usr")
    beside = [str(prefix / "etc/slurm.conf"), str(prefix / "etc/slurm/slurm.conf")]
    return tuple(dict.fromkeys([_DEFAULT_PATHS[0], *beside, _DEFAULT_PATHS[-1]]))


def _conf_links(path: Path) -> Iterator[Link]:
    """Yield each switch or block that topology.conf describes."""
    for words in _statements(path.with_name("topology.conf")):
        raw = {key.lower(): value for key, value in words}
        name = raw.get("switchname", raw.get("blockname"))
        if name is not None:
            yield _link("topology.conf", name, raw.get("nodes"), raw.get("switches"))


def _yaml_topology(path: Path) -> Topology:
    """Read the default topology of topology.yaml; others serve partitions of their own."""
    # Few sites have one.
    import yaml

    try:
        listed = yaml.safe_load("\n".join(_raw_lines(path)))
    except (yaml.YAMLError, RecursionError) as err:
        raise ConfigFileError(f"{path} is no YAML") from err
    topologies = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    if not topologies:
        raise ConfigFileError(f"{path} describes no topology")
    chosen = next((entry for entry in topologies if entry.get("cluster_default") is True), topologies[0])
    tree, block = chosen.get("tree"), chosen.get("block")
    if tree:
        return topology_of(TopologyKind.TREE, _yaml_links(tree, "switches", "switch"))
    if block:
        return topology_of(TopologyKind.BLOCK, _yaml_links(block, "blocks", "block"))
    return Topology(kind=TopologyKind.FLAT if chosen.get("flat") else TopologyKind.OTHER)


def _yaml_links(described: object, list_key: str, name_key: str) -> Iterator[Link]:
    listed = described.get(list_key) if isinstance(described, dict) else None
    for entry in listed if isinstance(listed, list) else ():
        if not isinstance(entry, dict) or name_key not in entry:
            raise ConfigFileError(f"topology.yaml describes a {name_key} without its name")
        yield _link("topology.yaml", entry[name_key], entry.get("nodes"), entry.get("children"))


def _link(file: str, name: object, nodes: object, switches: object) -> Link:
    return Link(
        name=str(name),
        nodes=node_names(str(nodes or ""), field=f"{file} nodes"),
        switches=node_names(str(switches or ""), field=f"{file} switches"),
    )


def _statements(path: Path, depth: int = 0) -> Iterator[list[tuple[str, str]]]:
    """Yield the pairs of each line that has any, those of included files in their place."""
    if depth > _DEEPEST_INCLUDE:
        raise ConfigFileError(f"{path} is included too deeply")
    for line in _lines(path):
        if match := re.match(r"include\s+(\S+)", line, re.IGNORECASE):
            yield from _statements(_included(match[1], path), depth + 1)
        elif words := [(key, value.strip("\"'")) for key, value in _WORD.findall(line)]:
            yield words


def _included(name: str, path: Path) -> Path:
    if "%" in name:
        raise ConfigFileError(f"{path} includes {printable(name)}, whose name depends on the host or cluster")
    return path.parent / name


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, continued ones joined and comments removed."""
    joined = re.sub(r"\\[ \t]*\n", "", "\n".join(_raw_lines(path)))
    for line in joined.split("\n"):
        bare = re.sub(r"(?<!\\)#.*", "", line).strip()
        if bare:
            yield bare


def _raw_lines(path: Path) -> list[str]:
    try:
        with opened(path) as file:
            content = file.read(_SIZE_LIMIT_BYTES + 1)
    except OSError as err:
        raise ConfigFileError(f"{path} cannot be read: {err.strerror}") from err
    if len(content) > _SIZE_LIMIT_BYTES:
        raise ConfigFileError(f"{path} is too large")
    return content.decode("utf-8", "backslashreplace").splitlines()


def topology_of(kind: TopologyKind, links: Iterable[Link]) -> Topology:
    """Work out each switch's level and every node below it."""
    links_by_name = {link.name: link for link in links}
    return _sorted(kind, (_switch(link, links_by_name, 0) for link in links_by_name.values()))


def shown_topology(kind: TopologyKind, text: str) -> Topology:
    """Read `scontrol show topology`; its content decides the kind, since a partition's topology can differ."""
    key = "BlockName" if "BlockName=" in text else "SwitchName"
    if not text.strip():
        return Topology(kind=kind)
    return _sorted(
        TopologyKind.BLOCK if key == "BlockName" else TopologyKind.TREE,
        (
            Switch(
                name=block[key],
                level=count(block.get("Level", "0"), field="scontrol Level"),
                nodes=node_names(block.get("Nodes", ""), field="scontrol Nodes"),
            )
            for block in blocks(text, key=key)
        ),
    )


def _switch(link: Link, links_by_name: Mapping[str, Link], depth: int) -> Switch:
    if depth > _DEEPEST_SWITCH:
        raise DecodeError(f"the topology file lets switch {link.name} hang on itself: correct it")
    try:
        below = [_switch(links_by_name[name], links_by_name, depth + 1) for name in link.switches]
    except KeyError as err:
        raise DecodeError(f"the topology file names a switch {err.args[0]} that it does not describe") from err
    nodes = {*link.nodes, *(node for switch in below for node in switch.nodes)}
    level = max((switch.level + 1 for switch in below), default=0)
    return Switch(name=link.name, level=level, nodes=tuple(sorted(nodes)))


def _sorted(kind: TopologyKind, switches: Iterable[Switch]) -> Topology:
    return Topology(kind=kind, switches=tuple(sorted(switches, key=lambda switch: (switch.level, switch.name))))
