"""The progress of a long run on standard error."""

import io
import sys

import pytest

from advisor.cli.progress import progress_bar


class Terminal(io.StringIO):
    """A standard error that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = Terminal(), io.StringIO()

    for stream in (terminal, pipe):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar(3, "runs") as progress:
            if progress is not None:
                progress(1.5)

    assert "1.5 of 3 runs" in terminal.getvalue()
    assert pipe.getvalue() == ""
