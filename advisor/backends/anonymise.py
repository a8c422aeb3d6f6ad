"""Removes names from snapshots, so that they can be shown to others.

Replaced are the names and texts that a site or its users chose: users, accounts, jobs, models, comments, partitions,
nodes, switches, reservations, features, licences, QOS other than `normal`, node reasons and the cluster. Kept are
job ids, times, counts, GPU types and Slurm's own words, so that an anonymised snapshot gives the same advice under
other names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from advisor.domain.gang import GangRequest
from advisor.domain.job import Job
from advisor.domain.node import Node
from advisor.domain.site import SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import Topology

# Operators and counts of `--constraint`; what stands between them names features.
_FEATURE = re.compile(r"\*[0-9]+|[^&|,()\[\]*]+")
# What stands between the separators of a dependency: ids, words of Slurm's, or else a text of the site.
_DEPENDENCY = re.compile(r"[^:,?()_+\[\]%*-]+")
_DEPENDENCY_WORD = re.compile(r"[0-9]+|after(any|ok|notok|corr|burstbuffer)?|expand|singleton|(un)?fulfilled|failed")
_NOT_ARRAY_RANGE = re.compile(r"[^0-9,:%.\[\]-]")
_SLURM_TRES = re.compile(r"[a-z]+|(?:fs|ic)/[a-z]+|gres/(?:gpu|mps|shard)(?:[:a-z].*)?")
_NUMBER_OR_NOTHING = re.compile(r"[0-9.:-]*")


class Aliases:
    """Gives the same alias to the same name: `prefix` and a number that counts up.

    Aliases of the names in `ordered` sort as the names stand there; others are numbered as they come.
    """

    def __init__(self, prefix: str, ordered: Iterable[str] = (), *, width: int = 2) -> None:
        names = [name for name in ordered if name]
        self._prefix = prefix
        self._width = max(width, len(str(len(names))))
        self._alias_by_name: dict[str, str] = {}
        for name in names:
            self.of(name)

    def of(self, name: str) -> str:
        """Return the alias of a name; no name has none."""
        if not name:
            return ""
        number = len(self._alias_by_name) + 1
        return self._alias_by_name.setdefault(name, f"{self._prefix}{number:0{self._width}d}")

    def of_all(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the aliases of several names, in their order."""
        return tuple(self.of(name) for name in names)


class _Vocabulary:
    """The aliases of one snapshot, by what they name."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes = Aliases("n", sorted(_node_names(snapshot)), width=3)
        self.partitions = Aliases("partition", sorted(_partition_names(snapshot)))
        self.switches = Aliases("switch", (switch.name for switch in snapshot.topology.switches))
        self.users = Aliases("user")
        self.accounts = Aliases("account")
        self.jobs = Aliases("job")
        self.qos = Aliases("qos")
        self.reservations = Aliases("reservation")
        self.features = Aliases("feature")
        self.models = Aliases("model")
        self.reasons = Aliases("reason")
        self.words = Aliases("word")


def anonymise(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with an alias for every name and text that a site or its users chose.

    Equal names stay equal, and nodes, partitions and switches sort as before. Jobs number users,
    accounts and the like in the order of their ids.
    """
    vocabulary = _Vocabulary(snapshot)
    return replace(
        snapshot,
        config=_config(snapshot.config, vocabulary),
        topology=_topology(snapshot.topology, vocabulary),
        partitions=tuple(
            replace(
                partition,
                name=vocabulary.partitions.of(partition.name),
                nodes=vocabulary.nodes.of_all(partition.nodes),
                qos=vocabulary.qos.of(partition.qos) if partition.qos else "",
            )
            for partition in snapshot.partitions
        ),
        nodes=tuple(_node(node, vocabulary) for node in snapshot.nodes),
        jobs=tuple(_job(job, vocabulary) for job in snapshot.jobs),
        # Quotes Slurm's answer, so all of it is replaced.
        unread=tuple(f"something that is not named here ({rank})" for rank, _ in enumerate(snapshot.unread, start=1)),
    )


def _node_names(snapshot: Snapshot) -> set[str]:
    groups: list[tuple[str, ...]] = [tuple(node.name for node in snapshot.nodes)]
    groups += [partition.nodes for partition in snapshot.partitions]
    groups += [switch.nodes for switch in snapshot.topology.switches]
    for job in snapshot.jobs:
        groups += [job.gang.required_nodes, job.gang.excluded_nodes]
        groups += [job.allocation.nodes] if job.allocation else []
    return {name for group in groups for name in group}


