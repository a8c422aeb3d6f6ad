"""Reads associations and QOS with scontrol: their limits and how far these are used, shares and priorities."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

from advisor.backends.process import Commands, ask_text, printable
from advisor.backends.scontrol_text import ShownRecord, blocks, partitions
from advisor.backends.spelling import PLAIN_NAME, count, duration_s, is_unset, names
from advisor.domain.dataclass import dataclass
from advisor.domain.site import Partition, SiteConfig
from advisor.errors import AdvisorError, DecodeError

_FIRST_LINE: Final = "Current Association Manager state"
_NAMED = re.compile(r"(.*)\((\d+)\)", re.ASCII)
_AMOUNT = re.compile(r"(N|\d+)(?:\((\d+)\))?", re.ASCII)
_HOLDER = re.compile(r"(\S+)=\{([^{}]*)\}")
_BY_ACCOUNT: Final = " Account Limits="
_BY_USER: Final = " User Limits="
_COUNT = re.compile(r"(N|\d{1,12})(?:\((\d{1,12})(?:\.\d+)?\))?", re.ASCII)
# Limits that are not on a TRES, for all jobs, each account (PA), each user (PU) and each job (PJ).
COUNTS: Final = (
    "GrpJobs", "GrpSubmitJobs", "GrpWall", "MaxJobs", "MaxSubmitJobs", "MaxWallPJ", "MaxJobsPA", "MaxSubmitJobsPA",
    "MaxJobsPU", "MaxSubmitJobsPU",
)  # fmt: skip
_SHARES_OF_PARENT: Final = 0x7FFFFFFF
_NO_PRIORITY: Final = frozenset((0xFFFFFFFF, 0xFFFFFFFE))
# The TRES that a number of GPUs can affect; others need not be decoded.
_COUNTED = re.compile(r"gres/gpu(:.*)?|billing|cpu|mem")
_HIDING = ("accounts", "all", "usage", "users")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A limit, None for unlimited, and the amount in use."""

    most: int | None
    used: int = 0


