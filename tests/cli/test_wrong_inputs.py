"""Wrong inputs of all commands: each gets one line on stderr and the right exit code, and changes nothing."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Sadvise

# The command, its exit code, and its line, which begins with `sadvise: ` where it begins with `error: `; one that ends
# with ` ...` goes on, mostly with a list of what there is.
WRONG: tuple[tuple[str, int, str], ...] = (
    ("nonsense", 2, "sadvise: no such command 'nonsense' (see sadvise --help)"),
    ("--nonsense", 2, "sadvise: no such option: --nonsense (see sadvise --help)"),
    ("recommend --nonsense", 2, "sadvise recommend: no such option: --nonsense; did you mean --nodelist or ..."),
    ("recommend --demo extra", 2, "sadvise recommend: got unexpected extra argument(s) (extra) (see sadvise ..."),
    ("recommend --demo --top 0", 2, "sadvise recommend: --top 0: must be at least 1 (see sadvise recommend ..."),
    ("recommend --demo --top many", 2, "sadvise recommend: --top many: must be a whole number (see sadvise ..."),
    ("recommend --demo --top", 2, "sadvise: option '--top' requires an argument (see sadvise --help)"),
    ("recommend --demo --source xml", 2, "sadvise recommend: --source: 'xml' is not one of 'auto', 'text', ..."),
    ("recommend -M a,b --journal x.sqlite", 2, "error: --journal names one file, and each cluster has a journal ..."),
    ("recommend -M a,", 2, "error: -M a,: '' is not the name of a cluster"),
    ("recommend --timeout 0", 2, "sadvise recommend: --timeout 0: must be at least 0.1 (see sadvise recommend ..."),
    ("recommend --timeout 10min", 2, "sadvise recommend: --timeout 10min: must be a number (see sadvise ..."),
    ("recommend --demo --snapshot other.json", 2, "error: --demo and --snapshot exclude each other: give one"),
    ("recommend --snapshot absent.json", 1, "error: absent.json: no such file: check the path, or write one ..."),
    ("recommend --snapshot folder", 1, "error: folder: cannot be read: Is a directory"),
    ("recommend --snapshot binary", 1, "error: binary: holds binary data, not a snapshot: write one with ..."),
    ("recommend --snapshot empty", 1, "error: empty: is empty: write one with `sadvise snapshot`"),
    ("recommend --snapshot page.html", 1, "error: page.html: is not JSON (expected value at line 1 column 1): ..."),
    ("recommend --snapshot other.json", 1, "error: other.json: is JSON but not a snapshot of sadvise: write ..."),
    ("recommend --snapshot cut.json.gz", 1, "error: cut.json.gz: damaged gzip file (Compressed file ended ..."),
    ("recommend --snapshot huge", 1, "error: huge: is larger than 1073741824 bytes, so it is no snapshot: ..."),
    ("recommend --snapshot loop", 1, "error: loop: cannot be read: Too many levels of symbolic links"),
    ("recommend --demo --json -P", 2, "error: --json excludes -P: give one"),
    ("recommend --demo -o colour", 2, "error: -o 'colour' is not a field: choose from job_id, kind, lever, ..."),
    ("recommend --demo -p nosuch", 1, "error: -p 'nosuch' is not a partition of this cluster: known are debug, ..."),
    ("recommend --demo -w n99", 1, "error: -w 'n99' is not a node of this cluster: see sinfo -N"),
    ("recommend --demo -u root,nosuch", 1, "error: -u 'nosuch': no job of this user is in the queue of live"),
    ("recommend --demo -A nosuch", 1, "error: -A 'nosuch': no job of this account is in the queue of live"),
    ("recommend --demo -j 7_3", 1, "error: -j 7_3: this job is not in the queue of live"),
    ("recommend --demo -w n[1-", 2, "error: -w 'n[1-' is not a host list: give names such as n01,n[03-08]"),
    ("recommend --demo -j abc", 2, "error: 'abc' is not a job: give 123, 123_4, 123_[1-9] or 123+1"),
    ("recommend --demo --policy nosuch", 1, "error: there is no policy 'nosuch': there are dl2, marl, metarl, ..."),
    ("recommend --demo -p ''", 2, "error: -p names nothing: an unset variable? leave it out to see all"),
    ("recommend --demo -w ''", 2, "error: -w names nothing: an unset variable? leave it out to see all"),
    ("recommend --demo -w n[1-999999999]", 2, "error: -w 'n[1-999999999]' is not a host list: give names ..."),
    ("recommend --demo -j 1_[0-99999999999]", 2, "error: '0-99999999999' names more tasks than an array can have"),
    ("recommend --demo -o job_id:99999999999", 2, "error: -o 'job_id:99999999999' is not a field: choose ..."),
    ("recommend --demo --config absent.toml", 1, "error: absent.toml: no such file: check --config and ..."),
    ("recommend --demo --config folder", 1, "error: folder: cannot be read: Is a directory"),
    ("recommend --demo --config binary", 1, "error: binary: not UTF-8 text: invalid start byte at byte 128"),
    ("recommend --demo --config broken.toml", 1, "error: broken.toml: not valid TOML: Expected ']' at the end ..."),
    ("recommend --demo --config unknown.toml", 1, "error: unknown.toml: [planing] is not known: did you mean ..."),
    ("recommend --demo --config unit.toml", 1, "error: unit.toml: planning.node_timer_s: Input should be a ..."),
    ("recommend --demo --config range.toml", 1, "error: range.toml: daemon: interval_s must be at least 1 and ..."),
    ("recommend --demo --config clash.toml", 1, "error: clash.toml: not valid TOML: Cannot overwrite a value ..."),
    ("explain", 2, "sadvise explain: JOBID is missing (see sadvise explain --help)"),
    ("explain --demo 999", 1, "error: job 999 is not in the queue of live: it has ended, never was, or is ..."),
    ("explain --demo abc", 2, "error: 'abc' is not a job: give 123, 123_4, 123_[1-9] or 123+1"),
    (f"explain --demo {'9' * 99}", 2, f"error: '{'9' * 99}' is not a job: give 123, 123_4, 123_[1-9] or 123+1"),
    ("explain --demo 12 13", 2, "sadvise explain: got unexpected extra argument(s) (13) (see sadvise explain ..."),
    ("explain --demo -5", 2, "sadvise explain: no such option: -5 (see sadvise explain --help)"),
    ("apply --journal folder/absent/journal.db", 1, "error: folder/absent/journal.db: its folder does not ..."),
    ("apply --journal binary --json -P", 2, "error: --json excludes -P: give one"),
    ("apply -j abc", 2, "error: 'abc' is not a job: give 123, 123_4, 123_[1-9] or 123+1"),
    ("revert", 2, "error: name the jobs whose changes are to be reverted, or give --all"),
    ("revert seven", 2, "sadvise revert: JOBID seven: must be a whole number (see sadvise revert --help)"),
    ("revert 0", 2, "sadvise revert: JOBID 0: must be at least 1 (see sadvise revert --help)"),
    ("revert --all 5", 2, "error: name the jobs whose changes are to be reverted, or give --all"),
    ("revert --all --journal folder/absent/journal.db", 1, "error: folder/absent/journal.db: its folder does not ..."),
    ("revert --all --json -P", 2, "error: --json excludes -P: give one"),
    ("revert --all --settings", 2, "error: --settings is given alone"),
    ("revert --settings --json", 2, "error: --settings is given alone"),
    ("revert --all --strays", 2, "error: --all and --strays exclude each other: give one"),
    ("revert --all --journal notes.txt", 1, "error: notes.txt: is not a journal of sadvise: name another file ..."),
    ("serve --once --config absent.toml", 1, "error: absent.toml: no such file: check --config and ..."),
    ("serve extra", 2, "sadvise serve: got unexpected extra argument(s) (extra) (see sadvise serve --help)"),
    ("pause --config unknown.toml", 1, "error: unknown.toml: [planing] is not known: did you mean planning?"),
    ("pause --reason", 2, "sadvise: option '--reason' requires an argument (see sadvise --help)"),
    ("resume --freeze", 2, "sadvise resume: no such option: --freeze (see sadvise resume --help)"),
    ("acknowledge", 2, "sadvise acknowledge: BREAKER is missing (see sadvise acknowledge --help)"),
    ("acknowledge nosuch --journal absent.db", 1, "error: absent.db: no such journal: name another file with ..."),
    ("acknowledge nosuch --journal binary", 1, "error: binary: is not a journal of sadvise: name another file ..."),
    ("status -M a/b", 2, "error: -M a/b: 'a/b' is not the name of a cluster"),
    ("status --json yes", 2, "sadvise status: got unexpected extra argument(s) (yes) (see sadvise status ..."),
    ("status --config unit.toml", 1, "error: unit.toml: planning.node_timer_s: Input should be a valid number, ..."),
    ("notify extra", 2, "sadvise notify: got unexpected extra argument(s) (extra) (see sadvise notify --help)"),
    ("notify --config unknown.toml", 1, "error: unknown.toml: [planing] is not known: did you mean planning?"),
    ("notify --test --journal absent.db", 2, "error: --test excludes --journal: give one"),
    ("top --interval 1", 2, "sadvise top: --interval 1: must be at least 5 (see sadvise top --help)"),
    ("top --demo", 2, "error: top needs a terminal: use `sadvise recommend` or `sadvise status` where there ..."),
    ("web --listen 0.0.0.0:80", 2, "error: --listen: listen must be a loopback address with a port, such as ..."),
    ("web --listen 127.0.0.1:99999", 2, "error: --listen: listen must be a loopback address with a port, such as ..."),
    ("web --demo --snapshot other.json", 2, "error: --demo and --snapshot exclude each other: give one"),
    ("web --config absent.toml", 1, "error: absent.toml: no such file: check --config and SADVISE_CONFIG"),
    ("web -M a,b --journal x.sqlite", 2, "error: --journal names one file, and each cluster has a journal ..."),
    ("web -M a,-b", 2, "error: -M a,-b: '-b' is not the name of a cluster"),
    ("limits", 2, "error: give either a TRACE or --demo"),
    ("maintenance --mail", 1, 'error: --mail needs [notify] users = "hint" or "all" in sadvise.toml'),
    ("maintenance 12", 2, "sadvise maintenance: got unexpected extra argument(s) (12) (see sadvise maintenance ..."),
    ("idle", 1, "error: no measurements: set prometheus in [utilisation] of sadvise.toml"),
    ("idle 12", 2, "sadvise idle: got unexpected extra argument(s) (12) (see sadvise idle --help)"),
    ("idle --config prometheus.toml --mail", 1, 'error: --mail needs [notify] users = "hint" or "all" in ...'),
    ("idle --config prometheus.toml -u ''", 2, "error: -u names nothing: an unset variable? leave it out to ..."),
    ("idle --config label.toml", 1, "error: label.toml: utilisation: node_label must be the name of a label, ..."),
    ("idle --config plain.toml", 1, "error: plain.toml: utilisation: prometheus must be https, or http on a ..."),
    ("limits notes.txt", 2, "error: --cluster is missing: give live, a file, or a short form such as ..."),
    ("limits absent.csv --cluster nodes=2,gpus=8", 1, "error: absent.csv: no such file: check the path"),
    ("limits --demo --top 0", 2, "sadvise limits: --top 0: must be at least 1 (see sadvise limits --help)"),
    ("limits --demo --mail", 2, "error: --mail excludes --demo: its users are made up"),
    ("limits good.csv --cluster nodes=2,gpus=8 --mail", 1, "error: --mail needs [notify] users = ..."),
    ("limits live --cluster nodes=2,gpus=8", 1, "error: sacct ..."),
    ("report --journal absent.db", 1, "error: absent.db: no such journal: name another file with --journal"),
    ("report --journal binary", 1, "error: binary: is not a journal of sadvise: name another file with ..."),
    ("report --json -P", 2, "error: --json excludes -P: give one"),
    ("journal --journal absent.db", 1, "error: absent.db: no such journal: name another file with --journal"),
    ("journal --journal notes.txt", 1, "error: notes.txt: is not a journal of sadvise: name another file with ..."),
    ("journal nosuch", 2, "sadvise journal: VIEW: 'nosuch' is not one of 'leases', 'cycles', 'changes', ..."),
    ("journal -n 0", 2, "sadvise journal: --lines 0: must be at least 1 (see sadvise journal --help)"),
    ("journal --journal folder", 1, "error: folder: no such journal: name another file with --journal"),
    ("journal --json -P", 2, "error: --json excludes -P: give one"),
    ("journal -j abc", 2, "error: -j 'abc': give job ids, separated by commas"),
    ("journal --since yesterday", 2, "error: --since 'yesterday': give a time ago such as 2h or 3d, or one such ..."),
    ("replay 1 -P --json", 2, "error: --json excludes -P: give one"),
    ("replay first", 2, "error: 'first' is not a cycle: give its number, or last"),
    ("replay 5 --journal binary", 1, "error: binary: is not a journal of sadvise: name another file with ..."),
    ("snapshot", 2, "sadvise snapshot: --output is missing (see sadvise snapshot --help)"),
    ("snapshot --demo -o folder", 1, "error: folder: cannot be written: Is a directory"),
    ("snapshot --demo -o absent/copy.json", 1, "error: absent/copy.json: cannot be written: No such file or ..."),
    ("check --snapshot empty", 1, "error: empty: is empty: write one with `sadvise snapshot`"),
    ("check --demo --json -P", 2, "error: --json excludes -P: give one"),
    ("simulate", 2, "error: give either a TRACE or --demo"),
    ("simulate --demo absent.csv", 2, "error: give either a TRACE or --demo"),
    ("simulate absent.csv", 2, "error: --cluster is missing: give live, a file, or a short form such as ..."),
    ("simulate absent.csv --cluster nodes=2,gpus=8", 1, "error: absent.csv: no such file: check the path"),
    ("simulate notes.txt --cluster nodes=2,gpus=8", 1, "error: notes.txt: column 'hello' is not known: known ..."),
    ("simulate jobs.csv --cluster nodes=2,gpus=8", 1, "error: jobs.csv: column run_time_s is missing: a trace ..."),
    ("simulate binary --cluster nodes=2,gpus=8", 1, "error: binary: holds binary data, not a trace: give the ..."),
    ("simulate empty --cluster nodes=2,gpus=8", 1, "error: empty: is empty: write a header with job_id, ..."),
    ("simulate folder --cluster nodes=2,gpus=8", 1, "error: folder: cannot be read: Is a directory"),
    ("simulate --demo --policy nosuch", 2, "error: policy 'nosuch' is not known: known are slurm, fifo, sjf, ..."),
    ("simulate --demo --cluster nodes=0,gpus=1", 2, "error: --cluster nodes=0,gpus=1: nodes.0.count: Input ..."),
    ("simulate --demo --cluster nodes=2,gpus=many", 2, "error: --cluster nodes=2,gpus=many: gpus=many is no ..."),
    ("simulate --demo --cluster colour=red", 2, "error: --cluster colour=red: 'colour' is not known: known are ..."),
    ("simulate --demo --cluster absent.toml", 1, "error: absent.toml: no such cluster file; write one, or a ..."),
    ("simulate --demo --seed -1", 2, "sadvise simulate: --seed -1: must be at least 0 (see sadvise simulate ..."),
    ("simulate --demo --execution slow", 2, "sadvise simulate: --execution: 'slow' is not one of 'measured', ..."),
    ("simulate --demo --speeds fast", 2, "error: speeds 'fast' are not known: known are oracle, estimated, ..."),
    ("simulate --demo --report folder", 1, "error: folder: the report cannot be written: Is a directory: ..."),
    ("simulate live --cluster nodes=2,gpus=8", 1, "error: sacct ..."),
    ("simulate --demo --policy fifi", 2, "error: policy 'fifi' is not known: did you mean fifo? known are ..."),
    ("simulate --demo --speeds noisy=200", 2, "error: speeds 'noisy=200' are not known: known are oracle, ..."),
    ("simulate --demo --cluster nodes=2,gpu=8", 2, "error: --cluster nodes=2,gpu=8: 'gpu' is not known: did ..."),
    ("simulate --demo --report absent/r.html", 1, "error: absent/r.html: the report cannot be written: No such ..."),
    ("simulate --demo --config absent.toml", 1, "error: absent.toml: no such file: check --config and ..."),
    ("simulate --demo --seed abc", 2, "sadvise simulate: --seed abc: must be a whole number (see sadvise ..."),
    ("simulate --demo --jobs 0", 2, "sadvise simulate: --jobs 0: must be at least 1 (see sadvise simulate ..."),
    ("compare", 2, "sadvise compare: TRACE is missing (see sadvise compare --help)"),
    ("compare absent.csv --cluster nodes=2,gpus=8", 1, "error: absent.csv: no such file: check the path"),
    ("compare notes.txt", 2, "error: --cluster is missing: give one for all traces, or one for each"),
    ("compare notes.txt --seeds none --cluster nodes=2,gpus=8", 2, "error: --seeds none: give a number of ..."),
    ("compare notes.txt --engine cloud", 2, "sadvise compare: --engine: 'cloud' is not one of 'local', 'slurm' ..."),
    (
        "compare good.csv --cluster nodes=2,gpus=8 --cluster nodes=2,gpus=8",
        2,
        "error: --cluster is given 2 times for 1 traces: ...",
    ),
    ("compare good.csv good.csv --cluster nodes=2,gpus=8", 2, "error: good.csv: given twice: leave one"),
    ("compare good.csv --cluster nodes=2,gpus=8 --seeds 0", 2, "error: --seeds 0: give a number of seeds from 1 ..."),
    ("compare good.csv --cluster nodes=2,gpus=8 --policy fifi", 2, "error: policy 'fifi' is not known: did ..."),
    ("compare good.csv --cluster nodes=2,gpus=8 --workers 0", 2, "sadvise compare: --workers 0: must be at ..."),
    ("tune", 2, "error: give either a TRACE or --demo"),
    ("tune --demo --repeats 1", 2, "sadvise tune: --repeats 1: must be at least 2 (see sadvise tune --help)"),
    ("tune good.csv", 2, "error: --cluster is missing: give live, a file, or a short form such as ..."),
    ("tune good.csv --demo", 2, "error: give either a TRACE or --demo"),
    ("tune absent.csv --cluster nodes=2,gpus=8", 1, "error: absent.csv: no such file: check the path"),
    ("tune good.csv --cluster nodes=2,gpus=8 --since now-7days", 2, "error: --since is for the accounting of ..."),
    ("tune live --cluster nodes=2,gpus=8", 1, "error: sacct ..."),
    ("tune good.csv --cluster nodes=x", 2, "error: --cluster nodes=x: nodes=x is no number"),
    ("tune --demo --workers 0", 2, "sadvise tune: --workers 0: must be at least 1 (see sadvise tune --help)"),
    ("tune --demo --report absent/r.html", 1, "error: absent/r.html: the report cannot be written: No such file ..."),
    ("tune --demo --config absent.toml", 1, "error: absent.toml: no such file: check --config and ..."),
    ("import nosuch notes.txt -o x.csv", 2, "sadvise import: FORMAT: 'nosuch' is not one of 'sacct', 'swf', ..."),
    ("import philly absent.csv -o x.csv", 1, "error: absent.csv: no such file: check the path"),
    ("import sacct notes.txt -o x.csv", 1, "error: notes.txt: column Submit is missing: write the file ..."),
    ("import sacct binary -o x.csv", 1, "error: binary: holds binary data: give the text, plain or gzip"),
    ("import sacct empty -o x.csv", 1, "error: empty: is empty: check the path"),
    ("import swf empty -o x.csv", 1, "error: empty: is empty: check the path"),
    ("import swf notes.txt", 2, "sadvise import: --output is missing (see sadvise import --help)"),
    ("import swf notes.txt -o x.csv --since now-1days", 2, "error: --since is for `sadvise import sacct live`: ..."),
    ("fit nosuch", 2, "sadvise fit: no such command 'nosuch' (see sadvise fit --help)"),
    ("fit runtime --from absent.txt --models folder", 1, "error: absent.txt: no such file: check the path"),
    (
        "fit runtime --from notes.txt --models folder",
        1,
        "error: notes.txt: column Submit is missing: write the file ...",
    ),
    ("fit throughput --from absent.csv --models folder", 1, "error: absent.csv: there is no such file or ..."),
    ("fit interference --from table.csv --models folder", 1, "error: table.csv: its columns are of none of the ..."),
    ("fit start-time --journal absent.db --models folder", 1, "error: absent.db: no such journal: name another ..."),
    ("models show nosuch", 1, "error: there is no model of kind 'nosuch': there are interference, performance, ..."),
    ("models show run_time 99", 1, "error: there is no version '99' of run_time: there are default-1"),
    ("models use run_time 99", 1, "error: there is no version '99' of run_time: there are default-1"),
    ("models rollback run_time", 1, "error: there is nothing to roll run_time back to: no other version was in ..."),
    ("models verify --models notes.txt", 1, "error: notes.txt/manifest.toml: cannot be read: Not a directory"),
    ("models compare run_time 1", 2, "sadvise models compare: B is missing (see sadvise models compare --help)"),
    ("models compare run_time 1 2", 2, "error: 'run_time' forecasts, and what is compared are policies: give ..."),
    ("config check --config unknown.toml", 1, "error: unknown.toml: [planing] is not known: did you mean ..."),
    ("config show --config binary", 1, "error: binary: not UTF-8 text: invalid start byte at byte 128"),
    ("config example extra", 2, "sadvise config example: got unexpected extra argument(s) (extra) (see sadvise ..."),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of files that are not what commands expect."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    with (folder / "huge").open("wb") as stream:
        stream.truncate(2 << 30)
    contents = {
        "empty": b"",
        "binary": bytes(range(256)) * 8,
        "cut.json.gz": b"\x1f\x8b\x08\x00abc",
        "other.json": b'{"jobs": []}\n',
        "page.html": b"<html>\n",
        "notes.txt": b"hello, world\n",
        "good.csv": b"job_id,submit_time,run_time_s,gpus\n1,0,100,1\n",
        "jobs.csv": b"job_id,submit_time\n1,now\n",
        "table.csv": b"a,b\n1,2\n",
        "broken.toml": b"[planning\n",
        "unknown.toml": b"[planing]\ndepth = 5\n",
        "unit.toml": b'[planning]\nnode_timer_s = "10 min"\n',
        "range.toml": b"[daemon]\ninterval_s = -5\n",
        "prometheus.toml": b'[utilisation]\nprometheus = "http://127.0.0.1:1"\n',
        "label.toml": b'[utilisation]\nnode_label = "a\\"} or up"\n',
        "plain.toml": b'[utilisation]\nprometheus = "http://prometheus.example.org"\n',
        "clash.toml": b'[mode]\nnice = "apply"\nnice = "off"\n',
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def is_line(line: str, expected: str) -> bool:
    """Return whether a line of stderr is the one expected."""
    whole = f"sadvise: {expected}" if expected.startswith("error: ") else expected
    return line.startswith(whole.removesuffix("...")) if whole.endswith(" ...") else line == whole


def files_of(folder: Path) -> dict[Path, int]:
    """Return the files of a folder with their sizes, without locks of journals, which stay."""
    paths = (path for path in folder.rglob("*") if path.suffix != ".lock")
    return {path: path.lstat().st_size for path in paths}


@pytest.mark.usefixtures("_inside")
@pytest.mark.parametrize(("command", "code", "expected"), WRONG, ids=[row[0][:80] for row in WRONG])
def test_wrong_input_gets_one_line_that_says_what_is_wrong(
    sadvise: Sadvise, folder: Path, command: str, code: int, expected: str
) -> None:
    before = files_of(folder)

    outcome = sadvise(*shlex.split(command))

    assert outcome.err.endswith("\n")
    assert is_line(outcome.err[:-1], expected), outcome.err
    assert (outcome.exit_code, outcome.out) == (code, "")
    assert files_of(folder) == before


@pytest.mark.parametrize("command", ["config example extra", "config show --config binary"])
def test_the_program_itself_answers_alike(folder: Path, command: str) -> None:
    code, expected = next((code, line) for line_of, code, line in WRONG if line_of == command)
    argv = [sys.executable, "-m", "advisor.cli.main", *command.split()]

    answer = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)

    assert is_line(answer.stderr[:-1], expected), answer.stderr
    assert (answer.returncode, answer.stdout) == (code, "")


def test_every_command_has_rows() -> None:
    from advisor.cli.app import BRANCHES

    named = {row[0].split()[0] for row in WRONG}

    assert set(BRANCHES) <= named
    assert len(WRONG) >= 60


@pytest.mark.parametrize("group", ["", "fit", "models", "config"])
def test_commands_without_a_command_print_their_help(sadvise: Sadvise, group: str) -> None:
    outcome = sadvise(*group.split())

    assert outcome.exit_code == 2
    assert outcome.err.startswith(f"Usage: sadvise {group}".rstrip())
    assert "Commands:" in outcome.err
