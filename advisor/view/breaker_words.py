"""Words what a circuit breaker stopped, and which run times are set aside: why, until when, and what to do."""

from collections.abc import Iterable, Mapping
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.probation import CLAIMED_RATIO, DRIFT, FITTED_HERE, NO_PROOF, Proof, Trust
from advisor.guard.breakers import BREAKERS, BreakerState, OpenBreaker
from advisor.settings import BreakerSettings
from advisor.view.terminal import instant

REMEDIES: Final[Mapping[str, str]] = {
    "controller_threads": "find what loads slurmctld (sdiag)",
    "controller_cycle": "shorten the passes of the schedulers (SchedulerParameters) or raise the bound",
    "controller_queue": "see that nodes and slurmdbd answer (sinfo -R, sacctmgr show cluster)",
    "slurm_errors": "see why slurmctld does not answer (scontrol ping)",
    "people_object": "ask these people, and restrict [mode] or [guard] where they are right",
}


def breaker_lines(state: BreakerState, settings: BreakerSettings) -> Mapping[str, str]:
    """Map each open breaker to one line: its cause, when it closes, and what to do."""
    return {name: f"{text}. {_to_do(name)}" for name, text in state.sentences(settings).items()}


def stop_line(breaker: OpenBreaker) -> str:
    """Return one line about an open breaker of the daemon: since when, why, and what to do."""
    return f"the daemon applies nothing since {instant(breaker.opened_time)}: {breaker.cause}. {_to_do(breaker.name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDocument:
    """An open breaker as published."""

    breaker: str
    cause: str
    opened_time: float
    to_do: str


def stop_document(breaker: OpenBreaker) -> StopDocument:
    """Return an open breaker as published."""
    return StopDocument(
        breaker=breaker.name, cause=breaker.cause, opened_time=breaker.opened_time, to_do=_to_do(breaker.name)
    )


def probation_line(model: str, proof: Proof, least_jobs: int, *, drifted: bool = False) -> str:
    """Return one line about a model on probation: what plans rest on, how far its proof is, and what to do."""
    since, coverage = " since" if drifted else "", proof.coverage
    order = "" if proof.order is None else f" At the last look it {proof.order.words}."
    ended = f"{coverage.inside} of the {coverage.jobs} jobs that ended{since} ran within its intervals"
    nothing = f"No job that it forecast has ended{since or ' yet'}"
    fit = "again on more jobs" if FITTED_HERE in model else "your own"
    again = f". To trust it now: `sadvise acknowledge {DRIFT}`" if drifted else ""
    return (
        f"{model} {'no longer holds' if drifted else 'is not proven'} here, so plans rest on time limits. "
        f"{ended if coverage.jobs else nothing}.{order} {least_jobs} jobs with about {100 * CLAIMED_RATIO:.0f} % "
        "inside, and an order that is better than that of their limits at a weekly look, prove it "
        f"(guard.probation_jobs). To do: wait, or fit {fit} with `sadvise fit runtime --from live`{again}"
    )


def probation_values(
    models: Iterable[str], proof_by_model: Mapping[str, Proof], trust: Trust
) -> list[dict[str, object]]:
    """Return the models on probation as published."""
    return [
        {
            "model": model,
            "jobs": proof.coverage.jobs,
            "inside": proof.coverage.inside,
            "order": proof.order,
            "drifted": model in trust.drifted,
        }
        for model in models
        for proof in [proof_by_model.get(model, NO_PROOF)]
    ]


def _to_do(name: str) -> str:
    remedy = f"{REMEDIES[name]}, then " if name in BREAKERS else ""
    return f"To do: {remedy}`sadvise acknowledge {name}`"
