"""The program that installs what the tests need: it finds what is missing, and changes only what it may."""

import subprocess
import sys
from pathlib import Path

from tools.test_machine import LIVE, OTHERS, missing

ROOT = Path(__file__).parent.parent


def test_packages_of_programs_that_are_absent_are_named_once() -> None:
    programs = {"sh": "dash", "no-such-program": "something", "nor-this-one": "something"}

    assert missing(programs) == ["something"]


def test_where_apt_is_absent_it_names_every_package_and_installs_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tools.test_machine"]

    run = subprocess.run(argv, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)

    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert {"chromium", "curl", "dnf", "promtool"} <= set(run.stderr.split("installs ")[1].split(";")[0].split())


def test_a_release_that_does_not_exist_is_refused_with_those_that_do() -> None:
    argv = [sys.executable, "-m", "tools.test_machine", "--release", "19.05"]

    run = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 2
    assert "invalid choice: '19.05'" in run.stderr


def test_a_program_is_listed_once() -> None:
    assert not LIVE.keys() & OTHERS.keys()
