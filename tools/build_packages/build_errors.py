"""The one error of the package builder, and how it starts programs."""

import subprocess
from collections.abc import Mapping, Sequence


class BuildError(RuntimeError):
    """A package could not be built; the text is one line for a person."""


def run(argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float = 600.0) -> str:
    """Run a program and return what it printed; raises `BuildError` with the end of its output."""
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=timeout_s, check=False)
    except FileNotFoundError as err:
        raise BuildError(f"{argv[0]} is not found on PATH: install it (packages dpkg, rpm, python3)") from err
    except subprocess.TimeoutExpired as err:
        raise BuildError(f"{argv[0]} did not end within {timeout_s:g} s") from err
    if answer.returncode != 0:
        output = " ".join((answer.stderr or answer.stdout).split())[-800:]
        raise BuildError(f"{argv[0]}: exit status {answer.returncode}: {output}")
    return answer.stdout
