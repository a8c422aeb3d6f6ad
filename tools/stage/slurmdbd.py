"""The accounting daemons of a test cluster: a MariaDB of its own behind a private socket, and slurmdbd on top of it.

With libmariadb 11.8.9 of Debian forky slurmdbd ends at its first query, `select @var := concat('')`: error 5027, a
result of one column where none is allowed. There it needs the libmariadb.so.3 of Debian bookworm (libmariadb3 10.11) in
`CLIENT_FOLDER` of the root file system.
"""

import time
from pathlib import Path

from tools.stage.roots import LiveSlurmError
from tools.stage.sandbox import Sandbox

PACKAGES = "slurmdbd mariadb-server"
PROGRAMS = ("usr/sbin/slurmdbd", "usr/sbin/mariadbd", "usr/bin/mariadb-install-db")
# Where slurmdbd finds a client library of MariaDB in place of that of the root file system.
CLIENT_FOLDER = "opt/mariadb-client"
START_DEADLINE_S = 180.0
DATABASE = "slurm_acct_db"

# The database dies with the cluster, so nothing in it need survive a power cut; 64 MiB hold every test's jobs.
DATABASE_OPTIONS = (
    "--skip-networking",
    "--skip-log-bin",
    "--user=root",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=64M",
    "--innodb-lock-wait-timeout=900",
    # On by default from 11.6 on, where slurmdbd would end at conflicting writes; earlier servers do not all know it.
    "--loose-innodb-snapshot-isolation=OFF",
    "--max-allowed-packet=16M",
)


class OwnSlurmdbd:
    """Starts the two daemons in a sandbox, whose end is theirs; `folder` and `inner` as in `SharedFolder`."""

    def __init__(self, *, root: Path, folder: Path, inner: Path, port: int) -> None:
        missing = [program for program in PROGRAMS if not (root / program).exists()]
        if missing:
            names = ", ".join(Path(program).name for program in missing)
            raise LiveSlurmError(f"{names} not installed in {root}: accounting needs the packages {PACKAGES}")
        self._root, self._folder, self._inner, self._port = root, folder, inner, port

    def slurm_conf_lines(self) -> list[str]:
        """Write the lines of slurm.conf that send every job to slurmdbd."""
        return [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={self._port}",
            # Towards slurmdbd this, not AuthInfo, names munged's socket.
            f"AccountingStoragePass={self._folder}/munge/socket",
            "AccountingStorageTRES=gres/gpu",
        ]

    def start(self, sandbox: Sandbox, *, host: str) -> None:
        """Start the database, then slurmdbd, and wait until each of them takes requests."""
        database = self._folder / "database"
        # Two databases that start at once would use the same names in /tmp.
        (self._inner / "database/scratch").mkdir(parents=True)
        scratch = database / "scratch"
        sandbox.run(
            [
                "env",
                f"TMPDIR={scratch}",
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={database}/files",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--user=root",
            ]
        )
        options = [
            "--no-defaults",
            f"--datadir={database}/files",
            f"--socket={database}/socket",
            f"--pid-file={database}/pid",
            f"--tmpdir={scratch}",
            *DATABASE_OPTIONS,
        ]
        # It never puts itself into the background.
        sandbox.run(["sh", "-c", 'log=$1; shift; "$@" >"$log" 2>&1 &', "sh", f"{database}/log", "mariadbd", *options])
        self._wait(self._inner / "database/socket", self._inner / "database/log", "mariadbd")
        self._write_slurmdbd_conf(host)
        self.start_slurmdbd(sandbox)

    def start_slurmdbd(self, sandbox: Sandbox) -> None:
        """Start slurmdbd on the database that runs, and wait until it is there."""
        # It has no option for the place of its file, nor for the database's socket.
        sandbox.run(
            [
                "env",
                f"SLURM_CONF={self._folder}/slurm.conf",
                f"MYSQL_UNIX_PORT={self._folder}/database/socket",
                *([f"LD_LIBRARY_PATH=/{CLIENT_FOLDER}"] if (self._root / CLIENT_FOLDER).is_dir() else []),
                "slurmdbd",
            ]
        )
        self._wait(self._inner / "slurmdbd.pid", self._inner / "slurmdbd.log", "slurmdbd")

    def change(self, sandbox: Sandbox, statements: str) -> None:
        """Run SQL statements on slurmdbd's database behind its back."""
        file = self._inner / "database/statements.sql"
        file.write_text(statements)
        client = f"exec mariadb --no-defaults --socket={self._folder}/database/socket {DATABASE}"
        sandbox.run(["sh", "-c", f"{client} <{self._folder}/database/statements.sql"], deadline_s=START_DEADLINE_S)

    def _write_slurmdbd_conf(self, host: str) -> None:
        lines = [
            f"DbdHost={host}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={self._port}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self._folder}/munge/socket",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            "StorageUser=root",
            f"StorageLoc={DATABASE}",
            f"PidFile={self._folder}/slurmdbd.pid",
            f"LogFile={self._folder}/slurmdbd.log",
            # Jobs reach the database at once, not when enough of them have gathered.
            "CommitDelay=0",
        ]
        conf = self._inner / "slurmdbd.conf"
        conf.touch(mode=0o600)
        conf.write_text("\n".join(lines) + "\n")

    def _wait(self, sign: Path, log: Path, daemon: str) -> None:
        """Wait for the file that a daemon makes when it is ready."""
        deadline = time.monotonic() + START_DEADLINE_S
        while not sign.exists():
            if time.monotonic() > deadline:
                lines = log.read_text(errors="replace").splitlines() if log.exists() else []
                raise LiveSlurmError(f"{daemon} did not start within {START_DEADLINE_S:g} s: {' | '.join(lines[-3:])}")
            time.sleep(0.05)
