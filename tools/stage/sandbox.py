"""A process and mount namespace over one root filesystem; nothing started in it outlives it."""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.stage.roots import LiveSlurmError

STOP_DEADLINE_S = 20.0

# The shell is process 1 of the namespace and waits on a pipe that only this program holds open. When the
# program ends, however it ends, the pipe closes, the shell exits and the kernel ends every other process.
HOLD = 'mount -t proc proc "$1" && echo ready && cat >/dev/null; exit 0'


class Sandbox:
    """Runs programs of `root` where they see their own processes and a `/proc` of their own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", HOLD, "sh", str(root / "proc")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if self._holder.stdout is None or self._holder.stdout.readline().strip() != "ready":
            complaint = self._holder.stderr.read().strip() if self._holder.stderr is not None else ""
            self.close()
            raise LiveSlurmError(f"no process namespace could be made (are you root?): {complaint}")

    def run(self, argv: Sequence[str], *, user: str = "root", deadline_s: float = 120.0) -> None:
        """Run one program until it ends or has put itself into the background."""
        # A daemon may keep its standard error open, so a file takes it: a pipe would never end.
        with tempfile.TemporaryFile() as complaint:
            answer = subprocess.run(
                [*self._enter(), "chroot", f"--userspec={user}:", str(self._root), *argv],
                stdin=subprocess.DEVNULL,
                stdout=complaint,
                stderr=complaint,
                timeout=deadline_s,
                cwd="/",
                check=False,
            )
            complaint.seek(0)
            text = complaint.read().decode(errors="replace").strip()
        if answer.returncode != 0:
            raise LiveSlurmError(f"{argv[0]}: exit status {answer.returncode}: {text}")

    def signal(self, name: str, *pids: int) -> bool:
        """Send a signal to processes by their numbers inside; false if there is no such process."""
        answer = subprocess.run(
            [*self._enter(), "sh", "-c", 'name=$1; shift; kill -s "$name" "$@"', "sh", name, *map(str, pids)],
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return answer.returncode == 0

    def close(self) -> None:
        """End every process inside."""
        for stream in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
            if stream is not None:
                stream.close()
        try:
            self._holder.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()

    def _enter(self) -> list[str]:
        namespaces = f"/proc/{self._holder.pid}/ns"
        return ["nsenter", f"--pid={namespaces}/pid_for_children", f"--mount={namespaces}/mnt"]
