"""The packages: what they hold, and that they install, start, upgrade and go away on a machine with systemd."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.throwaway_machine import MachineError, ThrowawayMachine
from tools.live_slurm import LiveCluster, LiveSlurmError

ROOT = Path(__file__).parent.parent
BUILT_TIME = 1_700_000_000
DEADLINE_S = 900
SLURM = "/srv/slurm"

missing = [name for name in ("dpkg-deb", "rpmbuild", "rpm") if shutil.which(name) is None]
required = os.environ.get("SADVISE_REQUIRE_SLURM") == "1"
pytestmark = [
    pytest.mark.skipif(bool(missing) and not required, reason=f"not installed: {', '.join(missing)}"),
    # The first test builds both packages, then boots a machine.
    pytest.mark.timeout(1200),
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both packages, built once."""
    out = tmp_path_factory.mktemp("packages")
    answer = subprocess.run(
        [sys.executable, "-m", "tools.build_packages", "--out", str(out)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(BUILT_TIME)},
        timeout=DEADLINE_S,
        check=False,
    )
    if "which no package brings" in answer.stderr and not required:
        pytest.skip(answer.stderr.strip())
    assert answer.returncode == 0, answer.stderr
    return out


@pytest.fixture(scope="module")
def machine(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThrowawayMachine]:
    """A machine with systemd that has the packages in /packages and a Slurm cluster to talk to."""
    try:
        with LiveCluster("22.05", node_count=2) as cluster:
            inner = tmp_path_factory.mktemp("slurm")
            conf = (cluster.folder / "slurm.conf").read_text().replace(str(cluster.folder), SLURM)
            (inner / "slurm.conf").write_text(conf)
            inner.chmod(0o755)
            binds = {packages: "/packages", cluster.folder: SLURM, inner: "/etc/slurm"}
            with ThrowawayMachine(tmp_path_factory.mktemp("machine"), binds) as booted:
                yield booted
    except (LiveSlurmError, MachineError) as err:
        if required:
            raise
        pytest.skip(f"no machine to install on: {err}")


def output(*argv: str) -> str:
    """Return what a program prints."""
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


def deb(packages: Path) -> str:
    """Name the Debian package."""
    return str(next(packages.glob("*.deb")))


def deb_files(packages: Path) -> dict[str, str]:
    """Map what the .deb holds to mode, owner, size and time."""
    found = {}
    for line in output("dpkg-deb", "--contents", deb(packages)).splitlines():
        *about, name = line.split(None, 5)
        found[name.split(" -> ")[0].removeprefix(".").rstrip("/")] = " ".join(about)
    return found


def state(machine: ThrowawayMachine) -> tuple[str, str]:
    """Return whether the service is enabled and whether it runs."""
    return (
        machine.ask("systemctl", "is-enabled", "sadvised.service").stdout.strip(),
        machine.ask("systemctl", "is-active", "sadvised.service").stdout.strip(),
    )


def shown(machine: ThrowawayMachine, name: str) -> str:
    """Return a property of the service."""
    return machine.run("systemctl", "show", "--property", name, "--value", "sadvised.service").strip()


def install_deb(machine: ThrowawayMachine) -> None:
    """Install or upgrade to the package."""
    machine.run("sh", "-c", "dpkg --install /packages/*.deb")


def test_packages_ask_for_the_python_whose_libraries_they_hold(packages: Path) -> None:
    needs = output("dpkg-deb", "--field", deb(packages), "Depends")
    rpm_needs = output("rpm", "-qp", "--requires", str(next(packages.glob("*.rpm"))))
    held = {match[1] for name in deb_files(packages) if (match := re.search(r"\.cpython-3(\d+)-", name))}

    assert len(held) == 1
    assert f"python3.{held.copy().pop()}," in needs
    assert f"/usr/bin/python3.{held.copy().pop()}\n" in rpm_needs


def test_both_packages_hold_the_same_files_at_one_time_owned_by_root(packages: Path) -> None:
    in_deb = deb_files(packages)
    in_rpm = set(output("rpm", "-qlp", str(next(packages.glob("*.rpm")))).split())
    times = set(output("rpm", "-qp", "--queryformat", "[%{FILEMTIMES}\n]", str(next(packages.glob("*.rpm")))).split())
    files = {name for name, about in in_deb.items() if not about.startswith("d")}

    # Two places of one file: zsh looks elsewhere on systems of rpm.
    assert {name.replace("/zsh/vendor-completions/", "/zsh/site-functions/") for name in files} <= in_rpm
    assert {
        "/opt/sadvise/bin/sadvised",
        "/etc/sadvise/sadvise.toml",
        "/usr/share/sadvise/slurm/job_submit.lua",
        "/usr/share/man/man1/sadvise-recommend.1.gz",
        "/usr/share/man/man5/sadvise.toml.5.gz",
        "/usr/share/man/man8/sadvised.8.gz",
        "/usr/share/bash-completion/completions/sadvise",
        "/usr/share/zsh/vendor-completions/_sadvise",
        "/usr/share/fish/vendor_completions.d/sadvise.fish",
    } <= files
    assert {about.split()[1] for about in in_deb.values()} == {"root/root"}
    assert not any(about[8] == "w" for about in in_deb.values() if not about.startswith("l"))
    assert {tuple(about.split()[3:5]) for about in in_deb.values()} == {("2023-11-14", "22:13")}
    assert times == {str(BUILT_TIME)}


