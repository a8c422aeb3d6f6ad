"""A real Slurm cluster of fake GPU nodes, for as long as a `with` block lasts."""

import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tools.stage.conf_files import ClusterShape, Topology, gres_conf, slurm_conf, topology_conf
from tools.stage.reserved import PortBlock, SharedFolder
from tools.stage.roots import LiveSlurmError, open_root
from tools.stage.sandbox import Sandbox
from tools.stage.sdiag import Cycles, cycles_of
from tools.stage.slurmdbd import OwnSlurmdbd

COMMANDS = (
    "sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sdiag", "sinfo",
    "sprio", "squeue", "srun", "sshare",
)  # fmt: skip
COMMAND_DEADLINE_S = 60.0
START_DEADLINE_S = 180.0
STOP_DEADLINE_S = 90.0
# A daemon that still runs this long after SIGTERM is killed, as systemd does: slurmctld 24.11 can hang for ever where
# the signal comes right after its start.
KILL_AFTER_S = 30.0
# A look starts a command, and clusters share the cores, so the longer a wait has lasted, the fewer looks there are.
SHORTEST_LOOK_S, LONGEST_LOOK_S, LOOK_RATIO = 0.1, 0.6, 0.1
# More at once make slurmctld slower, not faster.
SUBMITTERS = 4
SDIAG_RPC = "REQUEST_STATS_INFO"
# 127.0.0.1 and 127.0.0.2 as one number each: host names without a dot that resolve in every root filesystem, as those
# of two slurmctld that share their port must.
PRIMARY_HOST, BACKUP_HOST = "2130706433", "2130706434"
BACKUP_LINES = (
    f"SlurmctldHost={BACKUP_HOST}(127.0.0.2)",
    "CommunicationParameters=NoCtldInAddrAny",
    "SlurmctldTimeout=3",
)
# A developer's own settings must not reach the test clusters.
SLURM_VARIABLES = ("SLURM_", "SBATCH_", "SINFO_", "SPRIO_", "SQUEUE_")


