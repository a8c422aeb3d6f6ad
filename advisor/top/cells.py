"""Words the live view: its head, and the rows of the line, of advice, of changes in effect, nodes and clusters."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rich.style import Style
from rich.text import Text

from advisor.domain.forecast import Interval
from advisor.domain.gang import whole_gpus
from advisor.domain.idle_gpus import IdleLook
from advisor.domain.overview import GpuTypeOverview
from advisor.domain.units import duration, plural
from advisor.site.status_words import Overlook
from advisor.text import escaped
from advisor.top.row_list import RowColumn, cell_text, fitted
from advisor.view.documents import ChangeDocument, in_words, saves_in_words
from advisor.view.idle_words import idle_sentence
from advisor.view.rule_words import rule_in_short
from advisor.view.terminal import gpu_number, stopped_sentence
from advisor.watch.cluster_view import ChangeInEffect, ClusterView, NodeUse, WaitingJob
from advisor.watch.clusters import ClusterLook

GOOD: Final = Style(color="green")
# An orange that can be read on white and on black, unlike yellow.
CAUTION: Final = Style(color="color(166)")
BAD: Final = Style(color="red", bold=True)
_PLAIN: Final = Style()
_BAR: Final = 8


def length(seconds: float | None) -> str:
    """Return a length of time in few characters: `45s`, `12min`, `3.5h`, `2.1d`; "-" if there is none."""
    return "-" if seconds is None else duration(seconds).replace(" ", "")


def start_in_words(job: WaitingJob, now: float) -> str:
    """Return in how long a job is forecast to start, or when Slurm expects it to; "-" if neither is known."""
    if job.start is not None:
        return _ahead(job.start.median - now)
    if job.slurms_start_time is not None:
        return f"{_ahead(job.slurms_start_time - now)} Slurm"
    return "-"


def start_range(start: Interval | None, now: float) -> str:
    """Return the interval in which a job is forecast to start."""
    return "-" if start is None else f"{_ahead(start.low - now)}-{_ahead(start.high - now)}"


def gpus_in_words(job: WaitingJob) -> str:
    """Return the GPUs that a job asks for, with their type and the number of tasks: `8 h100`, `4 a100 x8`."""
    count = "?" if job.gpus is None else str(job.gpus)
    tasks = f" x{job.tasks}" if job.tasks > 1 else ""
    return f"{count} {job.gpu_type}".rstrip() + tasks


def notes_of(job: WaitingJob) -> str:
    """Return what sadvise recommends for a job or has set; "" if neither."""
    out = [f"{lever} set" for lever in job.in_effect]
    return ", ".join((*out, *job.advice))


def change_in_words(row: ChangeDocument | ChangeInEffect) -> str:
    """Return the field of a change before and after."""
    return f"{in_words(row.lever, row.before)} -> {in_words(row.lever, row.after)}"


def queue_columns(now: Callable[[], float]) -> tuple[RowColumn, ...]:
    """Return the columns of the line; `now` is when the cluster was read."""
    return (
        RowColumn(title="#", width=5, is_right=True, cell=lambda job: str(job.place)),
        RowColumn(title="job", width=8, is_right=True, cell=lambda job: str(job.job_id)),
        RowColumn(title="name", width=8, takes_rest=True, cell=lambda job: job.name),
        RowColumn(title="user", width=8, cell=lambda job: job.user),
        RowColumn(title="account", width=10, rank=5, cell=lambda job: job.account),
        RowColumn(title="partition", width=10, rank=2, cell=lambda job: job.partition),
        RowColumn(title="GPUs", width=9, cell=gpus_in_words),
        RowColumn(title="waits", width=6, is_right=True, cell=lambda job: length(job.wait_s)),
        RowColumn(title="limit", width=6, rank=4, is_right=True, cell=lambda job: length(job.limit_s)),
        RowColumn(title="starts in", width=11, is_right=True, cell=lambda job: start_in_words(job, now())),
        RowColumn(title="80 % range", width=14, rank=6, cell=lambda job: start_range(job.start, now())),
        RowColumn(title="reason", width=14, rank=3, cell=lambda job: job.reason or "-"),
        RowColumn(title="advice", width=11, cell=notes_of, style=lambda job: CAUTION if job.advice else _PLAIN),
        RowColumn(title="left alone", width=16, rank=7, cell=lambda job: rule_in_short(job.left_alone_by)),
    )


ADVICE_COLUMNS: Final = (
    RowColumn(title="kind", width=11, cell=lambda row: row.kind),
    RowColumn(title="job", width=8, is_right=True, cell=lambda row: ",".join(map(str, row.job_ids))),
    RowColumn(title="user", width=8, rank=1, cell=lambda row: row.user),
    RowColumn(title="change", width=20, takes_rest=True, cell=change_in_words),
    RowColumn(title="saves", width=22, cell=lambda row: saves_in_words(row.expected)),
    RowColumn(title="name", width=16, rank=2, cell=lambda row: row.name),
    RowColumn(title="partition", width=10, rank=3, cell=lambda row: row.partition),
    RowColumn(title="reason", width=20, rank=4, cell=lambda row: row.reason),
)


def in_effect_columns(now: Callable[[], float]) -> tuple[RowColumn, ...]:
    """Return the columns of the changes in effect."""
    return (
        RowColumn(title="lever", width=11, cell=lambda row: row.lever),
        RowColumn(title="job", width=8, is_right=True, cell=lambda row: str(row.job_id)),
        RowColumn(title="user", width=8, rank=1, cell=lambda row: row.user),
        RowColumn(title="change", width=24, takes_rest=True, cell=change_in_words),
        RowColumn(title="since", width=6, is_right=True, cell=lambda row: length(now() - row.applied_time)),
        RowColumn(
            title="back in",
            width=7,
            is_right=True,
            cell=lambda row: "-" if row.due_time is None else _ahead(row.due_time - now()),
            style=lambda row: BAD if row.due_time is not None and row.due_time < now() else _PLAIN,
        ),
        RowColumn(title="account", width=10, rank=3, cell=lambda row: row.account),
        RowColumn(title="reason", width=20, rank=2, cell=lambda row: row.reason or ""),
    )


def row_text(row: object) -> str:
    """Return what the filter looks at of a row of any pane, in one case."""
    match row:
        case WaitingJob():
            words = (row.job_id, row.name, row.user, row.account, row.partition, row.gpu_type, row.reason, *row.advice)
        case NodeUse():
            words = (row.name, row.leaf, row.gpu_type, row.state)
        case ChangeDocument():
            words = (row.job_id, row.kind, row.lever, row.name, row.user, row.account)
        case ChangeInEffect():
            words = (row.job_id, row.lever, row.user, row.account)
        case _:
            raise TypeError(f"no pane has rows of {type(row).__name__}")
    return " ".join(map(str, words)).casefold()


def _used(use: NodeUse) -> str:
    if use.in_use is None or not use.gpus:
        return "?"
    filled = round(_BAR * use.in_use / use.gpus)
    return "#" * filled + "." * (_BAR - filled)


NODE_COLUMNS: Final = (
    RowColumn(title="node", width=12, cell=lambda use: use.name),
    RowColumn(title="leaf", width=12, rank=1, cell=lambda use: use.leaf),
    RowColumn(title="type", width=8, cell=lambda use: use.gpu_type),
    RowColumn(title="in use", width=_BAR, cell=_used),
    RowColumn(
        title="of", width=7, is_right=True, cell=lambda use: f"{'?' if use.in_use is None else use.in_use}/{use.gpus}"
    ),
    RowColumn(
        title="state",
        width=18,
        takes_rest=True,
        cell=lambda use: use.state,
        style=lambda use: _PLAIN if use.is_usable else CAUTION,
    ),
)


def _of_view(cell: Callable[[ClusterView], str]) -> Callable[[ClusterLook], str]:
    return lambda look: "-" if look.view is None else cell(look.view)


def _gpus(view: ClusterView) -> str:
    types = view.overview.gpu_types
    total = whole_gpus((gpus.gpu_type, gpus.total) for gpus in types)
    used = whole_gpus((gpus.gpu_type, gpus.in_use or 0) for gpus in types)
    return f"{'?' if any(gpus.in_use is None for gpus in types) else used}/{total}"


CLUSTER_COLUMNS: Final = (
    RowColumn(title="cluster", width=12, cell=lambda look: look.name),
    RowColumn(title="GPUs in use", width=11, is_right=True, cell=_of_view(_gpus)),
    RowColumn(title="waiting", width=7, is_right=True, cell=_of_view(lambda view: str(view.overview.pending_gpu_jobs))),
    RowColumn(title="advice", width=6, is_right=True, cell=_of_view(lambda view: str(len(view.advice)))),
    RowColumn(title="out", width=5, is_right=True, cell=_of_view(lambda view: str(len(view.in_effect)))),
    RowColumn(
        title="state",
        width=10,
        takes_rest=True,
        cell=lambda look: health(look)[1],
        style=lambda look: health(look)[0],
    ),
)


def health(look: ClusterLook) -> tuple[Style, str]:
    """Return in one line how a cluster and its daemon are doing, with the style that means it."""
    if look.fault:
        return BAD, f"not read: {look.fault}"
    if look.view is None:
        return CAUTION, "being read"
    style, text = _daemon_health(look.view.daemon)
    stopped = look.view.overview.stopped
    return (BAD, f"partition {stopped[0].name} is not up; {text}") if stopped else (style, text)


def _daemon_health(daemon: Overlook | None) -> tuple[Style, str]:
    if daemon is None:
        return _PLAIN, "no daemon: not a live cluster"
    if daemon.stops:
        return CAUTION, daemon.stops[0]
    if not daemon.is_well:
        fault = "" if daemon.last is None else daemon.last.fault
        return CAUTION, f"daemon {daemon.state}{f': {fault}' if fault else ''}"
    return GOOD, f"well: daemon {daemon.state}, mode {daemon.mode}"


def _ahead(seconds: float) -> str:
    return "now" if seconds < 1.0 else length(seconds)


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
    elif (idle := _idle_gpus(view.daemon)) is not None:
        yield idle_sentence(idle, now), CAUTION
    elif view.notes:
        yield view.notes[0], CAUTION
    if view.daemon is not None and view.daemon.last is not None and view.daemon.last.settings:
        yield view.daemon.last.settings, _PLAIN


def _idle_gpus(daemon: Overlook | None) -> IdleLook | None:
    """Return the last look of a daemon if running jobs held idle GPUs."""
    idle = None if daemon is None or daemon.last is None else daemon.last.idle
    return idle if idle is not None and idle.jobs else None


def _gpu_columns(view: ClusterView) -> tuple[RowColumn, ...]:
    return (
        RowColumn(title="GPUs", width=8, takes_rest=True, cell=lambda gpus: gpus.gpu_type),
        _number("total", 5),
        _number("in use", 6),
        _number("idle", 5),
        _number("no CPUs", 7, rank=2),
        _number("no memory", 9, rank=3),
        _number("fragments", 9),
        _number("down", 4),
        RowColumn(title="largest", width=11, is_right=True, cell=_largest),
        _number("asked for", 5, title="wait"),
        RowColumn(title="next", width=7, is_right=True, cell=lambda gpus: _next_start(view, gpus)),
    )


def _number(name: str, width: int, *, rank: int = 0, title: str = "") -> RowColumn:
    return RowColumn(
        title=title or name, width=width, is_right=True, rank=rank, cell=lambda gpus: gpu_number(gpus, name)
    )


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
