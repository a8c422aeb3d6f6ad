"""Tables and paragraphs for people; every text from Slurm goes through `escaped` first."""

import dataclasses
import math
import shlex
import sys
import textwrap
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from advisor import __version__
from advisor.domain.overview import GpuTypeOverview, Overview, StoppedPartition
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import duration, plural
from advisor.errors import OptionsError
from advisor.text import escaped
from advisor.view.table_layout import GAP, LEAST_NAME, PLAIN, TableColumn, TableForm, laid_out

# Wide enough that nothing is cut or wrapped where no person looks at it.
PIPE_WIDTH: Final = 100_000
# Colours of labels and of cells: what needs a person is red, what could be better is yellow.
_ALARMS: Final = {"stopped": "bold red", "overdue": "bold red", "broken": "bold red", "refused": "yellow"}

# The width of labels in the first column.
LABEL: Final = 13


def is_terminal() -> bool:
    """Return whether a person looks at standard output."""
    return sys.stdout.isatty()


def console() -> Console:
    """Return a console on standard output, as wide as the terminal or unlimited in a pipe."""
    return Console(width=None if is_terminal() else PIPE_WIDTH, markup=False, highlight=False, emoji=False)


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    form: TableForm = PLAIN,
    noheader: bool = False,
) -> None:
    """Print a table for people: as wide as the terminal, and whole in a pipe; `right` are the columns of numbers."""
    if not is_terminal():
        print_rows(header, rows, right=right, noheader=noheader)
        return
    columns = [
        TableColumn(
            name=name,
            cells=tuple(escaped(row[index]) for row in rows),
            is_right=index in right,
            is_whole=index in right or name in form.whole,
            is_folded=name in form.folded,
            narrowest=form.narrowest.get(name, LEAST_NAME),
        )
        for index, name in enumerate(header)
    ]
    out = console()
    layout = laid_out(columns, out.width, form.omissible, form.last_resort)
    for number, block in enumerate(layout.blocks):
        if number:
            out.print()
        # What even two columns need is printed, on a terminal that is narrower as well.
        out.width = max(out.width, sum(width + GAP for _, width in block))
        out.print(_block(block, form.styles, noheader=noheader))
    if layout.omitted and form.names_omitted and not noheader:
        print_labelled("left out", f"{', '.join(layout.omitted)}: they need a wider terminal, a pipe, or -P", width=10)


def _block(block: Sequence[tuple[TableColumn, int]], styles: Mapping[str, str], *, noheader: bool) -> Table:
    """Return columns of fixed widths as rich prints them."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0), show_header=not noheader)
    for column, width in block:
        justify: JustifyMethod = "right" if column.is_right else "left"
        table.add_column(column.name, justify=justify, width=width, no_wrap=not column.is_folded, overflow="crop")
        # The name is folded where the cells are not.
        table.columns[-1].header = Text(column.name, no_wrap=False)
    for fields in zip(*(column.at(width) for column, width in block), strict=True):
        table.add_row(*(Text(field, style=styles.get(field, "")) for field in fields))
    return table


def print_labelled(label: str, text: str, *, indent: int = 0, width: int = 8) -> None:
    """Print a paragraph beside its label, folded to the terminal and whole in a pipe; a label that alarms is red."""
    out = console()
    lead = " " * indent + (label.ljust(width) if len(label) < width else f"{label}  ")
    line = lead + escaped(text)
    if out.is_terminal:
        line = textwrap.fill(
            line, max(out.width, 40), subsequent_indent=" " * len(lead), break_long_words=False, break_on_hyphens=False
        )
    shown = Text(line)
    shown.stylize(_ALARMS.get(label, ""), indent, indent + len(label))
    out.print(shown, soft_wrap=True)


def print_mailed(fault_by_user: Mapping[str, str], *, width: int = 8) -> None:
    """Print for each user whether a mail was accepted, or why it was not."""
    for user, fault in fault_by_user.items():
        print_labelled("mail", f"{user}: {fault or 'accepted'}", width=width)


def print_rows(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    as_parsable: bool = False,
    noheader: bool = False,
    widths: Sequence[int] = (),
    right: Collection[int] = (),
) -> None:
    """Print rows as `-P` or `-o` asks: bare fields, or columns of the widths asked for (0 or none for any)."""
    lines = [*([] if noheader else [list(header)]), *(list(row) for row in rows)]
    if as_parsable:
        # As `sacct -P` prints fields; a `|` inside one is escaped.
        sys.stdout.writelines("|".join(escaped(field).replace("|", "\\x7c") for field in row) + "\n" for row in lines)
        return
    cleaned = [[escaped(field) for field in row] for row in lines]
    natural = [max((len(row[index]) for row in cleaned), default=0) for index in range(len(header))]
    wide = [asked or own for asked, own in zip(widths or [0] * len(header), natural, strict=True)]
    for row in cleaned:
        fields = (
            field[:width].rjust(width) if index in right else field[:width].ljust(width)
            for index, (field, width) in enumerate(zip(row, wide, strict=True))
        )
        sys.stdout.write("  ".join(fields).rstrip() + "\n")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The form in which a command prints: JSON, bare fields, or for people."""

    json: bool = False
    parsable: bool = False
    noheader: bool = False

    @property
    def is_for_people(self) -> bool:
        """Whether neither JSON nor bare fields are asked for."""
        return not (self.json or self.parsable)

    def show(
        self,
        document: Mapping[str, object],
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        right: Collection[int] = (),
        form: TableForm = PLAIN,
    ) -> None:
        """Print a document as JSON, or its rows as bare fields or as a table."""
        if self.json:
            print_json(document)
        elif self.parsable:
            print_rows(header, rows, as_parsable=True, noheader=self.noheader)
        else:
            print_table(header, rows, right=right, form=form, noheader=self.noheader)


