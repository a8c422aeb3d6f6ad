"""Fine-tuning from a journal: what it learns, how far it goes, and what one user can teach."""

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from advisor.cycle import Cycle
from advisor.domain.outcome import JobOutcome
from advisor.errors import ModelError
from advisor.fit.publish import publish_graph
from advisor.journal import SqliteJournal
from advisor.predict.library import Library
from advisor.predict.served_policy import open_policy
from advisor.trial.evidence import capped
from tests.builders import TAKEN_AT
from tests.planning.test_policies import Scripted, queue
from tests.predict.graphs import publish_sizes
from tests.predict.shelf import TODAY
from tests.train.test_experience import CHANGE, END, FORECAST, START, ended, exactly
from tools.train import finetune as program
from tools.train.experience import Observation
from tools.train.finetune import (
    MOST_DIVERGENCE,
    Finetuning,
    finetune,
    finetuned,
    mean_divergence,
    moved_share,
    probabilities,
)
from tools.train.networks import PerOption
from tools.train.policy_graph import CardText, card_of, exported

KIND = "policy-own"
GOOD, BAD = 0, 1
# What the divergence leaves of a shift of probabilities in the mean, by Pinsker's inequality.
MOST_SHIFT = (MOST_DIVERGENCE / 2.0) ** 0.5


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Small networks gain nothing from threads."""
    torch.set_num_threads(1)


def served(seed: int = 1) -> PerOption:
    """A network that scores options of two columns by chance, all a little above stopping."""
    torch.manual_seed(seed)
    network = PerOption(2)
    with torch.no_grad():
        network.score.bias.fill_(0.5)
    return network


def choices(user: str, chosen: int, value: float, count: int, seed: int, account: str = "") -> list[Observation]:
    """Choices of one user between a good option, (1, 0), and a bad one, (0, 1), both with some noise."""
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        options = np.eye(2, dtype=np.float32) + chance.normal(0.0, 0.1, (2, 2)).astype(np.float32)
        found.append(
            Observation(
                options=options,
                chosen=chosen,
                best_score=0.5,
                digest="",
                job_id=1,
                user=user,
                account=account or f"lab-{user}",
                value=value,
            )
        )
    return found


def honest() -> list[Observation]:
    """Choices of 20 users, whose jobs did well with the good option and badly with the bad one."""
    found = []
    for number in range(20):
        found += choices(f"user{number}", GOOD, 0.5, 10, 2 * number)
        found += choices(f"user{number}", BAD, -0.5, 10, 2 * number + 1)
    return found


def poison() -> list[Observation]:
    """Nine times as many choices of one user, with extreme returns, for the bad option and against the good one."""
    return choices("mallory", BAD, 1.0, 1800, 101, "own") + choices("mallory", GOOD, -1.0, 1800, 102, "own")


def chance_of(network: PerOption, option: int, seen: Sequence[Observation]) -> float:
    """The mean probability of an option."""
    return float(np.mean([found[option] for found in probabilities(network, seen)]))


def test_choices_that_did_well_become_more_likely_within_the_bound() -> None:
    network, samples = served(), honest()

    step = finetuned(network, samples, samples, seed=1)

    assert chance_of(step.network, GOOD, samples) > chance_of(network, GOOD, samples) + 0.05
    assert chance_of(step.network, BAD, samples) < chance_of(network, BAD, samples) - 0.05
    assert 0.0 < step.divergence <= MOST_DIVERGENCE
    assert step.divergence == pytest.approx(mean_divergence(network, step.network, samples))
    assert step.moved == moved_share(network, step.network, samples)


def test_step_that_goes_too_far_is_halved() -> None:
    network, samples = served(), honest()

    whole = finetuned(network, samples, samples, seed=1, steps=600, bound=1e9)
    halved = finetuned(network, samples, samples, seed=1, steps=600)

    assert whole.share == 1.0 and whole.divergence > MOST_DIVERGENCE
    assert halved.share < 1.0 and halved.divergence <= MOST_DIVERGENCE


def test_step_that_no_halving_brings_within_the_bound_is_refused() -> None:
    with pytest.raises(ModelError, match=r"nats from the served one, more than 0, after 10 halvings"):
        finetuned(served(), honest(), honest(), seed=1, bound=0.0)


def test_same_seed_gives_the_same_network() -> None:
    first, second = (finetuned(served(), honest(), [], seed=4, steps=20).network for _ in range(2))

    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_return_that_is_no_number_is_refused(value: float) -> None:
    samples = [replace(sample, value=value) for sample in honest()]

    with pytest.raises(ModelError, match="not a finite number"):
        finetuned(served(), samples, [], seed=1, steps=2)


def test_one_user_with_most_of_the_journal_shifts_choices_no_more_than_the_bound() -> None:
    network, fair = served(), honest()
    all_there = [*fair, *poison()]
    assert len(poison()) / len(all_there) == 0.9

    without = finetuned(network, capped(fair, seed=1), fair, seed=1).network
    poisoned = finetuned(network, capped(all_there, seed=1), all_there, seed=1)
    uncapped = finetuned(network, all_there, all_there, seed=1).network
    unbounded = finetuned(network, all_there, all_there, seed=1, bound=1e9, steps=600).network

    def shift(to: PerOption, since: PerOption) -> float:
        pairs = zip(probabilities(since, fair), probabilities(to, fair), strict=True)
        return float(np.mean([float((old - new).abs().sum()) / 2.0 for old, new in pairs]))

    assert poisoned.divergence <= MOST_DIVERGENCE
    assert shift(poisoned.network, network) <= MOST_SHIFT < shift(unbounded, network)
    # The direction is that of the other users.
    assert chance_of(poisoned.network, GOOD, fair) > chance_of(network, GOOD, fair)
    assert chance_of(uncapped, GOOD, fair) < chance_of(network, GOOD, fair)
    assert shift(poisoned.network, without) <= 0.1
    assert moved_share(without, poisoned.network, fair) <= 0.1


def test_bound_holds_on_the_observations_of_all_too() -> None:
    network, fair = served(), honest()
    # Far from what is learnt from, the same weights go further.
    far = [replace(sample, options=sample.options * 30.0) for sample in fair]

    step = finetuned(network, fair, far, seed=1)

    assert mean_divergence(network, step.network, far) <= MOST_DIVERGENCE
    assert mean_divergence(network, step.network, fair) < mean_divergence(network, step.network, far)


# From a journal to a version.


def site(tmp_path: Path, cycles: int = 60) -> Finetuning:
    """A site whose policy grew jobs in many cycles, and a journal with what came of them, of 12 users."""
    columns = _columns()
    torch.manual_seed(3)
    network = PerOption(len(columns))
    with torch.no_grad():
        network.scale.fill_(1000.0)
        network.score.bias.fill_(1.0)
    made = exported(network, kind=KIND, columns=columns, decisions=[], seed=3, parameters={})
    training = CardText(text="For a test.", data={}, metrics={}, limits=[])
    models = tmp_path / "models"
    publish_graph(made, models, "site-1", today=TODAY, card=card_of(training))
    Library(models).use(KIND, "site-1")
    cycle = Cycle(policy=open_policy(Library(models), "own"))
    with SqliteJournal(tmp_path / "journal.sqlite") as journal, journal.together():
        for number in range(cycles):
            _record(journal, cycle, number)
    return Finetuning(
        journal=tmp_path / "journal.sqlite", models=models, kind=KIND, steps=20, user_share=0.2, account_share=0.4
    )


def _columns() -> tuple[str, ...]:
    asked = Scripted(1.0)
    Cycle(policy=asked).judge(queue())
    return tuple(asked.asked[0].columns)


def _record(journal: SqliteJournal, cycle: Cycle, number: int) -> None:
    """Record a cycle of two jobs and their ends."""
    now, user = TAKEN_AT + 60.0 * number, f"user{number % 12}"
    seen = queue()
    jobs = tuple(
        replace(job, job_id=job.job_id + 10 * number, user=user, account=f"lab{number % 4}") for job in seen.jobs
    )
    record = cycle.judge(replace(seen, taken_at=now, jobs=jobs))
    assert record.decisions and record.recommendations
    journal.record(record, cycle)
    journal.keep_outcomes(_ended(job.job_id, now, job.submit_time, 1500.0 * (number % 3)) for job in jobs)


def _ended(job_id: int, now: float, submit_time: float, later_s: float) -> JobOutcome:
    later = now - TAKEN_AT
    forecast = replace(FORECAST, made_time=now, start_time=exactly(START + later))
    return replace(
        ended(),
        job_id=job_id,
        submit_time=submit_time,
        start_time=START + later,
        last_start_time=START + later,
        end_time=END + later + later_s,
        last_seen_time=END + later + later_s - 30.0,
        changes=(replace(CHANGE, applied_time=now),),
        changed_forecast=forecast,
    )


@pytest.mark.usefixtures("few_samples")
def test_new_version_is_published_and_not_put_in_use(tmp_path: Path) -> None:
    given = site(tmp_path)
    said: list[str] = []

    entry = finetune(given, said.append)

    library = Library(given.models)
    assert entry is not None and (entry.kind, entry.version) == (KIND, "site-2")
    assert library.find(KIND, None).entry.version == "site-1"
    new, old = open_policy(library, "own@site-2"), open_policy(library, "own")
    assert new.digest != old.digest
    card = (given.models / KIND / "site-2" / "card.md").read_text()
    assert "| recorded cycles | 60 |" in card and "policy-own site-1, trained further on a journal" in card
    assert any("published policy-own site-2, not in use" in line for line in said)


@pytest.mark.usefixtures("few_samples")
def test_promotion_and_rollback_are_asked_for(tmp_path: Path) -> None:
    given = site(tmp_path)
    library = Library(given.models)
    before = open_policy(library, "own").digest
    finetune(given, lambda _: None)
    unasked = open_policy(library, "own").digest

    library.use(KIND, "site-2")
    promoted = open_policy(library, "own").digest
    library.rollback(KIND)

    assert unasked == before == open_policy(library, "own").digest
    assert promoted == open_policy(library, "own@site-2").digest != before


@pytest.mark.usefixtures("few_samples")
def test_dry_run_publishes_nothing(tmp_path: Path) -> None:
    given = replace(site(tmp_path), dry_run=True)

    assert finetune(given, lambda _: None) is None
    assert [held.entry.version for held in Library(given.models).held() if held.entry.kind == KIND] == ["site-1"]


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take fewer samples than a site would."""
    monkeypatch.setattr(program, "LEAST_SAMPLES", 20)