Amounts = Mapping[str, Amount]


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """An account, or a user in an account, possibly for one partition only; `parent_id` is None for the root.

    The mappings go by TRES, those of `amounts` by the name of the limit first. `counts` are the limits that are not on
    a TRES, as far as they are set, by name; those of time are in minutes. `counts_used` is how far they are used.
    `shares` of None are those of the parent.
    """

    association_id: int
    account: str
    user: str
    uid: str
    partition: str
    parent_id: int | None
    amounts: Mapping[str, Amounts]
    counts: Mapping[str, int] = field(default_factory=dict)
    counts_used: Mapping[str, int] = field(default_factory=dict)
    shares: int | None = 1
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QosLimits:
    """A QOS: what binds all of it, and each account and user (by uid) in it.

    `counts` are as those of an association; among them are the limits for each account and each user, whose use is
    `counts_used_by_account` and `counts_used_by_uid`.
    """

    name: str
    amounts: Mapping[str, Amounts]
    by_account: Mapping[str, Mapping[str, Amounts]] = field(default_factory=dict)
    by_uid: Mapping[str, Mapping[str, Amounts]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    counts_used: Mapping[str, int] = field(default_factory=dict)
    counts_used_by_account: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    counts_used_by_uid: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AssociationState:
    """Everything that was shown."""

    associations: tuple[Association, ...]
    qos: tuple[QosLimits, ...]


def read_associations(commands: Commands, user: str | None = None) -> AssociationState:
    """Ask slurmctld for all QOS and accounts, and for one user or all; one request to it.

    A name that scontrol would take for two is not given.
    """
    named = (f"users={user}",) if user is not None and PLAIN_NAME.fullmatch(user) else ()
    return decode_associations(ask_text(commands, "scontrol", "-o", "show", "assoc_mgr", *named, "flags=assoc,qos"))


def read_partition_qos(commands: Commands) -> dict[str, str]:
    """Map the partitions of a cluster to their QOS, "" for none; one request to slurmctld."""
    return partition_qos(ask_text(commands, "scontrol", "-o", "-a", "show", "partition"))


def decode_associations(text: str) -> AssociationState:
    """Decode an answer in one line for each record; raises `DecodeError` for what is not one."""
    lines = text.split("\n")
    if lines[0] != _FIRST_LINE and not (lines[0].startswith("CLUSTER: ") and _FIRST_LINE in lines[1:2]):
        raise DecodeError("scontrol show assoc_mgr gave no list of associations: try again")
    return AssociationState(
        associations=tuple(_association(line) for line in lines if line.startswith("ClusterName=")),
        qos=tuple(_qos(line) for line in lines if line.startswith("QOS=")),
    )


def partition_qos(text: str) -> dict[str, str]:
    """Map the partitions that `scontrol -o show partition` lists to their QOS, "" for none."""
    qos_by_name = {block["PartitionName"]: block.get("QoS", "") for block in blocks(text, key="PartitionName")}
    return {name: "" if is_unset(qos) else qos for name, qos in qos_by_name.items()}


def _association(line: str) -> Association:
    raw = _pairs(line)
    user, uid = _numbered(raw["UserName"]) if raw["UserName"] else ("", "")
    parent = raw["ParentAccount"]
    return Association(
        association_id=count(raw["ID"], field="association ID"),
        account=raw["Account"],
        user=user,
        uid=uid,
        partition=raw["Partition"],
        # That of a user is the account it stands in.
        parent_id=count(_numbered(parent)[1], field="association parent") if parent else None,
        amounts=_limits(raw),
        counts=_counts(raw),
        counts_used=_counts_used(raw),
        shares=_shares(raw.get("SharesRaw/Norm/Level/Factor", "1").partition("/")[0]),
        priority=_priority(raw),
    )


def _qos(line: str) -> QosLimits:
    shared, by_account, by_user = line, "", ""
    if _BY_ACCOUNT in line:
        shared, _, by_account = line.partition(_BY_ACCOUNT)
        by_account, _, by_user = by_account.partition(_BY_USER)
    raw = _pairs(shared)
    return QosLimits(
        name=_numbered(raw["QOS"])[0],
        amounts=_limits(raw),
        by_account=dict(_holders(by_account)),
        by_uid={_uid(name): limits for name, limits in _holders(by_user)},
        counts=_counts(raw) | _counts_of_holders(by_account) | _counts_of_holders(by_user),
        counts_used=_counts_used(raw),
        counts_used_by_account={name: _counts_used(_pairs(limits)) for name, limits in _HOLDER.findall(by_account)},
        counts_used_by_uid={_uid(name): _counts_used(_pairs(limits)) for name, limits in _HOLDER.findall(by_user)},
        priority=_priority(raw),
    )


def _holders(text: str) -> Iterator[tuple[str, Mapping[str, Amounts]]]:
    for name, limits in _HOLDER.findall(text):
        yield name, _limits(_pairs(limits))


def _counts_of_holders(text: str) -> dict[str, int]:
    """Decode the counts that bind each account or user of a QOS, which are the same for all of them."""
    first = _HOLDER.search(text)
    return {} if first is None else _counts(_pairs(first[2]))


def _counts(raw: Mapping[str, str], *, part: int = 1) -> dict[str, int]:
    """Decode `GrpJobs=3(1) MaxWallPJ=60`; what has no limit is left out."""
    matches = {name: _COUNT.fullmatch(raw.get(name, "")) for name in COUNTS}
    return {name: int(match[part]) for name, match in matches.items() if match and match[part] not in (None, "N")}


def _counts_used(raw: Mapping[str, str]) -> dict[str, int]:
    """Decode the number in brackets of `GrpJobs=3(1)`, of whole minutes or jobs."""
    return _counts(raw, part=2)


def _shares(text: str) -> int | None:
    shares = count(text, field="association shares")
    return None if shares == _SHARES_OF_PARENT else shares


def _priority(raw: Mapping[str, str]) -> int:
    """Return the priority of an association or a QOS; Slurm marks one that is not set."""
    priority = count(raw.get("Priority") or "0", field="association priority")
    return 0 if priority in _NO_PRIORITY else priority


def _uid(name: str) -> str:
    match = _NAMED.fullmatch(name)
    return name if match is None else match[2]


def _numbered(text: str) -> tuple[str, str]:
    """Take `name(4)` apart."""
    match = _NAMED.fullmatch(text)
    if match is None:
        raise DecodeError(f"scontrol show assoc_mgr shows {printable(text, 60)!a}, which is no name with a number")
    return match[1], match[2]


def _pairs(line: str) -> ShownRecord:
    """Take `Key=value Key=value` apart; a key that comes twice is no answer of Slurm's."""
    values = ShownRecord()
    for word in line.split():
        key, equals, value = word.partition("=")
        if equals and key in values:
            raise DecodeError(f"scontrol shows {printable(key, 60)!a} twice in one record")
        if equals:
            values[key] = value
    return values


def _limits(raw: Mapping[str, str]) -> dict[str, Amounts]:
    return {name: _amounts(name, value) for name, value in raw.items() if "TRES" in name and value}


def _amounts(name: str, text: str) -> dict[str, Amount]:
    """Decode `cpu=N(2),gres/gpu=8(2)` or `gres/gpu=6`, as far as it matters."""
    amounts: dict[str, Amount] = {}
    for item in text.split(","):
        tres, equals, amount = item.partition("=")
        if not equals:
            raise DecodeError(f"scontrol show assoc_mgr shows {name}={printable(text, 60)!a}, which is no list of TRES")
        if _COUNTED.fullmatch(tres) is None:
            continue
        match = _AMOUNT.fullmatch(amount)
        if match is None or len(amount) > 60:
            raise DecodeError(f"scontrol show assoc_mgr shows {name} of {tres} as {printable(amount, 60)!a}")
        amounts[tres] = Amount(most=None if match[1] == "N" else int(match[1]), used=int(match[2] or 0))
    return amounts


_PREEMPT_FORMAT: Final = "format=Name,Preempt,PreemptMode,PreemptExemptTime,GraceTime"
_NOTHING = AssociationState(associations=(), qos=())


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptRule:
    """How running jobs of a partition or QOS are preempted, times in seconds; `mode` is as Slurm spells it.

    A `mode` of "" and an exemption of None are the cluster's. Jobs of a QOS preempt those of the QOS in `preempts`.
    """

    mode: str = ""
    grace_s: float = 0.0
    exempt_s: float | None = None
    preempts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """What Slurm shows; `notes` are plain sentences on what it does not.

    `preempting` has the rules of partitions or QOS by their names, whichever PreemptType goes by.
    """

    state: AssociationState = _NOTHING
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    preempting: Mapping[str, PreemptRule] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_queue_limits(commands: Commands, config: SiteConfig) -> QueueLimits:
    """Ask slurmctld for partitions, associations and QOS, which costs it two requests.

    Which QOS preempt which, only slurmdbd shows: it is asked where that counts.
    """
    notes = []
    by_name: dict[str, Partition] = {}
    preempting: Mapping[str, PreemptRule] = {}
    state = _NOTHING
    try:
        text = ask_text(commands, "scontrol", "-o", "-a", "show", "partition")
        by_name = {partition.name: partition for partition in partitions(text) if isinstance(partition, Partition)}
        if config.preempt_type == "preempt/partition_prio":
            preempting = preempt_rules_of_partitions(text)
    except AdvisorError as err:
        notes.append(f"the partitions of scontrol cannot be read, so their QOS are not known: {err}")
    if config.preempt_type == "preempt/qos":
        try:
            preempting = preempt_rules_of_qos(ask_text(commands, "sacctmgr", "-nP", "show", "qos", _PREEMPT_FORMAT))
        except AdvisorError as err:
            notes.append(f"sacctmgr does not show which QOS preempt which, so none does: {err}")
    try:
        state = read_associations(commands)
        notes += _lacking(state, config)
    except AdvisorError as err:
        notes.append(f"limits and shares cannot be read, so there are none: {err}")
    return QueueLimits(state=state, partitions=by_name, preempting=preempting, notes=tuple(notes))


def preempt_rules_of_partitions(text: str) -> dict[str, PreemptRule]:
    """Read how jobs are preempted from the partitions of `scontrol show partition`; raises `DecodeError`."""
    return {
        block["PartitionName"]: PreemptRule(
            mode=block.get("PreemptMode", ""), grace_s=float(count(block.get("GraceTime", "0"), field="GraceTime"))
        )
        for block in blocks(text, key="PartitionName")
    }


def preempt_rules_of_qos(text: str) -> dict[str, PreemptRule]:
    """Read how jobs are preempted from the QOS that sacctmgr shows; raises `DecodeError`."""
    rules = {}
    for row in text.splitlines():
        cells = row.split("|")
        if len(cells) != _PREEMPT_FORMAT.count(",") + 1:
            raise DecodeError(f"sacctmgr shows the QOS {printable(row, 60)!a}")
        name, preempts, mode, exempt, grace = cells
        rules[name] = PreemptRule(
            mode="" if mode == "cluster" else mode,
            grace_s=duration_s(grace, field="GraceTime") or 0.0,
            exempt_s=duration_s(exempt, field="PreemptExemptTime"),
            preempts=names(preempts),
        )
    return rules


def _lacking(state: AssociationState, config: SiteConfig) -> list[str]:
    """Return what slurmctld does not show of limits and shares."""
    if not state.associations:
        return ["slurmctld shows no associations: there are no shares, and no limits of users and accounts"]
    hiding = [word for word in config.private_data if word in _HIDING]
    return [f"PrivateData={','.join(hiding)} can hide limits and shares of other users"] if hiding else []
