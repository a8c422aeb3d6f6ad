"""The first day of an administrator: the lines of docs/first-day.md, typed where there are only Debian and Slurm."""

import re
from pathlib import Path

import pytest

from tests.live.controller import ControllerMachine, controller
from tools.advice_queue import PRIORITY_LINES
from tools.stage import LiveCluster

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "first-day.md"
# Rounds follow each other quickly, and new jobs are changed at once; all else is as the package leaves it.
QUICK = "[daemon]\ninterval_s = 5\njitter_s = 0\n[guard]\nmin_job_age_s = 0\n"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("packaged Python", "dpkg-deb", "rpmbuild", "machines", "slurm 22.05", "slurmdbd"),
    pytest.mark.timeout(1200),
]


def typed_lines() -> list[str]:
    """Return the lines that the page has typed, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def submit_jobs(live: LiveCluster) -> None:
    """Fill the cluster, and let small jobs wait behind a large one."""
    live.add_account("lab", "games", "man")
    live.submit("--account=lab", "--gres=gpu:8", "--nodes=2", "--time=120", user="games")
    live.submit("--account=lab", "--gres=gpu:8", "--nodes=2", "--time=1440", user="games")
    for _ in range(3):
        live.submit("--account=lab", "--gres=gpu:1", "--time=10", user="man")


def test_first_day_from_the_page_alone(packages: Path, tmp_path: Path) -> None:
    printed: dict[str, str] = {}
    with LiveCluster("22.05", node_count=2, extra_lines=PRIORITY_LINES, accounting=True) as live:
        submit_jobs(live)
        with controller(live, packages, tmp_path) as prompt:
            prompt.type(f"mkdir -p /etc/sadvise/conf.d && printf '{QUICK}' >/etc/sadvise/conf.d/quick.toml")
            for line in typed_lines():
                if line == "sadvise maintenance":
                    soon = ("StartTime=now+6hours", "Duration=60", "Nodes=ALL", "Users=root", "Flags=MAINT,IGNORE_JOBS")
                    live.run("scontrol", "create", "reservation", "ReservationName=update", *soon)
                printed[line] = typed_well(prompt, line)
                if line == "sadvise status":
                    page = typed_well(prompt, "cat page.html")
                    nice = live.run("squeue", "--noheader", "--states=PD", "--format=%i %y %u")

    assert "mode      apply" in printed["sadvise status"]
    assert re.search(r"nice\|out\|", printed["until sadvise journal -P -h | grep '|out|'; do sleep 2; done"])
    assert "<!doctype html>" in page.lower() and "sadvise" in page
    # Slurm prints a nice as its distance from the default.
    assert any(int(words[1]) < 0 for words in map(str.split, nice.splitlines()) if words[2] == "man"), nice
    assert "GPU" in printed["sadvise check"] and "fair share" in printed["sadvise check"]
    assert "games" in printed["sadvise maintenance"]
    assert printed["sadvise journal"].startswith("nothing")


def typed_well(prompt: ControllerMachine, line: str) -> str:
    """Type a line, which has to succeed, and return what it printed."""
    typed = prompt.type(f"timeout 120 bash -c {quoted(line)}")
    assert typed.exit_status == 0, f"{line}:\n{typed.printed}"
    return typed.printed


def quoted(line: str) -> str:
    """Quote a line for a shell."""
    return "'" + line.replace("'", "'\\''") + "'"