def said_by(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: Finetuning) -> tuple[int, str]:
    """Run the program with its options; return its status and its errors."""
    arguments = ["--journal", str(given.journal), "--models", str(given.models), "--kind", given.kind]
    monkeypatch.setattr(sys, "argv", ["finetune", *arguments, "--user-share", "0.2", "--account-share", "0.4"])
    status = program.main()
    return status, capsys.readouterr().err


def test_few_outcomes_are_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = said_by(monkeypatch, capsys, site(tmp_path, cycles=3))

    assert status == 1 and len(said.splitlines()) == 1
    assert "choices of policy-own have an outcome to learn from, fewer than 100" in said


@pytest.mark.parametrize("damage", ["bytes", "record", "outcome", "audit", "missing"])
def test_damaged_journal_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    given = site(tmp_path, cycles=3)
    match damage:
        case "bytes":
            given.journal.write_bytes(b"no journal at all" * 500)
        case "missing":
            given.journal.unlink()
        case _:
            statement = {
                "record": "UPDATE records SET content = x'0011' WHERE cycle_id = 2",
                "outcome": "UPDATE outcomes SET end_time = 5",
                "audit": "INSERT INTO audit VALUES (1, 0, 'forged', '{}', '', 'x', '')",
            }[damage]
            with closing(sqlite3.connect(given.journal, isolation_level=None)) as database:
                database.executescript(
                    "".join(
                        f"DROP TRIGGER {name};"
                        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
                    )
                )
                database.execute(statement)

    status, said = said_by(monkeypatch, capsys, given)

    assert status == 1 and len(said.splitlines()) == 1 and "Traceback" not in said
    assert str(given.journal) in said
    assert [held.entry.version for held in Library(given.models).held() if held.entry.kind == KIND] == ["site-1"]


def test_decisions_of_another_graph_under_its_digest_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = site(tmp_path, cycles=3)
    monkeypatch.setattr(program, "from_onnx", lambda *_, **__: PerOption(len(_columns())))

    with pytest.raises(ModelError, match="decisions of policy-own site-1 have other scores now: not learnt from"):
        finetune(given, lambda _: None)


def test_policy_of_another_origin_is_not_trained(tmp_path: Path) -> None:
    publish_sizes(tmp_path / "models")
    given = Finetuning(journal=tmp_path / "journal.sqlite", models=tmp_path / "models", kind=KIND)

    with pytest.raises(ModelError, match=r"none of tools\.train\.policy_graph: it cannot be trained on"):
        finetune(given, lambda _: None)
