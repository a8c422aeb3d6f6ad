"""Keep a copy of the checkout, put mutants into it, and run the tests of each."""

import compileall
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

from tools.mutants.faults import Mutant

_COPIED: Final = ("advisor", "models", "monitoring", "slurm", "systemd", "docs", "tests", "tools")
_UNCOPIED: Final = shutil.ignore_patterns("__pycache__", ".*")
# A loop without end can take memory as well as time.
_MEMORY: Final = 8 << 30
# The tests of several processes share the cores.
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# Of the tests of drawn values; see tests/examples.py.
_ALL_EXAMPLES: Final = {"SADVISE_ALL_EXAMPLES": "1"}
# What pytest returns for tests that passed, and for none that ran.
_PASSED, _NONE_RAN = 0, 5
_CONSTANT: Final = re.compile(r"(_?[A-Z][A-Z0-9_]+)(?:: Final[^=]*)? = ")


class MutantsError(Exception):
    """The tests cannot be run, or do not pass without a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """The seconds of each test of a package, and the tests that run each line of each module."""

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, Sequence[str]]]

    def tests(self, mutant: Mutant, *, most_s: float) -> list[str]:
        """Return the fastest tests, `most_s` in all, that run a line, then its statement, else its module.

        An `or` for an `and` can make a test run a line that it did not run before. A constant, which no test sets, is
        as if on each line of its module that names it.
        """
        of_line = self.lines.get(mutant.fault.path, {})
        near = {test for line in (mutant.fault.line, *_naming(mutant)) for test in of_line.get(line, ())}
        statement = range(mutant.fault.statement_line, mutant.fault.line + 1)
        tests = near | {test for line in statement for test in of_line.get(line, ())}
        tests = tests or {test for on_line in of_line.values() for test in on_line}
        chosen: list[str] = []
        left_s = most_s
        for test in sorted(tests, key=lambda test: (test not in near, self.seconds[test], test)):
            left_s -= self.seconds[test]
            if left_s < 0 and chosen:
                break
            chosen.append(test)
        return chosen


def _naming(mutant: Mutant) -> Iterator[int]:
    """Yield the lines that name the constant with the fault; none where the fault is elsewhere."""
    constant = _CONSTANT.match(mutant.fault.text)
    if constant is not None:
        name = re.compile(rf"\b{constant[1]}\b")
        yield from (line for line, text in enumerate(mutant.source.splitlines(), start=1) if name.search(text))


class Copy:
    """A copy of the checkout in which faults are made, beside what earlier runs found out."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.root = folder / "checkout"
        self._notes = folder / "notes"
        self._notes.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        for name in _COPIED:
            shutil.copytree(checkout / name, self.root / name, ignore=_UNCOPIED)
        for path in checkout.iterdir():
            if path.is_file() and not path.name.startswith("."):
                shutil.copy2(path, self.root)
        # Compiled modules are checked by what their source holds: a mutant can have the size and second of its origin.
        compileall.compile_dir(self.root / "advisor", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        sources = (path for name in ("advisor", "tests") for path in sorted((self.root / name).rglob("*.py")))
        self._state = _digest(*(path.read_text(encoding="utf-8") for path in sources))

    def related(self, package: str, tests: Sequence[str]) -> Related:
        """Return the tests of a package by line, recorded again if a module or a test changed."""
        note = self._notes / f"{package}-{_digest(self._state, *tests)}.json"
        if not note.exists():
            for outdated in self._notes.glob(f"{package}-*.json"):
                outdated.unlink()
            self._record(tests, note)
        recorded = json.loads(note.read_text())
        lines = {path: {int(line): names for line, names in of.items()} for path, of in recorded["lines"].items()}
        return Related(seconds=recorded["seconds"], lines=lines)

    def is_caught(self, mutant: Mutant, tests: Sequence[str], *, limit_s: float) -> bool:
        """Whether a test fails, hangs or cannot be loaded with the mutant; what was caught once is not run again."""
        key = hashlib.sha256(mutant.source.encode()).hexdigest()
        caught, passed = self._notes / f"{key}.caught", self._notes / f"{key}.passed"
        run = _digest(self._state, *tests)
        if caught.exists():
            return True
        if passed.exists() and passed.read_text() == run:
            return False
        with self._mutated(mutant):
            is_caught = bool(tests) and self._run(tests, limit_s) != _PASSED
        (caught if is_caught else passed).write_text(run)
        return is_caught

    def _record(self, tests: Sequence[str], note: Path) -> None:
        record = ("-p", "tools.mutants.recorder", "--record", str(note.with_suffix(".part")))
        ended = subprocess.run(
            self._argv(*record, *tests),
            cwd=self.root,
            env=self._env(keep=True),
            check=False,
            stdout=subprocess.PIPE,
            text=True,
        )
        if ended.returncode != _PASSED:
            raise MutantsError(f"the tests do not pass without a fault:\n{ended.stdout[-2000:]}")
        note.with_suffix(".part").rename(note)

    @contextmanager
    def _mutated(self, mutant: Mutant) -> Iterator[None]:
        """Put a mutant into the copy, and take it out again."""
        path = self.root / mutant.fault.path
        before = path.read_bytes()
        path.write_text(mutant.source, encoding="utf-8")
        try:
            yield
        finally:
            path.write_bytes(before)

    def _run(self, tests: Sequence[str], limit_s: float) -> int:
        """Run tests until one fails, and return the exit status, which is not 0 if they exceed the limit."""
        listed = self._notes / "tests"
        listed.write_text("\n".join(tests))
        process = subprocess.Popen(
            self._argv("-x", f"@{listed}"),
            cwd=self.root,
            env=self._env(keep=False),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        try:
            status = process.wait(timeout=limit_s)
        except BaseException as err:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(err, subprocess.TimeoutExpired):
                return -signal.SIGKILL
            raise
        if status == _NONE_RAN:
            raise MutantsError(f"pytest found none of {', '.join(tests[:3])}")
        return status

    def _argv(self, *words: str) -> list[str]:
        """Return the command; Hypothesis draws the same examples every time, and no example fails for being slow."""
        pytest = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--hypothesis-profile=ci")
        return ["nice", "-n", "19", *pytest, "--no-header", "--tb=line", *words]

    def _env(self, *, keep: bool) -> dict[str, str]:
        """Return the environment of a run; only a run without a fault keeps what it compiles."""
        env = os.environ | _ONE_THREAD | _ALL_EXAMPLES | {"PYTHONPATH": str(self.root)}
        return env if keep else env | {"PYTHONDONTWRITEBYTECODE": "1"}


def _digest(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()[:16]
