"""Runs a drawn site: jobs behave as its models do, and what is believed of them is learnt from those that end.

Every night the performance model is adapted to the jobs that have ended.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.domain.units import DAY_S
from advisor.features.observe.graph import ClusterGraph, Floats, Neighbours, Residents, Rows, Servers, crossing
from advisor.features.observe.known_models import ServerOutlook, SiteSpeeds
from advisor.features.observe.pointer import Gang
from advisor.sim.profiles import Profiles, inflation, load_profiles
from advisor.sim.state import ENDED
from tools.train.drawn_gangs import BELIEF_SPREAD, DrawnGangs
from tools.train.drawn_sites import Change, DrawnSite, between
from tools.train.gang_rules import by_work
from tools.train.parted_cluster import PartedCluster, residents_exactly
from tools.train.performance_fit import Samples, SitePrior, Spreads, adapted, no_samples

# A gang of this many GPUs on this many servers stands for all where a table holds what a neighbour adds.
PAIR_GPUS: Final = 4
PAIR_NODES: Final = 2
# A gradual change takes this many steps.
GRADUAL_STEPS: Final = 20
_NO_SLOTS: Final = np.zeros((0, 0, 0), np.float32)
_NO_COLUMNS: Final = np.zeros((0, 0), np.float32)


def true_speeds(site: DrawnSite, profiles: Profiles) -> tuple[Floats, Floats]:
    """Return the logarithms of speeds over the first GPU type `(n_models + 1, n_types + 1)`, and what models add.

    The second is `(n_models + 1, n_models + 1)`. The last row and column are means, and 0 for an unknown type.
    """
    codes = profiles.codes(tuple(site.trace.models)).astype(np.intp)
    types = np.array([profiles.gpu_types.index(name) for name in site.gpu_types], np.intp)
    speed = np.log(profiles.type_speed[np.ix_(codes, types)])
    log_speed = np.zeros((len(codes) + 1, len(types) + 1))
    log_speed[:-1, :-1] = speed - speed[:, :1]
    log_speed[-1] = log_speed[:-1].mean(axis=0)
    nic = site.cluster.network.nic_gbps
    added = np.zeros((len(codes) + 1, len(codes) + 1))
    for mine, profile in enumerate(profiles.rows[codes]):
        for other, pressure in enumerate(profiles.rows["node_pressure"][codes]):
            added[mine, other] = (
                inflation(profile, PAIR_GPUS, PAIR_NODES, nic / (1.0 + pressure), PAIR_NODES, nic) - 1.0
            )
    added[-1, :-1], added[:-1, -1] = added[:-1, :-1].mean(axis=0), added[:-1, :-1].mean(axis=1)
    added[-1, -1] = added[:-1, :-1].mean()
    return log_speed, added


def prior_of(site: DrawnSite, spreads: Spreads) -> SitePrior:
    """Return what the shipped profiles say of a site before any of its jobs has ended."""
    log_speed, added = true_speeds(site, load_profiles())
    return SitePrior(
        models=tuple(site.trace.models), gpu_types=site.gpu_types, log_speed=log_speed, added=added, spreads=spreads
    )


def speeds_in_truth(site: DrawnSite, profiles: Profiles) -> SiteSpeeds:
    """Return the tables of an oracle of a site's types and neighbours."""
    log_speed, added = true_speeds(site, profiles)
    return SiteSpeeds(
        models=tuple(site.trace.models),
        gpu_types=site.gpu_types,
        log_speed=log_speed,
        speed_variance=np.zeros_like(log_speed),
        place_weight=np.ones(len(log_speed)),
        neighbours=Neighbours.of(added),
        added_variance=np.zeros_like(added),
    )