class LiveCluster:
    """Starts slurmctld and one slurmd for each node on entry, and leaves nothing behind on exit."""

    def __init__(  # noqa: PLR0913 -- each is something that a test may want otherwise
        self,
        release: str,
        *,
        topology: Topology = "tree",
        scheduler_parameters: str = "",
        extra_lines: Sequence[str] = (),
        node_count: int = 8,
        gpus_per_node: int = 8,
        leaf_nodes: int = 4,
        gpu_types: Sequence[str] | None = None,
        shards: Mapping[str, int] | None = None,
        start_slurmd: bool = True,
        cloud_count: int = 0,
        cred_expire_s: int = 0,
        accounting: bool = False,
        name: str = "live",
        node_words: Mapping[str, str] | None = None,
        other_gres: Mapping[str, Mapping[str, int]] | None = None,
        beside: "LiveCluster | None" = None,
    ) -> None:
        """Take a release such as `24.11`; `gpu_types`, `shards`, `node_words` and `other_gres` tell nodes apart.

        With `accounting` every job also goes to an own slurmdbd, which knows only root until other users are added. A
        cluster `beside` one that runs with accounting, under another `name`, uses the munged and the slurmdbd of that.
        """
        self.release = release
        self.shape = ClusterShape(
            cluster_name=name,
            topology=topology,
            scheduler_parameters=scheduler_parameters,
            extra_lines=tuple(extra_lines),
            node_count=node_count,
            gpus_per_node=gpus_per_node,
            leaf_nodes=leaf_nodes,
            gpu_types=gpu_types,
            start_slurmd=start_slurmd,
            cloud_count=cloud_count,
            cred_expire_s=cred_expire_s,
            node_words=node_words or {},
            other_gres=other_gres or {},
            **({} if shards is None else {"shards": shards}),
        )
        self.version = ""
        # Counts resets, so that a test can tell whether the queue it filled is still there.
        self.generation = 0
        self.folder = Path()
        self.env: dict[str, str] = {}
        self._root = Path("/")
        self._shared: SharedFolder | None = None
        self._ports: PortBlock | None = None
        self._sandbox: Sandbox | None = None
        self._wants_accounting = accounting
        self._beside = beside
        self._accounting: OwnSlurmdbd | None = None

    def __enter__(self) -> Self:
        """Start the cluster."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the cluster."""
        self.stop()

    def start(self) -> None:
        """Start every daemon and wait until all nodes are there."""
        root = open_root(self.release)
        self.version, self._root = root.version, root.path
        try:
            self._write_files()
            self._sandbox = Sandbox(self._root)
            if self._beside is None:
                self._start_munged()
            if self._accounting is not None:
                self._accounting.start(self._sandbox, host=_host())
            if self._accounting is not None or self._beside is not None:
                self.wait_for(self._database_knows_the_cluster, START_DEADLINE_S, what="slurmdbd takes the cluster")
            self.start_controller(clean=True)
            if self.shape.start_slurmd:
                self.start_slurmd(*self._slurmd_names)
                self.wait_for(self._nodes_are_idle, START_DEADLINE_S, what="every node is idle")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process of the cluster and remove its files."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None
        if self._ports is not None:
            self._ports.release()
            self._ports = None
        if self._shared is not None:
            self._shared.remove()
            self._shared = None

    def run(self, *argv: str, check: bool = True, stdin: str = "", user: str | None = None) -> str:
        """Run a command of this cluster and return what it printed; without `check`, whatever its exit status."""
        answer = self.ask(*argv, stdin=stdin, user=user)
        if check and answer.returncode != 0:
            output = " ".join((answer.stderr or answer.stdout).split())
            raise LiveSlurmError(f"{' '.join(argv)}: exit status {answer.returncode}: {output}")
        return answer.stdout

    def ask(self, *argv: str, stdin: str = "", user: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command, as a user such as `games` if one is given, and return output, complaints and exit status."""
        if user is not None:
            # The wrappers are of no use to others: only root may change the root filesystem.
            argv = ("chroot", f"--userspec={user}:", str(self._root), f"/usr/bin/{argv[0]}", *argv[1:])
        try:
            return subprocess.run(
                argv,
                input=stdin,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                env=self.env,
                cwd="/",
                timeout=COMMAND_DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as err:
            raise LiveSlurmError(f"{' '.join(argv)}: no answer within {COMMAND_DEADLINE_S:g} s") from err

    def submit(self, *sbatch_args: str, script: str = "sleep 3600", user: str | None = None) -> int:
        """Submit one batch job, as root or as another user, and return its id; of a heterogeneous job, the leader's."""
        argv = ["sbatch", "--parsable", "--output=/dev/null", *sbatch_args]
        return int(self.run(*argv, stdin=f"#!/bin/sh\n{script}\n", user=user).partition(";")[0])

    def add_account(self, account: str, *users: str, shares: int = 1) -> None:
        """Tell slurmdbd of an account, its shares and its users, who share it equally."""
        self.run("sacctmgr", "-i", "add", "account", account, f"Fairshare={shares}")
        for user in users:
            self.run("sacctmgr", "-i", "add", "user", user, f"Account={account}", "Fairshare=1")

    def submit_many(self, count: int, *sbatch_args: str) -> list[int]:
        """Submit held single jobs as fast as slurmctld takes them."""
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            submissions = [pool.submit(self.submit, "--hold", *sbatch_args) for _ in range(count)]
            return sorted(submission.result() for submission in submissions)

    def state_of(self, job_id: int) -> str:
        """Return the state that squeue shows of a job, "" where it shows none."""
        return self.run("squeue", "-h", "-a", "-j", str(job_id), "-o", "%T", check=False).strip()

    def count(self, state: str) -> int:
        """Return the number of jobs in a state."""
        return len(self.run("squeue", "-h", "-a", "-t", state, "-o", "%A").split())

    def wait_for(
        self, predicate: Callable[[], bool], timeout_s: float = 30.0, *, what: str = "what was waited for"
    ) -> None:
        """Wait until something is true of the cluster."""
        began = time.monotonic()
        while not predicate():
            passed_s = time.monotonic() - began
            if passed_s > timeout_s:
                raise LiveSlurmError(
                    f"Slurm {self.release}: after {timeout_s:g} s still not true: {what}{self._log_end()}"
                )
            time.sleep(min(max(passed_s * LOOK_RATIO, SHORTEST_LOOK_S), LONGEST_LOOK_S))

    def start_controller(self, *, clean: bool = False) -> None:
        """Start slurmctld and wait until it answers; `clean` forgets every job and every change."""
        if clean:
            # slurmctld's own option for this, -c, keeps reservations.
            state = self._inner_folder / "state"
            shutil.rmtree(state, ignore_errors=True)
            state.mkdir()
        if self._has_backup:
            self._run_as_host(PRIMARY_HOST, "slurm.conf")
        else:
            # At a site it need not share the processors with what the nodes run.
            self._inside.run(["slurmctld", "-n", "-20", "-f", str(self.folder / "slurm.conf")])
        self.wait_for(self._controller_answers, START_DEADLINE_S, what="slurmctld answers")

    def start_slurmd(self, *names: str, rebooted: bool = False) -> None:
        """Start the slurmd of each node, as after a boot of the machine if they are `rebooted`."""
        each = f'conf=$1; shift; for name; do slurmd {"-b " if rebooted else ""}-N "$name" -f "$conf" || exit; done'
        self._inside.run(["sh", "-c", each, "sh", str(self.folder / "slurm.conf"), *names], deadline_s=START_DEADLINE_S)

    def stop_slurmd(self, name: str) -> None:
        """Stop the slurmd of a node by its own process id and wait until it is gone."""
        self._end(self._pid(f"slurmd.{name}"), f"slurmd {name}")

    def stop_controller(self) -> None:
        """Stop slurmctld by its own process id and wait until it is gone."""
        self._end(self._pid("slurmctld"), f"slurmctld {self.version}")

    def start_backup(self) -> None:
        """Start a second slurmctld, on a cluster whose `extra_lines` hold `BACKUP_LINES`, and wait for it."""
        conf = (self._inner_folder / "slurm.conf").read_text()
        (self._inner_folder / "backup.conf").write_text(conf.replace("slurmctld.", "backup."))
        self._run_as_host(BACKUP_HOST, "backup.conf")
        self.wait_for(
            lambda: self.run("scontrol", "ping", check=False).count(" is UP") == 2, START_DEADLINE_S, what="both are up"
        )

    def kill_controller(self) -> None:
        """End slurmctld at once, as a crash does."""
        self._inside.signal("KILL", self._pid("slurmctld"))

    def hang_controller(self) -> None:
        """Stop slurmctld where it stands, so that it takes connections and answers none."""
        self._inside.signal("STOP", self._pid("slurmctld"))

    def wake_controller(self) -> None:
        """Let a hanging slurmctld go on."""
        self._inside.signal("CONT", self._pid("slurmctld"))

    def rpc_counts(self) -> dict[str, int]:
        """Count the requests slurmctld has served since its start, by message type, this one left out."""
        counts = dict(self.cycles().requests)
        counts.pop(SDIAG_RPC, None)
        return counts

    def cycles(self) -> Cycles:
        """Return the passes and requests of slurmctld since its start, as sdiag shows them."""
        return cycles_of(self.run("sdiag"))

    def stop_accounting(self) -> None:
        """Stop slurmdbd; the database behind it stays."""
        self._end(self._pid("slurmdbd"), f"slurmdbd {self.version}")

    def start_accounting(self) -> None:
        """Start slurmdbd again after `stop_accounting`, and wait until it answers."""
        if self._accounting is None:
            raise LiveSlurmError("the cluster has no accounting")
        self._accounting.start_slurmdbd(self._inside)
        self.wait_for(lambda: self.ask("sacctmgr", "-n", "show", "cluster").returncode == 0, what="slurmdbd answers")

    def change_database(self, statements: str) -> None:
        """Run SQL statements on slurmdbd's database behind its back."""
        if self._accounting is None:
            raise LiveSlurmError("the cluster has no accounting")
        self._accounting.change(self._inside, statements)

    def add_system_user(self, name: str, number: int) -> None:
        """Let the daemons of the cluster know a user, and a group, that the machine does not have."""
        for file, entry in (
            ("passwd", f"{name}:x:{number}:{number}::/:/usr/sbin/nologin"),
            ("group", f"{name}:x:{number}:"),
        ):
            (self._inner_folder / file).write_text(f"{(self._root / 'etc' / file).read_text()}{entry}\n")
            self._inside.run(["mount", "--bind", str(self.folder / file), f"/etc/{file}"])

    def accounting_lines(self) -> list[str]:
        """Return the lines of slurm.conf that name the slurmdbd in use; none without accounting."""
        if self._beside is not None:
            return self._beside.accounting_lines()
        return [] if self._accounting is None else self._accounting.slurm_conf_lines()

    def drain(self, node: str, reason: str) -> None:
        """Take a node out of service for new jobs."""
        self.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    def reset(self) -> None:
        """Cancel every job and return to the state right after the start, job ids included."""
        self.generation += 1
        self.wait_for(self._queue_is_emptied, STOP_DEADLINE_S, what="no job is left in the queue")
        self.stop_controller()
        self.start_controller(clean=True)
        if self.shape.start_slurmd:
            # Left alone, slurmd would wait some seconds before it tells the new slurmctld that it is there.
            self._inside.signal("HUP", *(self._pid(f"slurmd.{name}") for name in self._slurmd_names))
            self.wait_for(self._nodes_are_idle, START_DEADLINE_S, what="every node is idle")

    @property
    def _slurmd_names(self) -> list[str]:
        return [node.name for node in self.shape.nodes() if not node.is_cloud]

    @property
    def _has_backup(self) -> bool:
        return set(BACKUP_LINES) <= set(self.shape.extra_lines)

    def _run_as_host(self, name: str, conf: str) -> None:
        """Start a slurmctld on a host of another name, by which it knows whether it is the backup."""
        start = f"hostname {name} && exec slurmctld -f {self.folder}/{conf}"
        self._inside.run(["unshare", "--uts", "sh", "-c", start])

    @property
    def _inside(self) -> Sandbox:
        if self._sandbox is None:
            raise LiveSlurmError("the cluster is not running")
        return self._sandbox

    @property
    def inner_folder(self) -> Path:
        """Return the folder of the cluster as this process reaches it."""
        return self._inner_folder

    @property
    def _inner_folder(self) -> Path:
        if self._shared is None:
            raise LiveSlurmError("the cluster is not running")
        return self._shared.inner

    def _end(self, pid: int, daemon: str) -> None:
        for signal, limit_s in (("TERM", KILL_AFTER_S), ("KILL", STOP_DEADLINE_S - KILL_AFTER_S)):
            self._inside.signal(signal, pid)
            deadline = time.monotonic() + limit_s
            while time.monotonic() < deadline:
                if not self._inside.signal("0", pid):
                    return
                time.sleep(SHORTEST_LOOK_S)
        raise LiveSlurmError(f"{daemon} did not stop within {STOP_DEADLINE_S:g} s{self._log_end()}")

    def _pid(self, daemon: str) -> int:
        """Read a daemon's process id, which counts inside the sandbox only."""
        return int((self._inner_folder / f"{daemon}.pid").read_text())

    def _write_files(self) -> None:
        """Make the cluster's folder and everything the daemons read."""
        self._shared = SharedFolder(self._root)
        self.folder, inner = self._shared.path, self._shared.inner
        daemons = 1 + (self.shape.node_count if self.shape.start_slurmd else 1)
        self._ports = PortBlock(daemons + 1)
        ports = self._ports.ports
        host = PRIMARY_HOST if self._has_backup else _host()
        conf = slurm_conf(
            self.shape,
            release=self.release,
            folder=self.folder,
            munge=(self._beside or self).folder / "munge",
            host=host,
            ports=ports[:daemons],
        )
        if self._wants_accounting:
            self._accounting = OwnSlurmdbd(root=self._root, folder=self.folder, inner=inner, port=ports[daemons])
        conf += "".join(f"{line}\n" for line in self.accounting_lines())
        (inner / "slurm.conf").write_text(conf.replace("@FOLDER@", str(self.folder)))
        (inner / "gres.conf").write_text(gres_conf(self.shape, folder=self.folder))
        if self.shape.topology != "flat":
            (inner / "topology.conf").write_text(topology_conf(self.shape))
        # Without this file newer releases look for control groups that a container does not have.
        (inner / "cgroup.conf").write_text("" if self.release == "22.05" else "CgroupPlugin=disabled\n")
        for number in range(self.shape.gpus_per_node):
            (inner / f"gpu{number}").touch()
        # Lets a test keep a node COMPLETING.
        epilog = inner / "epilog"
        epilog.write_text(f'#!/bin/sh\nwhile [ -e {self.folder}/hold."$SLURMD_NODENAME" ]; do sleep 1; done\n')
        epilog.chmod(0o755)
        (inner / "bin").mkdir()
        self.env = self._environment(inner / "bin")

    def _environment(self, bin_folder: Path) -> dict[str, str]:
        """Make the environment in which plain Slurm commands talk to this cluster."""
        search = [os.environ.get("PATH", "/usr/bin:/bin")]
        if self._root != Path("/"):
            root = shlex.quote(str(self._root))
            for command in COMMANDS:
                wrapper = bin_folder / command
                wrapper.write_text(f'#!/bin/sh\nexec chroot {root} /usr/bin/{command} "$@"\n')
                wrapper.chmod(0o755)
            search.insert(0, str(self.folder / "bin"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(SLURM_VARIABLES)}
        return {**kept, "PATH": ":".join(search), "SLURM_CONF": str(self.folder / "slurm.conf")}

    def _start_munged(self) -> None:
        """Start an own munged with an own key, so that clusters do not depend on each other or on the host."""
        folder = self.folder / "munge"
        inner = self._inner_folder / "munge"
        inner.mkdir(mode=0o755)
        key = inner / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        self._inside.run(["chown", "-R", "munge:", str(folder)])
        options = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        argv = ["munged", *(f"--{name}={folder / file}" for name, file in options.items())]
        # slurmctld looks up the name of this address for each submission, and waits for a name server if it has none.
        argv.append("--origin=127.0.0.1")
        self._inside.run(argv, user="munge")

    def _controller_answers(self) -> bool:
        if "fatal:" in self._log_end():
            raise LiveSlurmError(f"slurmctld {self.version} gave up{self._log_end()}")
        return " is UP" in self.run("scontrol", "ping", check=False)

    def _database_knows_the_cluster(self) -> bool:
        """Add the cluster, which slurmdbd refuses until it listens, and whether that worked."""
        return self.ask("sacctmgr", "-i", "add", "cluster", self.shape.cluster_name).returncode == 0

    def _nodes_are_idle(self) -> bool:
        names = ",".join(self._slurmd_names)
        states = self.run("sinfo", "-h", "-a", "-N", "-n", names, "-o", "%T", check=False).split()
        return bool(states) and set(states) == {"idle"}

    def _queue_is_emptied(self) -> bool:
        """Cancel every job, and whether none was left."""
        # Pending jobs first, or they would take the place of the running ones.
        for state in ("PENDING", "RUNNING", "SUSPENDED"):
            self.run("scancel", f"--state={state}", check=False)
        return not self.run("squeue", "-h", "-a")

    def _log_end(self) -> str:
        log = self._inner_folder / "slurmctld.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "; slurmctld.log ends: " + " | ".join(lines[-3:]) if lines else ""


def uniform_cluster(release: str, node_count: int = 8, *, gpu_type: str = "a100", **others: Any) -> LiveCluster:
    """Return a cluster, not yet started, of nodes that are all alike, without shards; `others` as `LiveCluster`."""
    return LiveCluster(release, node_count=node_count, gpu_types=[gpu_type] * node_count, shards={}, **others)


def _host() -> str:
    """Name this machine as Slurm does."""
    return socket.gethostname().partition(".")[0]
