"""Slurm commands that misbehave, as real programs on PATH: one line, exit code 1, no traceback."""

from pathlib import Path

import pytest

from tests.cli.conftest import Sadvise

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


FILES = {
    "empty": (b"", "is empty"),
    "newer": (b'{"format": "sadvise.snapshot", "version": 99, "tool_version": "9.9", "snapshot": {}}', "upgrade"),
    "truncated": (b'{"format": "sadvise.snapshot", "version": 1, "snap', "cut short"),
    "other": (b'{"jobs": []}', "snapshot"),
    "binary": (b"\x00\x01\x02", "binary"),
    "not JSON": (b"hello", "JSON"),
}


@pytest.mark.parametrize(("content", "words"), FILES.values(), ids=list(FILES))
def test_unusable_snapshot_file_gets_one_line(sadvise: Sadvise, tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "s.json").write_bytes(content)

    outcome = sadvise("recommend", "--snapshot", str(tmp_path / "s.json"))

    assert outcome.exit_code == 1
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert str(tmp_path / "s.json") in outcome.err
    assert words in outcome.err
