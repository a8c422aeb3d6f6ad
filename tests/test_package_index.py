"""The wheel and the sdist install from a package index."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from zipfile import ZipFile

import pytest

from tests.built_packages import DEADLINE_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("packaged Python", "dpkg-deb", "rpmbuild"),
    # The first test builds all packages.
    pytest.mark.timeout(1200),
]


@dataclass(frozen=True, slots=True)
class Index:
    """A package index of this machine, what was asked of it, and an environment that pip installs into."""

    url: str
    asked: list[str]
    environment: Path

    def run(self, name: str, *argv: str, compiler: str = "/nonexistent/cc") -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, in which compiled code can be kept in a folder of its own only."""
        variables = {key: text for key, text in os.environ.items() if not key.startswith(("PYTHON", "SADVISE_"))}
        kept = {"CC": compiler, "XDG_CACHE_HOME": str(self.environment / "cache"), "HOME": str(self.environment)}
        command = [str(self.environment / "bin" / name), *argv]
        return subprocess.run(
            command, capture_output=True, text=True, env=variables | kept, timeout=DEADLINE_S, check=False
        )

    def install(self, *options: str) -> set[str]:
        """Install sadvise with pip, and return the files of the package apart from the compiled simulator."""
        quiet = ("--quiet", "--disable-pip-version-check", "--no-compile", "--extra-index-url", self.url)
        installed = self.run("python", "-m", "pip", "install", *quiet, *options, "sadvise")
        assert installed.returncode == 0, installed.stderr
        [record] = self.environment.glob("lib/python*/site-packages/sadvise-*.dist-info/RECORD")
        names = {line.partition(",")[0] for line in record.read_text().splitlines()}
        return {name for name in names if name.startswith("advisor/") and not name.endswith(".so")}


@pytest.fixture(scope="module")
def index(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """An index with the wheel and the sdist; what they depend on comes from where pip looks otherwise."""
    folder, environment = tmp_path_factory.mktemp("index"), tmp_path_factory.mktemp("environment")
    (folder / "simple").mkdir()
    (folder / "simple/sadvise").symlink_to(packages)
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=DEADLINE_S)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield Index(f"http://127.0.0.1:{server.server_port}/simple/", asked, environment)
        server.shutdown()


def test_pip_installs_the_wheel_from_an_index_and_it_runs_without_a_compiler(index: Index) -> None:
    index.install()
    version = index.run("sadvise", "--version")
    recommended = index.run("sadvise", "recommend", "--demo")
    simulated = index.run("sadvise", "simulate", "--demo", "--jobs", "20")

    assert re.search(r"/sadvise-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl$", index.asked[1])
    assert version.stdout.startswith("sadvise ")
    assert "scontrol update JobId=" in recommended.stdout
    assert (simulated.returncode, simulated.stderr) == (0, "")
    assert not (index.environment / "cache").exists()


def test_sdist_installs_the_same_files_and_compiles_the_simulator_once_there_is_a_compiler(
    index: Index, packages: Path
) -> None:
    of_wheel = {
        name
        for wheel in packages.glob("*.whl")
        for name in ZipFile(wheel).namelist()
        if name.startswith("advisor/") and not name.endswith((".so", "/"))
    }
    index.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "sadvise")
    of_sdist = index.install("--no-binary=sadvise")

    refused = index.run("sadvise", "simulate", "--demo", "--jobs", "20")
    simulated = index.run("sadvise", "simulate", "--demo", "--jobs", "20", compiler="cc")

    assert of_sdist == of_wheel
    assert refused.returncode == 1
    assert re.fullmatch(r"sadvise: error: .*the simulator needs a C compiler .*install gcc, .*\n", refused.stderr)
    assert (simulated.returncode, simulated.stderr) == (0, "")
