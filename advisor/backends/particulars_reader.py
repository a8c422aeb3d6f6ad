"""Asks slurmctld about one pending job what a snapshot does not hold: a few requests, each only where it matters."""

import math
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from advisor.backends.assoc_text import Amounts, AssociationState, read_associations, read_partition_qos
from advisor.backends.association_limits import chain_of
from advisor.backends.process import Commands, ask_text
from advisor.backends.reservations import read_reservations
from advisor.backends.scontrol_text import blocks
from advisor.backends.spelling import PLAIN_NAME, count, integer, is_unset
from advisor.domain.diagnosis import Cause, causes_named
from advisor.domain.job import Job
from advisor.domain.particulars import (
    AccountUse,
    FairShare,
    LicenceUse,
    Particulars,
    PriorityFactors,
    ReachedLimit,
)
from advisor.domain.site import SiteConfig
from advisor.errors import AdvisorError, DecodeError

_Answer = TypeVar("_Answer")

_NO_SHARES: Final = "fair share: slurmctld shows no account of its user, as it does without slurmdbd"
_NO_LIMIT: Final = (
    "the numbers of the limit that Slurm names: slurmctld does not show it to this user, or has no slurmdbd"
)

# What sprio prints instead of rows where none of the jobs waits any more.
_NO_JOBS: Final = "Unable to find jobs"
_PARTS: Final[Mapping[str, str]] = {
    "site": "%S",
    "age": "%A",
    "association": "%B",
    "fair_share": "%F",
    "job_size": "%J",
    "partition": "%P",
    "qos": "%Q",
    "nice": "%N",
    "tres": "%T",
}
_COLUMNS: Final = ("Account", "User", "NormShares", "EffectvUsage")
_ASKED: Final = re.compile(r"([^:,;|()]+)(?:[:=](\d{1,9}))?", re.ASCII)
# Longer than any list of licences; squeue cuts what is wider.
_WIDTH: Final = 1024
# `Assoc` or `QOS`, `Grp` or `Max`, what is limited, in which time, for which holder; one per account names no owner.
_REASON: Final = re.compile(
    r"(?P<owner>Assoc|QOS|)(?P<of>Grp|Max)(?P<what>CPU|Cpu|GRES|Mem|Memory|Billing|Jobs|WallDuration|Wall)"
    r"(?P<time>RunMinutes|Minutes|)(?P<each>PerJob|PerNode|PerUser|PerAccount|)(?:Limit)?",
    re.ASCII,
)
_TRES: Final = {"CPU": "cpu", "Cpu": "cpu", "Mem": "mem", "Memory": "mem", "Billing": "billing", "GRES": "gres/"}
_HOLDERS: Final = {"": "", "PerJob": "PJ", "PerNode": "PN", "PerUser": "PU", "PerAccount": "PA"}
_MINUTES: Final = {"": "", "Minutes": "Mins", "RunMinutes": "RunMins"}


def read_particulars(commands: Commands, job: Job, config: SiteConfig) -> Particulars:
    """Ask about a pending job; what cannot be read is a line of `unread`, never an error."""
    unread: list[str] = []

    def read(what: str, ask: Callable[[], _Answer]) -> _Answer | None:
        try:
            return ask()
        except AdvisorError as err:
            unread.append(f"{what}: {err}")
            return None

    named = causes_named(job.reason)
    competes = not job.held and not job.dependency
    factors: PriorityFactors | None = None
    if not job.held:
        factors = read("the parts of its priority", lambda: read_priority_factors(commands, job.job_id))
    share: FairShare | None = None
    if competes and config.priority_weights.get("fair_share", 0) > 0:
        share = read("fair share", lambda: _fair_share(commands, job))
        if share is None and not unread:
            unread.append(_NO_SHARES)
        elif share is not None:
            share = replace(share, half_life_s=config.priority_decay_half_life_s or None)
    limit: ReachedLimit | None = None
    if _REASON.fullmatch(job.reason):
        before = len(unread)
        limit = read("the limit that Slurm names", lambda: _limit(commands, job))
        if limit is None and len(unread) == before:
            unread.append(_NO_LIMIT)
    licences = read("licences", lambda: _licences(commands, job.job_id)) if Cause.LICENSES in named else ()
    reservations = read("reservations", lambda: read_reservations(commands)) if competes else None
    return Particulars(
        factors=factors,
        limit=limit,
        share=share,
        reservations=reservations,
        licences=licences or (),
        unread=tuple(unread),
    )


