"""Tables of jobs for tests, one argument for what matters."""

from collections.abc import Sequence

import numpy as np

from advisor.predict.run_time_features import EndedJobs, RunTimeTable

MONDAY = 1_600_000_000.0


def make_jobs(rows: int = 1, **columns: object) -> RunTimeTable:
    """Return jobs of one user, one GPU and a limit of a day, submitted a minute apart."""
    texts = {"user": "ada", "account": "physics", "name": "", "partition": "gpu", "qos": "normal"}
    numbers: dict[str, object] = {
        "gpus": 1.0,
        "cpus": 8.0,
        "nodes": 1.0,
        "memory_mib": 32_000.0,
        "limit_s": 86_400.0,
        "submit_time": MONDAY + 60.0 * np.arange(rows),
        "waited_s": 0.0,
        "elapsed_s": 0.0,
    }
    filled: dict[str, object] = {
        name: _texts(columns.get(name, standard), rows) for name, standard in texts.items()
    } | {
        name: np.broadcast_to(np.asarray(columns.get(name, standard), dtype=np.float64), rows).copy()
        for name, standard in numbers.items()
    }
    return RunTimeTable(**filled)  # type: ignore[arg-type]


def make_ended(
    run_s: Sequence[float], *, end_time: Sequence[float] | None = None, state: str = "COMPLETED", **columns: object
) -> EndedJobs:
    """Return jobs that ran so long; they start at their submission unless their end says otherwise."""
    jobs = make_jobs(len(run_s), **columns)
    runs = np.asarray(run_s, dtype=np.float64)
    ends = jobs.submit_time + runs if end_time is None else np.asarray(end_time, dtype=np.float64)
    return EndedJobs(jobs=jobs, run_s=runs, end_time=ends, state=(state,) * len(runs))


def make_site(rows: int = 1200, *, seed: int = 0, users: int = 12) -> EndedJobs:
    """Return months of a small site: each user has a usual run time, with a spread of a factor of about 1.3."""
    chance = np.random.default_rng(seed)
    user = chance.integers(0, users, rows)
    usual_s = np.exp(np.linspace(np.log(600.0), np.log(40_000.0), users))[user]
    return make_ended(
        np.minimum(usual_s * np.exp(0.25 * chance.standard_normal(rows)), 86_400.0).tolist(),
        user=[f"user{number}" for number in user],
        account=[f"account{number % 3}" for number in user],
        submit_time=MONDAY + np.sort(chance.uniform(0.0, 60 * 86_400.0, rows)),
    )


def _texts(given: object, rows: int) -> tuple[str, ...]:
    return (given,) * rows if isinstance(given, str) else tuple(str(each) for each in given)  # type: ignore[attr-defined]
