"""What a test needs of its machine: the one place that looks for it.

Mark a test with `@pytest.mark.needs("chromium")`, or call the fixture `need` with the name, which returns the path of a
program. Where the thing is absent, the test is skipped with the reason; with SADVISE_REQUIRE_SLURM=1, as in CI, it
fails.
"""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

import pytest

from advisor.backends.process import SlurmCommands
from advisor.backends.pyslurm_source import installed
from advisor.errors import SlurmError
from tests.throwaway_machine import CGROUPS
from tools.stage.roots import HOST_PROGRAMS, RELEASES, cache_folder, ready_releases
from tools.stage.slurmdbd import PACKAGES, PROGRAMS
from tools.test_machine import LIVE as LIVE_PROGRAMS
from tools.test_machine import OTHERS, PROMETHEUS, is_there

DATA: Final = "SADVISE_DATA"
REQUIRED: Final = "SADVISE_REQUIRE_SLURM"
LIVE: Final = "make test-live"
ALL: Final = "make test-all"
# The interpreter of the tests can stand where no other user reaches it.
SYSTEM_PYTHON: Final = Path("/usr/bin/python3")
SYSTEMD: Final = Path("/lib/systemd/systemd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """A thing that a test can need; `absent` returns why it is not there, empty where it is.

    CI has all things but those that are not `in_ci`.
    """

    absent: Callable[[], str]
    in_ci: bool = True


def _program(name: str, package: str) -> Thing:
    return Thing(absent=lambda: "" if is_there(name) else f"{name} is not installed: it comes with Debian's {package}")


def _module(name: str) -> Thing:
    def absent() -> str:
        return "" if importlib.util.find_spec(name) else f"{name} is not installed: {ALL} installs it"

    return Thing(absent=absent)


def _release(name: str) -> Thing:
    return Thing(absent=lambda: _no_namespaces() or _no_release(name))


def _no_release(name: str) -> str:
    if name in ready_releases():
        return ""
    if RELEASES[name].suite is None:
        return f"Slurm {name} is not installed: {LIVE} installs it"
    return f"Slurm {name} is not there: python -m tools.stage bootstrap --release {name}"


def _no_slurmdbd(name: str) -> str:
    """Return why a release has no accounting."""
    root = Path("/") if RELEASES[name].suite is None else cache_folder() / name
    missing = [program for program in PROGRAMS if not (root / program).exists()]
    return f"accounting in {root} takes {PACKAGES}: apt-get install them there" if missing else ""


@cache
def _no_namespaces() -> str:
    """Return why test clusters cannot start on this machine."""
    if os.geteuid() != 0:
        return "live Slurm takes root"
    if missing := [program for program in HOST_PROGRAMS if shutil.which(program) is None]:
        return f"not found on PATH: {', '.join(missing)}"
    answer = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, text=True, check=False
    )
    return f"no namespaces here: {answer.stderr.strip()}" if answer.returncode else ""


def _no_pyslurm() -> str:
    """Return why there is no pyslurm, or no cluster of this host to read with it."""
    try:
        installed(SlurmCommands(timeout_s=60.0))
    except SlurmError as err:
        return str(err)
    return ""


def _no_terminal() -> str:
    try:
        ours, theirs = os.openpty()
    except OSError as err:
        return f"no pseudo-terminals here: {err}"
    os.close(ours)
    os.close(theirs)
    return ""


def _no_data() -> str:
    folder = os.environ.get(DATA)
    if not folder:
        return f"set {DATA} to the folder of the published measurements"
    return "" if Path(folder, "traces").is_dir() else f"{DATA}={folder} holds no measurements"


def _no_other_user() -> str:
    if os.geteuid() != 0:
        return "takes root to become another user"
    return "" if SYSTEM_PYTHON.exists() else f"{SYSTEM_PYTHON} is missing, which every user can run"


def _no_packaged_python() -> str:
    path = SYSTEM_PYTHON.resolve()
    return "" if path.exists() and path.parent == SYSTEM_PYTHON.parent else f"{path} comes with no package"


def _no_machines() -> str:
    """Return why no machine with a systemd of its own can boot here."""
    if reason := _no_namespaces():
        return reason
    if not SYSTEMD.exists():
        return f"{SYSTEMD} is not installed: it comes with Debian's systemd"
    return "" if os.access(CGROUPS, os.W_OK) else "no control group can be made here"


def _no_disk_errors() -> str:
    """Say why a file system in a file cannot be made to fail."""
    if without := _no_tmpfs():
        return without
    if shutil.which("mkfs.ext4") is None or not Path("/dev/loop-control").exists():
        return "neither mkfs.ext4 nor loop devices here"
    return ""


def _no_tmpfs() -> str:
    return _no_namespaces() and "takes root and namespaces to mount a file system"


THINGS: Final[Mapping[str, Thing]] = {
    **{name: _program(name, package) for name, package in {**LIVE_PROGRAMS, **OTHERS}.items()},
    **{name: _program(name, "prometheus") for name in PROMETHEUS},
    **{f"slurm {name}": _release(name) for name in RELEASES},
    # CI bootstraps the root file systems without it.
    **{
        f"slurmdbd {name}": Thing(absent=partial(_no_slurmdbd, name), in_ci=release.suite is None)
        for name, release in RELEASES.items()
    },
    "pyslurm": Thing(absent=_no_pyslurm, in_ci=False),
    "torch": _module("torch"),
    "root": Thing(absent=lambda: "" if os.geteuid() == 0 else "takes root"),
    "ordinary user": Thing(absent=lambda: "root may read everything" if os.geteuid() == 0 else "", in_ci=False),
    "another user": Thing(absent=_no_other_user),
    "packaged Python": Thing(absent=_no_packaged_python),
    "machines": Thing(absent=_no_machines),
    "mounts": Thing(absent=_no_tmpfs),
    "disk errors": Thing(absent=_no_disk_errors, in_ci=False),
    "terminal": Thing(absent=_no_terminal),
    "IPv6": Thing(absent=lambda: "" if Path("/proc/net/if_inet6").exists() else "no IPv6 here", in_ci=False),
    "measurements": Thing(absent=_no_data, in_ci=False),
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for what the marks of a test name, before any of its fixtures is made."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            path_of(name)


@pytest.fixture(scope="session")
def need() -> Callable[[str], Path]:
    """Return `path_of`, for fixtures."""
    return path_of


def path_of(name: str) -> Path:
    """Return the path of a program, or its bare name for other things; skip or fail the test where it is absent."""
    thing = THINGS[name]
    if reason := thing.absent():
        if thing.in_ci and os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{reason} ({REQUIRED}=1)", pytrace=False)
        pytest.skip(f"needs {name}: {reason}")
    return Path(shutil.which(name) or name)


def measurements(*parts: str) -> Path:
    """Return a file of the published measurements; the test is skipped where there is none."""
    path_of("measurements")
    path = Path(os.environ[DATA]).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs measurements: {DATA} does not hold {path}")
    return path