def read_priority_factors(commands: Commands, job_id: int) -> PriorityFactors | None:
    """Ask sprio for the weighted parts of a job's priority, one request to slurmctld; None if it does not wait."""
    delimiter = f"@{secrets.token_urlsafe(9)}"
    local = () if commands.cluster is not None else ("--local",)
    layout = delimiter.join(("%i", "%Y", *_PARTS.values())) + delimiter
    answer = ask_text(commands, "sprio", "-h", *local, f"-j{job_id}", "-o", layout)
    return decode_factors(answer, delimiter).get(job_id)


def decode_factors(text: str, delimiter: str) -> dict[int, PriorityFactors]:
    """Decode sprio's rows; of a job in several partitions, the one where its priority is highest counts."""
    if not text.strip() or text.startswith(_NO_JOBS):
        return {}
    values = [value.strip() for value in text.split(delimiter)]
    width = len(_PARTS) + 2
    if values.pop() or len(values) % width:
        raise DecodeError("sprio gave an incomplete answer: try again")
    highest: dict[int, tuple[int, PriorityFactors]] = {}
    for start in range(0, len(values), width):
        job, priority, *parts = values[start : start + width]
        job_id, ranked = count(job, field="sprio %i"), count(priority, field="sprio %Y")
        if job_id not in highest or ranked > highest[job_id][0]:
            read = {name: _part(text, sign) for (name, sign), text in zip(_PARTS.items(), parts, strict=True)}
            highest[job_id] = ranked, PriorityFactors(**read)
    return {job_id: factors for job_id, (_, factors) in highest.items()}


def _part(text: str, sign: str) -> int | None:
    """Decode a part; sprio lists those of TRES by name (`cpu=12,gres/gpu=300`), which add up."""
    numbers = (part.rpartition("=")[2] for part in text.split(",")) if sign == _PARTS["tres"] else (text,)
    return None if is_unset(text) else sum(integer(number, field=f"sprio {sign}") for number in numbers)


def _fair_share(commands: Commands, job: Job) -> FairShare | None:
    """Ask sshare for the use of a job's account and user; None if slurmctld shows none, as it does without slurmdbd."""
    if not PLAIN_NAME.fullmatch(job.user):
        return None
    shown = ask_text(commands, "sshare", "-h", "-P", "-u", job.user, "-o", ",".join(_COLUMNS))
    return decode_fair_share(shown, account=job.account, user=job.user)


def decode_fair_share(text: str, *, account: str, user: str) -> FairShare | None:
    """Decode sshare's tree, which shows depth by leading spaces; raises `DecodeError` for what is no such tree."""
    above: list[tuple[int, str, float]] = []
    for line in text.split("\n"):
        # With several clusters each has a heading.
        if not line.strip() or line.startswith("CLUSTER: "):
            continue
        fields = line.split("|")
        if len(fields) != len(_COLUMNS):
            raise DecodeError(f"sshare shows {len(fields)} columns in place of {len(_COLUMNS)}: see sshare -P")
        depth, name = len(fields[0]) - len(fields[0].lstrip(" ")), fields[0].strip()
        above = [level for level in above if level[0] < depth]
        used = _used_of_share(fields[2].strip(), fields[3].strip())
        if not fields[1].strip():
            above.append((depth, name, used))
        elif (fields[1].strip(), name) == (user, account):
            # The root has no share and no siblings.
            accounts = tuple(AccountUse(name=level, used_of_share=use) for _, level, use in reversed(above[1:]))
            return FairShare(user=AccountUse(name=user, used_of_share=used), accounts=accounts)
    return None


def _used_of_share(share: str, use: str) -> float:
    """Return the use over the share: infinite for use without a share, 0 for no use."""
    try:
        shared, used = float(share or 0), float(use or 0)
    except ValueError:
        shared = used = math.nan
    if not (math.isfinite(shared) and math.isfinite(used)):
        raise DecodeError("sshare shows a share or a use that is no number: see sshare -P")
    if used <= 0.0:
        return 0.0
    return used / shared if shared > 0.0 else math.inf


def _licences(commands: Commands, job_id: int) -> tuple[LicenceUse, ...]:
    """Return the licences that a job asks for, as far as slurmctld counts them; two requests to it."""
    local = () if commands.cluster is not None else ("--local",)
    asked = ask_text(commands, "squeue", "-h", *local, f"-j{job_id}", "-O", f"Licenses:{_WIDTH}")
    return decode_licences(asked, ask_text(commands, "scontrol", "-o", "show", "licenses"))


