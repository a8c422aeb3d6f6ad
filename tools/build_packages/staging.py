"""The trees of files that the packages hold: the program, and the libraries of its extras."""

import gzip
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version as version_of
from importlib.util import source_from_cache
from pathlib import Path

from advisor.backends.installation import PACKAGED
from tools.build_packages.distributions import BuildError, run
from tools.man_pages import man_pages

# The oldest pip that takes digests from constraints.
_PIP = (26, 1)
PREFIX = Path("opt/sadvise")
CONFIG_FILE = Path("etc/sadvise/sadvise.toml")
# Rows of files that name the place of the build, or that are changed here.
_LOCAL_RECORD = re.compile(r"/direct_url\.json,|^sadvise-[^/]*/INSTALLER,")
# Commands of ours; those of the libraries in the environment are left out.
COMMANDS = ("sadvise", "sadvised")
# Isolated: neither the variables nor the modules of the caller count.
SHEBANG = "#!/opt/sadvise/bin/python3 -I\n"
# Sources and where they go; a folder goes with all it holds.
FILES: Mapping[str, str] = {
    "systemd/sadvised.service": "usr/lib/systemd/system/sadvised.service",
    "systemd/sadvise-web.service": "usr/lib/systemd/system/sadvise-web.service",
    "systemd/sadvise.sysusers": "usr/lib/sysusers.d/sadvise.conf",
    "systemd/sadvise.tmpfiles": "usr/lib/tmpfiles.d/sadvise.conf",
    "systemd/controller-only.conf": "usr/share/sadvise/systemd/controller-only.conf",
    "systemd/no-network-filter.conf": "usr/share/sadvise/systemd/no-network-filter.conf",
    "slurm": "usr/share/sadvise/slurm",
    "ansible": "usr/share/sadvise/ansible",
    "monitoring": "usr/share/sadvise/monitoring",
    "README.md": "usr/share/doc/sadvise/README.md",
    "CHANGELOG.md": "usr/share/doc/sadvise/CHANGELOG.md",
    "SECURITY.md": "usr/share/doc/sadvise/SECURITY.md",
    "LICENSE": "usr/share/doc/sadvise/copyright",
    "docs": "usr/share/doc/sadvise/docs",
}
LINKS: Mapping[str, str] = {
    "usr/bin/sadvise": "/opt/sadvise/bin/sadvise",
    "usr/sbin/sadvised": "/opt/sadvise/bin/sadvised",
    # Pages refer to them by their places in a checkout.
    "usr/share/doc/sadvise/ansible": "../../sadvise/ansible",
    "usr/share/doc/sadvise/slurm": "../../sadvise/slurm",
    "usr/share/doc/sadvise/monitoring": "../../sadvise/monitoring",
}
# Shells and where they look for what completes a command; zsh does so elsewhere on systems of rpm, see archives.py.
COMPLETIONS: Mapping[str, str] = {
    "bash": "usr/share/bash-completion/completions/sadvise",
    "zsh": "usr/share/zsh/vendor-completions/_sadvise",
    "fish": "usr/share/fish/vendor_completions.d/sadvise.fish",
}
# zsh runs the file itself when it completes for the first time, and expects an answer then.
_CALLED_AT_ONCE: Mapping[str, str] = {"zsh": '_sadvise_completion "$@"\n'}
DEPENDENCIES = "usr/share/doc/sadvise/dependencies.txt"
# The libraries of these are a package of their own, several times the size of the program.
PROGRAM, EXTRAS_PACKAGE = "sadvise", "sadvise-fit"
EXTRAS = "fit,slurm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The finished tree of a package, and what a machine needs to run it."""

    name: str
    folder: Path
    version: str
    python: str
    glibc: str
    built_time: int


