"""What `sadvise compare` prints, keeps and goes on with, and what wrong input gets."""

import json
import re
from pathlib import Path

import pytest

from advisor.cli.compare import seeds_of
from advisor.errors import ConfigError
from tests.cli.conftest import Sadvise, Simulator, write
from tests.sim.runs import PACE

CLUSTER = ("--cluster", "nodes=2,gpus=8")
HERE = ("--workers", "1")


@pytest.fixture
def traces(tmp_path: Path) -> list[str]:
    """Three traces."""
    return [write(tmp_path, name, jobs=100 + seed, seed=seed) for seed, name in enumerate(("x", "y", "z"))]


def test_every_trace_policy_and_seed_is_run_once(sadvise: Sadvise, simulator: Simulator, traces: list[str]) -> None:
    document = json.loads(sadvise("compare", *traces, *CLUSTER, *HERE, "--seeds", "2", "--json").out)

    wanted = [(trace, policy, seed) for trace in "xyz" for policy in ("slurm", "rules") for seed in (0, 1)]
    assert simulator.asked == wanted
    assert [(run["trace"], run["policy"], run["seed"]) for run in document["runs"]] == wanted
    assert document["meta"]["schema"] == "sadvise.compare/1"
    assert document["meta"]["traces"] == ["x", "y", "z"]
    assert document["meta"]["seeds"] == [0, 1]
    fared = [(each["trace"], each["policy"], each["seed"]) for each in document["finish_times"]]
    assert sorted(fared) == sorted(wanted)
    assert all(each["users"] == 3 and each["worst_rho"] >= each["mean_rho"] > 0.0 for each in document["finish_times"])


def test_changes_are_given_for_each_trace_and_over_all(
    sadvise: Sadvise, simulator: Simulator, traces: list[str]
) -> None:
    document = json.loads(sadvise("compare", *traces, *CLUSTER, *HERE, "--seeds", "3", "--json").out)

    changes = {each["trace"]: each for each in document["changes"] if each["metric"] == "mean_jct_s"}
    assert set(changes) == {"x", "y", "z", None}
    assert (changes["x"]["pairing"], changes["x"]["units"]) == ("seeds", 3)
    assert (changes[None]["pairing"], changes[None]["units"]) == ("traces", 3)
    for change in changes.values():
        # Queueing delays stay, so that a pace of 0.8 takes a little less than 20 % away.
        assert 100 * (PACE["rules"] - 1) < change["percent"] < -15
        assert change["low"] < change["percent"] < change["high"] < 0


def test_people_see_wins_and_losses_alike(sadvise: Sadvise, simulator: Simulator, traces: list[str]) -> None:
    policies = [word for name in ("slurm", "rules", "fifo", "sjf") for word in ("--policy", name)]

    out = sadvise("compare", *traces, *CLUSTER, *HERE, *policies).out

    for name in "xyz":
        assert f"\n{name} on nodes=2,gpus=8\n" in out
    assert "over all traces, every trace weighing the same" in out
    assert "mean JCT of rules against slurm: lower on x, y, z" in out
    assert "mean JCT of fifo against slurm: higher on x, y, z" in out
    assert "mean JCT of sjf against slurm: no change on x, y, z" in out
    assert re.search(r"^fifo +\S+ \w+, \+\d+\.\d % \(\+\d+\.\d to \+\d+\.\d\)", out, re.MULTILINE)
    assert "99th percentile of queueing delay" in out


def test_one_trace_is_not_summed_up_over_all(sadvise: Sadvise, simulator: Simulator, traces: list[str]) -> None:
    out = sadvise("compare", traces[0], *CLUSTER, *HERE).out

    assert "over all" not in out
    assert "paired  100 jobs, in 10 blocks by submit time" in out


def test_killed_jobs_are_counted_and_left_out_of_the_pairs(
    sadvise: Sadvise, simulator: Simulator, traces: list[str]
) -> None:
    simulator.kill_first_under = "rules"
    policies = ["--policy", "slurm", "--policy", "rules", "--policy", "fifo"]

    out = sadvise("compare", traces[0], *CLUSTER, *HERE, *policies).out

    assert "paired  rules: 99 jobs, in 9 blocks by submit time; 1 job finished under one only\n" in out
    assert "paired  fifo: 100 jobs, in 10 blocks by submit time\n" in out
    assert "ends    rules: 1 killed by the time limit\n" in out


