"""What `sadvise models` and `sadvise fit` print, and what they change."""

import json
import stat
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from advisor.domain.probation import OrderLook, OrderProof
from advisor.predict.library import Library
from advisor.sim.traces.importing.sacct import COMMAND, FILLED_IN
from advisor.site.status_file import status_after, write_status
from tests.cli.conftest import Sadvise
from tests.made_rounds import make_round, step


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the site's models."""
    folder = tmp_path / "models"
    monkeypatch.setenv("SADVISE_MODELS", str(folder))
    monkeypatch.setenv("SADVISE_FORECASTS__MODELS", str(folder))
    return folder


def history(tmp_path: Path, jobs: int = 600) -> Path:
    """Accounting of twelve users whose jobs wait for hours, then run for a share of their limits of their own."""
    rng = np.random.default_rng(1)
    lines = ["|".join(FILLED_IN)]
    for number in range(jobs):
        user = number % 12
        limit = int(rng.choice([60, 240, 1440]))
        run_s = int(limit * 60 * (0.1, 0.5, 0.95)[user % 3] * rng.uniform(0.7, 1.05))
        submit = 1_772_323_200 + 600 * number
        lines.append(
            f"{number + 1}|{number + 1}|user{user}|normal|gpu|{submit}|{submit}|{submit + 18_000}|{run_s}|{limit}|"
            f"COMPLETED|cpu=8,mem=32G,node=1,gres/gpu={rng.choice([1, 2, 4])}||1|"
        )
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_list_names_the_shipped_models(sadvise: Sadvise, site: Path) -> None:
    document = json.loads(sadvise("models", "list", "--json").out)

    assert document["meta"]["schema"] == "sadvise.models/1"
    assert {(each["kind"], each["in_use"], each["shipped"]) for each in document["models"]} == {
        (held.entry.kind, True, True) for held in Library(site).held()
    }


def test_verify_finds_the_shipped_models_sound(sadvise: Sadvise, site: Path) -> None:
    answer = sadvise("models", "verify", "-P")

    assert answer.exit_code == 0
    states = [line.rsplit("|", 1)[1] for line in answer.out.splitlines()]
    assert states == ["sound", *["yes"] * len(Library(site).held())]


def test_show_prints_the_card(sadvise: Sadvise, site: Path) -> None:
    assert sadvise("models", "show", "run_time").out.startswith("# run_time default-1")


@pytest.mark.slow
def test_fit_on_accounting_is_used_and_rolled_back_and_leaves_the_advice_to_rules_once_damaged(
    sadvise: Sadvise, site: Path, tmp_path: Path
) -> None:
    fitted = sadvise("fit", "runtime", "--from", str(history(tmp_path)))

    assert fitted.exit_code == 0, fitted.err
    assert "600 rows, 600 ended GPU jobs" in fitted.err
    assert fitted.out.startswith("# run_time site-1")
    assert "## Graph" not in fitted.out and "## Graph" in sadvise("models", "show", "run_time").out
    assert "`sadvise models rollback run_time` undoes this" in fitted.err
    assert "run_time site-1" in sadvise("recommend", "--demo", "--long").out
    assert "run_time site-1  forests of this site: on " in sadvise("models", "list").out
    assert sadvise("models", "rollback", "run_time").out == "run_time: default-1 is in use\n"
    assert "run_time default-1" in sadvise("recommend", "--demo", "--long").out

    sadvise("models", "rollback", "run_time")
    (site / "run_time" / "site-1" / "model.onnx").write_bytes(b"damaged")
    advice, verified = sadvise("recommend", "--demo"), sadvise("models", "verify")

    assert (advice.exit_code, verified.exit_code) == (0, 1)
    assert "not the file of its digest" in advice.out and "rules serve instead" in advice.out
    assert "not the file of its digest" in verified.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("private_data", "mode"),
    [("PrivateData = none", 0o644), ("PrivateData = accounts,jobs", 0o640), (None, 0o640)],
    ids=["jobs are shown", "jobs are hidden", "Slurm is silent"],
)
def test_history_of_users_is_as_open_as_slurm_shows_their_jobs(
    private_data: str | None, mode: int, sadvise: Sadvise, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    if private_data is not None:
        text = f"ClusterName = c\nSLURM_VERSION = 24.11.5\n{private_data}\n"
        (programs / "scontrol").write_text(f"#!/bin/sh\nprintf '{text}'\n")
        (programs / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))

    fitted = sadvise("fit", "runtime", "--from", str(history(tmp_path, jobs=240)))

    assert fitted.exit_code == 0, fitted.err
    assert stat.S_IMODE((site / "run_time/site-1/parameters.json").stat().st_mode) == mode
    assert ("closed to other users" in fitted.err) is (mode == 0o640)


