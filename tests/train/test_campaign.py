"""Campaigns: what runs, what goes on, and what a failure leaves."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from advisor.errors import ConfigError
from tools.train import dl2, training_commands
from tools.train.dl2_published import RECIPES
from tools.train.imitation import Architecture
from tools.train.runs import PlannedRun, RunEnd, complete, read_runs, unfinished
from tools.train.training import read_weights

ROOT = Path(__file__).parents[2]
QUICK = "updates = 0, warm_updates = 1, replay = 64, episodes = 2, hidden = [8]"
FILE = f"""
[[runs]]
name = "whole"
seeds = "1-2"
set = {{ {QUICK} }}

[[runs]]
name = "part"
teacher = "fifo"
set = {{ {QUICK}, has_value = false }}
"""


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    path = tmp_path / "runs.toml"
    path.write_text(FILE)
    return path


def swept(*words: object) -> Result:
    return CliRunner().invoke(dl2.app, ["sweep", *map(str, words)])


def described(folder: Path) -> dict[str, object]:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def weights(folder: Path) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in read_weights(folder / "warm.pt").values()]


def test_every_row_and_seed_is_one_run(file: Path) -> None:
    runs = read_runs(file)
    fewer = read_runs(file, only=["part"], seeds="3,5")

    assert list(runs) == ["whole-1", "whole-2", "part-1"]
    assert runs["whole-2"].seed == 2 and runs["whole-2"].teacher == "drf" and runs["whole-2"].recipe.has_value
    assert runs["part-1"].teacher == "fifo" and not runs["part-1"].recipe.has_value
    assert runs["part-1"].recipe.hidden == (8,)
    assert list(fewer) == ["part-3", "part-5"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[[runs]]\nname = 'a'\nrecipe = 'theirs'", "a: no recipe theirs"),
        ("[[runs]]\nname = 'a'\nteacher = 'me'", "a: no teacher me"),
        ("[[runs]]\nname = 'a'\nsetting = 'slurm'\nteacher = 'drf'", "a: no teacher drf; there are price"),
        ("[[runs]]\nname = 'a'\nset = { speed = 1 }", "a: a recipe has no speed"),
        ("[[runs]]\nname = 'a'\nset = { network = 'deep' }", "a: 'deep' is not"),
        ("[[runs]]\nname = 'a'\nseeds = 'all'", "--seeds all"),
        ("[[runs]]\nname = '../a'", "runs.0.name"),
        ("[[runs]]\nname = 'a'\nseed = 1", "runs.0.seed"),
        ("[[runs", "runs.toml: "),
    ],
)
def test_wrong_file_gets_one_line(file: Path, text: str, wrong: str) -> None:
    file.write_text(text)

    with pytest.raises(ConfigError) as caught:
        read_runs(file)

    assert wrong in str(caught.value) and "\n" not in str(caught.value)


def test_row_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match="no row parts; there are whole, part"):
        read_runs(file, only=["parts"])


def test_runs_on_slurm_take_its_recipe(file: Path) -> None:
    file.write_text("[[runs]]\nname = 'slurm'\nsetting = 'slurm'\nset = { updates = 3, network = 'options' }")

    planned = read_runs(file)["slurm-1"]

    assert (planned.teacher, planned.recipe.network, planned.recipe.updates) == ("price", Architecture.OPTIONS, 3)


def test_runs_on_cores_end_as_one_alone_and_only_one_that_failed_runs_again(file: Path, tmp_path: Path) -> None:
    runs = read_runs(file)
    complete(runs["whole-2"], tmp_path / "alone", lambda *_: None)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "whole-1").write_text("no folder")

    failed = swept(file, "--out", tmp_path / "runs", "--workers", 1)
    (tmp_path / "runs" / "whole-1").unlink()
    mended, again = (swept(file, "--out", tmp_path / "runs", "--workers", 1) for _ in range(2))

    assert failed.exit_code == 1 and mended.exit_code == again.exit_code == 0, mended.output
    assert "0 of 3 runs are over" in failed.output and "part-1: " in failed.output
    assert "whole-1: FileExistsError: " in failed.output
    assert "2 of 3 runs are over" in mended.output and "whole-1: " in mended.output
    assert again.output == "3 of 3 runs are over\n"
    assert weights(tmp_path / "runs" / "whole-2") == weights(tmp_path / "alone")
    assert weights(tmp_path / "runs" / "whole-1") != weights(tmp_path / "alone")
    assert described(tmp_path / "runs" / "part-1")["teacher"] == "fifo"


def test_folder_of_another_run_is_refused_before_anything_runs(file: Path, tmp_path: Path) -> None:
    runs = read_runs(file)
    complete(runs["whole-2"], tmp_path / "whole-1", lambda *_: None)

    with pytest.raises(ConfigError, match="whole-1 holds another run"):
        unfinished(runs, tmp_path)


def test_interrupted_campaign_says_what_is_left_and_goes_on(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(runs: dict[str, PlannedRun], out: Path, **_: object) -> Iterator[tuple[str, RunEnd]]:
        for name in list(runs)[:1]:
            yield name, RunEnd(figure=complete(runs[name], out / name, lambda *_: None).best)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training_commands, "run_campaign", interrupted)
        stopped = swept(file, "--out", tmp_path / "runs")
    rest = unfinished(read_runs(file), tmp_path / "runs")

    assert stopped.exit_code == 130
    assert "interrupted: 1 of 3 runs are over; run the same command again for whole-2, part-1" in stopped.output
    assert list(rest) == ["whole-2", "part-1"]


def test_slurm_without_its_commands_gets_one_line(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    ran = swept(file, "--out", tmp_path / "runs", "--engine", "slurm")

    assert ran.exit_code == 2 and "needs sbatch and srun" in ran.output


def test_runs_of_the_page_can_be_read() -> None:
    runs = read_runs(ROOT / "tools/train/dl2.toml")

    assert {planned.recipe for planned in runs.values()} >= set(RECIPES.values())
    assert all(planned.setting == "published" for planned in runs.values())
