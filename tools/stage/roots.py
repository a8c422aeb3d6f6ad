"""The Slurm releases that tests run, and the root filesystems they are installed in."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Inside each of these the bootstrap takes about a minute; a mirror that is slower than this is as good as gone.
BOOTSTRAP_DEADLINE_S = 1800.0
# Debian's newer suites are all bootstrapped by this script, also where debootstrap does not know their names yet.
BOOTSTRAP_SCRIPT = Path("/usr/share/debootstrap/scripts/sid")
PACKAGES = "slurm-wlm,munge"
HOST_PROGRAMS = ("chroot", "mount", "nsenter", "unshare")


class LiveSlurmError(RuntimeError):
    """A test cluster could not be built, started or asked; the text is one line for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRelease:
    """One Slurm release; without a suite it is what the host has installed."""

    name: str
    suite: str | None


RELEASES: Mapping[str, SlurmRelease] = {
    release.name: release
    for release in (
        SlurmRelease(name="22.05", suite=None),
        SlurmRelease(name="24.11", suite="trixie"),
        SlurmRelease(name="26.05", suite="forky"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A root filesystem that holds one installed release; `/` for the host itself."""

    release: str
    version: str
    path: Path


def ready_releases() -> list[str]:
    """List the releases that start without a bootstrap."""
    return [name for name, release in RELEASES.items() if (_root_path(release) / "usr/sbin/slurmctld").exists()]


def open_root(name: str) -> Root:
    """Find the root filesystem of a release, bootstrap it where there is none yet, and check its version."""
    if name not in RELEASES:
        raise LiveSlurmError(f"there is no release {name!r} here: choose one of {', '.join(RELEASES)}")
    release = RELEASES[name]
    _check_host()
    if release.suite is not None:
        _bootstrap(release, release.suite)
    path = _root_path(release)
    return Root(release=name, version=_version(release, path), path=path)


def cache_folder() -> Path:
    """Name the folder that keeps the root filesystems."""
    chosen = os.environ.get("SADVISE_SLURM_CACHE")
    return Path(chosen).absolute() if chosen else Path.home() / ".cache/sadvise/slurm"


def _root_path(release: SlurmRelease) -> Path:
    return Path("/") if release.suite is None else cache_folder() / release.name


def _check_host() -> None:
    if os.geteuid() != 0:
        raise LiveSlurmError("test clusters need root: they use chroot and process namespaces")
    missing = [program for program in HOST_PROGRAMS if shutil.which(program) is None]
    if missing:
        raise LiveSlurmError(f"not found on PATH: {', '.join(missing)} (packages coreutils, mount and util-linux)")


def _version(release: SlurmRelease, root: Path) -> str:
    """Ask the installed slurmctld which version it is."""
    for program in ("slurmctld", "slurmd", "munged"):
        if not (root / "usr/sbin" / program).exists():
            raise LiveSlurmError(f"{program} is not installed in {root}: apt-get install {PACKAGES.replace(',', ' ')}")
    answer = subprocess.run(
        ["chroot", str(root), "/usr/sbin/slurmctld", "-V"], capture_output=True, text=True, check=False
    )
    match = re.search(r"(\d+\.\d+)\.\d+\S*", answer.stdout)
    if match is None:
        raise LiveSlurmError(f"slurmctld -V in {root} names no version: {(answer.stdout + answer.stderr).strip()}")
    if match[1] != release.name:
        origin = "the host" if release.suite is None else f"Debian {release.suite}"
        raise LiveSlurmError(f"{origin} holds Slurm {match[0]}, no longer {release.name}")
    return match[0]


def _bootstrap(release: SlurmRelease, suite: str) -> None:
    """Install a Debian suite with Slurm into the cache, unless it is there."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / release.name
    with _locked(cache / f"{release.name}.lock") as lock:
        if target.exists():
            return
        if shutil.which("debootstrap") is None or not BOOTSTRAP_SCRIPT.exists():
            raise LiveSlurmError("debootstrap is not found on PATH: apt-get install debootstrap")
        # The holder of the lock can remove what a killed bootstrap left.
        for leftover in cache.glob(f"{release.name}.partial-*"):
            shutil.rmtree(leftover)
        partial = Path(tempfile.mkdtemp(prefix=f"{release.name}.partial-", dir=cache))
        try:
            partial.chmod(0o755)
            _run_debootstrap(suite, partial, lock)
            shutil.rmtree(partial / "var/cache/apt/archives", ignore_errors=True)
            # The copied name server may not answer where the cache is used, and Slurm waits for it.
            (partial / "etc/resolv.conf").write_text("")
            (partial / "etc/hosts").write_text("127.0.0.1 localhost\n")
            _version(release, partial)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _run_debootstrap(suite: str, folder: Path, lock: int) -> None:
    # In namespaces of its own no mount of it stays behind, and ending the first process ends them all.
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "debootstrap"]
    argv += ["--variant=minbase", f"--include={PACKAGES}", suite, str(folder), _mirror(), str(BOOTSTRAP_SCRIPT)]
    with tempfile.TemporaryFile() as log:
        try:
            answer = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=BOOTSTRAP_DEADLINE_S,
                check=False,
                # It keeps the lock for as long as it writes, even if this process is killed.
                pass_fds=(lock,),
            )
        except subprocess.TimeoutExpired as err:
            raise LiveSlurmError(f"debootstrap of {suite} took more than {BOOTSTRAP_DEADLINE_S:g} s") from err
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
    if answer.returncode != 0:
        raise LiveSlurmError(f"debootstrap of {suite} failed: {_reason(lines)}")


def _reason(lines: Sequence[str]) -> str:
    """Pick the line of debootstrap's output that tells a person most."""
    errors = [line.removeprefix("E: ") for line in lines if line.startswith("E: ")]
    if any("Failed getting release file" in line for line in errors):
        return f"the mirror does not answer ({errors[-1]})"
    return errors[-1] if errors else (lines[-1] if lines else "it printed nothing")


def _mirror() -> str:
    """Name the Debian mirror that apt uses here; empty leaves the choice to debootstrap."""
    argv = [
        "apt-get",
        "indextargets",
        "--format",
        "$(ORIGIN) $(LABEL) $(COMPONENT) $(REPO_URI)",
        "Identifier: Packages",
    ]
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    for line in answer.stdout.splitlines():
        origin, label, component, uri = line.split(" ", maxsplit=3)
        if (origin, label, component) == ("Debian", "Debian", "main"):
            return uri.rstrip("/")
    return ""


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Hold a file lock and lend its descriptor; the lock ends when the last process that has it ends."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle.fileno()
