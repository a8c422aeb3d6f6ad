"""The learning curve of a run: a row of a CSV file for each validation, and a picture."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Point(NamedTuple):
    """One validation; `best` is the least figure so far."""

    phase: str
    updates: int
    episodes: int
    loss: float
    figure: float
    best: float
    cpu_s: float


def write_curve(folder: Path, points: Sequence[Point]) -> None:
    """Write `curve.csv`, in place of the one there."""
    with (folder / "curve.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(Point._fields)
        rows.writerows([value if isinstance(value, str) else f"{value:.6g}" for value in point] for point in points)


def read_curve(path: Path) -> list[Point]:
    """Return the points of a curve."""
    with path.open(newline="", encoding="utf-8") as stream:
        return [
            Point(
                row["phase"],
                int(row["updates"]),
                int(row["episodes"]),
                *(float(row[name]) for name in Point._fields[3:]),
            )
            for row in csv.DictReader(stream)
        ]


def draw_curves(
    path: Path, curves: Sequence[Sequence[Point]], *, label: str, lines: Sequence[tuple[str, float]]
) -> None:
    """Draw the figures of some runs one over the other, with horizontal lines to compare them with, as SVG."""
    import matplotlib as mpl

    mpl.use("Agg")
    # The same curves give the same bytes.
    mpl.rcParams["svg.hashsalt"] = "curves"
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for number, points in enumerate(curves, start=1):
        axes.plot(range(len(points)), [point.figure for point in points], linewidth=1.0, label=f"run {number}")
    ends = [sum(point.phase == "warm-up" for point in points) for points in curves]
    if ends and min(ends) > 0:
        axes.axvline(ends[0] - 0.5, color="0.7", linewidth=0.8)
        axes.annotate("warm-up ends", (ends[0] - 0.5, axes.get_ylim()[1]), fontsize=7, va="top")
    for name, value in lines:
        axes.axhline(value, color="0.3", linestyle="--", linewidth=0.8)
        axes.annotate(name, (0.6, value), xycoords=axes.get_yaxis_transform(), fontsize=7, va="bottom")
    axes.set_xlabel("validation")
    axes.set_ylabel(label)
    axes.legend(fontsize=7)
    figure.savefig(path, format="svg", metadata={"Date": None})
