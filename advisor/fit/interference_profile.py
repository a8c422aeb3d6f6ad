"""Computes profiles of jobs from their speeds alone, in units in which models can be compared."""

from dataclasses import replace

import numpy as np

from advisor.predict.interference_items import PROFILE, Floats, Items

TIME, SATURATION, TYPE_SPEED = (PROFILE.index(name) for name in ("step_time", "saturation", "type_speed"))


def with_saturation(items: Items, steps_per_s: Floats) -> Items:
    """Return jobs with the step time, saturation and type speed that follow from their speeds alone.

    The saturation is how much longer a step takes with a larger batch, as the slope of its logarithm over that of the
    batch: 0 where the GPU has room, 1 where it has none. The type speed is the speed on this GPU type over that on
    the others. Both are NaN where a model was measured at one batch size, or on one type.
    """
    profile = items.profile.copy()
    speed = np.where(steps_per_s > 0, steps_per_s, np.nan)
    group = np.array(items.group, dtype=object)
    kind = np.array([f"{model} {variant}" for model, variant in zip(items.model, items.variant, strict=True)], object)
    profile[:, TIME] = -np.log(speed)
    for gpu_type in dict.fromkeys(items.group):
        inside = group == gpu_type
        if np.isfinite(profile[inside, TIME]).any():
            profile[inside, TIME] -= np.nanmean(profile[inside, TIME])
        for name in dict.fromkeys(kind[inside].tolist()):
            rows = np.flatnonzero(inside & (kind == name))
            profile[rows, SATURATION] = _slopes(items.settings[rows, 0], speed[rows])
    profile[:, TYPE_SPEED] = _type_speeds(items, kind, speed)
    return replace(items, profile=profile)


def _slopes(doublings: Floats, speed: Floats) -> Floats:
    """Return the local slopes of log step time over log batch; NaN if there are fewer than two batch sizes."""
    slopes = np.full(len(speed), np.nan)
    usable = np.isfinite(doublings) & np.isfinite(speed)
    points = np.unique(doublings[usable])
    if len(points) < 2:
        return slopes
    times = [-np.mean(np.log2(speed[usable & (doublings == point)])) for point in points]
    slopes[usable] = np.interp(doublings[usable], points, np.clip(np.gradient(times, points), 0.0, 1.2))
    return slopes


def _type_speeds(items: Items, kind: "np.ndarray[tuple[int], np.dtype[np.object_]]", speed: Floats) -> Floats:
    """Return the log of each speed over that of the same job on other GPU types, less the median of the type."""
    logs = np.log(speed)
    speeds = np.full(len(speed), np.nan)
    twins: dict[tuple[str, float], list[int]] = {}
    for row, name in enumerate(kind.tolist()):
        twins.setdefault((name, float(np.nan_to_num(items.settings[row, 0], nan=-1.0))), []).append(row)
    for rows in twins.values():
        for row in rows:
            others = [
                logs[other] for other in rows if items.group[other] != items.group[row] and np.isfinite(logs[other])
            ]
            if others:
                speeds[row] = logs[row] - np.median(others)
    group = np.array(items.group, dtype=object)
    for gpu_type in dict.fromkeys(items.group):
        inside = (group == gpu_type) & np.isfinite(speeds)
        if inside.any():
            speeds[inside] -= np.median(speeds[inside])
    return speeds
