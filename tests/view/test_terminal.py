"""Output on a real terminal: every table fits its width, no word is broken, commands stay whole."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from advisor.apply.applier import Applier
from advisor.backends.snapshot_file import read_snapshot, write_snapshot
from advisor.cycle import Cycle
from advisor.domain.actions import SetNice
from advisor.domain.lease import LeaseState, intended
from advisor.journal import SqliteJournal
from advisor.view.table_layout import TableColumn, laid_out
from advisor.view.terminal import print_labelled
from advisor.watch.reading import demo_path
from tests.builders import TAKEN_AT
from tests.fake_cluster import fragmented
from tests.needs import path_of
from tests.programs import killed_after

HOSTILE = "\x1b[31mred\x07 \u202e" + "very-long_name" * 6 + "\u65e5\u672c\u8a9e"
UNSET: Mapping[str, str] = {}
TRACE = str(demo_path().with_name("trace.csv"))
SMALL = ("--cluster", "nodes=4,gpus=4,leaf=2", "--jobs", "12")
MADE = ("slurm", "las", "srtf", "dally-consolidated", "lift:run-times=truth")


def on_terminal(*arguments: str, columns: int, exit_status: int = 0, environment: Mapping[str, str] = UNSET) -> str:
    """Run sadvise on a terminal of some width and return what it shows."""
    path_of("terminal")
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    argv = [sys.executable, "-m", "advisor.cli.main", *arguments]
    settings = {**inherited, "TERM": "xterm", "NO_COLOR": "1", **environment}
    with killed_after(
        subprocess.Popen(argv, stdin=side, stdout=side, stderr=subprocess.DEVNULL, env=settings)
    ) as process:
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
        assert process.wait(10.0) == exit_status
    os.close(main)
    return shown.decode().replace("\r\n", "\n")


def lines(*arguments: str, columns: int) -> list[str]:
    """Return the lines that sadvise shows, without bold."""
    return re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(*arguments, columns=columns)).splitlines()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a queue and a journal whose names are long and hostile."""
    folder = tmp_path_factory.mktemp("site")
    demo = read_snapshot(demo_path())
    jobs = tuple(replace(job, name=HOSTILE, user=HOSTILE, account=HOSTILE) for job in demo.jobs)
    write_snapshot(replace(demo, jobs=jobs), folder / "seen.json")
    journal = SqliteJournal(folder / "journal.sqlite")
    journal.claim("test")
    cluster, cycle = fragmented(), Cycle()
    step = Applier(source=cluster, actuator=cluster, cycle=cycle).step()
    journal.receipts(journal.record(step.record, cycle), step)
    lift = intended(SetNice(job_id=70_000_007, before=0, after=-286_117), TAKEN_AT, after_s=600.0)
    journal.keep(replace(lift, state=LeaseState.OUT, user=HOSTILE, account=HOSTILE))
    journal.close_file()
    return folder


