"""Types the README's two commands as an ordinary user of Debian 13, whose Python is newer, and installs its package.

    python -m tools.other_python

It takes root, and works on a copy of the root file system in which Slurm 24.11 is tested, thrown away at the end. The
commit that is checked out is cloned there; changes that are not committed are not in it. `make test` counts the
lines that its tests reach there, which this Python does at hardly any cost.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.stage.roots import LiveSlurmError, open_root

RELEASE: Final = "24.11"
ROOT: Final = Path(__file__).parent.parent
# What Debian's python3 does not bring. There is no C compiler among them.
PACKAGES: Final = "ca-certificates git make python3-venv"
# Name servers and certificates are the host's.
SCRIPT: Final = f"""
set -e
folder=$1 lower=$2 checkout=$3
mount --make-rprivate /
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
root=$folder/root
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
export DEBIAN_FRONTEND=noninteractive
chroot "$root" apt-get -qq -o APT::Sandbox::User=root update
chroot "$root" apt-get -qq install -y --no-install-recommends {PACKAGES} >/dev/null
mount --bind /etc/ssl/certs "$root/etc/ssl/certs"
mkdir "$root/srv/checkout"
mount --bind "$checkout" "$root/srv/checkout"
chroot "$root" useradd --create-home reader
chroot "$root" git config --system --add safe.directory '*'
as_reader() {{ chroot --userspec=reader:reader "$root" env HOME=/home/reader LANG=C.UTF-8 sh -ec "cd; $1"; }}
as_reader 'git clone -q /srv/checkout sadvise'
as_reader 'cd sadvise; make demo'
export COVERAGE_CORE=sysmon
as_reader 'cd sadvise; make test COVERAGE="--cov --cov-report=term:skip-covered"'
as_reader 'cd sadvise; .venv/bin/python -m tools.build_packages --format deb --out dist'
chroot "$root" sh -c 'dpkg --install /home/reader/sadvise/dist/sadvise_*.deb'
as_reader 'sadvise --version; sadvise recommend --demo'
"""


def main() -> int:
    """Run the script, and return its exit status."""
    summary = (__doc__ or "").partition("\n")[0]
    argparse.ArgumentParser(prog="python -m tools.other_python", description=summary).parse_args()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        lower = open_root(RELEASE).path
    except LiveSlurmError as err:
        print(f"other python: {err}", file=sys.stderr)
        return 1
    passed = {
        name: text for name, text in os.environ.items() if name.startswith("PIP_") or name.endswith(("_proxy", "_CERT"))
    }
    with tempfile.TemporaryDirectory(prefix="sadvise-") as folder:
        argv = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            SCRIPT,
            "sh",
            folder,
            str(lower),
            str(ROOT),
        ]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **passed}
        return subprocess.run(argv, stdin=subprocess.DEVNULL, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
