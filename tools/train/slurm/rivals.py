"""Rules that a learned policy for sizes is judged beside, and the policy itself, as policies of the simulator."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch

from advisor.domain.forecast import Interval, JobForecast
from advisor.domain.job import Job
from advisor.features.steps import Choose, Reals, Steps, Supply
from advisor.sim.policies.lifted import by_limits, by_run_times, changed_slurm
from advisor.sim.policies.lifter import Lifter
from advisor.sim.policies.slurm import Run, SlurmPolicy
from advisor.sim.simulated_policy import Problem, SimulatedPolicy
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import State
from advisor.sim.study.cell import digest_of, program_of
from tools.train import TOOLS
from tools.train.networks import PerOption
from tools.train.slurm.publication import network_of
from tools.train.slurm.scorers import StepScorer, by_gain, by_price
from tools.train.slurm.sizer import Sizer, Sizes, SpeedOf, by_score, forecast_speeds, true_speeds

MakeSpeeds = Callable[[Problem, SimulatedSlurm], SpeedOf]
TRUTH: Final = "true run times and speeds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A row of the judge: a policy, what it believes as in `SimulationOptions`, and the row it is set beside.

    `weights` are those of a trained network. A slow one runs on the first `most` workloads alone.
    """

    name: str
    policy: str | SimulatedPolicy
    speeds: str = "oracle"
    beside: str = ""
    weights: bytes = b""
    most: int | None = None

    @property
    def key(self) -> str:
        """What names the policy among stored results: it differs where the programs or the weights do."""
        if isinstance(self.policy, str):
            return self.policy
        return f"{self.name} {digest_of((program_of(__name__, TOOLS), self.weights))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftAndSize:
    """Lifts jobs, and then sizes the elastic ones."""

    lifter: Lifter
    sizer: Sizer
    slurm: Slurm

    def cycle(self, state: State, now: float) -> None:
        """Change jobs."""
        self.lifter.cycle(state, now)
        self.sizer.cycle(state, now)


def sized(choose: Choose, *, speeds: MakeSpeeds = forecast_speeds, is_true: bool = False) -> SlurmPolicy:
    """Return lifts with sizes; what `is_true` knows the true run times and speeds, the rest time limits."""
    sizes = Sizes(speeds=true_speeds if is_true else speeds, choose=choose, knows_run_s=is_true)

    def begin(problem: Problem, slurm: Slurm) -> Run:
        run_times = (by_run_times if is_true else by_limits)(problem, slurm)
        lifter = Lifter.of(problem, slurm, run_times)
        changer = LiftAndSize(lifter=lifter, sizer=sizes.sizer(problem, lifter), slurm=slurm)
        return partial(changed_slurm, changer, problem.options.advise_every_s)

    return SlurmPolicy(name="sized", summary="", begin=begin)


def noisy_speeds(error: float) -> MakeSpeeds:
    """Return true speeds off by a share, up or down by a fair coin for each job and size; never at the size asked.

    Every policy meets the same errors.
    """

    def speeds(problem: Problem, cluster: SimulatedSlurm) -> SpeedOf:
        exact, seed = true_speeds(problem, cluster), int(problem.rng.integers(2**31))

        def speed_of(job: Job) -> JobForecast:
            forecast, rng = exact(job), np.random.default_rng([seed, job.job_id])
            sizes = sorted({place.gpus for place in forecast.speed_by_placement})
            factors = dict(zip(sizes, rng.choice((1.0 - error, 1.0 + error), len(sizes)).tolist(), strict=True))
            factors[job.gang.gpu_count or 0] = 1.0
            return replace(
                forecast,
                speed_by_placement={
                    place: _times(speed, factors[place.gpus]) for place, speed in forecast.speed_by_placement.items()
                },
            )

        return speed_of

    return speeds


def _times(speed: Interval, factor: float) -> Interval:
    return Interval(low=speed.low * factor, median=speed.median * factor, high=speed.high * factor)


def by_share(steps: Steps, supply: Supply) -> Reals:
    """Return DRF's score: while idle GPUs are left, the job with the fewest GPUs is next.

    On Slurm only jobs that wait share, and GPUs are the only resource that sizes change.
    """
    return np.where(_fits(steps, supply), 1.0 / steps.gpus, 0.0)


def by_fit(steps: Steps, supply: Supply) -> Reals:
    """Return Tetris' score: while idle GPUs are left, what fits them best and has little work left is next.

    Its weight makes the mean of the fits equal to that of the work, over the steps that are legal.
    """
    fit = steps.gpus_after * supply.idle / supply.capacity**2
    work = steps.gpus_after * steps.run_after_s
    legal = steps.is_legal
    weight = fit[legal].mean() / work[legal].mean() if legal.any() else 0.0
    cost = weight * work - fit
    return np.where(_fits(steps, supply), np.exp(cost.min() - cost), 0.0)


def _fits(steps: Steps, supply: Supply) -> Reals:
    """Return whether the jobs of the window fit on the idle GPUs after a step."""
    taken = steps.gpus[..., 0, :].sum(axis=-1)
    return np.asarray(taken + steps.gpus_after - steps.gpus <= supply.idle)


def by_network(network: PerOption) -> StepScorer:
    """Return the scores of a trained network for one window."""

    def score(steps: Steps, _supply: Supply) -> Reals:
        scores = np.full(steps.is_legal.shape, -np.inf)
        with torch.no_grad():
            options = torch.from_numpy(steps.columns[steps.is_legal].astype(np.float32))
            scores[steps.is_legal] = network(options).numpy()
        return scores

    return score


DEFAULT: Final = "lifts, sizes as asked"
PRICE: Final = "price"
_gain: Final[Choose] = by_score(by_gain)
_price: Final[Choose] = by_score(by_price)
# The first is the default of the advisor, with which all are compared.
RULES: Final = (
    Rival(name=DEFAULT, policy="lift"),
    Rival(name="plain Slurm", policy="slurm"),
    Rival(name="lifts and the rules for sizes", policy="lift+sizes", speeds="estimated", most=32),
    Rival(name=PRICE, policy=sized(_price)),
    Rival(name="Optimus, exact speeds", policy=sized(_gain, speeds=true_speeds)),
    Rival(name="Optimus, fitted speeds", policy=sized(_gain)),
    Rival(name="Optimus, 5 % error", policy=sized(_gain, speeds=noisy_speeds(0.05))),
    Rival(name="Optimus, 10 % error", policy=sized(_gain, speeds=noisy_speeds(0.1))),
    Rival(name="DRF", policy=sized(by_score(by_share))),
    Rival(name="Tetris", policy=sized(by_score(by_fit))),
    Rival(name=f"{DEFAULT}, {TRUTH}", policy="lift-oracle"),
    Rival(name=f"{PRICE}, {TRUTH}", policy=sized(_price, is_true=True), beside=f"{DEFAULT}, {TRUTH}"),
    Rival(name=f"Optimus, {TRUTH}", policy=sized(_gain, is_true=True), beside=f"{DEFAULT}, {TRUTH}"),
)


def learned(name: str, run: Path, file: str, beside: str) -> list[Rival]:
    """Return what a run learnt, by what sites know, and for whole recipes by the truth as well."""
    choose, weights = by_score(by_network(network_of(run, file))), (run / file).read_bytes()
    rivals = [Rival(name=name, policy=sized(choose), beside=beside, weights=weights)]
    if beside == PRICE and file == "policy.pt":
        truth = sized(choose, is_true=True)
        rivals.append(Rival(name=f"{name}, {TRUTH}", policy=truth, beside=f"{PRICE}, {TRUTH}", weights=weights))
    return rivals