TABLES = {
    "recommend": ("recommend", "--snapshot", "{site}/seen.json"),
    "check": ("check", "--snapshot", "{site}/seen.json"),
    "journal": ("journal", "--journal", "{site}/journal.sqlite"),
    "journal changes": ("journal", "changes", "--journal", "{site}/journal.sqlite"),
    "journal cycles": ("journal", "cycles", "--journal", "{site}/journal.sqlite"),
    "journal audit": ("journal", "audit", "--journal", "{site}/journal.sqlite"),
    "report": ("report", "--journal", "{site}/journal.sqlite", "--since", "2000-01-01"),
    "models list": ("models", "list"),
    "config show": ("config", "show"),
    "simulate": ("simulate", TRACE, *SMALL, *(word for name in MADE for word in ("--policy", name))),
    "compare": ("compare", TRACE, *SMALL, "--policy", "slurm", "--policy", "rules", "--workers", "1"),
    "tune": ("tune", TRACE, *SMALL, "--no-slurm", "--repeats", "2", "--workers", "1"),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("name", TABLES)
def test_every_table_fits(site: Path, name: str) -> None:
    shown = lines(*(word.format(site=site) for word in TABLES[name]), columns=80)

    assert shown
    assert [line for line in shown if cell_len(line) > 80] == []
    assert not any(char in line for line in shown for char in "\x1b\x07\u202e")


def test_a_change_is_one_line_and_the_total_follows(site: Path) -> None:
    shown = lines("recommend", "--snapshot", f"{site}/seen.json", columns=80)
    wide = lines("recommend", "--demo", "--top", "2", columns=120)

    start = next(number for number, line in enumerate(shown) if line.split()[:2] == ["job", "kind"])
    rows = shown[start + 1 : shown.index("", start)]
    assert rows and all(row.split()[0].isdecimal() for row in rows)
    assert any("+" in row for row in rows)
    assert any(line.startswith(f"total        {len(rows)} changes save") for line in shown)
    assert any(re.match(r"total +2 of \d+ changes save", line) for line in wide)


def test_the_demo_fits_a_screen() -> None:
    shown = lines("recommend", "--demo", columns=80)

    assert len(shown) <= 23  # the prompt takes one
    assert {"reorder", "resize", "consolidate"} <= {line.split()[1] for line in shown if line[:3].strip().isdecimal()}
    assert any(re.search(r" \d+\.\d h \(-?[\d.]+ to [\d.]+\)", line) for line in shown)


def test_the_story_of_a_change_folds_and_its_commands_stay_whole() -> None:
    shown = lines("recommend", "--demo", "--long", columns=72)

    why = [line for line in shown if line.startswith("   why")]
    apply = [line for line in shown if line.startswith("   apply")]
    assert why and all(len(line) <= 72 for line in why)
    assert len(apply) == len(why)
    assert all("scontrol update JobId=" in line for line in apply)


def test_colour_means_something_and_can_be_turned_off() -> None:
    coloured = on_terminal("check", "--demo", columns=100, environment={"NO_COLOR": ""})
    plain = on_terminal("check", "--demo", columns=100)

    assert set(re.findall(r"\x1b\[([0-9;]*)m(\w+)", coloured)) >= {("33", "lacks"), ("33", "unknown")}
    assert "\x1b[33m" not in plain


def test_columns_leave_in_the_order_stated_and_empty_ones_first() -> None:
    columns = [
        TableColumn(name="job", cells=("123456",), is_whole=True),
        TableColumn(name="note", cells=("",)),
        TableColumn(name="user", cells=("u" * 20,)),
        TableColumn(name="path", cells=("p" * 40,)),
    ]

    assert laid_out(columns, 200, ("note", "path", "user")).omitted == ()
    assert laid_out(columns, 40, ("note", "path", "user")).omitted == ("path",)
    assert [column.name for column, _ in laid_out(columns, 12, ("note", "path", "user")).blocks[0]] == ["job"]


def test_columns_of_the_last_resort_leave_only_where_nothing_can_be_cut_further() -> None:
    columns = [
        TableColumn(name="job", cells=("123456",), is_whole=True),
        TableColumn(name="name", cells=("n" * 20,)),
        TableColumn(name="change", cells=("c" * 20,)),
    ]

    assert laid_out(columns, 26, last_resort=("name",)).omitted == ()
    assert laid_out(columns, 25, last_resort=("name",)).omitted == ("name",)


def test_columns_that_must_stay_follow_below_beside_the_first() -> None:
    columns = [TableColumn(name=name, cells=("9" * 30,), is_whole=True) for name in "abc"]

    blocks = laid_out(columns, 70).blocks

    assert [[column.name for column, _ in block] for block in blocks] == [["a", "b"], ["a", "c"]]


@pytest.mark.parametrize(
    ("label", "line"), [("unread", "unread  a text\n"), ("probation", "probation  a text\n"), ("", "        a text\n")]
)
def test_label_and_text_are_apart_however_long_the_label(
    label: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_labelled(label, "a text")

    assert capsys.readouterr().out == line
