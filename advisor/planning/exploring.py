"""Tries places for gangs that a policy has placed, now and then and within bounds, so that the site is learnt.

Nothing here runs unless `planning.explore_ratio` is above 0. A place that is tried replaces the one that the policy
chose: the same action and the same lease, with its own reason. At any time a job is affected by one try at most.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain.actions import Reason, SetNodeList
from advisor.domain.facts import Facts
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.domain.units import HOUR_S
from advisor.features.explored_share import (
    ExploredShare,
    can_be_tried_on,
    explored_jobs,
    explored_share,
    most_gpu_s,
)
from advisor.features.named_nodes import hold
from advisor.features.nodes import rows_of
from advisor.features.observe.graph import Flags, Residents, Rows, Servers
from advisor.features.observe.pointer import BestFit, Choice, choose_all
from advisor.features.observe.safe_places import Prospect, Surroundings, best_try, prospect_of
from advisor.features.observe.snapshot_graph import jobs_with_gpus
from advisor.features.observe.subspaces import Subspaces
from advisor.planning.case import Case

# Places drawn at random for one gang, beside those of the policy, of best fit and on the least loaded servers.
DRAWN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorePlace(Facts):
    """A place that is tried, and what the policy would have chosen.

    `seen` is how often its signature was seen at the site. `slowed_ratio_max` is the share of its speed that an
    affected job loses, by the lower confidence bound, and `bound_ratio` what was allowed. `used_ratio` is the share of
    the GPU-time for tries that is used up with this one.
    """

    reason = Reason.EXPLORE_PLACE

    gpus: int
    nodes: int
    leaves: int
    signature: str
    seen: int
    affected: int
    slowed_ratio_max: float
    bound_ratio: float
    explored_gpu_h: float
    used_ratio: float
    instead_of: str
    lease_s: float
    by_policy: str


@dataclass(slots=True, kw_only=True)
class Explorer:
    """What is tried in one cycle: the site, the GPU-time that is left, and the running gangs that a try affects."""

    case: Case
    around: Surroundings
    subspaces: Subspaces
    share: ExploredShare
    names: tuple[str, ...]

    @classmethod
    def of(cls, case: Case, servers: Servers, residents: Residents, leaf_crossing: Rows) -> "Explorer | None":
        """Return what can be tried; None where nothing can, or the models are not those of the residents."""
        speeds = case.models.speeds
        share = explored_share(
            case.snapshot,
            case.memory.leases,
            ratio=case.settings.explore_ratio,
            window_s=case.limits.fairness_window_s,
        )
        table = case.table
        is_known = speeds is not None and len(speeds.place_weight) == len(case.models.neighbours.added)
        if speeds is None or not is_known or not table.gpu_types:
            return None
        names = [table.gpu_types[column] for column in table.gpus_total.argmax(axis=1)]
        around = Surroundings(
            speeds=speeds,
            servers=servers,
            residents=residents,
            types=speeds.type_codes(names),
            leaf_crossing=leaf_crossing,
            protected=_protected(case, residents),
        )
        return cls(case=case, around=around, subspaces=speeds.subspaces, share=share, names=table.names)

    def tried(self, change: Recommendation, job: Job, choice: Choice, taken: set[int]) -> Recommendation:
        """Return the change with the place that is tried, whose servers `taken` gains; the same change if none is."""
        gpu_s = most_gpu_s(job)
        if gpu_s is None or not can_be_tried_on(job) or not self.share.holds(gpu_s):
            return change
        slowdown = self.case.settings.explore_slowdown
        prospects = [
            prospect
            for rank, prospect in enumerate(self._prospects(job, choice))
            if rank == 0 or prospect.keeps(slowdown)
        ]
        utilities = self.subspaces.utilities(
            [prospect.signature for prospect in prospects], np.array([prospect.unsure for prospect in prospects])
        )
        best = best_try(prospects, slowdown, utilities, self.subspaces.allowance.kappa)
        if best == 0:
            return change
        taken |= set(prospects[best].place)
        return self._explored(change, choice, prospects[best], gpu_s)

    def _explored(self, change: Recommendation, choice: Choice, prospect: Prospect, gpu_s: float) -> Recommendation:
        """Book a try, keep further ones off the running gangs that it affects, and return its change."""
        share, around = self.share, self.around
        self.share = replace(share, used_gpu_s=share.used_gpu_s + gpu_s)
        protected = around.protected.copy()
        protected[list(prospect.affected)] = True
        self.around = replace(around, protected=protected)
        names, instead = (tuple(sorted(self.names[row] for row in rows)) for rows in (prospect.place, choice.chosen))
        settings, decider = self.case.settings, self.case.decider
        by_rule = decider.policy is None or bool(decider.fault)
        facts = ExplorePlace(
            gpus=choice.gang.gpus,
            nodes=len(names),
            leaves=len(np.unique(choice.leaf[list(prospect.place)])),
            signature=prospect.signature,
            seen=self.subspaces.of(prospect.signature).count,
            affected=len(prospect.affected),
            slowed_ratio_max=float(-np.expm1(prospect.lowest)),
            bound_ratio=settings.explore_slowdown,
            explored_gpu_h=gpu_s / HOUR_S,
            used_ratio=self.share.used_ratio(),
            instead_of=" ".join(instead),
            lease_s=settings.node_list_lease_s,
            by_policy="" if by_rule or decider.policy is None else decider.policy.name,
        )
        action = SetNodeList(job_id=change.job_id, before=(), after=names, explored_gpu_s=gpu_s)
        return replace(change, action=action, facts=facts)

    def _prospects(self, job: Job, choice: Choice) -> Iterator[Prospect]:
        """Yield what places hold in store, each once, the policy's own choice first."""
        seen: set[tuple[int, ...]] = set()
        for place, taken in self._places(job, choice):
            key = tuple(sorted(place))
            # The policy's own choice is known to hold the gang.
            if key in seen or (seen and not hold(self.case.fitter, job, sorted(self.names[row] for row in key))):
                continue
            seen.add(key)
            yield prospect_of(self.around, choice.gang, place, taken, choice.chosen)

    def _places(self, job: Job, choice: Choice) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
        """Yield servers with the GPUs taken of each: as chosen, best fit, the least loaded, and some at random."""
        yield tuple(choice.chosen), tuple(choice.taken)
        fresh = replace(choice, chosen=[], taken=[])
        choose_all(fresh, BestFit())
        yield tuple(fresh.chosen), tuple(fresh.taken)
        held = self.around.servers.gpus - self.around.servers.free
        rng = np.random.default_rng([job.job_id, max(round(self.case.snapshot.taken_at), 0)])
        load = self.around.load(choice.gang)
        drawn_orders = (_drawn_order(rng, choice, by_leaf=number % 2 == 0) for number in range(DRAWN))
        for order in (np.lexsort((-choice.usable, held, load)), *drawn_orders):
            drawn = _in_order(choice, order)
            if drawn is not None:
                yield drawn


