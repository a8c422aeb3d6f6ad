"""`sadvise models compare`: what two versions of a policy would have planned, and which is better in rollouts."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.cycle import Cycle
from advisor.errors import SimulationError
from advisor.journal import SqliteJournal
from advisor.predict.library import Library
from advisor.predict.manifest import GRAPH
from advisor.replay.deviations import SHADOW
from advisor.sim.live import slurm_rollout
from tests.builders import TAKEN_AT, make_snapshot
from tests.cli.conftest import Sadvise
from tests.planning.test_policies import queue
from tests.predict.graphs import publish_sizes

# Each fits or judges models.
pytestmark = pytest.mark.slow

KIND = "policy-own"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Two versions: the one in use grows jobs, the other grows none."""
    folder = tmp_path / "models"
    publish_sizes(folder)
    publish_sizes(folder, version="site-2", constant=-9.0, in_use=False)
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of three cycles in which the rules grow two jobs each."""
    with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        for number in range(3):
            seen = replace(queue(), taken_at=TAKEN_AT + 60.0 * number)
            journal.record(Cycle().judge(seen), Cycle())
        journal.record(Cycle().judge(make_snapshot()), Cycle())
    return tmp_path / "journal.sqlite"


def compared(sadvise: Sadvise, models: Path, path: Path, *arguments: str) -> Any:
    """The document of a comparison."""
    answer = sadvise("models", "compare", KIND, *arguments, "--json", "--models", str(models), "--journal", str(path))
    assert answer.exit_code == 0, answer.err
    return json.loads(answer.out)


def test_comparison_counts_what_both_and_only_one_would_have_done(sadvise: Sadvise, models: Path, path: Path) -> None:
    document = compared(sadvise, models, path, "1", "site-2")

    assert document["meta"]["schema"] == "sadvise.models.compare/1"
    assert (document["cycles"], document["equal"], document["both"], document["rollout"]) == (3, 0, 0, None)
    first, second = document["sides"]
    assert (first["version"], first["changes"], first["only_here"]) == ("1", 3, 3)
    assert (second["version"], second["changes"], second["only_here"]) == ("site-2", 0, 0)
    assert first["saved_s_high"] >= first["saved_s_low"] > 0.0 == second["saved_s_high"]
    assert first["decisions"] >= 3 and second["decisions"] >= 3
    assert 0.0 < first["s_per_decision"] < 1.0
    assert Library(models).find(KIND, None).entry.version == "1"


def test_version_is_compared_with_the_rules(sadvise: Sadvise, models: Path, path: Path) -> None:
    document = compared(sadvise, models, path, "rules", "1", "--cycles", "2")

    rules, version = document["sides"]
    assert (document["cycles"], document["equal"], document["both"]) == (2, 0, 0)
    assert (rules["decisions"], rules["s_per_decision"], rules["digest"]) == (0, None, None)
    # The rules grow both jobs, the policy one of them twice as far.
    assert (rules["changes"], version["changes"]) == (4, 2)


def test_rollout_says_which_version_is_better(sadvise: Sadvise, models: Path, path: Path) -> None:
    arguments = ("--rollout", "--models", str(models), "--journal", str(path))

    document = compared(sadvise, models, path, "1", "site-2", "--rollout")
    words = sadvise("models", "compare", KIND, "1", "site-2", *arguments).out
    turned = sadvise("models", "compare", KIND, "site-2", "1", *arguments).out

    rollout = document["rollout"]
    assert (rollout["snapshots"], rollout["differing"], rollout["skipped"]) == (3, 3, 0)
    # Without growth the jobs run longer, and nothing else waits.
    assert rollout["is_clear"] and 0.0 < rollout["low"] <= rollout["change_s"] <= rollout["high"]
    assert "1 is better than site-2; mean completion of all jobs +" in words
    assert "1 is better than site-2; mean completion of all jobs -" in turned


def test_equal_plans_show_no_clear_difference(sadvise: Sadvise, models: Path, path: Path) -> None:
    publish_sizes(models, version="same", constant=0.1, in_use=False)

    document = compared(sadvise, models, path, "1", "same", "--rollout")
    words = sadvise(
        "models", "compare", KIND, "1", "same", "--rollout", "--models", str(models), "--journal", str(path)
    ).out

    rollout = document["rollout"]
    assert (rollout["differing"], rollout["change_s"], rollout["is_clear"]) == (0, 0.0, False)
    assert "no clear difference: both plan the same" in words
    assert "3 recorded cycles, in 3 of them the same plan; 3 changes by both" in words


def test_what_a_version_would_have_done_in_shadow_is_shown(sadvise: Sadvise, models: Path, path: Path) -> None:
    digest = Library(models).find(KIND, "site-2").entry.digests[GRAPH]
    with SqliteJournal(path) as journal:
        for other in (digest, "of another"):
            journal.note(TAKEN_AT, SHADOW, {"digest": other, "same": 1, "shadow": 2, "in_force": 3, "fault": "late"})

    first, second = compared(sadvise, models, path, "1", "site-2")["sides"]
    words = sadvise("models", "compare", KIND, "1", "site-2", "--models", str(models), "--journal", str(path)).out

    assert first["in_shadow"] is None
    seen = second["in_shadow"]
    assert (seen["results"], seen["same"], seen["faults"]) == (1, 1, 1)
    assert (seen["only_shadow"], seen["only_in_force"]) == (2, 3)
    assert "1 change as in force, 2 only in shadow, 3 only in force, 1 fault" in words


def test_version_that_fails_is_a_fault_of_each_cycle(sadvise: Sadvise, models: Path, path: Path) -> None:
    publish_sizes(models, version="nan", constant=float("nan"), in_use=False)

    answer = sadvise("models", "compare", KIND, "1", "nan", "--models", str(models), "--journal", str(path))

    assert answer.exit_code == 0, answer.err
    assert "fault    nan: model policy-own nan: it returns a value that is not a finite number" in answer.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((KIND, "1", "9"), "there is no version '9' of policy-own: there are 1, site-2"),
        (("policy-none", "1", "2"), "there is no policy 'none': there are dl2, marl, metarl, own, price"),
        (("run_time", "1", "2"), "'run_time' forecasts, and what is compared are policies: give policy-NAME"),
        ((KIND, "1", "1"), "'1' is compared with itself: give two versions, or one and rules"),
        ((KIND, "1", "rules", "--cycles", "0"), "--cycles"),
    ],
)
def test_wrong_names_are_errors_of_one_line(
    sadvise: Sadvise, models: Path, path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    answer = sadvise("models", "compare", *arguments, "--models", str(models), "--journal", str(path))

    assert answer.exit_code != 0 and answer.out == ""
    assert complaint in answer.err and "Traceback" not in answer.err


def test_journal_without_a_recorded_cycle_is_an_error(sadvise: Sadvise, models: Path, tmp_path: Path) -> None:
    SqliteJournal(tmp_path / "empty.sqlite").close_file()

    answer = sadvise(
        "models", "compare", KIND, "1", "site-2", "--models", str(models), "--journal", str(tmp_path / "empty.sqlite")
    )

    assert answer.exit_code == 1
    assert "empty.sqlite: no cycle is recorded in full: nothing to compare" in answer.err


def test_damaged_record_is_an_error(sadvise: Sadvise, models: Path, path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE records SET content = x'00' WHERE cycle_id = 2")

    answer = sadvise("models", "compare", KIND, "1", "site-2", "--models", str(models), "--journal", str(path))

    assert answer.exit_code == 1 and len(answer.err.splitlines()) == 1
    assert "damaged" in answer.err


def test_rollout_of_a_snapshot_that_cannot_be_simulated_is_an_error(
    sadvise: Sadvise, models: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SimulationError("there is nothing to simulate")

    monkeypatch.setattr(slurm_rollout, "model_of", refuse)

    answer = sadvise(
        "models", "compare", KIND, "1", "site-2", "--rollout", "--models", str(models), "--journal", str(path)
    )

    assert answer.exit_code == 1
    assert "no plan can be rolled out: there is nothing to simulate" in answer.err


def test_help_of_a_kind_names_policies(sadvise: Sadvise) -> None:
    for command in ("use", "rollback", "show"):
        assert "policy-NAME" in "".join(sadvise("models", command, "--help").out.split())


def test_versions_are_put_in_use_and_taken_back_by_hand_alone(sadvise: Sadvise, models: Path, path: Path) -> None:
    given = ("--models", str(models))
    compared(sadvise, models, path, "1", "site-2", "--rollout")
    unasked = Library(models).find(KIND, None).entry.version

    used = sadvise("models", "use", KIND, "site-2", *given)
    promoted = Library(models).find(KIND, None).entry.version
    taken_back = sadvise("models", "rollback", KIND, *given)

    assert (unasked, promoted, Library(models).find(KIND, None).entry.version) == ("1", "site-2", "1")
    assert used.out == f"{KIND}: site-2 is in use\n"
    assert taken_back.out == f"{KIND}: 1 is in use\n"


def test_difference_that_is_not_clear_is_told_as_one(
    sadvise: Sadvise, models: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.replay.policy_comparison.mean_interval", lambda _: (0.5, -1.0, 2.0))

    answer = sadvise(
        "models", "compare", KIND, "1", "site-2", "--rollout", "--models", str(models), "--journal", str(path)
    )

    assert "no clear difference; mean completion of all jobs +" in answer.out
    assert "95 % interval -1.0 s to +2.0 s" in answer.out
