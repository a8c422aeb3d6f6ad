"""What the page about delay timers within Slurm counts, and on which clusters it is run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.sim.study.result import result_of
from tests.sim.building import make_trace
from tests.sim.runs import make_run
from tools.data.simulated_traces import Workload
from tools.pages.__main__ import main
from tools.pages.dally_slurm import SlurmCorner, by_size, of_users, page, tasks_of
from tools.pages.page_experiment import Experiment

SLURM, DALLY = "slurm", "slurm+dally"
EXPERIMENT = Experiment(
    page="dally_slurm",
    summary="",
    policies=(SLURM, DALLY),
    oversubscription=(1.0, 10.0),
    first_jobs=400,
    max_switch_wait_s=86_400.0,
)
# As many jobs as give three blocks to each of three users.
JOBS = 60


def make_corner(names: Sequence[str], paces: Mapping[str, float]) -> SlurmCorner:
    """Return traces of equal jobs of 100 s, of 1 and 16 GPUs in turn, where a user's take so much longer under Dally.

    Users submit one after the other, and every job under Dally differs a little from the one before.
    """
    users = tuple(paces)
    results, traces = [], {}
    for name in names:
        trace = make_trace([{"gpus": 1 if row % 2 else 16} for row in range(JOBS)])
        trace.jobs["user"] = np.arange(JOBS) % len(users)
        trace = replace(trace, name=name, users=users)
        traces[name] = trace
        slower = [100.0 * paces[users[row % len(users)]] + row % 5 for row in range(JOBS)]
        for policy, ends in ((SLURM, [100.0] * JOBS), (DALLY, slower)):
            results.append(result_of(make_run(trace, [(0.0, end) for end in ends], policy=policy)))
    results.sort(key=lambda result: result.summary.policy != SLURM)
    return SlurmCorner(oversubscription=10.0, results=results, traces=traces)


def test_both_policies_run_the_same_drawn_trace_on_clusters_that_let_timers_last() -> None:
    workload = Workload(trace=make_trace([{"gpus": 16}]), nodes=16)

    tasks = tasks_of(EXPERIMENT, [workload])

    calm, congested = ([task.cell for task in tasks if task.group == ratio] for ratio in (1.0, 10.0))

    assert [cell.policy for cell in calm] == [SLURM, DALLY]
    assert len({id(cell.trace) for cell in (*calm, *congested)}) == 1
    assert {cell.cluster.network.oversubscription for cell in congested} == {10.0}
    assert {cell.cluster.slurm.max_switch_wait_s for cell in (*calm, *congested)} == {86_400.0}


def test_a_size_class_is_compared_over_the_traces() -> None:
    corner = make_corner(["one", "two", "three"], {"ann": 1.1, "bob": 1.1})

    changes = by_size(corner)

    assert list(changes) == ["1", "9-16"]
    assert {change.units for change in changes.values()} == {3}
    assert changes["1"].percent == pytest.approx(12.0, abs=0.1)


def test_a_size_class_may_be_missing_from_a_trace() -> None:
    corner = make_corner(["one", "two"], {"ann": 1.0})
    corner.traces["two"].jobs["gpus"] = 1

    changes = by_size(corner)

    assert (changes["9-16"].pairs, changes["1"].pairs) == (JOBS // 2, JOBS // 2 + JOBS)


def test_users_of_two_traces_are_not_the_same() -> None:
    changes = of_users(make_corner(["one", "two"], {"ann": 1.0, "bob": 1.2}))

    assert [(user.trace, user.difference.group) for user in changes] == [
        ("one", "ann"), ("one", "bob"), ("two", "ann"), ("two", "bob"),
    ]  # fmt: skip
    assert changes[1].difference.before_s == 100.0
    assert changes[1].difference.change.percent == pytest.approx(22.0, abs=0.1)


def test_only_who_clearly_loses_more_than_5_percent_is_named() -> None:
    corner = make_corner(["one"], {"ann": 0.7, "bob": 1.01, "cid": 1.3})

    text = page([corner], EXPERIMENT, "the command")

    flat = " ".join(text.split())
    assert "Of 3 users, 3 have jobs enough for an interval." in flat
    assert "The mean JCT of 1 of them is more than 5 % lower, clearly that of 1" in flat
    assert "of 1 it is more than 5 % higher, clearly that of 1" in flat
    assert text.count("| one | cid | 20 |") == 1
    assert "| one | bob |" not in text and "| one | ann |" not in text


def test_changes_over_all_traces_stand_with_the_traces_that_show_them() -> None:
    text = page([make_corner(["one", "two", "three"], {"ann": 0.5})], EXPERIMENT, "the command")

    assert "| mean JCT | -48.0 % (-48.0 to -48.0) | 3 | 0 | 0 |" in text
    assert "Jobs that did not finish: under `slurm` all did, under `slurm+dally` all did." in text
    assert "Both run the first 400 jobs of each trace" in " ".join(text.split())
    assert "Written by `the command`" in text and "## Oversubscription 10:1" in text


def test_a_policy_without_another_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["dally-slurm", "--policies", "slurm", "--data", str(tmp_path)])

    assert status == 1
    assert capsys.readouterr().err == "--policies slurm: give two, the first being plain Slurm\n"
