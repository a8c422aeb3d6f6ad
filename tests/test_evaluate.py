"""The command that judges the predictors: what it does with wrong input."""

from pathlib import Path

import pytest

from tools.evaluate.__main__ import main

KINDS = {"throughput": "pollux", "interference": "gavel", "runtime": "drac", "start": "drac"}


def judged(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command and return its exit code."""
    monkeypatch.setattr("sys.argv", ["evaluate", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_file_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing.csv")

    code = judged(monkeypatch, kind, "--format", KINDS[kind], "--train", missing, "--test", missing)

    said = capsys.readouterr().err.splitlines()
    assert code == 1
    assert len(said) == 1
    assert said[0].startswith("evaluate: error: ")
    assert "missing.csv" in said[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "content", ["", "nothing,of,this\n1,2,3\n", "\x00\x01\x02"], ids=["empty", "foreign", "binary"]
)
def test_file_of_something_else_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, content: str
) -> None:
    file = tmp_path / "model-other.csv"
    file.write_text(content)

    code = judged(monkeypatch, kind, "--format", KINDS[kind], "--train", str(file), "--test", str(file))

    said = capsys.readouterr().err.splitlines()
    assert code == 1
    assert len(said) == 1


def test_help_lists_all_four(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code = judged(monkeypatch, "--help")

    helped = capsys.readouterr().out
    assert code == 0
    assert all(f"  {kind} " in helped for kind in KINDS)
