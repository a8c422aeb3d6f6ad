"""Names the nodes on which gangs near the head of the line start now, where a policy chooses them.

A gang gets the nodes that the policy chooses one by one, or, where the policy fails, those of the rule: best fit with
least interference. It gets them for a short time, and only nodes that are free for it: a gang that names busy nodes
waits for them, while jobs behind it take what else is free.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from advisor.domain.actions import SetNodeList
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.plan import Expected, Kind, Recommendation
from advisor.domain.topology import LocalityTier
from advisor.features.bars import hold
from advisor.features.nodes import NodeTable, rows_of
from advisor.features.observe.graph import ClusterGraph, Floats, Residents, Rows, Servers, crossing, graph_of
from advisor.features.observe.known_models import NO_MODELS, KnownModels, SiteSpeeds
from advisor.features.observe.least_loss import ScoredChooser
from advisor.features.observe.pointer import AgentView, Choice, Gang, choose_all, interference_of, report_of
from advisor.features.observe.snapshot_graph import residents_of_jobs, servers_of_table
from advisor.features.queue import QueueTable
from advisor.planning.case import Case
from advisor.planning.head import TurnInLine
from advisor.planning.placement import PlaceForGang, can_be_spread, turns_near_head


def recommendations(case: Case, so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose nodes for the gangs that can start now."""
    queue, done = case.queue_after(so_far), case.done(so_far)
    wanted = [row for row, job in enumerate(queue.jobs) if job.job_id not in done and _can_be_placed(queue, row)]
    if not wanted:
        return
    site = _Site.of(case)
    taken: set[int] = set()
    for turn, fit in turns_near_head(case, queue, wanted):
        if turn.claim is None or fit.tier_now is None or fit.restricted:
            continue
        choice = site.choice(case, queue, turn, taken)
        chooser = ScoredChooser(case.decider, lambda: site.view(queue), queue.jobs[turn.row].job_id)
        if not choose_all(choice, chooser.next_server) or len(choice.chosen) < 2:
            continue
        job, names = queue.jobs[turn.row], sorted(case.table.names[row] for row in choice.chosen)
        if hold(case.fitter, job, names):
            taken |= set(choice.chosen)
            yield _recommendation(case, job, names, choice, site)


