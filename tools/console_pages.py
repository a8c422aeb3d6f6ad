"""Runs the commands in the console blocks of the documentation, and writes what they print into the blocks.

    python -m tools.console_pages            # write docs/ again
    python -m tools.console_pages --check    # only name the blocks whose commands print something else now

A block begins with ```console; the lines that begin with "$ " are commands, typed one after the other in an empty
folder with standard output on a terminal of 80 columns. A command that is to fail ends with "# exit status N". With
```console columns=120 the terminal is that wide, and with ```console most=12 a block holds the first 12 lines of each
answer. Times and memory of a run are left out.
"""

import argparse
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
COLUMNS: Final = 80
_BLOCK: Final = re.compile(
    r"^```console(?: columns=(?P<columns>\d+))?(?: most=(?P<most>\d+))?\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PROMPT: Final = "$ "
_EXIT: Final = re.compile(r" +# exit status (\d+)$")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CUT: Final = "[...]"
# What depends on the machine is left out.
_VARIES: Final = ("wall time", "jobs per second", "peak memory")


class ConsoleError(RuntimeError):
    """A command of a page does not end as the page says."""


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell in an empty folder, in which `sadvise` is that of this checkout, and nothing of a Slurm is found."""

    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the commands."""
        programs = self.folder / ".programs"
        programs.mkdir(exist_ok=True)
        sadvise = programs / "sadvise"
        sadvise.write_text(f'#!/bin/sh\nexec {sys.executable} -m advisor.cli.main "$@"\n')
        sadvise.chmod(0o755)
        return {
            "PATH": f"{programs}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "SADVISE_CONFIG": os.devnull,
            "SADVISE_MODELS": str(self.folder / "models"),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "TERM": "xterm",
            "LINES": "24",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            # A busy machine gets time enough to try every change.
            "SADVISE_PLANNING__ROLLOUT_DEADLINE_S": "80",
        }

    def type(self, line: str, columns: int = COLUMNS) -> str:
        """Run a line on a terminal, and return what it printed, styles included; raises `ConsoleError` if it fails."""
        awaited = int(match[1]) if (match := _EXIT.search(line)) else 0
        reader, terminal = pty.openpty()
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        process = subprocess.Popen(
            ["/bin/sh", "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.PIPE,
            env={**self.environment, "COLUMNS": str(columns)},
            cwd=work,
        )
        os.close(terminal)
        printed = b"".join(_read_terminal(reader)).decode().replace("\r\n", "\n")
        os.close(reader)
        # On a pipe, long work shows no progress.
        printed += process.communicate()[1].decode()
        if process.returncode != awaited:
            raise ConsoleError(f"{line}: exit status {process.returncode}:\n{printed}")
        return printed


def _read_terminal(descriptor: int) -> Iterator[bytes]:
    """Yield what comes from a terminal until its last program has ended."""
    while True:
        try:
            piece = os.read(descriptor, 1 << 16)
        except OSError:  # Linux says so at the end
            return
        if not piece:
            return
        yield piece


def renewed(text: str, shell: Shell) -> str:
    """Return a page with the answers of its commands as they are now; raises `ConsoleError`."""

    def block(match: re.Match[str]) -> str:
        most, columns = int(match["most"] or sys.maxsize), int(match["columns"] or COLUMNS)
        lines = [line for line in match["body"].splitlines() if line.startswith(_PROMPT)]
        answers = "".join(f"{line}\n{_shown(shell.type(line.removeprefix(_PROMPT), columns), most)}" for line in lines)
        head = match[0].partition("\n")[0]
        return f"{head}\n{answers}```"

    return _BLOCK.sub(block, text)


def _shown(printed: str, most: int) -> str:
    plain = _ESCAPES.sub("", printed)
    lines = [line.rstrip() for line in plain.rstrip().splitlines() if not line.startswith(_VARIES)]
    if len(lines) > most:
        lines = [*lines[:most], _CUT]
    return "".join(f"{line}\n" for line in lines)


def pages(root: Path = ROOT) -> list[Path]:
    """Return the documents that have console blocks."""
    documents = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [path for path in documents if _BLOCK.search(path.read_text(encoding="utf-8"))]


def renewed_page(path: Path) -> str:
    """Return a page with its commands run in an empty folder; raises `ConsoleError`."""
    with tempfile.TemporaryDirectory(prefix="sadvise-console-") as folder:
        return renewed(path.read_text(encoding="utf-8"), Shell(Path(folder)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages; return 1 if a page is stale or a command fails."""
    parser = argparse.ArgumentParser(prog="python -m tools.console_pages", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; name the pages that are stale")
    args = parser.parse_args(arguments)
    stale = 0
    for path in pages():
        try:
            text = renewed_page(path)
        except ConsoleError as err:
            print(f"{path.relative_to(ROOT)}: {err}", file=sys.stderr)
            stale += 1
            continue
        if text != path.read_text(encoding="utf-8"):
            stale += args.check
            print(f"{path.relative_to(ROOT)}: {'stale' if args.check else 'written'}")
            if not args.check:
                path.write_text(text, encoding="utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
