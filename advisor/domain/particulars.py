"""Defines what slurmctld shows of one job's surroundings beyond a snapshot: limits, shares, reservations, licences."""

from collections.abc import Mapping
from dataclasses import field

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GpuCount


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityFactors:
    """The weighted parts of a job's priority as `sprio` prints them; None for those that it does not print."""

    site: int | None = None
    age: int | None = None
    association: int | None = None
    fair_share: int | None = None
    job_size: int | None = None
    partition: int | None = None
    qos: int | None = None
    tres: int | None = None
    nice: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedLimit:
    """A limit that keeps a job pending: `name` as in sacctmgr's records, such as `GrpTRES`, on `tres` ("" for none).

    It is a limit of a QOS, of an account, or of a user in an account; one of a QOS that names a user or an account
    binds each of them. `used` is None for a limit on each job by itself. Times are in minutes.
    """

    name: str
    most: int
    tres: str = ""
    used: int | None = None
    qos: str = ""
    account: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A reservation of nodes; `cpus` is how many it takes of them, None if not known.

    `cpus_by_node` is for a reservation of parts of nodes, `gpus` the GPUs that it then takes of each of its nodes.
    `licences` are the names of those that it holds.
    """

    name: str
    start_time: float
    end_time: float
    nodes: tuple[str, ...] = ()
    cpus: int | None = None
    cpus_by_node: Mapping[str, int] = field(default_factory=dict)
    gpus: tuple[GpuCount, ...] = ()
    licences: tuple[str, ...] = ()
    is_maintenance: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountUse:
    """The use of an account, or of a user in it, against its share among its siblings: 1.0 is all of the share."""

    name: str
    used_of_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShare:
    """The use that counts in a job's priority: of its user, its account, and the accounts above, the nearest first.

    Past use counts half after `half_life_s`, None where it does not decay.
    """

    user: AccountUse
    accounts: tuple[AccountUse, ...]
    half_life_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceUse:
    """A licence that a job asks for: how many, how many there are, how many are free, and how many are reserved.

    Those that are reserved are not free.
    """

    name: str
    asked: int
    total: int
    free: int
    reserved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Particulars:
    """What was asked about one pending job; None or empty for what was not, and `unread` says why not.

    `reservations` are all of the cluster, None where they were not read.
    """

    factors: PriorityFactors | None = None
    limit: ReachedLimit | None = None
    share: FairShare | None = None
    reservations: tuple[Reservation, ...] | None = None
    licences: tuple[LicenceUse, ...] = ()
    unread: tuple[str, ...] = ()


NOTHING_ASKED = Particulars()
