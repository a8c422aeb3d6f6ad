"""Defines what the daemon shows of its journal to users who cannot read the file."""

import json
from dataclasses import asdict, replace
from typing import Any, Final

from pydantic import TypeAdapter

from advisor.apply.memory_journal import MemoryJournal
from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.lease import Lease, Purpose, Purposes
from advisor.domain.memory import Wait
from advisor.domain.probation import NOTHING_PROVEN, Trust
from advisor.domain.standings import NO_STANDINGS, Standings
from advisor.domain.topology import LocalityTier
from advisor.errors import JournalError
from advisor.journal.rows import LEASE_COLUMNS, lease_of, lease_row

SCHEMA: Final = "sadvise.leases/1"
_COLUMNS: Final = tuple(LEASE_COLUMNS.split(", "))
_STANDINGS: Final = TypeAdapter(Standings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """The leases, open and ended, the waits and the standings that a plan after a round depends on.

    With them go the purposes of open leases. `hides_jobs` is whether users do not see each other's jobs. `trust`
    says which models jobs of the site have proven.
    """

    cluster: str
    taken_at: float
    hides_jobs: bool
    leases: tuple[Lease, ...] = ()
    waits: tuple[Wait, ...] = ()
    observed_until: float | None = None
    trust: Trust = NOTHING_PROVEN
    standings: Standings = NO_STANDINGS
    purposes: Purposes

    def of(self, user: str) -> "Disclosure":
        """Return the part about the jobs of one user, without the sentences and the waits.

        Of the standings it holds the user's own.
        """
        leases = tuple(lease for lease in self.leases if lease.user == user and user)
        own = {(lease.job_id, lease.lever) for lease in leases}
        purposes = {key: Purpose(reason=purpose.reason) for key, purpose in self.purposes.items() if key in own}
        standings = replace(
            self.standings,
            total=None,
            by_user={name: standing for name, standing in self.standings.by_user.items() if name == user},
            by_account={},
            plain_start_by_job={},
        )
        return replace(self, leases=leases, waits=(), standings=standings, purposes=purposes)

    def journal(self) -> MemoryJournal:
        """Return a journal with the same contents."""
        return MemoryJournal(
            leases=(lease for lease in self.leases if lease.ending is None),
            closed=(lease for lease in self.leases if lease.ending is not None),
            waits=self.waits,
            observed_until=self.observed_until,
            trust=self.trust,
            standings=self.standings,
        )

    def to_json(self) -> bytes:
        """Return all of it as a JSON document of one line."""
        document = {
            "schema": SCHEMA,
            "cluster": self.cluster,
            "taken_at": self.taken_at,
            "hides_jobs": self.hides_jobs,
            "leases": [dict(zip(_COLUMNS, lease_row(lease), strict=True)) for lease in self.leases],
            "waits": [{**asdict(wait), "tier": wait.tier.name} for wait in self.waits],
            "observed_until": self.observed_until,
            "proven": sorted(self.trust.proven),
            "drifted": sorted(self.trust.drifted),
            "standings": asdict(self.standings),
            "purposes": [
                {"job_id": job_id, "lever": lever, **asdict(purpose)}
                for (job_id, lever), purpose in self.purposes.items()
            ],
        }
        return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def disclosure_of(content: bytes) -> Disclosure:
    """Return the disclosure of a JSON document; raises `JournalError` if it is none."""
    try:
        document: dict[str, Any] = json.loads(content)
        if document["schema"] != SCHEMA:
            raise JournalError(f"the daemon shows its leases as {document['schema']!a}, this sadvise reads {SCHEMA}")
        return Disclosure(
            cluster=str(document["cluster"]),
            taken_at=float(document["taken_at"]),
            hides_jobs=bool(document["hides_jobs"]),
            leases=tuple(lease_of(tuple(row[name] for name in _COLUMNS)) for row in document["leases"]),
            waits=tuple(Wait(**{**wait, "tier": LocalityTier[wait["tier"]]}) for wait in document["waits"]),
            observed_until=document["observed_until"],
            trust=Trust(
                proven=frozenset(map(str, document["proven"])),
                drifted=frozenset(map(str, document.get("drifted", ()))),
            ),
            standings=_STANDINGS.validate_python(document["standings"]),
            purposes={
                (int(row["job_id"]), Lever(row["lever"])): Purpose(reason=str(row["reason"]), text=str(row["text"]))
                for row in document["purposes"]
            },
        )
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise JournalError("what the daemon shows of its leases cannot be read: compare their versions") from err
