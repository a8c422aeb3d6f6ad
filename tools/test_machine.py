"""Installs what the tests need beyond Python packages: Slurm, package builders, a browser.

    python -m tools.test_machine [--live] [--release 24.11 ...]

As root on Debian it installs the packages that are missing; elsewhere it prints what is missing, and exits with 1.
`--live` takes what the tests of live Slurm need, without it everything. Each named release that comes in a root file
system of its own is installed there.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tools.stage.roots import RELEASES, LiveSlurmError, open_root

# Programs, with the Debian packages that hold them.
LIVE: Final[Mapping[str, str]] = {
    "debootstrap": "debootstrap",
    "mariadbd": "mariadb-server",
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmdbd": "slurmdbd",
}
OTHERS: Final[Mapping[str, str]] = {
    "chromium": "chromium",
    "curl": "curl",
    "dnf": "dnf",
    "dpkg-deb": "dpkg",
    "gcc": "gcc",
    "groff": "groff-base",
    "msmtp": "msmtp",
    "rpm": "rpm",
    "rpmbuild": "rpm",
    "systemd-analyze": "systemd",
}
# Beside them: the C library's headers for gcc, and what dnf and Ansible need of the system's Python.
LIBRARIES: Final = ("libc6-dev", "python3-apt")
# Their package would also start a Prometheus.
PROMETHEUS: Final = ("prometheus", "promtool")
SYSTEM_FOLDERS: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def is_there(program: str) -> bool:
    """Return whether a program is installed, for everybody or for root."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM_FOLDERS])) is not None


def missing(programs: Mapping[str, str]) -> list[str]:
    """Return the packages of the programs that are not installed."""
    return sorted({package for program, package in programs.items() if not is_there(program)})


def install(packages: Sequence[str], programs: Sequence[str]) -> None:
    """Install packages with apt, and programs of Prometheus; raises `CalledProcessError`."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ("apt-get", "-qq", "-o", "APT::Sandbox::User=root")
    subprocess.run([*apt, "update"], env=environment, check=True)
    if packages:
        argv = [*apt, "install", "-y", "--no-install-recommends", *packages]
        subprocess.run(argv, env=environment, stdout=subprocess.DEVNULL, check=True)
    if programs:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([*apt, "download", "prometheus"], cwd=folder, env=environment, check=True)
            [package] = Path(folder).glob("prometheus_*.deb")
            subprocess.run(["dpkg-deb", "--extract", str(package), folder], check=True)
            for program in programs:
                shutil.copy(Path(folder, "usr/bin", program), "/usr/local/bin")


def main() -> int:
    """Install what is missing, or print it."""
    parser = argparse.ArgumentParser(prog="python -m tools.test_machine", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--live", action="store_true", help="only what the tests of live Slurm need")
    parser.add_argument(
        "--release", action="append", default=[], choices=RELEASES, help="a release of Slurm to install"
    )
    options = parser.parse_args()
    packages = missing(LIVE if options.live else {**LIVE, **OTHERS})
    if packages and not options.live:
        packages += LIBRARIES
    programs = [program for program in PROMETHEUS if not is_there(program)]
    wanted = [*packages, *programs]
    if wanted and (os.geteuid() != 0 or not is_there("apt-get")):
        print(f"test machine: as root on Debian this installs {' '.join(wanted)}; here install them yourself",
              file=sys.stderr)  # fmt: skip
        return 1
    try:
        if wanted:
            print(f"test machine: installing {' '.join(wanted)}", flush=True)
            install(packages, programs)
        with ThreadPoolExecutor() as pool:
            for root in pool.map(open_root, options.release):
                print(f"test machine: Slurm {root.version} is ready in {root.path}", flush=True)
    except (LiveSlurmError, subprocess.CalledProcessError, OSError) as err:
        print(f"test machine: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