def usable_gpus(turn: TurnInLine, job: Job) -> Rows:
    """Return the GPUs that a gang could take of each node at its turn, `(n_nodes,)`.

    A gang that has to have several nodes takes no more of one than leaves a part for each of the others.
    """
    gang, total = job.gang, job.gang.gpu_count or 0
    share = turn.fitter.shares_now(gang, job.partitions)
    usable = np.floor(share * total + 1e-9).astype(np.intp)
    return np.minimum(usable, -(-total // gang.nodes_min))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """The cluster as the chooser sees it."""

    servers: Servers
    residents: Residents
    graph: ClusterGraph
    leaf_crossing: Rows
    models: KnownModels
    types: Rows  # (n_nodes,): codes of GPU types, as the models know them

    @classmethod
    def of(cls, case: Case) -> "_Site":
        models, left_s = case.models or NO_MODELS, case.remaining_s
        servers = servers_of_table(case.table)
        residents = residents_of_jobs(
            case.snapshot, case.table, models.rows, lambda job: left_s.get(job.job_id, np.nan)
        )
        return cls(
            servers=servers,
            residents=residents,
            graph=graph_of(servers, residents, models.neighbours),
            leaf_crossing=crossing(servers, residents, residents.crosses(servers.leaf)),
            models=models,
            types=type_codes(case.table, models),
        )

    def view(self, queue: QueueTable) -> AgentView:
        """Return what the one agent sees that owns all servers."""
        report = report_of(self.servers, self.residents, len(queue.jobs), int(queue.gpus.sum()))
        return AgentView(graph=self.graph, report=report, neighbours=self.models.neighbours)

    def choice(self, case: Case, queue: QueueTable, turn: TurnInLine, taken: set[int]) -> Choice:
        """Return the choice of a gang, without the nodes of those that chose before it."""
        job = queue.jobs[turn.row]
        usable = usable_gpus(turn, job)
        usable[list(taken)] = 0
        gang = _gang(case, queue, turn.row, int(self.models.rows([job.hints.model or ""])[0]))
        speeds = self.models.speeds
        outlook = None
        if speeds is not None:
            outlook = speeds.outlook(gang.model, gang.run_s, self.types, self.servers, self.residents)
        return Choice(
            gang=gang,
            usable=usable,
            leaf=self.servers.leaf,
            leaf_crossing=self.leaf_crossing,
            interference=interference_of(gang, self.servers, self.residents, self.models.neighbours),
            chosen=[],
            taken=[],
            outlook=outlook,
        )


def _gang(case: Case, queue: QueueTable, row: int, model: int) -> Gang:
    job, gpus = queue.jobs[row], queue.jobs[row].gang.gpu_count or 0
    node_gpus = int(case.table.gpus_total.sum(axis=1).max(initial=1))
    best = max(job.gang.nodes_min, -(-gpus // node_gpus))
    fit = case.fitter.fit_in_service(job.gang, job.partitions)
    leaf, spine = (
        case.beliefs.inflation(job, tier, fit.best_tier).median for tier in (LocalityTier.LEAF, LocalityTier.SPINE)
    )
    if case.models is not None and case.models.speeds is not None:
        weight = float(case.models.speeds.place_weight[model])
        leaf, spine = leaf**weight, spine**weight
    return Gang(
        gpus=gpus,
        fewest_nodes=best,
        model=model,
        leaf_inflation=leaf,
        spine_inflation=max(leaf, spine),
        run_s=float(queue.run.expected_s[row]),
        wait_s=float(queue.wait_s[row]),
    )


def _can_be_placed(queue: QueueTable, row: int) -> bool:
    """Return whether the nodes of a job can be named: a gang of some nodes, whose user left the choice to Slurm."""
    job, gpus = queue.jobs[row], int(queue.gpus[row])
    gang = job.gang
    is_open = not (gang.required_nodes or gang.excluded_nodes or job.reservation or gang.switches)
    is_fixed = gang.nodes_min == gang.nodes_max and gang.gpu_count == gpus
    return is_open and is_fixed and job.array is None and can_be_spread(gang, gpus)


def _recommendation(case: Case, job: Job, names: Sequence[str], choice: Choice, site: _Site) -> Recommendation:
    lease_s, decider = case.settings.node_list_lease_s, case.decider
    here = np.isin(site.residents.server, choice.chosen) & (site.residents.nodes[site.residents.gang] > 1)
    by_rule = decider.policy is None or bool(decider.fault)
    return Recommendation(
        kind=Kind.CONSOLIDATE,
        action=SetNodeList(job_id=job.job_id, before=(), after=tuple(names)),
        facts=PlaceForGang(
            gpus=choice.gang.gpus,
            nodes=len(names),
            leaves=len(np.unique(choice.leaf[choice.chosen])),
            neighbours=len(np.unique(site.residents.gang[here])),
            slowed_by_neighbours=float(choice.interference.slows_me[choice.chosen].max()),
            lease_s=lease_s,
            by_policy="" if by_rule or decider.policy is None else decider.policy.name,
        ),
        expected=Expected(saved_s=0.0, saved_s_low=0.0, saved_s_high=0.0, jobs_helped=1, added_delay_max_s=lease_s),
        revert_after_s=lease_s,
    )


def type_codes(table: NodeTable, models: KnownModels) -> Rows:
    """Return the GPU type of each node by the code that a performance model has for it, that of its most GPUs."""
    if models.speeds is None or not table.gpu_types:
        return np.zeros(len(table.names), np.intp)
    codes = models.speeds.type_codes(table.gpu_types)
    return np.asarray(codes[table.gpus_total.argmax(axis=1)])


@dataclass(frozen=True, kw_only=True)
class PlaceSpeeds:
    """Forecasts speeds on the nodes of one snapshot, beside the gangs that run there then."""

    case: Case
    models: KnownModels
    speeds: SiteSpeeds

    def log_speed(self, job: Job, names: Sequence[str]) -> float | None:
        """Return the logarithm of the speed of a gang on nodes, None where one of them is not known.

        The slowest GPU type and the server with the most interference decide, since a gang waits for its slowest part.
        """
        table = self.case.table
        rows = np.asarray(sorted(rows_of(table, names)), np.intp)
        best = self.case.fitter.fit_in_service(job.gang, job.partitions).best_tier
        if not len(rows) or len(rows) != len(set(names)):
            return None
        model = int(self.models.rows([job.hints.model or ""])[0])
        tier = max(self.case.snapshot.topology.tier_of(names), best)
        beliefs = self.case.beliefs
        inflation = beliefs.inflation(job, tier, best).median / beliefs.inflation(job, best, best).median
        on_place = float(self.speeds.place_weight[model]) * math.log(max(inflation, 1.0))
        beside = float(self._slowed(model)[rows].max()) if len(rows) > 1 else 0.0
        return float(self.speeds.log_speed[model, self._types[rows]].min()) - on_place - math.log1p(beside)

    def _slowed(self, model: int) -> Floats:
        """Return what the running gangs on several nodes add to the run time of a model on each node, `(n_nodes,)`."""
        residents = self._residents
        sends = residents.nodes[residents.gang] > 1
        added = self.speeds.neighbours.added[model, residents.model[residents.gang[sends]]]
        count = len(self.case.table.names)
        return np.bincount(residents.server[sends], added, minlength=count).astype(np.float64)

    @cached_property
    def _types(self) -> Rows:
        return type_codes(self.case.table, self.models)

    @cached_property
    def _residents(self) -> Residents:
        return residents_of_jobs(self.case.snapshot, self.case.table, self.models.rows, lambda _: math.nan)