def test_history_that_is_too_short_fails_in_one_line(sadvise: Sadvise, site: Path, tmp_path: Path) -> None:
    answer = sadvise("fit", "runtime", "--from", str(history(tmp_path, jobs=20)))

    assert answer.exit_code == 1
    assert not site.exists()
    assert "Traceback" not in answer.err


def test_forecasts_can_be_turned_off(sadvise: Sadvise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SADVISE_FORECASTS__ENABLED", "false")

    document = json.loads(sadvise("recommend", "--demo", "--json").out)

    assert document["forecasts"] == {"models": [], "notes": [], "on_probation": []}


def test_explain_shows_the_forecasts_of_a_job(sadvise: Sadvise, site: Path) -> None:
    told = sadvise("explain", "--demo", "12").out
    forecast = json.loads(sadvise("explain", "--demo", "12", "--json").out)["diagnosis"]["forecast"]

    assert "(80 %)" in told
    assert forecast["run_time_s"]["low"] <= forecast["run_time_s"]["median"] <= forecast["run_time_s"]["high"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("jobs", "words"),
    [(240, "run_time: on probation, so plans rest on time limits"), (600, "run_time: not on probation: ")],
    ids=["too few kept aside", "enough kept aside"],
)
def test_fit_on_live_accounting_says_whether_the_model_is_on_probation(
    jobs: int, words: str, sadvise: Sadvise, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "programs" / "sacct"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\ncase $* in *--delimiter=*) ;; *) exec /usr/bin/tail -n +2 {history(tmp_path, jobs)};; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))

    fitted = sadvise("fit", "runtime", "--from", "live")

    assert fitted.exit_code == 0, fitted.err
    assert words in fitted.err
    assert "jobs kept aside from the fit ran within their intervals" in fitted.err


def test_help_has_the_command_that_writes_a_file_of_accounting(sadvise: Sadvise) -> None:
    assert COMMAND in " ".join(sadvise("fit", "runtime", "--help").out.split())


def test_folder_that_cannot_be_written_is_refused_before_the_accounting_is_read(
    sadvise: Sadvise, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()

    answer = sadvise("fit", "runtime", "--from", "no-such-file", "--models", f"{tmp_path}/file/models")
    dry = sadvise("fit", "runtime", "--from", "no-such-file", "--models", f"{tmp_path}/file/models", "--dry-run")

    assert answer.exit_code == dry.exit_code == 1
    assert answer.err == (
        f"sadvise: error: {tmp_path}/file: cannot be written: run this as root, or give --models DIR or --dry-run\n"
    )
    assert "no-such-file" in dry.err


def test_list_says_how_the_run_time_model_in_use_orders_jobs_here_and_why_it_is_set_aside(
    sadvise: Sadvise, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SADVISE_DAEMON__RUNTIME_FOLDER", str(tmp_path))
    name, why = "run_time default-1", "run_time default-1 is not proven here, so plans rest on time limits."
    order = OrderProof(jobs=400, users=31, ordered_ratio=0.95, limit_ratio=0.9, gain_ratio=0.04, error_ratio=0.01)
    look = OrderLook(model=name, looked_time=1_800_000_000.0, order=order)
    seen = status_after(make_round(step())).model_copy(update={"run_time_order": look})

    def listed() -> tuple[str, dict[str, object]]:
        document = json.loads(sadvise("models", "list", "--json").out)
        (of_run_time,) = [each for each in document["models"] if each["kind"] == "run_time" and each["in_use"]]
        return sadvise("models", "list").out, {key: of_run_time[key] for key in ("order", "set_aside")}

    nothing = listed()
    write_status(tmp_path, seen)
    counts = listed()
    write_status(tmp_path, seen.model_copy(update={"on_probation": {name: why}}))
    aside = listed()
    (tmp_path / "status.json").write_text("{")
    broken = listed()

    assert nothing[1] == broken[1] == {"order": None, "set_aside": None}
    assert "orders" not in nothing[0] and "orders" not in broken[0]
    assert "orders 95.0 % of the GPU-time in question right, time limits 90.0 %" in " ".join(counts[0].split())
    assert counts[1] == {"order": {**asdict(look)}, "set_aside": None}
    assert "is not proven here, so plans rest on time limits." in " ".join(aside[0].split())
    assert aside[1]["set_aside"] == why
