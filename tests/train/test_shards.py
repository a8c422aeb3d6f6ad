"""Environments in worker processes: equal to one in this process, whatever the number of workers."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.errors import ConfigError, SimulationError
from tools.train import dl2, size_env
from tools.train.dl2 import RECIPE, SizeRun
from tools.train.dl2_env import PublishedEnv
from tools.train.dl2_published import RECIPES, PublishedRun
from tools.train.dl2_setting import Published
from tools.train.shards import ShardedEnv, Workers
from tools.train.size_env import ByRule, SlurmEnv
from tools.train.sizer import by_price
from tools.train.slots import SlotEnv
from tools.train.training import TrainingRun, read_checkpoint, read_weights, train

FEW = replace(size_env.TRAINING, jobs=24)
TINY = replace(RECIPE, episodes=5, warm_updates=2, updates=2, steps=8, batch=16, replay=16, value_first=0)
MAKE: dict[str, Callable[[int], SlotEnv]] = {}


class FewJobs(SlurmEnv):
    """An environment on Slurm of small workloads, also in another process."""

    def __init__(self, n: int) -> None:
        vars(size_env)["TRAINING"] = FEW
        super().__init__(n)


MAKE.update(published=partial(PublishedEnv, Published(nodes=6, jobs=9, window=5, cap=8)), slurm=FewJobs)


@pytest.fixture(name="workers")
def _workers() -> Iterator[Workers]:
    workers = Workers(2)
    yield workers
    workers.close()


@pytest.fixture(autouse=True)
def _few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_env, "TRAINING", FEW)
    monkeypatch.setattr(dl2, "SlurmEnv", FewJobs)
    monkeypatch.setattr(dl2, "VALIDATION_SEEDS", range(3))


@pytest.mark.parametrize("name", MAKE)
def test_shards_play_as_one_environment_to_the_bit(name: str, workers: Workers) -> None:
    whole, parts = MAKE[name](5), ShardedEnv(workers, MAKE[name], 5)
    rng = np.random.default_rng(0)
    seed, begun = 5, 0
    for env in (whole, parts):
        env.reset(range(5))

    for _ in range(150):
        mask = whole.mask()
        action = (rng.random(mask.shape) * mask).argmax(axis=1)
        steps = [env.step(action) for env in (whole, parts)]
        assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(*steps, strict=True))
        rows = np.flatnonzero(steps[0].done)
        for env in (whole, parts):
            env.reset(range(seed, seed + len(rows)), rows)
        seed, begun = seed + len(rows), begun + len(rows)
        assert (whole.observe() == parts.observe()).all() and (whole.mask() == parts.mask()).all()

    assert begun > 0
    assert (parts.shape, parts.n_actions) == (whole.shape, whole.n_actions)


def test_functions_see_the_shards_in_order(workers: Workers) -> None:
    whole, parts = FewJobs(5), ShardedEnv(workers, FewJobs, 5)
    for env in (whole, parts):
        env.reset(range(5))

    assert (parts.of_shards(ByRule(by_price)) == ByRule(by_price)(whole)).all()


def test_pickle_is_the_whole_environment_without_processes(workers: Workers) -> None:
    copy = pickle.loads(pickle.dumps(ShardedEnv(workers, FewJobs, 5)))  # noqa: S301

    assert type(copy) is FewJobs and copy.n == 5


def test_error_of_a_worker_is_raised_and_one_that_dies_gets_one_line(workers: Workers) -> None:
    env = ShardedEnv(workers, MAKE["published"], 4)
    env.reset(range(4))

    with pytest.raises(ValueError, match="an action is not legal"):
        env.step((~env.mask()).argmax(axis=1))
    with pytest.raises(SimulationError, match=r"^a worker died.*--workers$"):
        env.of_shards(_die)


def test_published_setting_which_would_be_slower_in_workers_refuses_them() -> None:
    recipe = replace(RECIPES["published"], episodes=2, replay=8)

    with pytest.raises(ConfigError, match="plays in one process"):
        PublishedRun(Published(), recipe, "drf", 1, (1, 1)).spread(2)


def _die(_: Any) -> Any:
    raise SystemExit


def weights(folder: Path) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in read_weights(folder / "policy.pt").values()]


def test_run_ends_alike_with_any_number_of_workers_also_when_it_goes_on_with_another(tmp_path: Path) -> None:
    class KilledError(Exception):
        """The run ends here."""

    def kill(run: TrainingRun, _: object) -> None:
        if run.online.updates == 1:
            raise KilledError

    train(SizeRun(TINY, "price", 1, every=(1, 1)), tmp_path / "one", lambda *_: None)
    parts = SizeRun(TINY, "price", 1, every=(1, 1))
    parts.spread(2)
    with pytest.raises(KilledError):
        train(parts, tmp_path / "parts", kill)
    resumed: TrainingRun = read_checkpoint(tmp_path / "parts" / "run.ckpt")
    resumed.spread(3)
    train(resumed, tmp_path / "parts", lambda *_: None)

    assert weights(tmp_path / "one") == weights(tmp_path / "parts")
    curves = [(tmp_path / name / "curve.csv").read_text().splitlines() for name in ("one", "parts")]
    # The last column is CPU time.
    assert [line.rsplit(",", 1)[0] for line in curves[0]] == [line.rsplit(",", 1)[0] for line in curves[1]]
