"""How many modules each command imports: each import is paid in every run."""

import subprocess
import sys
from collections import Counter

import pytest

_PROGRAM = """
import atexit, sys
sys.argv[0] = "sadvise"
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from advisor.cli.main import main
main()
"""
# The libraries whose import takes longer than a tenth of that of the smallest command.
_HEAVY = frozenset(
    (
        "ClusterShell", "apscheduler", "asyncio", "flask", "google", "jinja2", "joblib", "numpy", "onnx", "onnxruntime",
        "pandas", "psutil", "pydantic", "rich", "scipy", "sklearn", "sqlite3", "structlog", "textual", "typer",
        "typing", "yaml",
    )
)  # fmt: skip
_READ = {"numpy", "pydantic", "rich", "typer", "typing"}
_QUEUE = {*_READ, "ClusterShell"}


@pytest.mark.parametrize(
    ("command", "most", "heavy"),
    [
        ("--version", 4, set()),
        ("--help", 10, {"typer", "typing"}),
        ("config show", 36, _READ - {"numpy"}),
        ("models list", 75, _READ),
        ("journal", 130, {*_QUEUE, "sqlite3"}),
        ("status", 147, {*_QUEUE, "sqlite3"}),
        ("explain --demo 10", 177, {*_QUEUE, "onnxruntime"}),
        ("recommend --demo", 215, {*_QUEUE, "onnxruntime"}),
        ("simulate --help", 274, _QUEUE),
    ],
)
def test_command_imports_no_more_than_it_uses(command: str, most: int, heavy: set[str]) -> None:
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *command.split()], capture_output=True, text=True, check=False
    )

    modules = process.stderr.split()
    count = Counter(name.split(".")[0] for name in modules)
    assert set(count) & _HEAVY <= heavy
    assert "numpy.ma" not in modules, "np.unique without further answers imports it, as do np.isin and np.setdiff1d"
    assert "advisor.features.observe.pointer" not in modules or command == "simulate --help", "for policies alone"
    assert count["advisor"] <= most, "is a new module needed by this command? If so, raise the number"
