"""Simulated sites with true effects, on which a user submits jobs that lie about their speed."""

from dataclasses import dataclass, replace

import numpy as np

from advisor.features.observe.graph import Floats, Residents, Rows, Servers
from advisor.features.observe.pointer import Gang
from advisor.features.observe.safe_places import Prospect, Surroundings, best_try, prospect_of
from advisor.features.observe.site_speeds import SiteSpeeds
from advisor.features.observe.subspaces import NOTHING_SEEN
from advisor.fit.performance_fit import Samples, SitePrior, Spreads, adapted
from advisor.fit.performance_graph import performance_to_onnx
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.performance import Parameters, PerformanceModel
from advisor.trial.evidence import capped

MODELS = tuple(f"model{number}" for number in range(5))
USERS, LIAR, LABS = 30, 30, 10
SERVERS, GANGS, CANDIDATES = 16, 12, 16
NOISE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """The row of a sample, with whose job it was."""

    row: int
    user: str
    account: str


def capped_samples(samples: Samples, users: Rows, *, seed: int) -> Samples:
    """Return the samples that the nightly fit would learn from, with users in ten accounts."""
    owned = [
        SampleRow(row=row, user=f"user{user}", account=f"lab{user % LABS}") for row, user in enumerate(users.tolist())
    ]
    return samples.take(np.array([one.row for one in capped(owned, seed=seed)], np.intp))


@dataclass(frozen=True, slots=True, kw_only=True)
class LyingSite:
    """What is believed before, what is true, and what jobs have shown, with the user of each."""

    prior: SitePrior
    added: Floats  # (n_models + 1, n_models + 1): the truth
    samples: Samples
    users: Rows

    @classmethod
    def drawn(cls, rng: np.random.Generator, *, honest: int, lies: int) -> "LyingSite":
        """Draw a site by the spreads of the prior, with jobs of honest users and of one who hides all slowdowns."""
        rows, spreads = len(MODELS) + 1, Spreads()
        prior = SitePrior(
            models=MODELS,
            gpu_types=("a100",),
            log_speed=np.zeros((rows, 2)),
            added=np.clip(0.1 * np.exp(rng.normal(0.0, 0.7, (rows, rows))), 0.02, 0.5),
        )
        own, other = rng.normal(0.0, spreads.own, rows), rng.normal(0.0, spreads.other, rows)
        added = prior.floored * np.exp(rng.normal(0.0, spreads.scale) + own[:, None] + other[None, :])
        count = honest + lies
        model = rng.integers(len(MODELS), size=count)
        others = np.zeros((count, rows))
        for _ in range(2):
            others[np.arange(count), rng.integers(len(MODELS), size=count)] += rng.random(count) < 0.6
        users = np.concatenate([rng.integers(USERS, size=honest), np.full(lies, LIAR)])
        of_family = rng.normal(0.0, spreads.family, (USERS + 1, rows))
        slowed = np.log1p((others * added[model]).sum(axis=1))
        # The liar's jobs seem to run as fast beside others as alone.
        truth = np.where(users == LIAR, 0.0, of_family[users, model] - slowed)
        samples = Samples(
            model=model,
            gpu_type=np.zeros(count, np.intp),
            place=np.zeros(count),
            others=others,
            log_speed=truth + rng.normal(0.0, np.hypot(NOISE, spreads.misfit), count),
            noise=np.full(count, NOISE),
            family=users * rows + model,
        )
        return cls(prior=prior, added=added, samples=samples, users=users)

    def learnt(self, samples: Samples | None = None) -> SiteSpeeds:
        """Return the tables that are served after some of the samples, all by default."""
        model = adapted(self.prior, self.samples if samples is None else samples, seed=0)
        graph = TensorGraph(performance_to_onnx(model), name="performance")
        parameters = Parameters(
            models=MODELS, gpu_types=("a100",), samples=model.samples, residual=model.residual, spreads={}
        )
        return PerformanceModel(graph, parameters).tabulated()