def test_a_policy_alone_is_listed_without_comparison(sadvise: Sadvise, simulator: Simulator, traces: list[str]) -> None:
    out = sadvise("compare", *traces, *CLUSTER, *HERE, "--policy", "slurm").out

    assert "against" not in out and "over all" not in out
    assert out.count("\nslurm  ") == 3


def test_each_trace_can_have_its_own_cluster(sadvise: Sadvise, simulator: Simulator, traces: list[str]) -> None:
    clusters = [word for nodes in (2, 3, 4) for word in ("--cluster", f"nodes={nodes},gpus=8")]

    document = json.loads(sadvise("compare", *traces, *clusters, *HERE, "--json").out)

    assert document["meta"]["clusters"] == {"x": "nodes=2,gpus=8", "y": "nodes=3,gpus=8", "z": "nodes=4,gpus=8"}


def test_traces_of_the_same_name_are_called_by_their_paths(
    sadvise: Sadvise, simulator: Simulator, tmp_path: Path
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    paths = [write(tmp_path / folder, "week", seed=seed) for seed, folder in enumerate("ab")]

    document = json.loads(sadvise("compare", *paths, *CLUSTER, *HERE, "--json").out)

    assert document["meta"]["traces"] == paths


@pytest.mark.slow
def test_a_comparison_goes_on_where_it_was_interrupted(
    sadvise: Sadvise, simulator: Simulator, traces: list[str], tmp_path: Path
) -> None:
    words = ["compare", *traces, *CLUSTER, *HERE, "--store", str(tmp_path / "kept"), "--json"]
    simulator.interrupt_at = 4

    interrupted = sadvise(*words)
    simulator.interrupt_at = None
    finished = sadvise(*words)

    assert (interrupted.exit_code, interrupted.out) == (130, "")
    assert interrupted.err == (
        f"sadvise: interrupted: 4 of 6 runs are kept in {tmp_path / 'kept'}: run the same command again to continue\n"
    )
    assert finished.exit_code == 0
    assert len(simulator.asked) == len(set(simulator.asked)) == 6
    assert len(json.loads(finished.out)["runs"]) == 6


def test_an_interruption_without_a_store_says_how_to_keep(
    sadvise: Sadvise, simulator: Simulator, traces: list[str]
) -> None:
    simulator.interrupt_at = 0

    outcome = sadvise("compare", *traces, *CLUSTER, *HERE)

    assert outcome.exit_code == 130
    assert "nothing is kept: with --store FOLDER it would be" in outcome.err


def test_results_of_a_store_equal_those_of_memory(
    sadvise: Sadvise, simulator: Simulator, traces: list[str], tmp_path: Path
) -> None:
    words = ["compare", *traces, *CLUSTER, *HERE, "--seeds", "3"]

    in_memory = sadvise(*words, "--report", str(tmp_path / "a.html"))
    kept = [
        sadvise(*words, "--store", str(tmp_path / "kept"), "--report", str(tmp_path / name))
        for name in ("b.html", "c.html")
    ]

    assert [outcome.out for outcome in kept] == [in_memory.out] * 2
    assert len({(tmp_path / name).read_bytes() for name in ("a.html", "b.html", "c.html")}) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--report", "/nonexistent/r.html"), "choose another --report"),
        (("--store", "/dev/null/x"), "choose another --store"),
        (("--engine", "slurm"), "--engine slurm needs"),
    ],
)
def test_what_cannot_be_written_is_named_before_anything_runs(
    sadvise: Sadvise, simulator: Simulator, traces: list[str], words: tuple[str, ...], message: str
) -> None:
    outcome = sadvise("compare", *traces, *CLUSTER, *words)

    assert (outcome.exit_code, outcome.out, simulator.asked) == (1, "", [])
    assert message in outcome.err


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("1", [0]),
        ("4", [0, 1, 2, 3]),
        ("7,", [7]),
        ("7-7", [7]),
        ("3,5,3", [3, 5]),
        ("10-12, 2", [10, 11, 12, 2]),
    ],
)
def test_seeds_are_a_number_or_a_list(text: str, seeds: list[int]) -> None:
    assert seeds_of(text) == seeds


@pytest.mark.parametrize(
    "text", ["", ",", "-1", "1-", "5-3", "x", "1.5", "99999999", "0-99999", "9" * 5000, "1-2-3", "٣"]
)
def test_what_is_no_seed_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="give a number of seeds"):
        seeds_of(text)
