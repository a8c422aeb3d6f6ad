"""Finds the limit behind a reason of Slurm's, such as `QOSMaxGRESPerUser`, and how far it is used."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from advisor.backends.assoc_text import Amount, Association, AssociationState, QosLimits
from advisor.backends.association_limits import chain_of
from advisor.domain.job import Job
from advisor.domain.particulars import ReachedLimit

# `Assoc` or `QOS`, `Grp` or `Max`, what is limited, in which time, for which holder; one per account names no owner.
_REASON = re.compile(
    r"(?P<owner>Assoc|QOS|)(?P<of>Grp|Max)(?P<what>CPU|Cpu|GRES|Mem|Memory|Billing|Jobs|WallDuration|Wall)"
    r"(?P<time>RunMinutes|Minutes|)(?P<each>PerJob|PerNode|PerUser|PerAccount|)(?:Limit)?",
    re.ASCII,
)
_TRES: Final = {"CPU": "cpu", "Cpu": "cpu", "Mem": "mem", "Memory": "mem", "Billing": "billing", "GRES": "gres/"}
_BY_JOB: Final = {"PerJob": "PJ", "PerNode": "PN"}
_BY_HOLDER: Final = {"PerUser": "PU", "PerAccount": "PA"}
_MINUTES: Final = {"": "", "Minutes": "Mins", "RunMinutes": "RunMins"}


def names_a_limit(reason: str) -> bool:
    """Return whether a reason names a limit that slurmctld can show."""
    return _REASON.fullmatch(reason) is not None


def reached_limit(job: Job, state: AssociationState, qos_names: Iterable[str]) -> ReachedLimit | None:
    """Return the limit that a job's reason names; None if it names none, or slurmctld does not show it.

    Of several limits with this name, the one with the least left counts, the closest to the job first.
    """
    match = _REASON.fullmatch(job.reason)
    chain = chain_of(job, state)
    if match is None:
        return None
    if match["owner"] == "Assoc":
        limits = [limit for association in chain for limit in _of_association(association, match)]
    else:
        by_name = {qos.name: qos for qos in state.qos}
        uid = chain[0].uid if chain else ""
        named = (by_name[name] for name in dict.fromkeys(qos_names) if name in by_name)
        limits = [limit for qos in named for limit in _of_qos(qos, match, job, uid)]
    return min(limits, key=_left, default=None)


def _left(limit: ReachedLimit) -> int:
    return limit.most - (limit.used or 0)


def _of_association(association: Association, match: re.Match[str]) -> Iterator[ReachedLimit]:
    name = _name(match)
    for tres, amount in _amounts(association.amounts.get(name, {}).items(), match):
        yield ReachedLimit(
            name=name,
            tres=tres,
            most=amount.most or 0,
            used=None if match["each"] in _BY_JOB else amount.used,
            account=association.account,
            user=association.user,
        )
    if name in association.counts:
        yield ReachedLimit(
            name=name,
            most=association.counts[name],
            used=None if match["each"] in _BY_JOB else association.counts_used.get(name, 0),
            account=association.account,
            user=association.user,
        )


def _of_qos(qos: QosLimits, match: re.Match[str], job: Job, uid: str) -> Iterator[ReachedLimit]:
    name, each = _name(match), match["each"]
    user, account = (job.user if each == "PerUser" else ""), (job.account if each == "PerAccount" else "")
    amounts = {"PerUser": qos.by_uid.get(uid, {}), "PerAccount": qos.by_account.get(job.account, {})}.get(
        each, qos.amounts
    )
    for tres, amount in _amounts(amounts.get(name, {}).items(), match):
        used = None if each in _BY_JOB else amount.used
        yield ReachedLimit(
            name=name, tres=tres, most=amount.most or 0, used=used, qos=qos.name, user=user, account=account
        )
    if name in qos.counts:
        use = {
            "PerUser": qos.counts_used_by_uid.get(uid, {}),
            "PerAccount": qos.counts_used_by_account.get(job.account, {}),
        }.get(each, qos.counts_used)
        used = None if each in _BY_JOB else use.get(name, 0)
        yield ReachedLimit(name=name, most=qos.counts[name], used=used, qos=qos.name, user=user, account=account)


def _amounts(amounts: Iterable[tuple[str, Amount]], match: re.Match[str]) -> Iterator[tuple[str, Amount]]:
    tres = _TRES.get(match["what"])
    for name, amount in amounts:
        if tres is not None and amount.most is not None and name.startswith(tres):
            yield name, amount


def _name(match: re.Match[str]) -> str:
    """Return the name of a limit as `scontrol show assoc_mgr` spells it."""
    of, what, each = match["of"], match["what"], match["each"]
    holder = (_BY_JOB | _BY_HOLDER).get(each, "")
    if what == "Jobs":
        return f"{of}Jobs{holder}"
    if what in ("Wall", "WallDuration"):
        return f"{of}Wall{holder}"
    return f"{of}TRES{_MINUTES[match['time']]}{holder}"
