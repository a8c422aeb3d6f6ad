"""Reads the limits, shares and priorities that order a queue: associations, QOS, partitions as scontrol shows them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.backends.assoc_text import AssociationState, read_associations
from advisor.backends.process import Commands, ask_text
from advisor.backends.scontrol_text import partitions
from advisor.domain.site import Partition, SiteConfig
from advisor.errors import AdvisorError

_HIDING = ("accounts", "all", "usage", "users")
_NOTHING = AssociationState(associations=(), qos=())


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """What slurmctld shows; `notes` are plain sentences on what it does not."""

    state: AssociationState = _NOTHING
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_queue_limits(commands: Commands, config: SiteConfig) -> QueueLimits:
    """Ask slurmctld for partitions, associations and QOS, which costs it two requests."""
    notes = []
    by_name: dict[str, Partition] = {}
    state = _NOTHING
    try:
        shown = partitions(ask_text(commands, "scontrol", "-o", "-a", "show", "partition"))
        by_name = {partition.name: partition for partition in shown if isinstance(partition, Partition)}
    except AdvisorError as err:
        notes.append(f"the partitions of scontrol cannot be read, so their QOS are not known: {err}")
    try:
        state = read_associations(commands)
        notes += _lacking(state, config)
    except AdvisorError as err:
        notes.append(f"limits and shares cannot be read, so there are none: {err}")
    return QueueLimits(state=state, partitions=by_name, notes=tuple(notes))


def _lacking(state: AssociationState, config: SiteConfig) -> list[str]:
    """Return what slurmctld does not show of limits and shares."""
    if not state.associations:
        return ["slurmctld shows no associations: there are no shares, and no limits of users and accounts"]
    hiding = [word for word in config.private_data if word in _HIDING]
    return [f"PrivateData={','.join(hiding)} can hide limits and shares of other users"] if hiding else []
