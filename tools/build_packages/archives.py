"""The two package formats around a tree of files."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tools.build_packages.distributions import BuildError, run
from tools.build_packages.staging import CONFIG_FILE, EXTRAS_PACKAGE, PREFIX, PROGRAM, Stage

SCRIPTS = Path(__file__).parent / "scripts"
RELEASE = "1"
# Where zsh looks: on Debian, which the tree is laid out for, and on systems of rpm.
ZSH_FOLDERS = ("/usr/share/zsh/vendor-completions", "/usr/share/zsh/site-functions")
SUMMARIES = {
    PROGRAM: "Scheduling advisor for Slurm GPU clusters",
    EXTRAS_PACKAGE: "Libraries with which sadvise fits models and spreads sweeps",
}
DESCRIPTIONS = {
    PROGRAM: (
        "Reads the queue and the nodes, forecasts, and recommends how to reorder, resize and consolidate GPU jobs.",
        "The daemon is installed but neither enabled nor started: see /usr/share/doc/sadvise/docs/install.md.",
        "pyslurm, another reader of the queue, is optional and not in the package: the same page says how to add it.",
    ),
    EXTRAS_PACKAGE: (
        "scikit-learn for `sadvise fit`, submitit for `--engine slurm` of `sadvise compare` and `tune`.",
        "The daemon needs none of them, unless its nightly fit (daemon.refit) is enabled.",
    ),
}


def build_deb(stage: Stage, out: Path, maintainer: str) -> Path:
    """Build the Debian package; the tree stays as it is."""
    env = _environment(stage)
    architecture = run(["dpkg", "--print-architecture"], env=env).strip()
    control = stage.folder / "DEBIAN"
    control.mkdir()
    try:
        _write_control(control, stage, architecture, maintainer)
        package = out / f"{stage.name}_{stage.version}-{RELEASE}_{architecture}.deb"
        # Strong compression of what is mostly compiled code costs minutes and saves little.
        run(["dpkg-deb", "--root-owner-group", "-Zzstd", "-z6", "--build", str(stage.folder), str(package)], env=env)
    finally:
        shutil.rmtree(control)
    return package


def build_rpm(stage: Stage, out: Path, _maintainer: str) -> Path:
    """Build the RPM package; the tree stays as it is."""
    top = stage.folder.parent / f"rpm-{stage.name}"
    top.mkdir()
    spec = top / "package.spec"
    spec.write_text(_spec(stage))
    defines = {"_topdir": str(top), "_rpmdir": str(top / "done"), "_rpmfilename": "%{NAME}.rpm"}
    argv = ["rpmbuild", "-bb", "--quiet"]
    for name, value in defines.items():
        argv += ["--define", f"{name} {value}"]
    run([*argv, str(spec)], env=_environment(stage))
    package = out / f"{stage.name}-{stage.version}-{RELEASE}.{platform.machine()}.rpm"
    shutil.move(top / f"done/{stage.name}.rpm", package)
    return package


FORMATS: Mapping[str, Callable[[Stage, Path, str], Path]] = {"deb": build_deb, "rpm": build_rpm}


def _environment(stage: Stage) -> dict[str, str]:
    return {**os.environ, "SOURCE_DATE_EPOCH": str(stage.built_time), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _write_control(control: Path, stage: Stage, architecture: str, maintainer: str) -> None:
    """Write what dpkg reads of a package."""
    size_kib = sum(path.lstat().st_size for path in stage.folder.rglob("*") if not path.is_dir()) // 1024
    fields = {
        "Package": stage.name,
        "Version": f"{stage.version}-{RELEASE}",
        "Architecture": architecture,
        "Maintainer": maintainer,
        "Installed-Size": str(size_kib),
        **_deb_relations(stage),
        "Section": "admin",
        "Priority": "optional",
        "Description": SUMMARIES[stage.name] + "".join(f"\n {line}" for line in DESCRIPTIONS[stage.name]),
    }
    (control / "control").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))
    control.chmod(0o755)
    if stage.name != PROGRAM:
        return
    (control / "conffiles").write_text(f"/{CONFIG_FILE}\n")
    common = (SCRIPTS / "common.sh").read_text()
    for name in ("postinst", "prerm", "postrm"):
        script = control / name
        script.write_text(f"#!/bin/sh\nset -e\n{common}\n{(SCRIPTS / f'{name}.sh').read_text()}")
        script.chmod(0o755)


def _deb_relations(stage: Stage) -> dict[str, str]:
    """Return what a package needs, in the fields of dpkg."""
    # The environment's compiled parts fit one minor release of Python only, and the extras one build of the program.
    depends = f"{stage.python}, libc6 (>= {stage.glibc}), libstdc++6"
    if stage.name == PROGRAM:
        return {"Depends": f"{depends}, passwd", "Suggests": EXTRAS_PACKAGE, "Recommends": "slurm-client"}
    return {"Depends": f"{PROGRAM} (= {stage.version}-{RELEASE}), {depends}"}


def _spec(stage: Stage) -> str:
    """Fill in the template of the spec file."""
    if " " in str(stage.folder) or "%" in str(stage.folder):
        raise BuildError(
            f"{stage.folder}: rpmbuild takes no folder with a space or a percent sign: choose another TMPDIR"
        )
    requires = f"/usr/bin/{stage.python}, glibc >= {stage.glibc}, libstdc++"
    if stage.name != PROGRAM:
        requires += f", {PROGRAM} = {stage.version}-{RELEASE}"
    values = {
        "VERSION": stage.version,
        "RELEASE": RELEASE,
        "SUMMARY": SUMMARIES[stage.name],
        "REQUIRES": requires,
        "DESCRIPTION": "\n".join(DESCRIPTIONS[stage.name]),
        "STAGE": str(stage.folder),
        "ZSH_OF_STAGE": ZSH_FOLDERS[0],
        "ZSH": ZSH_FOLDERS[1],
        # A percent sign would begin a macro.
        "COMMON": (SCRIPTS / "common.sh").read_text().replace("%", "%%"),
        "FILES": "\n".join(_listed(stage)).replace(*ZSH_FOLDERS),
    }
    text = (SCRIPTS / f"{stage.name}.spec").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _listed(stage: Stage) -> list[str]:
    """List what a package owns: its own folders as a whole, elsewhere file by file, so that shared folders stay."""
    if stage.name != PROGRAM:
        return list(_added(stage.folder, stage.folder.parent / PROGRAM, PREFIX))
    owned = ["/opt/sadvise", "/usr/share/sadvise", "/usr/share/doc/sadvise"]
    others = [
        f"/{path.relative_to(stage.folder)}"
        for path in sorted((stage.folder / "usr").rglob("*"))
        if path.is_symlink() or not path.is_dir()
    ]
    return owned + [path for path in others if not path.startswith(tuple(f"{each}/" for each in owned))]


def _added(folder: Path, program: Path, below: Path) -> Iterator[str]:
    """Yield the folders and files below a path that the tree of the program does not have."""
    for path in sorted((folder / below).iterdir()):
        inner = path.relative_to(folder)
        if (program / inner).is_dir():
            yield from _added(folder, program, inner)
        else:
            # Quoted, as some names have brackets or spaces.
            yield f'"/{inner}"'