def _drawn_order(rng: np.random.Generator, choice: Choice, *, by_leaf: bool) -> Rows:
    """Return the servers in an order that is drawn, with those of a leaf together where `by_leaf`."""
    order = rng.permutation(len(choice.leaf))
    if not by_leaf:
        return order
    rank_of_leaf = rng.permutation(len(choice.leaf_crossing))
    return order[np.argsort(rank_of_leaf[choice.leaf[order]], kind="stable")]


def _in_order(choice: Choice, order: Rows) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return the first servers of an order that hold the gang, as many as were chosen; None where they do not.

    Servers of which a gang can use its even part come first, since it gets as many as it has to have.
    """
    part = -(-choice.gang.gpus // len(choice.chosen))
    wide = choice.usable[order]
    order = np.concatenate([order[wide >= part], order[(wide > 0) & (wide < part)]])
    fresh = replace(choice, chosen=[], taken=[])
    for server in order[: len(choice.chosen)].tolist():
        fresh.choose(server)
    is_whole = fresh.rest == 0 and all(fresh.taken) and len(fresh.chosen) == len(choice.chosen)
    return (tuple(fresh.chosen), tuple(fresh.taken)) if is_whole else None


def _protected(case: Case, residents: Residents) -> Flags:
    """Return the running gangs that no try can affect, `(n_gangs,)`.

    These are jobs with a QOS, a reservation or a wish to be left alone, those on a place that was tried, and those that
    hold a part of a server of one of them, or of a gang that has been sent to such a place and has not started.
    """
    jobs, leases = jobs_with_gpus(case.snapshot, case.table), case.memory.leases
    tried_ids = explored_jobs(leases)
    tried = np.array([job.job_id in tried_ids for job in jobs], np.bool_)
    reserved = np.array([not can_be_tried_on(job) for job in jobs], np.bool_)
    named = [lease.action.after for lease in leases if lease.explored_gpu_s > 0.0 and lease.ending is None]
    awaited = [row for names in named if isinstance(names, tuple) for row in rows_of(case.table, names)]
    servers = np.concatenate([residents.server[tried[residents.gang]], np.array(awaited, np.intp)])
    beside = np.isin(residents.server, servers)
    touched = np.zeros(len(jobs), np.bool_)
    touched[residents.gang[beside]] = True
    return np.asarray(reserved | tried | touched)
