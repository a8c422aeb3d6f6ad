"""How far off forecasts of run times are, on jobs that were submitted after the fit."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tools.evaluation.many_files import ManyFiles
from tools.evaluation.report import Report, Score, print_report, score
from tools.evaluation.served import Format, bundled, parsed_date
from tools.fidelity.compare import spearman

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from advisor.predict.run_time import RunTimeQuantiles
    from tools.evaluation.run_time_trial import Trial

    Floats = NDArray[np.float64]

_HOUR_S = 3600.0


def add_to(app: typer.Typer) -> None:
    """Register the command `runtime`."""
    app.command("runtime", cls=ManyFiles)(runtime)


def runtime(
    train: Annotated[list[Path], typer.Option("--train", help="Tables to fit on, .csv or .csv.gz.")],
    test: Annotated[list[Path], typer.Option("--test", help="Tables to be judged on; may be the same files.")],
    form: Annotated[Format, typer.Option("--format", help="What the tables are.")] = Format.DRAC,
    split: Annotated[
        str | None, typer.Option(help="Fit on jobs that ended before this date, judge those submitted from it on.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the fit.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge forecasts of run times, made at each submission from the jobs that had ended by then."""
    from tools.evaluation.drac import read_tables
    from tools.evaluation.run_time_trial import trial

    del form  # there is one so far
    at = None if split is None else parsed_date(split)
    fitted_on = read_tables(train)
    judged_on = fitted_on if sorted(train) == sorted(test) else read_tables(test)
    print_report(judge(trial(fitted_on, judged_on, split_time=at), seed=seed), as_json=json)


def judge(of: "Trial", *, seed: int) -> Report:
    """Fit once, then forecast each judged job at its submission while the history grows; baselines likewise."""
    import numpy as np

    from advisor.fit.run_time_fit import fit_run_time
    from advisor.predict.history import runs_of
    from advisor.predict.run_time import RunTimeForecaster
    from advisor.predict.run_time_replay import replay
    from tools.evaluation.run_time_baselines import baselines, quantiles_of

    began = time.perf_counter()
    fitted = fit_run_time(of.jobs.take(np.flatnonzero(of.fitted_on)), seed=seed, keep_history=False)
    fit_s = time.perf_counter() - began
    forecaster = RunTimeForecaster.from_bundle(bundled(fitted))
    began = time.perf_counter()
    found = replay(forecaster, of.jobs, of.judged)
    predict_s = time.perf_counter() - began
    run_s, limit_s, _ = runs_of(of.jobs).T
    true_s = run_s[of.judged]
    scores = [_scored("sadvise", true_s, found.quantiles_s[:, 2], found.quantiles_s, known=found.known)]
    for name, said_s in baselines(of.jobs, of.fitted_on, of.fitted_on | of.judged).items():
        quantiles_s = quantiles_of(said_s, run_s, limit_s, of.fitted_on)[of.judged]
        scores.append(_scored(name, true_s, said_s[of.judged], quantiles_s))
        scores.append(_scored(f"{name}, its median", true_s, quantiles_s[:, 2], quantiles_s))
    return Report(
        what="run time, hours, none taken for more than its time limit",
        train_rows=int(np.count_nonzero(of.fitted_on)),
        test_rows=len(true_s),
        fit_s=fit_s,
        predict_s=predict_s,
        scores=tuple(scores),
        notes=(*of.notes, *_notes(of, found, true_s)),
    )


def _scored(
    name: str,
    true_s: "Floats",
    said_s: "Floats",
    quantiles_s: "Floats",
    *,
    known: "NDArray[np.bool_] | None" = None,
) -> Score:
    import numpy as np

    inside = (true_s >= quantiles_s[:, 0]) & (true_s <= quantiles_s[:, -1])
    further = {
        "pinball, h": pinball(true_s, quantiles_s) / _HOUR_S,
        "pinball, log10": pinball(np.log10(true_s), np.log10(quantiles_s)),
        "rank correlation": rank_correlation(said_s, true_s),
    }
    return score(name, "h", np.abs(said_s - true_s) / _HOUR_S, inside=inside, known=known, further=further)


def pinball(true: "Floats", quantiles: "Floats") -> float:
    """Return the pinball loss of quantiles `(n_rows, 5)` of true values `(n_rows,)`, the mean over rows and levels."""
    import numpy as np

    from advisor.predict.run_time_features import LEVELS

    level = np.array(LEVELS)
    short = true[:, None] - quantiles
    return float(np.mean(np.maximum(level * short, (level - 1) * short)))


def rank_correlation(first: "Floats", second: "Floats") -> float:
    """Return Spearman's correlation; 0 where one of them never varies."""
    import numpy as np

    return float(np.nan_to_num(spearman(first, second)))


def _notes(of: "Trial", found: "RunTimeQuantiles", true_s: "Floats") -> Iterator[str]:
    import numpy as np

    from advisor.predict.history import REQUEST, keys_of
    from advisor.predict.run_time_features import GROUPS

    judged = of.jobs.take(np.flatnonzero(of.judged))
    users = len(set(judged.jobs.user))
    days = (judged.jobs.submit_time // 86400).tolist()
    bursts = len({(day, of_job[REQUEST]) for day, of_job in zip(days, keys_of(judged.jobs), strict=True)})
    over = int(np.count_nonzero(judged.run_s > judged.jobs.limit_s))
    yield (
        f"The {len(true_s)} jobs judged are of {users} users and {bursts} bursts (same user, request and day); jobs of "
        "one burst are hardly independent, so a share among them is far less sure than the number of rows suggests."
    )
    yield (
        "Nothing is fitted again during the test: the history and the levels of the intervals grow with every job that "
        f"ended before a submission. {over} jobs outlived their limit by Slurm's grace; they count as the limit."
    )
    yield (
        "Each baseline appears twice: what it says, and that times the median ratio of the true run time to it in the "
        "training. Its quantiles are those of this ratio times what it says, capped at the limit."
    )
    inside = (true_s >= found.quantiles_s[:, 0]) & (true_s <= found.quantiles_s[:, -1])
    for number, name in enumerate(GROUPS):
        rows = found.group == number
        if rows.any():
            yield f"Covered where {name}: {np.mean(inside[rows]) * 100:.1f} % of {np.count_nonzero(rows)}."
