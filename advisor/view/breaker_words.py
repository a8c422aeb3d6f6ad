"""Words what a circuit breaker stopped: its cause, when it closes, and what to do."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from advisor.domain.probation import CLAIMED_RATIO, NOTHING_ENDED, Coverage
from advisor.guard.breakers import BREAKERS, BreakerState, OpenBreaker
from advisor.settings import BreakerSettings
from advisor.view.terminal import instant

REMEDIES: Final[Mapping[str, str]] = {
    "controller_threads": "find what loads slurmctld (sdiag)",
    "controller_cycle": "shorten the passes of Slurm's schedulers (SchedulerParameters), or raise the bound",
    "controller_queue": "see that nodes and slurmdbd answer (sinfo -R, sacctmgr ping)",
    "slurm_errors": "see why slurmctld does not answer (scontrol ping)",
    "forecast_drift": "fit the run times here (sadvise fit runtime --from live), or set forecasts.enabled to false",
    "people_object": "ask those who took changes back, and restrict [mode] or [guard] where they are right",
}


def breaker_lines(state: BreakerState, settings: BreakerSettings) -> Mapping[str, str]:
    """Map each open breaker to one line: its cause, when it closes, and what to do."""
    return {name: f"{text}; {_to_do(name)}" for name, text in state.sentences(settings).items()}


def stop_line(breaker: OpenBreaker) -> str:
    """Return one line about an open breaker of the daemon: since when, why, and what to do."""
    return f"the daemon applies nothing since {instant(breaker.opened_time)}: {breaker.cause}; {_to_do(breaker.name)}"


def stop_values(breaker: OpenBreaker) -> dict[str, Any]:
    """Return an open breaker as published."""
    return {
        "breaker": breaker.name,
        "cause": breaker.cause,
        "opened_time": breaker.opened_time,
        "to_do": _to_do(breaker.name),
    }


def probation_line(model: str, coverage: Coverage, least_jobs: int) -> str:
    """Return one line about a model on probation: how far it is, and what holds until then."""
    return (
        f"{model}: {coverage.inside} of {coverage.jobs} ended jobs of this site ran within its intervals; nothing is "
        f"applied on its forecasts until at least {least_jobs} did and {100 * CLAIMED_RATIO:.0f} % are plausible "
        "(guard.probation_jobs)"
    )


def probation_values(models: Iterable[str], coverage_by_model: Mapping[str, Coverage]) -> list[dict[str, Any]]:
    """Return the models on probation as published."""
    return [
        {"model": model, "jobs": coverage.jobs, "inside": coverage.inside}
        for model in models
        for coverage in [coverage_by_model.get(model, NOTHING_ENDED)]
    ]


def _to_do(name: str) -> str:
    remedy = f"{REMEDIES[name]}; then " if name in BREAKERS else ""
    return f"to do: {remedy}`sadvise acknowledge {name}` lets it count again from then"
