"""DL2 on Slurm: its environment, and that its training can be repeated and resumed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.sim.state import PENDING, RUNNING
from tools.train import dl2, policy_graph, size_env
from tools.train.dl2 import RECIPE, SizeRun, mean_jct, publish_policy
from tools.train.size_env import ByRule, SlurmEnv
from tools.train.sizer import as_asked, by_gain, by_price
from tools.train.training import TrainingRun, read_checkpoint, read_weights, train

FEW = 24
TINY = replace(RECIPE, episodes=4, warm_updates=2, updates=2, steps=8, batch=16, replay=16, value_first=0)


@pytest.fixture(autouse=True)
def _few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_env, "TRAINING", replace(size_env.TRAINING, jobs=FEW))
    monkeypatch.setattr(dl2, "SHOWN", 4)


SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=SLOW)
@given(seed=st.integers(0, 1000), chance=st.integers(0, 1000))
def test_whatever_is_chosen_episodes_end_and_rewards_add_up(seed: int, chance: int) -> None:
    env, rng = SlurmEnv(2), np.random.default_rng(chance)
    env.reset([seed, seed + 1])
    (first, second) = env.episodes
    assert first is not None and second is not None
    before = np.array([episode.jct_s.sum() for episode in (first, second)])
    earned, is_over = np.zeros(2), np.zeros(2, np.bool_)

    for _ in range(5000):
        mask = env.mask()
        drawn = rng.random(mask.shape) * mask
        step = env.step(drawn.argmax(axis=1))
        earned += np.where(is_over, 0.0, step.reward)
        is_over |= step.done
        for episode in (first, second):
            nodes, jobs = episode.state.nodes, episode.state.jobs
            held = jobs["held"][jobs["phase"] == RUNNING].sum()
            assert (nodes["gpus_free"] >= 0).all() and held + nodes["gpus_free"].sum() == nodes["gpus"].sum()
            pending = jobs[jobs["phase"] == PENDING]
            assert ((pending["gpus"] >= pending["gpus_min"]) & (pending["gpus"] <= pending["gpus_max"])).all()
        if is_over.all():
            break

    assert is_over.all()
    after = np.array([episode.jct_s.sum() / episode.unit_s for episode in (first, second)])
    units = np.array([first.unit_s, second.unit_s])
    assert -earned == pytest.approx(after - before / units, rel=1e-3)


def test_steps_outside_of_the_mask_do_not_exist_and_those_inside_change_a_size() -> None:
    env = SlurmEnv(4)
    env.reset(range(4))

    for _ in range(20):
        steps = env.steps
        grows = steps.gpus_after > steps.gpus
        assert (grows | ~steps.is_legal).all()
        # Every step up to the size that a job asks for is offered.
        small = env.jobs.is_there & (steps.gpus[:, 0] < env.jobs.asked)
        assert steps.is_legal[:, 0][small].all()
        env.step(ByRule(by_gain)(env))


def test_same_seed_gives_the_same_episode() -> None:
    assert (mean_jct(ByRule(by_price), [5, 6]) == mean_jct(ByRule(by_price), [5, 6])).all()
    assert (mean_jct(ByRule(by_price), [5, 6]) != mean_jct(ByRule(as_asked), [5, 6])).any()


@pytest.fixture(name="small")
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dl2, "VALIDATION_SEEDS", range(2))


def weights(folder: Path) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in read_weights(folder / "policy.pt").values()]


@pytest.mark.usefixtures("small")
def test_run_that_was_killed_goes_on_as_if_it_was_not(tmp_path: Path) -> None:
    torch.use_deterministic_algorithms(mode=True)
    whole = SizeRun(TINY, "price", 1, every=(1, 1))
    train(whole, tmp_path / "whole", lambda *_: None)

    class KilledError(Exception):
        """The run ends here."""

    def kill(training: TrainingRun, _: object) -> None:
        if training.online.updates == 1:
            raise KilledError

    with pytest.raises(KilledError):
        train(SizeRun(TINY, "price", 1, every=(1, 1)), tmp_path / "parts", kill)
    train(read_checkpoint(tmp_path / "parts" / "run.ckpt"), tmp_path / "parts", lambda *_: None)

    assert weights(tmp_path / "whole") == weights(tmp_path / "parts")
    curves = [(tmp_path / name / "curve.csv").read_text().splitlines() for name in ("whole", "parts")]
    # The last column is CPU time.
    assert [line.rsplit(",", 1)[0] for line in curves[0]] == [line.rsplit(",", 1)[0] for line in curves[1]]


@pytest.mark.usefixtures("small")
def test_policy_is_published_with_what_it_gains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dl2, "TEST_SEEDS", range(10, 13))
    monkeypatch.setattr(dl2, "DECISIONS", 200)
    monkeypatch.setattr(policy_graph, "LEAST_ROWS", 200)
    run = tmp_path / "run"
    train(SizeRun(TINY, "price", 1, every=(2, 2)), run, lambda *_: None)

    entry = publish_policy(run, tmp_path / "models", "site-1", today="2026-11-24")

    card = (tmp_path / "models" / "policy-dl2" / "site-1" / "card.md").read_text()
    assert entry.parity.rows >= 200 and entry.parity.max_error <= 1e-4
    assert "the rule price" in card and "seeds below 1,000,000" in card