def decode_licences(asked: str, shown: str) -> tuple[LicenceUse, ...]:
    """Match the licences of a request, `matlab:2,ansys`, with those that scontrol shows."""
    # Under the heading of a cluster.
    wanted = asked.strip().rpartition("\n")[2].strip()
    if is_unset(wanted):
        return ()
    by_name = {block["LicenseName"]: block for block in blocks(shown, key="LicenseName")}
    found = []
    for match in _ASKED.finditer(wanted):
        block = by_name.get(match[1].strip())
        if block is None:
            continue
        total, free = (count(block[key], field=f"scontrol {key}") for key in ("Total", "Free"))
        used, reserved = (count(block.get(key, "0"), field=f"scontrol {key}") for key in ("Used", "Reserved"))
        found.append(
            LicenceUse(
                name=match[1].strip(),
                asked=int(match[2] or 1),
                total=total,
                # 22.05 counts those that a reservation holds as free.
                free=max(0, min(free, total - used - reserved)),
                reserved=reserved,
            )
        )
    return tuple(found)


def _limit(commands: Commands, job: Job) -> ReachedLimit | None:
    """Ask for the limit that a job's reason names; the QOS of its partitions count where it is one of a QOS."""
    state, qos_names = read_associations(commands, job.user), [job.qos]
    if causes_named(job.reason) == {Cause.QOS_LIMIT}:
        by_partition = read_partition_qos(commands)
        qos_names += [by_partition[name] for name in job.partitions if by_partition.get(name)]
    return reached_limit(job, state, qos_names)


def reached_limit(job: Job, state: AssociationState, qos_names: Iterable[str]) -> ReachedLimit | None:
    """Return the limit that a job's reason names, such as `QOSMaxGRESPerUser`, and how far it is used.

    None if it names none, or slurmctld does not show it. Of several limits with this name, the one with the least left
    counts, the closest to the job first.
    """
    match = _REASON.fullmatch(job.reason)
    if match is None:
        return None
    chain, each, limits = chain_of(job, state), match["each"], list[ReachedLimit]()
    if match["owner"] == "Assoc":
        for account in chain:
            holder = {"account": account.account, "user": account.user}
            limits += _shown(match, account.amounts, account.counts, account.counts_used, holder)
        return min(limits, key=_left, default=None)
    uid, by_name = chain[0].uid if chain else "", {qos.name: qos for qos in state.qos}
    for name in dict.fromkeys(qos_names):
        if (qos := by_name.get(name)) is None:
            continue
        amounts, counts_used, holder = qos.amounts, qos.counts_used, {"qos": name}
        if each == "PerUser":
            amounts, counts_used = qos.by_uid.get(uid, {}), qos.counts_used_by_uid.get(uid, {})
            holder["user"] = job.user
        elif each == "PerAccount":
            amounts = qos.by_account.get(job.account, {})
            counts_used, holder["account"] = qos.counts_used_by_account.get(job.account, {}), job.account
        limits += _shown(match, amounts, qos.counts, counts_used, holder)
    return min(limits, key=_left, default=None)


def _left(limit: ReachedLimit) -> int:
    return limit.most - (limit.used or 0)


def _shown(
    match: re.Match[str],
    amounts: Mapping[str, Amounts],
    counts: Mapping[str, int],
    counts_used: Mapping[str, int],
    holder: Mapping[str, str],
) -> Iterator[ReachedLimit]:
    """Yield the limits of a name that one association or QOS shows; those of each job alone have no use."""
    name, tres = _limit_name(match), _TRES.get(match["what"])
    is_shared = match["each"] not in ("PerJob", "PerNode")
    for kind, amount in amounts.get(name, {}).items():
        if tres is not None and amount.most is not None and kind.startswith(tres):
            used = amount.used if is_shared else None
            yield ReachedLimit(name=name, tres=kind, most=amount.most, used=used, **holder)
    if name in counts:
        yield ReachedLimit(name=name, most=counts[name], used=counts_used.get(name, 0) if is_shared else None, **holder)


def _limit_name(match: re.Match[str]) -> str:
    """Return the name of a limit as `scontrol show assoc_mgr` spells it."""
    what, holder = match["what"], _HOLDERS[match["each"]]
    if what == "Jobs":
        return f"{match['of']}Jobs{holder}"
    if what in ("Wall", "WallDuration"):
        return f"{match['of']}Wall{holder}"
    return f"{match['of']}TRES{_MINUTES[match['time']]}{holder}"