def build_stages(
    folder: Path, wheel: Path, *, sources: Path, interpreter: Path, constraint: Path | None, built_time: int
) -> tuple[Stage, Stage]:
    """Fill the trees of the program, from its wheel, and of its extras; `interpreter` is the one that will run them.

    What is not Python comes from a tree of `sources`.
    """
    env = _environment(built_time)
    python = _checked(interpreter, env)
    program, extras = folder / PROGRAM, folder / EXTRAS_PACKAGE
    environment = program / PREFIX
    run([str(interpreter), "-m", "venv", "--without-pip", str(environment)], env=env)
    # Chosen for both packages at once, so that every library of one goes with those of the other.
    pins = _pin(environment, wheel, constraint, program / DEPENDENCIES, env)
    _install(environment, f"{wheel}", pins, env)
    before = set(environment.rglob("*"))
    _install(environment, f"{wheel}[{EXTRAS}]", pins, env)
    _finish(environment, program, interpreter, env)
    _move_new(program, extras, before)
    _copy_files(sources, program)
    _write_printed(program, environment, env)
    _write_manual(program, built_time)
    version, glibc = wheel.name.split("-")[1], _glibc(folder)
    for tree in (program, extras):
        _settle(tree, built_time)
    return tuple(  # type: ignore[return-value]  # two
        Stage(name=tree.name, folder=tree, version=version, python=python, glibc=glibc, built_time=built_time)
        for tree in (program, extras)
    )


