"""Commands: what they print, what they import, and what they make of bad input and of Slurm's faults."""

import io
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from advisor import __version__
from advisor.backends.snapshot_file import read_snapshot
from advisor.cli.filters import job_name
from advisor.cli.progress import progress_bar
from advisor.domain.job import ArrayRecord, HetRecord
from advisor.text import escaped, one_line
from advisor.view.terminal import print_rows
from advisor.watch.reading import demo_path
from tests.builders import make_job
from tests.cli.conftest import Sadvise


def test_version_is_one_line(sadvise: Sadvise) -> None:
    assert sadvise("--version").out.startswith(f"sadvise {__version__} (Python ")
    assert sadvise("-V").out == sadvise("--version").out


def test_help_lists_the_commands_and_exit_codes(sadvise: Sadvise) -> None:
    out = sadvise("--help").out

    assert all(command in out for command in ("recommend", "explain", "snapshot", "check", "config"))
    assert "Exit codes" in out


@pytest.mark.parametrize(
    ("job", "cause"),
    [("12", "gpus"), ("17", "held_by_user"), ("20", "begin_time"), ("23", "dependency"), ("16_3", "gpus")],
)
def test_explain_names_the_causes_as_json_and_for_people(sadvise: Sadvise, job: str, cause: str) -> None:
    document = json.loads(sadvise("explain", "--demo", "--json", job).out)
    diagnosis = document["diagnosis"]

    causes = {finding["cause"] for finding in (diagnosis["first"], *diagnosis["further"])}

    assert cause in causes
    assert document["meta"]["schema"] == "sadvise.explain/1"
    assert f"({cause})" in sadvise("explain", "--demo", job).out


def test_explain_shows_advice_or_the_rule_that_forbids_it(sadvise: Sadvise) -> None:
    assert "advice  consolidate:" in sadvise("explain", "--demo", "10").out
    held = " ".join(sadvise("explain", "--demo", "17").out.split())
    assert "advice none: left alone by rule not_held: It is held. To release it: `scontrol release 17`." in held


def test_snapshot_of_the_demo_reads_back_equal(sadvise: Sadvise, tmp_path: Path) -> None:
    outcome = sadvise("snapshot", "--demo", "-o", str(tmp_path / "copy.json.gz"))

    assert outcome.exit_code == 0
    assert "23 jobs on 8 nodes" in outcome.err
    assert read_snapshot(tmp_path / "copy.json.gz") == read_snapshot(demo_path())


