"""The unit: how exposed it is, that systemd takes it, and that it starts what is installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "systemd"
UNIT = FOLDER / "sadvised.service"
WEB_UNIT = FOLDER / "sadvise-web.service"


def settings(unit: Path = UNIT) -> dict[str, list[str]]:
    """Read a unit as lists of values by key."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def analyze(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze, which needs no running systemd for what is asked here."""
    return subprocess.run(["systemd-analyze", *argv], capture_output=True, text=True, timeout=60, check=False)


def with_programs_of(tmp_path: Path, text: str) -> Path:
    """Write the unit with programs that are there; the package's are installed in another test."""
    unit = tmp_path / "sadvised.service"
    unit.write_text(re.sub(r"/opt/sadvise/bin/\w+", sys.executable, text))
    return unit


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("unit", [UNIT, WEB_UNIT], ids=lambda unit: unit.name)
def test_unit_is_exposed_by_at_most_one_and_a_half(unit: Path) -> None:
    # The threshold counts tenths.
    answer = analyze("security", "--offline=true", "--no-pager", "--threshold=15", str(unit))

    assert answer.returncode == 0, answer.stdout
    assert "OK" in answer.stdout.splitlines()[-1]


@pytest.mark.needs("systemd-analyze")
def test_check_of_the_exposure_can_fail() -> None:
    answer = analyze("security", "--offline=true", "--no-pager", "--threshold=10", str(UNIT))

    assert answer.returncode != 0


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("drop_in", [None, "controller-only.conf", "no-network-filter.conf"])
def test_systemd_understands_every_line(tmp_path: Path, drop_in: str | None) -> None:
    unit = with_programs_of(tmp_path, UNIT.read_text())
    if drop_in is not None:
        folder = tmp_path / "sadvised.service.d"
        folder.mkdir()
        shutil.copy(FOLDER / drop_in, folder / drop_in)

    answer = analyze("verify", "--man=no", str(unit))

    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.needs("systemd-analyze")
def test_systemd_understands_the_unit_of_the_web_view(tmp_path: Path) -> None:
    answer = analyze("verify", "--man=no", str(with_programs_of(tmp_path, WEB_UNIT.read_text())))

    assert (answer.returncode, answer.stderr) == (0, "")


def test_web_view_is_hardened_as_the_daemon_and_has_no_rights() -> None:
    daemon, web = settings(), settings(WEB_UNIT)
    users = (FOLDER / "sadvise.sysusers").read_text()
    # What says who it is and how it runs, and what it writes, is its own.
    own = {
        *("Description", "Documentation", "After", "Type", "ExecStart", "User", "Group", "UMask", "RuntimeDirectory"),
        *("TasksMax", "CPUWeight", "IOWeight", "OOMScoreAdjust", "StateDirectory", "StateDirectoryMode"),
        *("ConfigurationDirectory", "RuntimeDirectoryPreserve", "NotifyAccess", "ExecReload", "WatchdogSec"),
        "TimeoutStartSec",
    }

    assert {key: value for key, value in daemon.items() if key not in own and web.get(key) != value} == {}
    assert web["User"] == ["sadvise-web"] and "StateDirectory" not in web
    assert "m sadvise-web sadvise" in users.splitlines()


@pytest.mark.needs("systemd-analyze")
def test_misspelt_line_is_found(tmp_path: Path) -> None:
    unit = with_programs_of(tmp_path, UNIT.read_text().replace("ProtectHome=yes", "ProtectHomes=yes"))

    answer = analyze("verify", "--man=no", str(unit))

    assert "ProtectHomes" in answer.stderr


def test_advisor_neither_needs_slurmctld_nor_goes_down_with_it() -> None:
    found = settings()

    assert "slurmctld.service" in found["After"][0].split()
    assert not any("slurmctld" in value for key in ("Requires", "BindsTo", "PartOf") for value in found.get(key, []))


def test_configuration_is_checked_before_the_daemon_starts_and_drop_ins_count() -> None:
    found = settings()

    assert found["ExecStartPre"] == ["/opt/sadvise/bin/sadvise config check"]
    # An explicit file would keep conf.d out.
    assert found["ExecStart"] == ["/opt/sadvise/bin/sadvised"]


def test_advisor_runs_as_its_own_user_and_gives_way_to_slurmctld() -> None:
    found = settings()
    user = next(line for line in (FOLDER / "sadvise.sysusers").read_text().splitlines() if line.startswith("u "))

    assert found["User"] == found["Group"] == [user.split()[1]]
    assert int(found["OOMScoreAdjust"][0]) > 0
    assert int(found["TimeoutStopSec"][0]) >= 5


def test_file_that_pauses_outlives_a_restart() -> None:
    found = settings()
    assert found["StateDirectoryMode"] == ["0711"]
    folders = [line.split() for line in (FOLDER / "sadvise.tmpfiles").read_text().splitlines() if line[0] != "#"]

    assert found["RuntimeDirectoryPreserve"] == ["yes"]
    assert {folder[1]: folder[2] for folder in folders} == {"/run/sadvise": "0755", "/var/lib/sadvise": "0711"}
