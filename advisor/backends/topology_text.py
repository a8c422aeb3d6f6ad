"""Decodes `scontrol show topology`, and puts switches and blocks in the order of the domain."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from advisor.backends.scontrol_text import blocks
from advisor.backends.spelling import count, node_names
from advisor.domain.topology import Switch, Topology, TopologyKind
from advisor.errors import DecodeError

_DEEPEST: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A switch with what hangs on it directly, or a block with its nodes."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


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
    if depth > _DEEPEST:
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