def test_package_names_no_place_of_the_build_and_every_dependency_with_its_digest(
    packages: Path, tmp_path: Path
) -> None:
    subprocess.run(["dpkg-deb", "--extract", deb(packages), str(tmp_path)], check=True)

    listed = (tmp_path / "usr/share/doc/sadvise/dependencies.txt").read_text().splitlines()
    small = [
        path for path in tmp_path.rglob("*") if path.suffix in {".cfg", ".pth", ".json", ".pyc"} and path.is_file()
    ]
    small += [path for path in (tmp_path / "opt/sadvise/bin").iterdir() if not path.is_symlink()]
    assert all(re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in listed)
    assert {"numpy", "onnxruntime", "pydantic"} <= {line.partition("==")[0] for line in listed}
    records = [path.read_text() for path in tmp_path.rglob("*.dist-info/RECORD")]
    assert len(records) > len(listed)
    # Their digests would differ from build to build.
    assert not any(re.search(r"^\.\./\.\./\.\./bin/|/direct_url\.json,", record, re.MULTILINE) for record in records)
    assert [str(path) for path in small if b"sadvise-packages-" in path.read_bytes()] == []


def test_package_installs_and_starts_nothing(machine: ThrowawayMachine) -> None:
    install_deb(machine)

    assert state(machine) == ("disabled", "inactive")
    assert machine.run("sadvise", "--version").startswith("sadvise ")
    assert machine.run("stat", "-c", "%U %a", "/var/lib/sadvise").split() == ["sadvise", "711"]
    assert machine.run("getent", "passwd", "sadvise").strip().endswith("/nologin")
    assert machine.run("dpkg", "--verify", "sadvise") == ""
    assert machine.run("systemd-analyze", "verify", "/usr/lib/systemd/system/sadvised.service") == ""


def test_service_runs_under_its_restrictions_and_reads_slurm(machine: ThrowawayMachine) -> None:
    machine.run("systemctl", "start", "sadvised.service")
    deadline = time.monotonic() + 30.0
    while "recommended" not in shown(machine, "StatusText") and time.monotonic() < deadline:
        time.sleep(0.2)

    process = machine.run("cat", f"/proc/{shown(machine, 'MainPID')}/status")
    said = shown(machine, "StatusText")
    assert state(machine) == ("disabled", "active")
    assert re.search(r"^CapBnd:\t0+$", process, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\t1$", process, re.MULTILINE)
    assert re.search(r"^Seccomp:\t2$", process, re.MULTILINE)
    log = machine.run("journalctl", "--no-pager", "--unit", "sadvised.service")
    assert "recommended" in said, said + log
    assert "rror" not in log
    assert "arning" not in log
    # Nothing but the journal and its locks: no library keeps files of its own here.
    assert {name.partition(".")[0] for name in machine.run("ls", "-A", "/var/lib/sadvise").split()} == {"journal"}


def test_service_that_runs_is_upgraded_and_runs_again(machine: ThrowawayMachine) -> None:
    before = shown(machine, "MainPID")

    install_deb(machine)

    assert state(machine) == ("disabled", "active")
    assert shown(machine, "MainPID") != before


def test_broken_configuration_keeps_the_service_from_starting_and_says_why(machine: ThrowawayMachine) -> None:
    machine.run("systemctl", "stop", "sadvised.service")
    machine.run("sh", "-c", "echo '[plannning]' >/etc/sadvise/conf.d/broken.toml")

    started = machine.ask("systemctl", "start", "sadvised.service")

    log = machine.run("journalctl", "--no-pager", "--unit", "sadvised.service")
    machine.run("rm", "/etc/sadvise/conf.d/broken.toml")
    machine.run("systemctl", "stop", "sadvised.service")
    machine.ask("systemctl", "reset-failed", "sadvised.service")
    assert started.returncode != 0
    assert "did you mean planning?" in log


def test_service_that_does_not_run_is_upgraded_and_stays_so(machine: ThrowawayMachine) -> None:
    install_deb(machine)

    assert state(machine) == ("disabled", "inactive")


def test_removal_stops_the_service_and_keeps_its_journal_and_a_purge_does_not(machine: ThrowawayMachine) -> None:
    machine.run("systemctl", "enable", "--now", "sadvised.service")

    machine.run("dpkg", "--remove", "sadvise")
    left = machine.run("ls", "/var/lib/sadvise", "/etc/sadvise")
    machine.run("dpkg", "--purge", "sadvise")

    assert state(machine)[1] == "inactive"
    assert "journal.sqlite" in left
    assert "sadvise.toml" in left
    for path in (
        "/opt/sadvise",
        "/var/lib/sadvise",
        "/etc/sadvise",
        "/etc/systemd/system/multi-user.target.wants/sadvised.service",
    ):
        assert machine.ask("test", "-e", path).returncode == 1


def test_rpm_installs_starts_nothing_and_goes_away(machine: ThrowawayMachine) -> None:
    # The machine's own packages are Debian's, so rpm knows of none that are asked for.
    machine.run("sh", "-c", "rpm --install --nodeps /packages/*.rpm")
    after = state(machine)
    version = machine.run("sadvise", "--version")
    machine.run("rpm", "--verify", "--nodeps", "sadvise")
    machine.run("systemctl", "start", "sadvised.service")
    running = state(machine)
    machine.run("rpm", "--erase", "sadvise")

    assert after == ("disabled", "inactive")
    assert version.startswith("sadvise ")
    assert running == ("disabled", "active")
    assert state(machine)[1] == "inactive"
    assert machine.ask("test", "-e", "/opt/sadvise").returncode == 1
    assert machine.ask("test", "-e", "/var/lib/sadvise").returncode == 0