def test_anonymised_snapshot_gives_the_same_advice(
    sadvise: Sadvise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a job trains is replaced as well, and with it what models know of it.
    monkeypatch.setenv("SADVISE_FORECASTS__ENABLED", "false")
    sadvise("snapshot", "--demo", "--anonymise", "-o", str(tmp_path / "anonymous.json"))

    of_demo, of_copy = (
        json.loads(sadvise("recommend", "--json", *where).out)["recommendations"]
        for where in (["--demo"], ["--snapshot", str(tmp_path / "anonymous.json")])
    )

    assert "llama" not in (tmp_path / "anonymous.json").read_text()
    assert [change["job_id"] for change in of_copy] == [change["job_id"] for change in of_demo]
    assert [change["expected"] for change in of_copy] == [change["expected"] for change in of_demo]


def test_check_names_every_model_and_what_it_costs_to_lack_one(
    sadvise: Sadvise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def models() -> dict[str, tuple[str, bool]]:
        rows = json.loads(sadvise("check", "--demo", "--json").out)["checks"]
        return {row["name"]: (row["status"], bool(row["cost"])) for row in rows if row["name"].startswith("model")}

    kinds = ("run_time", "throughput", "interference", "start_time")
    sound = models()
    (tmp_path / "manifest.toml").write_text("damaged")
    monkeypatch.setenv("SADVISE_FORECASTS__MODELS", str(tmp_path))
    damaged = models()
    monkeypatch.setenv("SADVISE_FORECASTS__ENABLED", "false")

    assert sound == {f"model {kind}": ("ok", False) for kind in kinds}
    assert damaged == {f"model {kind}": ("lacks", True) for kind in kinds}
    assert models() == {"models": ("lacks", True)}


def test_check_of_a_file_names_status_and_cost(sadvise: Sadvise) -> None:
    checks = {row["name"]: row for row in json.loads(sadvise("check", "--demo", "--json").out)["checks"]}

    assert checks["lever nice"]["status"] == "ok"
    assert checks["time_min_as_soft_limit"]["status"] == "lacks"
    assert checks["time_min_as_soft_limit"]["cost"]
    assert sadvise("check", "--demo").out.startswith("check")
    assert sadvise("check", "--demo", "-P", "-h").out.startswith("lever switches|ok|usable|\n")


def test_config_shows_where_each_value_comes_from(
    sadvise: Sadvise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sadvise.toml"
    path.write_text("[planning]\ndepth = 50\n")
    monkeypatch.setenv("SADVISE_GUARD__MAX_CHANGES", "5")

    rows = sadvise("config", "show", "--config", str(path), "-P").out.splitlines()
    document = json.loads(sadvise("config", "show", "--config", str(path), "--json").out)

    assert f"planning.depth|50|{path}" in rows
    assert "guard.max_changes|5|SADVISE_GUARD__MAX_CHANGES" in rows
    assert {"key": "planning.depth", "value": 50, "origin": str(path)} in document["values"]
    assert "planning.depth" in sadvise("config", "show", "--config", str(path)).out
    assert str(path) in sadvise("config", "check", "--config", str(path)).out


def test_config_example_is_valid(sadvise: Sadvise, tmp_path: Path) -> None:
    path = tmp_path / "sadvise.toml"
    path.write_text(sadvise("config", "example").out)

    assert sadvise("config", "check", "--config", str(path)).exit_code == 0
    assert sadvise("config", "check").out.startswith("valid")


def test_config_check_names_a_policy_that_is_not_there(sadvise: Sadvise, tmp_path: Path) -> None:
    path = tmp_path / "sadvise.toml"
    path.write_text('[daemon]\nshadow = "lineal"\n')

    outcome = sadvise("config", "check", "--config", str(path))

    assert outcome.exit_code == 1
    assert f"{path}: daemon.shadow: there is no policy 'lineal': there are dl2, marl, metarl, price" in outcome.err


def test_without_slurm_the_error_says_what_to_do(sadvise: Sadvise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    outcome = sadvise("recommend")

    assert outcome.exit_code == 1
    assert outcome.err.count("\n") == 1
    assert "not on PATH" in outcome.err


@pytest.mark.parametrize(
    ("shell", "code", "words"),
    [
        ("{sadvise} config example > /dev/full", 1, "the output cannot be written"),
        ("{sadvise} config example >&-", 0, ""),
        ("PYTHONIOENCODING=ascii {sadvise} recommend --demo", 0, ""),
    ],
)
def test_odd_outputs_get_no_traceback(shell: str, code: int, words: str) -> None:
    command = shell.format(sadvise=f"{sys.executable} -m advisor.cli.main")

    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert answer.returncode == code
    assert "Traceback" not in answer.stderr
    assert words in answer.stderr


def test_closed_pipe_ends_quietly() -> None:
    shell = f"{sys.executable} -m advisor.cli.main recommend --demo --json | head -1"

    answer = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True, check=False)

    assert answer.stderr == ""
    assert answer.returncode == 0


@pytest.mark.parametrize(
    ("word", "job", "named"),
    [
        ("7", make_job(7), True),
        ("7", make_job(8), False),
        ("7", make_job(8, array=ArrayRecord(array_job_id=7, task_id=1)), True),
        ("7_1", make_job(8, array=ArrayRecord(array_job_id=7, task_id=1)), True),
        ("7_2", make_job(8, array=ArrayRecord(array_job_id=7, task_id=1)), False),
        ("7_[4-6]", make_job(7, array=ArrayRecord(array_job_id=7, waiting="1-9:5")), True),
        ("7_[4-5]", make_job(7, array=ArrayRecord(array_job_id=7, waiting="1-9:5")), False),
        ("7_1", make_job(7), False),
        ("7+1", make_job(8, het=HetRecord(het_job_id=7, offset=1)), True),
        ("7+0", make_job(8, het=HetRecord(het_job_id=7, offset=1)), False),
        ("7", make_job(8, het=HetRecord(het_job_id=7, offset=1)), True),
    ],
)
def test_jobs_are_named_as_squeue_names_them(word: str, job: object, named: bool) -> None:
    assert job_name(word).names(job) is named  # type: ignore[arg-type]


def test_text_is_made_safe_without_loss(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["name", "text"], [["a|b", "c\n"]], as_parsable=True, noheader=True)

    assert escaped("plain") == "plain"
    assert escaped("é漢") == "é漢"
    assert escaped("a\x1b[31m\u202eb") == "a\\x1b[31m\\u202eb"
    assert one_line("a\nb") == "a b"
    assert capsys.readouterr().out == "a\\x7cb|c\\n\n"


VERSION = 'case "$*" in *--version*) echo "slurm 24.11.5"; exit 0;; esac\n'
FAULTS = {
    "garbage of 50 MB": ("head -c 50000000 /dev/zero | tr '\\0' x", "incomplete answer"),
    "more than is read": ("head -c 80000000 /dev/zero | tr '\\0' x", "squeue gave an incomplete answer"),
    "nothing at all": ("exit 0", "lists no node"),
    "half a row": ("printf '7@'", "incomplete answer"),
    "hanging": ("sleep 60", "no answer within 1 s"),
    "refusing": ("echo 'slurm_load_jobs error: Access/permission denied' >&2; exit 1", "denied access"),
    "unreachable": ("echo 'error: Unable to contact slurm controller (connect failure)' >&2; exit 1", "scontrol ping"),
    "silent failure": ("exit 3", "exit status 3"),
    "hostile complaint": ("printf 'bad \\033[2J\\nline' >&2; exit 1", "bad"),
}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds the site's commands and its slurm.conf."""
    (tmp_path / "slurm.conf").write_text("ClusterName=fake\nTopologyPlugin=topology/flat\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def command(folder: Path, name: str, script: str) -> None:
    """Put a command on PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{VERSION}{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("script", "words"), FAULTS.values(), ids=list(FAULTS))
def test_misbehaving_squeue_gets_one_line(
    sadvise: Sadvise, slurm: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    command(slurm, "squeue", script)
    command(slurm, "sinfo", "exit 0")
    monkeypatch.setenv("SLURM_CONF", str(slurm / "slurm.conf"))

    outcome = sadvise("recommend", "--source", "text", "--timeout", "1" if "sleep" in script else "20")

    assert outcome.exit_code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("sadvise: error: ")
    assert outcome.err.count("\n") == 1
    assert "\x1b" not in outcome.err
    assert words in outcome.err


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


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("command", "most", "heavy"),
    [
        ("--version", 4, set()),
        ("config show", 39, _READ - {"numpy"}),
        ("status", 141, {*_READ, "sqlite3"}),
        ("recommend --demo", 190, {*_READ, "onnxruntime"}),
        ("simulate --help", 229, _READ),
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


class Terminal(io.StringIO):
    """A standard error that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = Terminal(), io.StringIO()

    for stream in (terminal, pipe):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar(3, "runs") as progress:
            if progress is not None:
                progress(1.5)

    assert "1.5 of 3 runs" in terminal.getvalue()
    assert pipe.getvalue() == ""
