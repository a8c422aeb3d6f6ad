"""Output on a terminal: folded to its width, commands whole."""

import os
import pty
import re
import subprocess
import sys

import pytest

from advisor.view.terminal import print_labelled
from tests.programs import killed_after


def on_terminal(*arguments: str, columns: int) -> str:
    """Run sadvise on a terminal of some width and return what it shows, without colours."""
    main, side = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "xterm"}
    argv = [sys.executable, "-m", "advisor.cli.main", *arguments]
    with killed_after(subprocess.Popen(argv, stdout=side, stderr=side, env=environment)) as process:
        os.close(side)
        shown = b""
        while True:
            try:
                chunk = os.read(main, 65536)
            except OSError:
                break  # the other end is closed
            if not chunk:
                break
            shown += chunk
        assert process.wait(10.0) == 0
    os.close(main)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")


def test_paragraphs_fold_to_the_terminal_and_commands_stay_whole() -> None:
    lines = on_terminal("recommend", "--demo", columns=72).splitlines()

    why = [line for line in lines if line.startswith("   why")]
    apply = [line for line in lines if line.startswith("   apply")]
    assert why
    assert all(len(line) <= 72 for line in why)
    assert len(apply) == len(why)
    assert all("scontrol update JobId=" in line for line in apply)


def test_check_fits_a_terminal() -> None:
    lines = on_terminal("check", "--demo", columns=90).splitlines()

    assert lines[0].split()[0] == "check"
    assert all(len(line) <= 90 for line in lines)


@pytest.mark.parametrize(
    ("label", "line"), [("unread", "unread  a text\n"), ("probation", "probation  a text\n"), ("", "        a text\n")]
)
def test_label_and_text_are_apart_however_long_the_label(
    label: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_labelled(label, "a text")

    assert capsys.readouterr().out == line