@dataclass(frozen=True, slots=True, kw_only=True)
class Realised:
    """The relative speeds that jobs affected by tries really had, gangs and their neighbours."""

    gangs: Floats
    neighbours: Floats

    @property
    def all(self) -> Floats:
        """All of them."""
        return np.concatenate([self.gangs, self.neighbours])

    def broken(self, slowdown: float) -> float:
        """Return the share of affected jobs that lost more than a share of their speed."""
        return float((self.all < 1.0 - slowdown).mean()) if len(self.all) else 0.0


def realised(site: LyingSite, speeds: SiteSpeeds, rng: np.random.Generator, *, tries: int, slowdown: float) -> Realised:
    """Place gangs of honest users by the tables, and return what the affected jobs really lose."""
    gangs: list[float] = []
    neighbours: list[float] = []
    for _ in range(tries):
        around, gang = _drawn_case(rng, speeds)
        free = rng.permutation(SERVERS)
        chosen = tuple(sorted(free[np.argsort(around.load(gang)[free], kind="stable")][:2].tolist()))
        pairs = {tuple(sorted(rng.choice(SERVERS, 2, replace=False).tolist())) for _ in range(CANDIDATES)} - {chosen}
        prospects = [prospect_of(around, gang, pair, (4, 4), chosen) for pair in (chosen, *sorted(pairs))]
        safe = [one for rank, one in enumerate(prospects) if rank == 0 or one.keeps(slowdown)]
        utilities = NOTHING_SEEN.utilities([one.signature for one in safe], np.array([one.unsure for one in safe]))
        best = best_try(safe, slowdown, utilities, 1.0)
        if best:
            true = replace(around, speeds=replace(speeds, neighbours=replace(speeds.neighbours, added=site.added)))
            gangs.append(_gang_speed(true, gang, chosen, safe[best]))
            neighbours += _neighbour_speeds(true, gang, safe[best])
    return Realised(gangs=np.array(gangs), neighbours=np.array(neighbours))


def _drawn_case(rng: np.random.Generator, speeds: SiteSpeeds) -> tuple[Surroundings, Gang]:
    places = np.array([sorted(rng.choice(SERVERS, 2, replace=False)) for _ in range(GANGS)])
    residents = Residents(
        gang=np.arange(GANGS).repeat(2),
        server=places.reshape(-1).astype(np.intp),
        held=np.full(2 * GANGS, 2, np.intp),
        gpus=np.full(GANGS, 4, np.intp),
        nodes=np.full(GANGS, 2, np.intp),
        model=rng.integers(len(MODELS), size=GANGS).astype(np.intp),
        left_s=np.full(GANGS, 3600.0),
    )
    servers = Servers(
        gpus=np.full(SERVERS, 16, np.intp),
        free=np.full(SERVERS, 8, np.intp),
        is_up=np.ones(SERVERS, np.bool_),
        leaf=np.zeros(SERVERS, np.intp),
    )
    around = Surroundings(
        speeds=speeds,
        servers=servers,
        residents=residents,
        types=np.zeros(SERVERS, np.intp),
        leaf_crossing=np.zeros(1, np.intp),
        protected=np.zeros(GANGS, np.bool_),
    )
    gang = Gang(
        gpus=8, fewest_nodes=2, model=int(rng.integers(len(MODELS))), leaf_inflation=1.1, spine_inflation=1.3,
        run_s=3600.0, wait_s=0.0,
    )  # fmt: skip
    return around, gang


def _gang_speed(true: Surroundings, gang: Gang, chosen: tuple[int, ...], tried: Prospect) -> float:
    load = true.load(gang)
    return float((1.0 + load[list(chosen)].max()) / (1.0 + load[list(tried.place)].max()))


def _neighbour_speeds(true: Surroundings, gang: Gang, tried: Prospect) -> list[float]:
    """Return the true speed of each affected gang over that without the tried one, on its most loaded server."""
    residents, added, speeds = true.residents, true.speeds.neighbours.added, []
    for row in tried.affected:
        model, servers = residents.model[row], residents.server[residents.gang == row]
        beside = [
            sum(
                added[model, residents.model[other]]
                for other in residents.gang[residents.server == server]
                if other != row
            )
            for server in servers
        ]
        harm = [
            load + added[model, gang.model] * (server in tried.place)
            for load, server in zip(beside, servers, strict=True)
        ]
        speeds.append(float((1.0 + max(beside)) / (1.0 + max(harm))))
    return speeds