def _environment(built_time: int) -> dict[str, str]:
    """Make an environment in which equal inputs give equal files."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("SADVISE_", "PYTHON", "_SADVISE_"))
    }
    fixed = {"SOURCE_DATE_EPOCH": str(built_time), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    return {**kept, **fixed}


def _checked(interpreter: Path, env: Mapping[str, str]) -> str:
    """Return the name of the interpreter, such as `python3.11`; it has to be one that a package can ask for."""
    ask = "import os, sys; print(os.path.realpath(sys.executable)); print('%d.%d' % sys.version_info[:2])"
    path, version = run([str(interpreter), "-I", "-c", ask], env=env).split()
    if Path(path).parent != Path("/usr/bin"):
        raise BuildError(f"{interpreter} is {path}, which no package brings: name one of /usr/bin with --python")
    if tuple(int(part) for part in version.split(".")) < (3, 11):
        raise BuildError(f"{interpreter} is Python {version}: sadvise needs 3.11 or newer, name one with --python")
    return f"python{version}"


def _pin(environment: Path, wheel: Path, constraint: Path | None, listed: Path, env: Mapping[str, str]) -> Path:
    """List the archives of every dependency, extras included, as a constraint file with digests; return its path."""
    if tuple(int(part) for part in version_of("pip").split(".")[:2]) < _PIP:
        least = ".".join(map(str, _PIP))
        raise BuildError(
            f"pip {version_of('pip')} takes no digests from constraints: pip install --upgrade 'pip>={least}'"
        )
    report = wheel.parent / "report.json"
    options = ["--dry-run", "--report", str(report)]
    options += ["--constraint", str(constraint)] if constraint else []
    # Where one digest is given pip wants all of them, that of our own wheel included.
    checked = constraint is not None and "--hash=" in constraint.read_text()
    _pip(environment, wheel, f"{wheel}[{EXTRAS}]", options, env, checked=checked)
    lines = [
        f"{each['metadata']['name']}=={each['metadata']['version']}"
        f" --hash=sha256:{each['download_info']['archive_info']['hashes']['sha256']}\n"
        for each in json.loads(report.read_text())["install"]
        if each["metadata"]["name"] != PROGRAM
    ]
    listed.parent.mkdir(parents=True)
    listed.write_text("".join(sorted(lines, key=str.lower)))
    return listed


def _install(environment: Path, wanted: str, pins: Path, env: Mapping[str, str]) -> None:
    """Install the wheel, perhaps with extras, and the pinned archives that it needs."""
    _pip(environment, Path(wanted.partition("[")[0]), wanted, ["--constraint", str(pins)], env, checked=True)


def _pip(
    environment: Path, wheel: Path, wanted: str, options: list[str], env: Mapping[str, str], *, checked: bool
) -> None:
    argv = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python3"), "install", "--quiet"]
    argv += ["--disable-pip-version-check", "--no-compile", "--only-binary", ":all:", *options]
    requirements = wheel.parent / "requirements.txt"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    requirements.write_text(f"{wanted} --hash=sha256:{digest}\n" if checked else f"{wanted}\n")
    run([*argv, "--requirement", str(requirements)], env=env)


def _finish(environment: Path, folder: Path, interpreter: Path, env: Mapping[str, str]) -> None:
    """Clean an environment and compile its modules."""
    _clean(environment, folder, interpreter)
    # Made here and never checked against the sources: the service cannot write beside them.
    compiling = [str(environment / "bin/python3"), "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    run([*compiling, "-s", str(folder), "-p", "/", str(environment / "lib")], env=env)


def _move_new(program: Path, extras: Path, before: set[Path]) -> None:
    """Move what is in the environment of the program, and was not before, to the tree of the extras.

    What was compiled goes with its source.
    """
    for path in sorted((program / PREFIX).rglob("*")):
        source = Path(source_from_cache(path)) if path.parent.name == "__pycache__" else path
        if source not in before and not path.is_dir():
            target = extras / path.relative_to(program)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    for path in sorted((program / PREFIX).rglob("*"), reverse=True):
        if path not in before and path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def _clean(environment: Path, folder: Path, interpreter: Path) -> None:
    """Remove files that name the place of the build, and those that no command needs."""
    for script in (environment / "bin").iterdir():
        if script.name in COMMANDS:
            _, _, body = script.read_text().partition("\n")
            script.write_text(SHEBANG + body)
        elif not script.name.startswith("python"):
            script.unlink()
    settings = environment / "pyvenv.cfg"
    lines = settings.read_text().splitlines(keepends=True)
    settings.write_text("".join(line for line in lines if not line.startswith("command")))
    python = (environment / "bin/python3").readlink()
    if python != interpreter.resolve():
        (environment / "bin/python3").unlink()
        (environment / "bin/python3").symlink_to(interpreter.resolve())
    for record in environment.glob("lib/python*/site-packages/*.dist-info/RECORD"):
        (record.parent / "direct_url.json").unlink(missing_ok=True)
        # Commands, which stand outside, were changed or removed, and their digests name the place of the build.
        kept = [line for line in record.read_text().splitlines(keepends=True) if not line.startswith("../../../bin/")]
        record.write_text("".join(line for line in kept if not _LOCAL_RECORD.search(line)))
    for metadata in environment.glob("lib/python*/site-packages/sadvise-*.dist-info"):
        (metadata / "INSTALLER").write_text(f"{PACKAGED}\n")
    for link in environment.glob("lib64"):
        # A link in most environments; either way nothing of ours is behind it.
        link.unlink()
    for leftover in (environment / "share", environment / "include"):
        shutil.rmtree(leftover, ignore_errors=True)
    if str(folder) in settings.read_text():
        raise BuildError(f"{settings} names the place of the build: this Python's venv writes what is not expected")


def _copy_files(sources: Path, folder: Path) -> None:
    """Copy everything that is not Python."""
    for source, target in FILES.items():
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if (sources / source).is_dir():
            shutil.copytree(sources / source, path)
        else:
            shutil.copyfile(sources / source, path)
    for name, destination in LINKS.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(destination)
    (folder / CONFIG_FILE).parent.joinpath("conf.d").mkdir(parents=True)


def _write_printed(folder: Path, environment: Path, env: Mapping[str, str]) -> None:
    """Write what our own command prints: the configuration and the completions."""
    command = [str(environment / "bin/python3"), "-I", str(environment / "bin/sadvise")]
    (folder / CONFIG_FILE).write_text(run([*command, "config", "example"], env=env))
    for shell, place in COMPLETIONS.items():
        completion = folder / place
        completion.parent.mkdir(parents=True)
        # zsh reads the first line to learn what the file is for.
        text = run(command, env={**env, "_SADVISE_COMPLETE": f"source_{shell}"}).lstrip("\n")
        completion.write_text(text + _CALLED_AT_ONCE.get(shell, ""))


def _write_manual(folder: Path, built_time: int) -> None:
    """Write the man pages, compressed as both package formats have them."""
    for name, text in man_pages(built_time).items():
        page = folder / f"usr/share/man/man{name.rpartition('.')[2]}/{name}.gz"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def _settle(folder: Path, built_time: int) -> None:
    """Give every file the mode and the time that do not depend on who built it when."""
    for path in [folder, *sorted(folder.rglob("*"))]:
        if path.is_symlink():
            os.utime(path, (built_time, built_time), follow_symlinks=False)
            continue
        runs = path.is_dir() or bool(path.stat().st_mode & 0o100)
        path.chmod(0o755 if runs else 0o644)
        os.utime(path, (built_time, built_time))


def _glibc(folder: Path) -> str:
    """Find the C library that the newest of the compiled libraries wants."""
    tags = (path.read_text() for path in folder.glob(f"*/{PREFIX}/lib/python*/site-packages/*.dist-info/WHEEL"))
    minors = [
        min(int(minor) for minor in re.findall(r"manylinux_2_(\d+)_", text))
        for text in tags
        if re.search(r"manylinux_2_\d+_", text)
    ]
    return f"2.{max(minors, default=17)}"
