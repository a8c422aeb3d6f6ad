"""The application: reads the clusters in a thread, shows them, and asks before it changes anything."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.message import Message
from textual.widgets import Footer, Input, Static

from advisor.clock import Clock, SystemClock
from advisor.domain.dataclass import dataclass
from advisor.errors import AdvisorError
from advisor.text import escaped
from advisor.top.cells import (
    ADVICE_COLUMNS,
    BAD,
    CAUTION,
    CLUSTER_COLUMNS,
    NODE_COLUMNS,
    gpu_lines,
    head,
    in_effect_columns,
    queue_columns,
    row_text,
)
from advisor.top.dialogs import (
    COLUMNS_IN_WORDS,
    KEYS,
    ConfirmScreen,
    LinesScreen,
    TopOrder,
    apply_order,
    pause_order,
    refusal,
    revert_order,
)
from advisor.top.row_list import RowList
from advisor.view.documents import ChangeDocument
from advisor.watch.cluster_view import ClusterView
from advisor.watch.clusters import ClusterLook, WatchedCluster, looks
from advisor.watch.job_answer import job_lines

LEAST_REFRESH_S: Final = 5.0
_TICK_S: Final = 1.0
_TALL: Final = 34
_SHORT: Final = 20
_TITLES: Final = {
    "clusters": "Clusters",
    "queue": "Waiting",
    "advice": "Advice",
    "out": "In effect",
    "nodes": "Nodes",
}
_EMPTY: Final = {
    "queue": "no GPU job waits",
    "advice": "nothing to recommend",
    "out": "no change of sadvise is in effect",
    "nodes": "no node has GPUs",
}


@dataclass
class Looked(Message):
    """The clusters were read."""

    seen: tuple[ClusterLook, ...]


@dataclass
class Lines(Message):
    """There are lines to read."""

    title: str
    lines: tuple[tuple[str, str], ...]


@dataclass
class Ordered(Message):
    """An order was carried out, or could not be."""

    lines: tuple[str, ...]
    fault: str


@dataclass
class Broken(Message):
    """A thread ended by an error of ours."""

    error: Exception


class LiveView(App[Exception]):
    """The live view of one or several clusters."""

    TITLE = "sadvise top"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "live_view.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e,enter", "explain", "Explain", key_display="e"),
        Binding("a", "apply", "Apply"),
        Binding("v", "revert", "Revert"),
        Binding("p", "pause", "Pause"),
        Binding("slash", "filter", "Filter", key_display="/", priority=True),
        Binding("r", "read", "Refresh"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("c", "next_cluster", "Cluster", show=False),
        Binding("escape", "clear_filter", "All rows", show=False),
    ]

    def __init__(
        self,
        clusters: Sequence[WatchedCluster],
        *,
        interval_s: float,
        clock: Clock | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        # The colours of the terminal itself, so that it can be read on any background.
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self._clusters = clusters
        self._interval_s = interval_s
        self._clock = clock or SystemClock()
        self._monotonic = monotonic
        self._seen = tuple(ClusterLook(name=cluster.name, view=None, fault="") for cluster in clusters)
        self._chosen = 0
        self._read_at = -float("inf")
        self.is_reading = False
        self.is_ordering = False
        self._text = ""
        self._summary, self._gpus, self._message = (Static(id=name) for name in ("summary", "gpus", "message"))
        self._filter = Input(placeholder="show only rows that contain this text", id="filter")
        self._panes = self._made_panes()

    def compose(self) -> ComposeResult:
        """Put the summary above the panes."""
        yield self._summary
        yield self._gpus
        for name, pane in self._panes.items():
            pane.border_title = _TITLES[name]
            yield pane
        yield self._message
        yield self._filter
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read, and look at the clock every second."""
        self._panes["queue"].focus()
        self.show()
        self.read()
        self.set_interval(_TICK_S, self._tick)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  (Textual's)
        """Return whether a key counts: `/`, which comes before all others, does not in the filter or over a dialog."""
        return action != "filter" or (not self._filter.has_focus and len(self.screen_stack) == 1)

    def on_resize(self, event: Resize) -> None:
        """Show what fits: nodes on a tall terminal, no GPU table on a short one."""
        self.screen.set_class(event.size.height >= _TALL, "tall")
        self.screen.set_class(event.size.height < _SHORT, "short")
        self._show_head()

    def action_read(self) -> None:
        """Read now, unless the clusters were read a moment ago."""
        age_s = self._monotonic() - self._read_at
        if self.is_reading:
            self._say("the cluster is being read")
        elif age_s < LEAST_REFRESH_S:
            self._say(f"read {age_s:.0f} s ago: wait {LEAST_REFRESH_S - age_s:.0f} s more")
        else:
            self.read()

    def action_explain(self) -> None:
        """Explain the selected job."""
        job_id, view, cluster = self._selected_job(), self._view, self._cluster
        if job_id is None or view is None:
            self._say("no job is selected")
            return
        chosen, seen = job_id, view

        def explained() -> Message:
            lines = tuple(job_lines(seen.planned, cluster.reading.load_config(), chosen))
            return Lines(title=f"Why job {chosen} waits", lines=lines or (("", "it is not in the queue any more"),))

        self._in_thread(explained)

    def action_apply(self) -> None:
        """Ask whether to apply the recommendation for the selected job."""
        if not self._can_change():
            return
        job_id, view = self._selected_job(), self._view
        row = self._selected_advice()
        if row is None and view is not None:
            row = next((advice for advice in view.advice if job_id in advice.job_ids), None)
        if row is None:
            self._say("nothing is recommended for this job")
        else:
            self._confirm(apply_order(self._cluster, row))

    def action_revert(self) -> None:
        """Ask whether to revert the changes to the selected job."""
        if not self._can_change():
            return
        job_id, view = self._selected_job(), self._view
        if job_id is None or view is None or all(row.job_id != job_id for row in view.in_effect):
            self._say("no change to this job is in effect")
        else:
            self._confirm(revert_order(self._cluster, job_id))

    def action_pause(self) -> None:
        """Ask whether to pause the daemon, or to let it go on."""
        if not self._can_change():
            return
        try:
            order = pause_order(self._cluster)
        except AdvisorError as err:
            self._say(str(err), style=BAD)
        else:
            self._confirm(order)

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(LinesScreen("Keys", (*KEYS, ("", ""), *COLUMNS_IN_WORDS)))

    def action_filter(self) -> None:
        """Open the line for the text of the filter."""
        self._filter.display = True
        # At once, so that keys typed ahead are part of the text.
        self.screen.set_focus(self._filter)

    def action_clear_filter(self) -> None:
        """Show all rows again."""
        self._filter.value = ""
        self._close_filter()

    def action_next_cluster(self) -> None:
        """Show the next cluster."""
        if len(self._clusters) > 1:
            self._choose((self._chosen + 1) % len(self._clusters))
            self._panes["clusters"].action_to(self._chosen)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as the text is typed."""
        self._text = event.value.casefold()
        self._show_rows()

    def on_input_submitted(self) -> None:
        """Keep the filter, and go back to the rows."""
        self._close_filter()

    def on_row_list_moved(self, event: RowList.Moved) -> None:
        """Show the cluster under the cursor."""
        if event.row_list.id == "clusters" and event.row_list.selected is not None:
            names = [cluster.name for cluster in self._clusters]
            self._choose(names.index(event.row_list.selected.name))

    def on_looked(self, message: Looked) -> None:
        """Show what was read."""
        self._seen, self.is_reading = message.seen, False
        self.show()

    def on_lines(self, message: Lines) -> None:
        """Show lines to read."""
        self.push_screen(LinesScreen(message.title, message.lines))

    def on_ordered(self, message: Ordered) -> None:
        """Say what was done, and read the cluster again."""
        self.is_ordering = False
        if message.fault:
            self._say(message.fault, style=BAD)
            return
        self._say("")
        self.push_screen(LinesScreen("Done", (("", line) for line in message.lines)))
        if not self.is_reading:
            self.read()

    def on_broken(self, message: Broken) -> None:
        """End, and return the error of the thread."""
        self.exit(message.error, return_code=1)

    def _fatal_error(self) -> None:
        """End without Textual's traceback, which shows the values of variables; `run` returns the error."""
        self._return_value = self._exception
        self._close_messages_no_wait()

    @property
    def _cluster(self) -> WatchedCluster:
        return self._clusters[self._chosen]

    @property
    def _view(self) -> ClusterView | None:
        return self._seen[self._chosen].view

    def _taken_at(self) -> float:
        return 0.0 if self._view is None else self._view.taken_at

    def _made_panes(self) -> Mapping[str, RowList]:
        """Return the panes from top to bottom, by name; that of the clusters only if there are several."""
        several = {"clusters": RowList(CLUSTER_COLUMNS, key=lambda look: look.name, id="clusters")}
        return {
            **(several if len(self._clusters) > 1 else {}),
            "queue": RowList(queue_columns(self._taken_at), key=lambda job: job.job_id, id="queue"),
            "advice": RowList(ADVICE_COLUMNS, key=lambda row: (row.job_id, row.kind), id="advice"),
            "out": RowList(in_effect_columns(self._clock.now), key=lambda row: (row.job_id, row.lever), id="out"),
            "nodes": RowList(NODE_COLUMNS, key=lambda use: (use.name, use.gpu_type), id="nodes"),
        }

    def _tick(self) -> None:
        """Read again when it is time, and keep the ages on the screen true."""
        if not self.is_reading and self._monotonic() - self._read_at >= self._interval_s:
            self.read()
        self._show_head()

    def read(self) -> None:
        """Begin to read all clusters."""
        self.is_reading, self._read_at = True, self._monotonic()
        self._in_thread(lambda: Looked(seen=looks(self._clusters, now=True)))
        self._show_head()

    def _in_thread(self, work: Callable[[], Message], *, must_end: bool = False) -> None:
        """Run work beside the screen; the program waits at its end only for what `must_end`."""

        def run() -> None:
            try:
                message = work()
            except AdvisorError as err:
                message = Ordered(lines=(), fault=str(err))
            except Exception as err:
                message = Broken(error=err)
            self.post_message(message)

        threading.Thread(target=run, daemon=not must_end).start()

    def _can_change(self) -> bool:
        """Return whether something can be changed now; say why if not."""
        why = refusal(self._cluster) or ("the last change is still being made" if self.is_ordering else "")
        if why:
            self._say(why)
        return not why

    def _confirm(self, order: TopOrder) -> None:
        """Carry out an order once a person confirms it."""

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.is_ordering = True
                self._say(f"running {order.command} ...")
                self._in_thread(lambda: Ordered(lines=tuple(order.run()), fault=""), must_end=True)

        self.push_screen(ConfirmScreen(order), answered)

    def _say(self, text: str, *, style: Style = CAUTION) -> None:
        """Show one line above the keys until the next one."""
        self._message.display = bool(text)
        self._message.update(Text(escaped(text), style=style))

    def _selected_job(self) -> int | None:
        """Return the job that is selected in the pane with the focus, or else in the line."""
        rows = self.focused if isinstance(self.focused, RowList) else self._panes["queue"]
        row = rows.selected if rows.id in ("queue", "advice", "out") else self._panes["queue"].selected
        return None if row is None else int(row.job_id)

    def _selected_advice(self) -> ChangeDocument | None:
        focused = self.focused
        return focused.selected if isinstance(focused, RowList) and focused.id == "advice" else None

    def _choose(self, place: int) -> None:
        if place != self._chosen:
            self._chosen = place
            self._show_rows()
            self._show_head()

    def _close_filter(self) -> None:
        self._filter.display = bool(self._filter.value)
        self.screen.set_focus(self._panes["queue"])

    def show(self) -> None:
        """Draw what was read last."""
        self._show_head()
        self._show_rows()

    def _show_head(self) -> None:
        look, width = self._seen[self._chosen], self.size.width
        shown = head(look, self._clock.now(), width=width, is_reading=self.is_reading)
        self._summary.update(shown)
        self._gpus.update(gpu_lines(look.view, width))

    def _show_rows(self) -> None:
        view, wanted = self._view, self._text
        if len(self._clusters) > 1:
            self._panes["clusters"].show(self._seen)
        rows_by_pane: Mapping[str, Sequence[Any]] = {
            "queue": () if view is None else view.line,
            "advice": () if view is None else view.advice,
            "out": () if view is None else view.in_effect,
            "nodes": () if view is None else view.nodes,
        }
        for name, rows in rows_by_pane.items():
            kept = [row for row in rows if wanted in row_text(row)] if wanted else rows
            pane = self._panes[name]
            pane.show(kept, empty="" if view is None else _EMPTY[name])
            count = f"{len(kept)} of {len(rows)}" if wanted else str(len(rows))
            pane.border_title = f"{_TITLES[name]} {count}"
