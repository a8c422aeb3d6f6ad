"""Words the head of the live view: what was read and when, whether all is well, and the GPUs by type."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rich.style import Style
from rich.text import Text

from advisor.domain.overview import GpuTypeOverview
from advisor.domain.units import plural
from advisor.text import escaped
from advisor.top.cells import BAD, CAUTION, health, length
from advisor.top.row_list import RowColumn, cell_text, fitted
from advisor.view.terminal import stopped_sentence
from advisor.watch.cluster_view import ClusterView
from advisor.watch.clusters import ClusterLook

_BOLD: Final = Style(bold=True)
_MOST_TYPES: Final = 4
_MOST_NOTES: Final = 2


def head(look: ClusterLook, now: float, *, width: int, is_reading: bool) -> Text:
    """Return the lines on the state of a cluster; each is cut at the width of the terminal."""
    lines = [Text(escaped(_title(look, now)) + ("   reading ..." if is_reading else ""), style=_BOLD)]
    style, text = health(look)
    lines.append(Text(escaped(text), style=style))
    lines += [Text(escaped(line), style=style) for line, style in _details(look, now)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def gpu_lines(view: ClusterView | None, width: int) -> Text:
    """Return the GPUs by type: in use, idle and why, the largest gang that fits, and what waits for them."""
    if view is None or not view.overview.gpu_types:
        return Text("" if view is None else "no node has GPUs")
    types = view.overview.gpu_types
    columns = fitted(_gpu_columns(view), width)
    rows = [Text(_joined((column.title, own, column) for column, own in columns), style=_BOLD)]
    rows += [Text(_joined((column.cell(gpus), own, column) for column, own in columns)) for gpus in types[:_MOST_TYPES]]
    if len(types) > _MOST_TYPES:
        rows.append(Text(f"and {plural(len(types) - _MOST_TYPES, 'more type')}: sadvise recommend"))
    return Text("\n").join(rows)


def _title(look: ClusterLook, now: float) -> str:
    view = look.view
    if view is None:
        return look.name or "sadvise top"
    release = f", Slurm {view.slurm_version}" if view.slurm_version else ""
    jobs = view.overview.jobs
    return (
        f"{view.cluster or look.name or 'cluster'}{release}, read {length(max(0.0, now - view.taken_at))} ago; "
        f"{jobs.running} running, {plural(view.overview.pending_gpu_jobs, 'GPU job')} waiting"
    )


def _details(look: ClusterLook, now: float) -> Iterator[tuple[str, Style]]:
    """Yield what else an operator needs to know, the most urgent first."""
    view = look.view
    if view is None:
        return
    if look.fault:
        yield f"this is the state of {length(now - view.taken_at)} ago", BAD
    for partition in view.overview.stopped[:_MOST_NOTES]:
        yield stopped_sentence(partition), BAD
    if view.daemon is not None and view.daemon.last is not None and view.daemon.last.overdue:
        yield f"{plural(view.daemon.last.overdue, 'change')} overdue: `sadvise revert --all`", BAD
    elif view.notes:
        yield view.notes[0], CAUTION


def _gpu_columns(view: ClusterView) -> tuple[RowColumn, ...]:
    return (
        RowColumn(title="GPUs", width=8, takes_rest=True, cell=lambda gpus: gpus.gpu_type),
        _number("total", 5, lambda gpus: gpus.total),
        _number("in use", 6, lambda gpus: gpus.in_use),
        _number("idle", 5, lambda gpus: None if gpus.idle is None else gpus.idle.total),
        _number("no CPUs", 7, lambda gpus: None if gpus.idle is None else gpus.idle.by_cpus, rank=2),
        _number("no memory", 9, lambda gpus: None if gpus.idle is None else gpus.idle.by_memory, rank=3),
        _number("fragments", 9, lambda gpus: None if gpus.idle is None else gpus.idle.by_fragmentation),
        _number("down", 4, lambda gpus: gpus.unavailable),
        RowColumn(title="largest", width=11, is_right=True, cell=_largest),
        _number("wait", 5, lambda gpus: gpus.pending_gpus),
        RowColumn(title="next", width=7, is_right=True, cell=lambda gpus: _next_start(view, gpus)),
    )


def _number(title: str, width: int, value: Callable[[GpuTypeOverview], int | None], *, rank: int = 0) -> RowColumn:
    def cell(gpus: GpuTypeOverview) -> str:
        number = value(gpus)
        return "?" if number is None else str(number)

    return RowColumn(title=title, width=width, is_right=True, rank=rank, cell=cell)


def _largest(gpus: GpuTypeOverview) -> str:
    """Return the largest gang on one node, under one leaf and anywhere."""
    largest = gpus.largest
    if largest is None:
        return "?"
    parts = (largest.on_node, largest.under_leaf, largest.anywhere)
    return "/".join("-" if part is None else str(part) for part in parts)


def _next_start(view: ClusterView, gpus: GpuTypeOverview) -> str:
    """Return in how long the first waiting job for these GPUs is forecast to start, or Slurm expects it to."""
    starts = [
        job.start.median if job.start is not None else job.slurms_start_time
        for job in view.line
        if gpus.gpu_type in job.gpu_type.split(",")
    ]
    known = [start for start in starts if start is not None]
    return length(max(0.0, min(known) - view.taken_at)) if known else "-"


def _joined(cells: Iterable[tuple[str, int, RowColumn]]) -> str:
    return "  ".join(cell_text(text, width, is_right=column.is_right) for text, width, column in cells)