def _partition_names(snapshot: Snapshot) -> set[str]:
    groups = [tuple(partition.name for partition in snapshot.partitions)]
    groups += [node.partitions for node in snapshot.nodes]
    groups += [job.partitions for job in snapshot.jobs]
    return {name for group in groups for name in group}


# Settings whose values are names that the site chose.
_NAMING = frozenset({"BurstBufferType", "FederationParameters", "Licenses"})


def _config(config: SiteConfig, vocabulary: _Vocabulary) -> SiteConfig:
    return replace(
        config,
        cluster="cluster" if config.cluster else "",
        scheduler_parameters=_parameters(config.scheduler_parameters, vocabulary),
        site_factor_plugin=_plugin(config.site_factor_plugin),
        accounting_tres=tuple(_tres(name, vocabulary) for name in config.accounting_tres),
        tres_weights={_tres(name, vocabulary): weight for name, weight in config.tres_weights.items()},
        further_settings={
            name: vocabulary.words.of(value) if name in _NAMING else value
            for name, value in config.further_settings.items()
        },
    )


def _parameters(parameters: Mapping[str, str], vocabulary: _Vocabulary) -> dict[str, str]:
    return {
        word: value if _NUMBER_OR_NOTHING.fullmatch(value) else vocabulary.words.of(value)
        for word, value in parameters.items()
    }


def _plugin(name: str) -> str:
    """Keep whether there is a plugin; all but Slurm's empty one are a site's own work."""
    return name if name in {"", "(null)", "site_factor/none"} else "site_factor/site"


def _tres(name: str, vocabulary: _Vocabulary) -> str:
    if _SLURM_TRES.fullmatch(name):
        return name
    kind, _, rest = name.partition("/")
    return f"{kind if kind in {'license', 'gres', 'bb'} else 'tres'}/{vocabulary.words.of(rest or kind)}"


def _topology(topology: Topology, vocabulary: _Vocabulary) -> Topology:
    return replace(
        topology,
        switches=tuple(
            replace(switch, name=vocabulary.switches.of(switch.name), nodes=vocabulary.nodes.of_all(switch.nodes))
            for switch in topology.switches
        ),
    )


def _node(node: Node, vocabulary: _Vocabulary) -> Node:
    return replace(
        node,
        name=vocabulary.nodes.of(node.name),
        reason=vocabulary.reasons.of(node.reason),
        partitions=vocabulary.partitions.of_all(node.partitions),
        features=vocabulary.features.of_all(node.features),
    )


def _job(job: Job, vocabulary: _Vocabulary) -> Job:
    allocation = job.allocation and replace(job.allocation, nodes=vocabulary.nodes.of_all(job.allocation.nodes))
    return replace(
        job,
        # Behind the colon stand nodes: "ReqNodeNotAvail, UnavailableNodes:n01".
        reason=job.reason.partition(":")[0],
        name=vocabulary.jobs.of(job.name),
        user=vocabulary.users.of(job.user),
        account=vocabulary.accounts.of(job.account),
        partitions=vocabulary.partitions.of_all(job.partitions),
        qos=job.qos if job.qos == "normal" else vocabulary.qos.of(job.qos),
        gang=_gang(job.gang, vocabulary),
        allocation=allocation,
        hints=replace(
            job.hints,
            model=job.hints.model and vocabulary.models.of(job.hints.model),
            unknown=vocabulary.words.of_all(job.hints.unknown),
        ),
        array=job.array and replace(job.array, waiting=_NOT_ARRAY_RANGE.sub("", job.array.waiting)),
        dependency=_DEPENDENCY.sub(
            lambda match: match[0] if _DEPENDENCY_WORD.fullmatch(match[0]) else vocabulary.words.of(match[0]),
            job.dependency,
        ),
        reservation=vocabulary.reservations.of(job.reservation),
    )


def _gang(gang: GangRequest, vocabulary: _Vocabulary) -> GangRequest:
    return replace(
        gang,
        features=_FEATURE.sub(
            lambda match: match[0] if match[0].startswith("*") else vocabulary.features.of(match[0]), gang.features
        ),
        required_nodes=vocabulary.nodes.of_all(gang.required_nodes),
        excluded_nodes=vocabulary.nodes.of_all(gang.excluded_nodes),
    )
