"""`sadvise import`: a trace on disk, one line on what became of the rows, one line on what is wrong."""

import io
from pathlib import Path

import pytest

from advisor.cli.import_ import TraceFormat
from advisor.sim.traces.importing.formats import FORMATS
from advisor.sim.traces.trace_file import read_trace
from tests.cli.conftest import Sadvise

ITP = "job_id,submission_time,duration,num_gpu\na,5,600,16\nb,9,60,1\n"
SACCT = "JobID|Submit|Start|ElapsedRaw|State|AllocTRES|User\n1|100|101|60|COMPLETED|gres/gpu=2|ann\n"


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """A small workload."""
    path = tmp_path / "cluster.csv"
    path.write_text(ITP)
    return path


def test_the_command_knows_every_format() -> None:
    offered = {each.value for each in TraceFormat}

    assert offered == set(FORMATS)


def test_a_workload_becomes_a_trace(sadvise: Sadvise, workload: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.csv.gz"

    outcome = sadvise("import", "itp", str(workload), "-o", str(output))

    trace = read_trace(output)
    assert (outcome.exit_code, outcome.out, outcome.err) == (0, "", f"{output}: 2 jobs\n")
    assert trace.name == "cluster"
    assert trace.jobs["gpus"].tolist() == [16, 1]
    assert trace.sampled == ()


def test_a_seed_fills_in_what_is_missing(sadvise: Sadvise, workload: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.csv"

    outcome = sadvise("import", "itp", str(workload), "-o", str(output), "--seed", "7", "--name", "week 12")

    trace = read_trace(output)
    assert outcome.exit_code == 0
    assert "not from the source: model, time_limit_s, " in outcome.err
    assert outcome.err.endswith("(seed 7)\n")
    assert (trace.name, trace.seed) == ("week 12", 7)
    assert trace.jobs["model"].min() >= 0


def test_nodes_of_another_size_change_the_node_counts(sadvise: Sadvise, tmp_path: Path) -> None:
    source, output = tmp_path / "many.csv", tmp_path / "t.csv"
    source.write_text("job_id,submission_time,duration,num_gpu\n" + "".join(f"j{n},{n},60,8\n" for n in range(50)))

    sadvise("import", "itp", str(source), "-o", str(output), "--seed", "7", "--gpus-per-node", "2")

    assert set(read_trace(output).jobs["nodes_max"].tolist()) == {0, 4}


def test_the_same_command_writes_the_same_bytes(sadvise: Sadvise, workload: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"

    for output in (first, second):
        sadvise("import", "itp", str(workload), "-o", str(output), "--seed", "7")

    assert first.read_bytes() == second.read_bytes()


def test_what_is_left_out_and_skipped_is_counted(sadvise: Sadvise, tmp_path: Path) -> None:
    source, output = tmp_path / "sacct.txt", tmp_path / "t.csv"
    source.write_text(f"{SACCT}2|100|101|60|COMPLETED|cpu=4|bob\n3|100|Unknown|0|PENDING|gres/gpu=1|bob\n4|x\n")

    outcome = sadvise("import", "sacct", str(source), "-o", str(output), "--skip-bad")

    assert outcome.exit_code == 0
    assert outcome.err == (f"{output}: 1 job; left out 1 never started, 1 without GPUs; 1 bad row skipped (line 5)\n")


def test_a_trace_can_go_through_pipes(sadvise: Sadvise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ITP.encode())))

    outcome = sadvise("import", "itp", "-", "-o", "-")

    assert (outcome.exit_code, outcome.err) == (0, "")
    assert "# source: itp standard input; zero is 5" in outcome.out.splitlines()
    assert outcome.out.splitlines()[-2:] == ["0,0,600,16", "1,4,60,1"]


def test_users_with_hostile_names_survive(sadvise: Sadvise, tmp_path: Path) -> None:
    source, output = tmp_path / "sacct.txt", tmp_path / "t.csv"
    source.write_text(SACCT.replace("ann", 'a"n,n\x1b[2J'))

    outcome = sadvise("import", "sacct", str(source), "-o", str(output))

    assert outcome.exit_code == 0
    assert read_trace(output).users == ('a"n,n\x1b[2J',)


FAULTS = {
    "bad row": ("itp", "a,5,600,16\n", ("line 1", "is missing")),
    "missing columns": ("sacct", "JobID|User\n1|ann\n", ("column Submit is missing", "sacct -a -X --json")),
    "no job": ("sacct", SACCT.replace("gres/gpu=2", "cpu=2"), ("holds no GPU job", "1 without GPUs")),
    "binary": ("muri", "\0\1\2", ("holds binary data",)),
    "wrong virtual cluster": ("itp --vc x", ITP, ("itp has no virtual clusters",)),
}


@pytest.mark.parametrize(("arguments", "content", "words"), FAULTS.values(), ids=list(FAULTS))
def test_a_fault_gets_one_line_and_no_output(
    sadvise: Sadvise, tmp_path: Path, arguments: str, content: str, words: tuple[str, ...]
) -> None:
    source, output = tmp_path / "w.txt", tmp_path / "t.csv"
    source.write_text(content)
    format_name, *others = arguments.split()

    outcome = sadvise("import", format_name, str(source), "-o", str(output), *others)

    assert outcome.exit_code == 1
    assert outcome.out == ""
    assert outcome.err.startswith(f"sadvise: error: {source}: ")
    assert outcome.err.count("\n") == 1
    assert all(word in outcome.err for word in words[1:])
    assert not output.exists()


def test_an_output_that_cannot_be_written_gets_one_line(sadvise: Sadvise, workload: Path, tmp_path: Path) -> None:
    outcome = sadvise("import", "itp", str(workload), "-o", str(tmp_path / "none" / "t.csv"))

    assert outcome.exit_code == 1
    assert "cannot be written: No such file or directory" in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.fixture
def accounting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sacct that keeps its arguments in a file and prints two jobs, or their texts; other programs are not there."""
    cells = "|ann|normal|gpu|{0}|{0}|{1}|60|90|COMPLETED|gres/gpu=2|gres/gpu=2|1|"
    rows = (f"{n}|{n}{cells.format(submit, submit + 10)}\n" for n, submit in ((1, 100), (2, 150)))
    (tmp_path / "answer").write_text("".join(rows))
    program = tmp_path / "programs" / "sacct"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
printf '%s\\n' "$@" >>{tmp_path}/asked
for each; do case $each in --delimiter=*) d=${{each#*=}}; esac; done
[ -z "$d" ] && exec /bin/cat {tmp_path}/answer
printf "1$d$d$d""a\\nb$d$d\\n2$d""lab$d$d$d$d\\n"
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return tmp_path / "asked"


def test_live_asks_the_accounting_of_the_site(sadvise: Sadvise, accounting: Path, tmp_path: Path) -> None:
    output = tmp_path / "my history.csv"

    outcome = sadvise("import", "sacct", "live", "--since", "now-7days", "-o", str(output))

    assert (outcome.exit_code, outcome.out) == (0, "")
    assert outcome.err.splitlines()[-1] == (
        f"next: sadvise simulate '{output}' --cluster live; sadvise tune '{output}' --cluster live"
    )
    asked = accounting.read_text().splitlines()
    assert "-a" in asked and asked[asked.index("-S") + 1] == "now-7days"
    trace = read_trace(output)
    assert trace.jobs["submit_time"].tolist() == [0.0, 50.0]
    assert (trace.job_names, trace.accounts) == (("", "a\nb"), ("", "lab"))


def test_a_file_named_live_is_read_by_its_path(
    sadvise: Sadvise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("live").write_text(SACCT)

    outcome = sadvise("import", "sacct", f"{tmp_path}/live", "-o", "t.csv")

    assert outcome.exit_code == 0
    assert len(read_trace(tmp_path / "t.csv")) == 1
