"""Show the progress of a long run on a terminal, and end it the same way on Ctrl-C and SIGTERM."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def progress_bar(total: int, noun: str) -> Iterator[Callable[[float], None] | None]:
    """Show on standard error how much of `total` is done, if that is a terminal; else give None."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        BarColumn(),
        TextColumn(f"{{task.completed:.1f}} of {{task.total:.0f}} {noun}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(noun, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on SIGTERM, as on Ctrl-C, so that the command reports what it keeps."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