class LearntSite(PartedCluster):
    """One workload on one site, owned by one agent, which takes short work first.

    With `shows_graph` decisions hold the graph of the cluster, which takes time and which this policy does not look at;
    without `takes_samples` nothing can be learnt from jobs, which saves time.
    """

    every_s = 600.0

    def __init__(
        self,
        site: DrawnSite,
        speeds: SiteSpeeds,
        *,
        knows_places: bool = False,
        shows_graph: bool = False,
        takes_samples: bool = True,
    ) -> None:
        """Begin a workload; with `knows_places` the cost of places is the true one, as an oracle has it."""
        model = site.trace.jobs["model"].astype(np.intp)
        drawn = DrawnGangs(trace=site.trace, cluster=site.cluster, agents=1, believed_s=site.believed_s)
        super().__init__(drawn, speeds.neighbours, model, site.before)
        self.site, self.speeds, self.shows_graph, self.takes_samples = site, speeds, shows_graph, takes_samples
        if not knows_places:
            rows = self.state.profiles.copy()
            shipped = load_profiles().rows
            for name in shipped.dtype.names or ():
                rows[name] = shipped[name]
            self.believed = rows
        self.order = by_work
        self.types = np.asarray(self.state.nodes["gpu_type"], np.intp)
        # What jobs that run have met so far: neighbours by model times seconds.
        self._met: Floats = np.zeros((len(model), len(speeds.models) + 1))
        self._seen_s: Floats = np.zeros(len(model))
        self._samples = [no_samples(len(speeds.models))]
        self.on_samples: Callable[[LearntSite], None] = lambda _: None
        self._is_sampled = np.zeros(len(model), np.bool_)
        self._changed = 0
        # Where jobs started: what they held is not kept once they have ended.
        self._started: dict[int, Rows] = {}

    @property
    def samples(self) -> Samples:
        """The samples of the jobs that ended, in the order of their ends."""
        return Samples.join(self._samples)

    def learn(self, speeds: SiteSpeeds) -> None:
        """Decide by other tables from here on."""
        self.speeds, self.neighbours = speeds, speeds.neighbours
        self.gang_of.clear()
        self._graphs.clear()

    def unhindered_s(self, rows: Rows) -> Floats:
        """Return the time that jobs still take on the best GPU type of the site, `(n_rows,)`."""
        jobs, speed = self.state.jobs, self.state.type_speed.max(axis=1)
        return np.asarray(jobs["left_s"][rows] * jobs["reference_speed"][rows] / speed[jobs["profile"][rows]])

    def gang(self, row: int) -> Gang:
        """Return a pending job as a gang, the inflation of places weighed as the performance model does."""
        gang = super().gang(row)
        weight = float(self.speeds.place_weight[gang.model])
        return replace(gang, leaf_inflation=gang.leaf_inflation**weight, spine_inflation=gang.spine_inflation**weight)

    def outlook(self, gang: Gang, servers: Servers, residents: Residents) -> ServerOutlook | None:
        """Return what the tables say of each server."""
        return self.speeds.outlook(gang.model, gang.run_s, self.types, servers, residents)

    def view(self, agent: int) -> tuple[Residents, ClusterGraph, Rows]:
        """Return the gangs, the graph, without its numbers unless it is shown, and the gangs that cross each leaf."""
        if self.shows_graph:
            return super().view(agent)
        if agent not in self._graphs:
            servers, residents = self._own(agent)
            graph = ClusterGraph(slots=_NO_SLOTS, servers=_NO_COLUMNS, leaf=servers.leaf, leaves=_NO_COLUMNS)
            self._graphs[agent] = residents, graph, crossing(servers, residents, residents.crosses(servers.leaf))
        return self._graphs[agent]

    def has_started(self, row: int) -> None:
        """Look at the neighbours of a job at its start, so that those of short jobs are known too."""
        job = self.state.jobs[row]
        held = self.state.held_nodes[job["pool"] : job["pool"] + int(job["span"])]
        self._started[row] = held.astype(np.intp)
        if self.takes_samples:
            self._look(1.0, only=row)

    def has_advanced(self, since: float) -> None:
        """Look at the neighbours of running jobs, take the samples of those that ended, and let the site change."""
        if self.takes_samples:
            self._look(max(self.now - since, 1.0))
            self._take_samples()
        self._change()

    def _look(self, seconds: float, only: int | None = None) -> None:
        running = np.sort(self.state.running[: int(self.state.tally["running"][0])]).astype(np.intp)
        if not len(running):
            return
        residents = residents_exactly(self.state, self.model_of, running)
        rows = running[self.state.jobs["held"][running] > 0]
        self._seen_s[rows if only is None else only] += seconds
        sends = residents.nodes > 1
        parts = sends[residents.gang]
        gang, server = residents.gang[parts], residents.server[parts]
        model = residents.model[gang]
        beside = np.zeros((len(self.types), self._met.shape[1]))
        np.add.at(beside, (server, model), 1.0)
        for number, row in enumerate(rows.tolist()):
            if not sends[number] or (only is not None and row != only):
                continue
            mine = server[gang == number]
            others = beside[mine].copy()
            others[:, residents.model[number]] -= 1.0
            slowest = int((others @ self.speeds.neighbours.added[residents.model[number]]).argmax())
            self._met[row] += seconds * others[slowest]

    def _take_samples(self) -> None:
        jobs = self.state.jobs
        rows = np.flatnonzero((jobs["phase"] == ENDED) & ~self._is_sampled & np.isfinite(jobs["start_time"]))
        if not len(rows):
            return
        self._is_sampled[rows] = True
        ran_s = np.maximum(jobs["end_time"][rows] - jobs["start_time"][rows], 1.0)
        met = self._met[rows] / np.maximum(self._seen_s[rows], 1.0)[:, None]
        self._samples.append(
            Samples(
                model=self.model_of[rows],
                gpu_type=np.array([self._slowest_type(row) for row in rows.tolist()], np.intp),
                place=np.array([self._place(row) for row in rows.tolist()]),
                others=met,
                log_speed=np.log(jobs["believed_s"][rows] / ran_s),
                noise=np.full(len(rows), BELIEF_SPREAD),
            )
        )
        self.on_samples(self)

    def _slowest_type(self, row: int) -> int:
        types = self.types[self._started[row]]
        speeds = self.speeds.log_speed[self.model_of[row], types]
        return int(types[speeds.argmin()])

    def _place(self, row: int) -> float:
        """Return the logarithm of the inflation that is believed of the place of a job, alone."""
        nodes = self._started[row]
        if len(nodes) < 2:
            return 0.0
        leaf, spine = self._inflations(row)
        crosses = len(np.unique(self.state.nodes["leaf"][nodes])) > 1
        fewest = -(-int(self.state.jobs["gpus"][row]) // int(self.state.jobs["node_gpus"][row]))
        if len(nodes) == fewest and not crosses:
            return 0.0
        return float(np.log(min(spine if crosses else leaf, 1e3)))

    def _change(self) -> None:
        site = self.site
        if site.change in (Change.NONE, Change.LOAD) or self.now < site.change_time:
            return
        share = 1.0
        if site.change is Change.GRADUAL:
            last = float(site.trace.jobs["submit_time"].max())
            share = min(1.0, (self.now - site.change_time) / max(last - site.change_time, 1.0))
        step = int(share * GRADUAL_STEPS)
        if step <= self._changed:
            return
        self._changed = step
        if site.change is Change.NETWORK:
            self.state.rules["nic_gbps"] = site.cluster.network.nic_gbps / 4.0
            return
        behaves = between(site.before, site.after, step / GRADUAL_STEPS)
        rows = self.state.profiles
        for name in behaves.rows.dtype.names or ():
            rows[name] = behaves.rows[name]
        for column, name in enumerate(site.gpu_types):
            self.state.type_speed[:, column] = behaves.type_speed[:, behaves.gpu_types.index(name)]


# After this many jobs what one of them showed counts half.
HALF_LIFE: Final = 600.0


@dataclass(slots=True, kw_only=True)
class Nightly:
    """Adapts the tables of a cluster each night."""

    prior: SitePrior
    seed: int
    next_time: float = DAY_S

    def first(self) -> SiteSpeeds:
        """Return the tables before any job has ended."""
        return adapted(self.prior, no_samples(len(self.prior.models)), seed=self.seed)

    def __call__(self, cluster: LearntSite) -> None:
        """Adapt if the night has come."""
        if cluster.now >= self.next_time:
            self.next_time = (cluster.now // DAY_S + 1.0) * DAY_S
            cluster.learn(adapted(self.prior, aged(cluster.samples), seed=self.seed))


def aged(samples: Samples) -> Samples:
    """Return samples of which older ones have more noise, so that a site that changes is followed."""
    age = np.arange(len(samples))[::-1]
    return replace(samples, noise=samples.noise * np.exp2(age / HALF_LIFE / 2.0))
