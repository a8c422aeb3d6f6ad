"""Fits the run-time model: forests that predict whole distributions, asked while a job waits."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import ModelError
from advisor.fit.fitted import Fitted, Regressor, Source, predictions
from advisor.fit.run_time_choice import OURS, RIVAL, Draw, figures
from advisor.predict.history import History, bursts_of, keys_of, runs_of
from advisor.predict.order_share import WaitedJobs
from advisor.predict.run_time import KIND, RunTimeParameters, Support, outputs_of
from advisor.predict.run_time_curve import Grid
from advisor.predict.run_time_features import COLUMNS, EndedJobs, Features, RunTimeTable, features
from advisor.predict.run_time_replay import asked_at, chunks, recall_in_order, steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Floats = NDArray[np.float64]

FEWEST_ROWS, MOST_ROWS = 200, 200_000
# Thresholds of the log of run time over the anchor, dense near 0, and of run time over the time limit.
OVER_ANCHOR = (
    *(-9.0, -7.0, -6.0, -5.0, -4.0, -3.3, -2.7, -2.2, -1.8, -1.4, -1.1, -0.8, -0.6, -0.45, -0.3, -0.2, -0.12, -0.06),
    *(-0.02, 0.02, 0.06, 0.12, 0.2, 0.3, 0.45, 0.6, 0.8, 1.1, 1.4, 1.8, 2.2, 2.7, 3.3, 4.0, 5.0, 6.0, 7.0),
)
OVER_LIMIT = (
    *(-12.0, -10.0, -9.0, -8.0, -7.0, -6.0, -5.0, -4.2, -3.5, -3.0, -2.5, -2.1, -1.8, -1.5, -1.25, -1.0, -0.8, -0.6),
    *(-0.45, -0.3, -0.2, -0.1, -0.05, -0.02),
)
_LEAF_STEPS = 1024
# The parts of its wait after which each job is fitted on: a pending job is forecast in every cycle until it starts.
MOMENTS = (0.0, 0.5, 1.0)
# A run of this share of its limit or more was ended by the limit: it would have lasted longer.
TIMED_OUT_RATIO = 0.98
GRID = Grid(over_anchor=np.array(OVER_ANCHOR), over_limit=np.array(OVER_LIMIT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the forests and of the levels.

    Hundreds of jobs of one array end alike. Each job weighs the size of its burst (same user, request and day) to
    the power of minus `burst_power`, and a leaf holds at least `leaf_ratio` of all weight, so that no single burst
    fills it. The latest `held_out_ratio` of the jobs judge a fit without them. In service a burst moves the levels by
    `rate` times its size to the power of `step_power`. `trees` is a power of two.
    """

    trees: int = 32
    leaf_ratio: float = 0.005
    column_ratio: float = 0.6
    burst_power: float = 0.25
    step_power: float = 0.5
    held_out_ratio: float = 0.3
    rate: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Jobs at each of `MOMENTS`, one moment after the other; `cap` is the logarithm of the time limit.

    `due` marks the jobs whose limits would have ended them by the last end. Of jobs submitted later only the shorter
    ones have ended, and learning from those would make forecasts too short.
    """

    seen: Features
    log_run: Floats
    cap: Floats
    weight: Floats
    waited: WaitedJobs
    end_time: Floats
    due: NDArray[np.bool_]


def fit_run_time(
    ended: EndedJobs,
    *,
    seed: int,
    keep_history: bool,
    settings: Settings | None = None,
    sources: "Sequence[Source]" = (),
    rival: Draw | None = None,
) -> Fitted:
    """Fit on ended jobs; with `keep_history` the model includes the history of their users.

    `sources` names the files of the jobs, for the card. The figures on held-out jobs are also those of a `rival`, a
    model that draws curves from the same rows. Raises `ModelError` if fewer than `FEWEST_ROWS` jobs are
    usable.
    """
    chosen = settings or Settings()
    usable, dropped = ended.usable()
    good = np.flatnonzero(usable)
    if len(good) < FEWEST_ROWS:
        raise ModelError(_too_few(len(good), len(ended), dropped))
    latest = good[np.argsort(ended.end_time[good], kind="stable")][-MOST_ROWS:]
    if len(good) > len(latest):
        dropped["older than the latest " + str(MOST_ROWS)] = len(good) - len(latest)
    kept = ended.take(np.sort(latest))
    history, rows = _seen_in_order(kept, chosen)
    forests = _forests(rows, _learnt(rows), chosen, seed)
    parameters = RunTimeParameters(
        over_anchor=OVER_ANCHOR,
        over_limit=OVER_LIMIT,
        rate=chosen.rate,
        step_power=chosen.step_power,
        support=support_of(kept.jobs),
        history=history.to_json() if keep_history else None,
    )
    return Fitted(
        kind=KIND,
        columns=COLUMNS,
        outputs=outputs_of(OVER_ANCHOR, OVER_LIMIT),
        regressors=forests,
        parameters=parameters.model_dump_json(),
        probe=rows.seen.rows[-2000:],
        sources=tuple(sources),
        metrics=_held_out(rows, chosen, seed, rival)
        | {"rows": float(len(kept)), "rows_left_out": float(sum(dropped.values()))},
        seed=seed,
        text=_text(len(kept), dropped, keep_history=keep_history),
        settings={name: str(getattr(chosen, name)) for name in Settings.__slots__},
    )


def _seen_in_order(kept: EndedJobs, settings: Settings) -> tuple[History, _Rows]:
    """Return the history after the last end, and the rows as they would have been at each moment."""
    keys, runs = keys_of(kept.jobs), runs_of(kept)
    burst = bursts_of(keys, kept.jobs.submit_time)
    seen, order = [], []
    for moment in MOMENTS:
        history, asked = History(), asked_at(kept, moment)
        for chunk in chunks(steps(asked, np.ones(len(kept), dtype=np.bool_))):
            recalled = recall_in_order(history, chunk, keys, runs)
            rows = np.concatenate([step.rows for step in chunk])
            seen.append(features(asked.jobs.take(rows), recalled, runs[rows, 1]))
            order.append(rows)
    rows = np.concatenate(order)
    return history, _Rows(
        seen=Features.join(seen),
        log_run=np.log(runs[rows, 0]),
        cap=np.log(runs[rows, 1]),
        weight=np.bincount(burst)[burst].astype(np.float64)[rows] ** -settings.burst_power / len(MOMENTS),
        waited=_waited(kept, burst).take(rows),
        end_time=kept.end_time[rows],
        due=(kept.end_time - runs[:, 0] + runs[:, 1] <= np.max(kept.end_time))[rows],
    )


def _waited(jobs: EndedJobs, burst: NDArray[np.int64]) -> WaitedJobs:
    """Return when jobs waited; one whose GPUs are not known counts with one."""
    gpus = jobs.jobs.gpus
    return WaitedJobs(
        submit_time=jobs.jobs.submit_time,
        start_time=jobs.end_time - jobs.run_s,
        gpus=np.where(gpus > 0, gpus, 1.0),
        burst=burst,
        user=np.unique(jobs.jobs.user, return_inverse=True)[1],
    )


def _learnt(rows: _Rows) -> NDArray[np.bool_]:
    """Return the rows to learn from: those of jobs that are due, or all if those are too few."""
    return rows.due if np.count_nonzero(rows.due) >= FEWEST_ROWS else np.ones(len(rows.cap), dtype=np.bool_)


def _forests(rows: _Rows, chosen: NDArray[np.bool_], settings: Settings, seed: int) -> tuple[Regressor, Regressor]:
    """Fit two forests that predict the share of run times below each threshold: over the anchor, and over the limit.

    These are quantile regression forests (Meinshausen 2006) with a fixed grid of thresholds.
    """
    return (
        _rounded(_past_limits(_forest(rows, rows.seen.anchor, GRID.over_anchor, chosen, settings, seed), rows, chosen)),
        _rounded(_forest(rows, rows.cap, GRID.over_limit, chosen, settings, seed + 1)),
    )


def _forest(
    rows: _Rows, origin: Floats, thresholds: Floats, chosen: NDArray[np.bool_], settings: Settings, seed: int
) -> Regressor:
    from sklearn.ensemble import ExtraTreesRegressor

    below = (rows.log_run[chosen] - origin[chosen])[:, None] <= thresholds
    forest = ExtraTreesRegressor(
        n_estimators=settings.trees,
        min_weight_fraction_leaf=settings.leaf_ratio,
        max_features=settings.column_ratio,
        random_state=seed,
    )
    return forest.fit(rows.seen.rows[chosen], below.astype(np.float32), sample_weight=rows.weight[chosen])


def _past_limits(forest: Regressor, rows: _Rows, chosen: NDArray[np.bool_]) -> Regressor:
    """Put the estimate of Kaplan and Meier (1958) into the leaves of the forest over the anchor.

    A run that its limit ended says that the job needs more; one of those next to a job with a longer limit must not
    count as an end. Over the limit itself no threshold lies past it.
    """
    log_run, weight, size = rows.log_run[chosen], rows.weight[chosen], len(GRID.over_anchor) + 1
    place = np.searchsorted(GRID.over_anchor, log_run - rows.seen.anchor[chosen])
    timed_out = log_run >= rows.cap[chosen] + np.log(TIMED_OUT_RATIO)
    for tree in forest.estimators_:
        cell, cells = tree.apply(rows.seen.rows[chosen]) * size + place, tree.tree_.node_count * size
        ended, left = (np.bincount(cell, weight * of, cells).reshape(-1, size) for of in (~timed_out, timed_out))
        # `(n_nodes, size)`: those not yet ended or timed out before each threshold.
        at_risk = (ended + left)[:, ::-1].cumsum(axis=1)[:, ::-1]
        gone = np.divide(ended, at_risk, out=np.zeros_like(ended), where=at_risk > 0)
        leaves = np.unique(cell // size)
        tree.tree_.value[leaves, :, 0] = 1.0 - np.cumprod(1.0 - gone[leaves, :-1], axis=1)
    return forest


def _rounded(forest: Regressor) -> Regressor:
    """Round a forest so that its graph, which computes in float32, answers the same."""
    for tree in forest.estimators_:
        # Thresholds are rounded down to float32, which moves no float32 row to another side; leaves are rounded so that
        # the mean over a power of two of trees is exact in either precision.
        tree.tree_.threshold[:] = _cut_to_float32(tree.tree_.threshold)
        tree.tree_.value[:] = np.round(tree.tree_.value * _LEAF_STEPS) / _LEAF_STEPS
    return forest


def _cut_to_float32(values: Floats) -> Floats:
    """Return the largest float32 numbers not above `values`."""
    nearest = values.astype(np.float32)
    cut = np.where(nearest > values, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    return cut.astype(np.float64)


def _held_out(rows: _Rows, settings: Settings, seed: int, rival: Draw | None) -> dict[str, float]:
    """Return the metrics on the latest jobs, as they were at submission, of forests fitted without them."""
    learnt, at_submission = _learnt(rows), np.arange(len(rows.cap)) < len(rows.cap) // len(MOMENTS)
    split_time = np.quantile(rows.waited.submit_time[learnt], 1.0 - settings.held_out_ratio)
    before = learnt & (rows.end_time < split_time)
    after = learnt & at_submission & (rows.waited.submit_time >= split_time)
    if np.count_nonzero(before) < len(MOMENTS) * FEWEST_ROWS // 4 or np.count_nonzero(after) < FEWEST_ROWS // 4:
        return {}
    forests = _forests(rows, before, settings, seed)
    seen, cap, run_s = rows.seen.take(after), rows.cap[after], np.exp(rows.log_run[after])
    shares = predictions(forests, seen.rows).astype(np.float32)
    drawn = {OURS: GRID.curves(shares, seen.anchor, cap, seen.group)} | (
        {} if rival is None else {RIVAL: rival(seen, cap)}
    )
    return figures(drawn, seen.group, run_s, rows.waited.take(after), np.exp(cap))


def support_of(jobs: RunTimeTable) -> Support:
    """Return the smallest and the largest request in each column; (-1, -1) for an empty column."""

    def bounds(column: Floats) -> tuple[float, float]:
        known = column[np.isfinite(column) & (column >= 0)]
        return (float(known.min()), float(known.max())) if len(known) else (-1.0, -1.0)

    return Support(
        gpus=bounds(jobs.gpus),
        cpus=bounds(jobs.cpus),
        nodes=bounds(jobs.nodes),
        memory_mib=bounds(jobs.memory_mib),
        limit_s=(float(jobs.limit_s.min()), max(float(jobs.limit_s.max()), 1.0)),
    )


def _in_words(dropped: "Mapping[str, int]") -> str:
    return "; ".join(f"{count} {reason}" for reason, count in dropped.items()) or "none"


def _text(rows: int, dropped: "Mapping[str, int]", *, keep_history: bool) -> str:
    history = (
        "The history of the users of that site goes with it."
        if keep_history
        else "No history goes with it: every user is new at first, and known from the first job that ends."
    )
    return (
        f"Run times of jobs from their requests and from how the last jobs of their users went, fitted on {rows} "
        f"ended jobs. Left out: {_in_words(dropped)}. {history} It learns from every job that ends; forecasts for "
        "users without history are wide, and for requests outside of what was fitted on not to be relied on."
    )


def _too_few(usable: int, rows: int, dropped: "Mapping[str, int]") -> str:
    return (
        f"run times: {usable} of {rows} jobs can be learnt from, at least {FEWEST_ROWS} are needed "
        f"(left out: {_in_words(dropped)}): give a longer period of accounting"
    )