def tool_meta(schema: str, **facts: object) -> dict[str, object]:
    """Return what every document states of itself, with more facts."""
    return {"tool": "sadvise", "version": __version__, "schema": schema, **facts}


def chosen_fields(text: str, known: Sequence[str]) -> tuple[list[str], list[int]]:
    """Parse `-o name:width,...`; raises `OptionsError` naming the fields there are."""
    names, widths = [], []
    for word in text.split(","):
        name, _, width = word.strip().partition(":")
        if name not in known or (width and not (width.isdecimal() and len(width) <= 4)):
            raise OptionsError(f"-o {word.strip()!r} is not a field: choose from {', '.join(known)}, each with :WIDTH")
        names.append(name)
        widths.append(int(width or 0))
    return names, widths


def instant(posix_s: float) -> str:
    """Return an instant in local time, as Slurm prints it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(posix_s))


def short_instant(posix_s: float) -> str:
    """Return an instant in local time without its year, as squeue prints it by default: `11-27 07:06`."""
    return time.strftime("%m-%d %H:%M", time.localtime(posix_s))


_SOURCES = {
    "text": "squeue and sinfo",
    "pyslurm": "pyslurm",
    "file": "a snapshot file",
    "demo": "the embedded queue",
}


def source_in_words(source: str) -> str:
    """Return where a snapshot was read from."""
    return _SOURCES.get(source, source)


def title(snapshot: Snapshot, source: str) -> str:
    """Return the line that says what was read, and from where."""
    config = snapshot.config
    release = f"Slurm {config.slurm_version}" if config.slurm_version else "Slurm of unknown release"
    read = f"at {instant(snapshot.taken_at)}, read from {source_in_words(source)}"
    return f"{config.cluster or 'cluster'}, {release}, {read}"


def print_overview(snapshot: Snapshot, overview: Overview, source: str, *, long: bool) -> None:
    """Print the state of the cluster; first the partitions that start nothing, though jobs wait for them.

    Without `long`, what takes one look: the GPUs of each type, and how many jobs wait for how many.
    """
    out = console()
    for partition in overview.stopped:
        print_labelled("stopped", stopped_sentence(partition))
    out.print(Text(escaped(title(snapshot, source)), style="bold"), soft_wrap=True)
    out.print()
    if not overview.gpu_types:
        out.print("no node that was read has GPUs" if overview.unread else "no node has GPUs")
    else:
        names = _AT_LENGTH if long else _IN_SHORT
        rows = [[row.gpu_type, *(gpu_number(row, name) for name in names)] for row in overview.gpu_types]
        print_table(("GPU type", *names), rows, right=range(1, 1 + len(names)))
    out.print()
    if long:
        _print_jobs(overview)
    else:
        print_labelled("jobs", _jobs_in_short(overview), width=LABEL)


def _jobs_in_short(overview: Overview) -> str:
    """Return how many jobs run and wait: `8 running, 22 pending; 21 ask for 116 GPUs, the oldest for 1 min`."""
    jobs, oldest = overview.jobs, overview.oldest
    since = "" if oldest is None else f", the oldest for {duration(oldest.queueing_delay_s)}"
    verb = "asks" if overview.pending_gpu_jobs == 1 else "ask"
    asked = f"{overview.pending_gpu_jobs} {verb} for {plural(overview.pending_gpus, 'GPU')}{since}"
    return f"{jobs.running} running, {jobs.pending} pending" + (f"; {asked}" if overview.pending_gpu_jobs else "")


def _print_jobs(overview: Overview) -> None:
    """Print how many jobs run and wait, what waits for parts of GPUs, and what could not be read."""
    jobs = overview.jobs
    print_labelled(
        "jobs",
        f"{jobs.running} running, {jobs.pending} pending; {overview.pending_gpu_jobs} pending ones ask for "
        f"{plural(overview.pending_gpus, 'GPU')}; {jobs.held} held, {jobs.dependent} dependent, "
        f"{jobs.deferred} deferred",
    )
    for share in overview.shares:
        print_labelled(
            share.kind, f"{share.total} in all, {plural(share.pending_jobs, 'pending job')} for {share.pending}"
        )
    if overview.oldest is not None:
        delay = duration(overview.oldest.queueing_delay_s)
        print_labelled("oldest", f"job {overview.oldest.job_id} has been eligible for {delay}")
    for text in overview.unread:
        print_labelled("unread", text)


def stopped_sentence(partition: StoppedPartition) -> str:
    """Return what waits for a partition that starts no jobs, and what to do."""
    jobs, gpus = plural(partition.pending_jobs, "GPU job"), plural(partition.pending_gpus, "GPU")
    verb = "waits" if partition.pending_jobs == 1 else "wait"
    return (
        f"partition {partition.name} is not up: {jobs} {verb} for {gpus}, and {partition.idle_gpus} are idle there; "
        f"to do: `{shlex.join(('scontrol', 'update', f'PartitionName={partition.name}', 'State=UP'))}`"
    )


def gpu_number(gpus: GpuTypeOverview, name: str) -> str:
    """Return how many GPUs of a type a column of `_GPU_NUMBERS` counts, "?" where that is not known."""
    value: object = gpus
    for part in _GPU_NUMBERS[name].split("."):
        value = None if value is None else getattr(value, part)
    return "?" if value is None else str(value)


_GPU_NUMBERS: Final = {
    "total": "total",
    "in use": "in_use",
    "idle": "idle.total",
    "startable": "idle.startable",
    "down": "unavailable",
    "no CPUs": "idle.by_cpus",
    "no memory": "idle.by_memory",
    "fragments": "idle.by_fragmentation",
    "largest on node": "largest.on_node",
    "under leaf": "largest.under_leaf",
    "anywhere": "largest.anywhere",
    "asked for": "pending_gpus",
}
_IN_SHORT: Final = ("total", "in use", "idle", "startable", "down", "asked for")
_AT_LENGTH: Final = tuple(name for name in _GPU_NUMBERS if name not in ("startable", "asked for"))


def print_json(document: Mapping[str, object]) -> None:
    """Print a document, or a table that holds some, as JSON on one line per top-level entry of its lists."""
    import json

    sys.stdout.write(json.dumps(plain(document), indent=1, ensure_ascii=True, allow_nan=False) + "\n")


def plain(value: object) -> object:
    """Return a value as JSON has it: a document or a model as a table of its fields, None for NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    # Models are those of pydantic, which most documents do without.
    return plain(value.model_dump(mode="json")) if hasattr(value, "model_dump") else value
