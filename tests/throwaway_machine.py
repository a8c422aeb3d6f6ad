"""A machine to install packages on: this one's files under a layer that is thrown away, with a systemd of its own."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

BOOT_DEADLINE_S = 180.0
# Several times what the slowest command takes on a machine that does nothing else.
COMMAND_DEADLINE_S = 600.0
CGROUPS = Path("/sys/fs/cgroup")
# What systemd would do to the kernel of the host is out of its reach: /sys and /proc/sys cannot be written. Its control
# groups stand below one of our own.
BOOT = """
set -e
folder=$1; shift
mount --make-rprivate /
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
root=$folder/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
while [ $# -gt 0 ]; do mkdir -p "$root/$2"; mount --bind "$1" "$root/$2"; shift 2; done
mkdir -p "$root/oldroot"
cd "$root"; pivot_root . oldroot; cd /
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount --rbind /oldroot/dev /dev
mount -t sysfs sysfs /sys
if [ -e /oldroot/sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for each in $(ls /oldroot/sys/fs/cgroup); do
        mkdir "/sys/fs/cgroup/$each"
        case $each in
            unified) mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified ;;
            systemd) mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd ;;
            *) mount -t cgroup -o "$each" cgroup "/sys/fs/cgroup/$each" ;;
        esac
    done
fi
mount -o remount,bind,ro /sys
umount -l /oldroot
echo 5ad715e05ad715e05ad715e05ad715e0 >/etc/machine-id
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    /lib/systemd/systemd --system --unit=basic.target --log-target=console --show-status=0
"""


class MachineError(RuntimeError):
    """The machine does not start here: it takes root, and the right to mount and to make control groups."""


class ThrowawayMachine:
    """Boots on entry, and leaves nothing behind on exit."""

    def __init__(self, folder: Path, binds: Mapping[Path, str]) -> None:
        """Take an empty folder, and folders of the host with their names on the machine."""
        self._folder = folder
        self._binds = binds
        self._process: subprocess.Popen[bytes] | None = None
        self._first = 0
        self._groups: list[Path] = []

    def __enter__(self) -> Self:
        """Boot."""
        try:
            self._boot()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End every process of the machine and forget its files."""
        self._stop()

    def ask(self, *argv: str, deadline_s: float = COMMAND_DEADLINE_S) -> subprocess.CompletedProcess[str]:
        """Run a program there as root."""
        enter = ["nsenter", "--target", str(self._first), "--mount", "--pid", "--uts", "--ipc", "--cgroup"]
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        return subprocess.run(
            [*enter, "--root", "--wd", *argv],
            capture_output=True,
            text=True,
            timeout=deadline_s,
            env=environment,
            check=False,
        )

    def run(self, *argv: str) -> str:
        """Run a program there that has to succeed, and return what it printed."""
        answer = self.ask(*argv)
        if answer.returncode != 0:
            raise MachineError(f"{' '.join(argv)}: {answer.stdout}{answer.stderr}")
        return answer.stdout

    def _boot(self) -> None:
        binds = [text for outer, inner in self._binds.items() for text in (str(outer), inner)]
        name = f"sadvise-machine-{os.getpid()}"
        # The hierarchies of the first version stand side by side below a folder.
        unified = (CGROUPS / "cgroup.controllers").exists()
        try:
            for hierarchy in [CGROUPS] if unified else sorted(CGROUPS.iterdir()):
                (hierarchy / name).mkdir()
                self._groups.append(hierarchy / name)
        except OSError as err:
            raise MachineError(f"no control group can be made: {err}") from err
        # Into its control groups before it gets a view in which they are the top.
        joining = "".join(f'echo $$ >"{group}/cgroup.procs" || true; ' for group in self._groups)
        apart = "exec unshare --mount --pid --uts --ipc --cgroup --fork --kill-child"
        argv = ["bash", "-c", f'{joining}{apart} bash -c "$0" "$@"', BOOT, "boot", str(self._folder), *binds]
        log = self._folder.with_suffix(".log").open("wb")
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        deadline = time.monotonic() + BOOT_DEADLINE_S
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = self._folder.with_suffix(".log").read_text(errors="replace")[-400:]
                raise MachineError(f"it does not boot: {' '.join(tail.split())}")
            time.sleep(0.2)

    def _is_up(self) -> bool:
        if self._process is None:
            return False
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        first = children.read_text().split() if children.exists() else []
        if not first or Path(f"/proc/{first[0]}/comm").read_text().strip() != "systemd":
            return False
        self._first = int(first[0])
        return self.ask("systemctl", "is-active", "--quiet", "basic.target").returncode == 0

    def _stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            # The first process of the machine goes with it, and everything else with that.
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30.0)
        for group in self._groups:
            self._remove(group)
        self._groups = []

    @staticmethod
    def _remove(group: Path) -> None:
        """Remove a control group with those below it, once their last processes are gone."""
        deadline = time.monotonic() + 10.0
        while True:
            try:
                for below in sorted((each for each in group.rglob("*") if each.is_dir()), reverse=True):
                    below.rmdir()
                group.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return
