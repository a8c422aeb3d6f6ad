"""What `sadvise simulate` prints, and what wrong input gets."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from advisor.backends.snapshot_file import write_snapshot
from advisor.sim.study.metrics import RunSummary
from tests.backends import recorded
from tests.cli.conftest import Sadvise, Simulator, write, write_typed

CLUSTER = "nodes=2,gpus=8"


def test_json_holds_exactly_the_published_metrics(sadvise: Sadvise, simulator: Simulator, tmp_path: Path) -> None:
    path = write(tmp_path)

    document = json.loads(sadvise("simulate", path, "--cluster", CLUSTER, "--seed", "3", "--json").out)

    assert set(document) == {"meta", "runs", "ends", "changes", "finish_times"}
    assert [run["policy"] for run in document["runs"]] == ["slurm", "rules"]
    for run in document["runs"]:
        assert list(run) == [field.name for field in fields(RunSummary)]
        assert (run["trace"], run["seed"], run["jobs"], run["finished"]) == ("week", 3, 200, 200)
    meta = document["meta"]
    assert (meta["tool"], meta["schema"]) == ("sadvise", "sadvise.simulate/1")
    assert (meta["trace"], meta["cluster"], meta["seed"]) == ("week", CLUSTER, 3)
    assert "checkpoint_interval_s" in meta["sampled"]
    assert "user" not in meta["sampled"]


def test_the_command_in_json_gives_the_same_runs_again(sadvise: Sadvise, simulator: Simulator, tmp_path: Path) -> None:
    first = json.loads(sadvise("simulate", write(tmp_path), "--cluster", CLUSTER, "--jobs", "50", "--json").out)

    again = json.loads(sadvise(*first["meta"]["command"].split()[1:], "--json").out)

    assert again == first


def test_the_change_against_the_first_policy_has_an_interval(
    sadvise: Sadvise, simulator: Simulator, tmp_path: Path
) -> None:
    document = json.loads(sadvise("simulate", write(tmp_path), "--cluster", CLUSTER, "--json").out)

    change = next(each for each in document["changes"] if each["metric"] == "mean_jct_s")
    slurm, rules = (run["mean_jct_s"] for run in document["runs"])
    assert (change["policy"], change["against"], change["pairing"]) == ("rules", "slurm", "jobs")
    assert change["percent"] == pytest.approx(100 * (rules / slurm - 1))
    assert change["low"] < change["percent"] < change["high"] < 0


def test_people_see_every_metric_the_changes_and_what_was_drawn(
    sadvise: Sadvise, simulator: Simulator, tmp_path: Path
) -> None:
    out = sadvise("simulate", write(tmp_path), "--cluster", CLUSTER).out

    assert out.startswith("week, 200 jobs on nodes=2,gpus=8, 16 GPUs\n")
    assert re.search(r"^drawn +model, .*: not in the trace, now from the seed$", out, re.MULTILINE)
    assert re.search(r"^ +slurm +rules$", out, re.MULTILINE)
    assert re.search(r"^mean JCT +\S+ \w+ +\S+ \w+$", out, re.MULTILINE)
    assert re.search(r"^mean JCT +-\d+\.\d % \(-\d+\.\d to -\d+\.\d\) +lower$", out, re.MULTILINE)
    assert re.search(r"^makespan +[-+]?\d+\.\d % +no interval$", out, re.MULTILINE)
    assert re.search(r"^paired +200 jobs, in 14 blocks by submit time$", out, re.MULTILINE)


def test_a_policy_alone_is_shown_without_comparison(sadvise: Sadvise, simulator: Simulator, tmp_path: Path) -> None:
    out = sadvise("simulate", write(tmp_path), "--cluster", CLUSTER, "--policy", "fifo").out

    assert "against" not in out
    assert [policy for _, policy, _ in simulator.asked] == ["fifo"]


def test_a_policy_given_twice_runs_once_and_the_first_is_compared_with(
    sadvise: Sadvise, simulator: Simulator, tmp_path: Path
) -> None:
    words = ["--policy", "rules", "--policy", "slurm", "--policy", "rules"]

    document = json.loads(sadvise("simulate", write(tmp_path), "--cluster", CLUSTER, *words, "--json").out)

    assert [policy for _, policy, _ in simulator.asked] == ["rules", "slurm"]
    assert {change["against"] for change in document["changes"]} == {"rules"}


def test_killed_jobs_are_counted_apart(sadvise: Sadvise, simulator: Simulator, tmp_path: Path) -> None:
    simulator.kill_first_under = "rules"
    path = write(tmp_path)

    out = sadvise("simulate", path, "--cluster", CLUSTER).out
    document = json.loads(sadvise("simulate", path, "--cluster", CLUSTER, "--json").out)

    assert re.search(r"^jobs finished +200 +199\njobs that ended at their limit +0 +1$", out, re.MULTILINE)
    assert "ends    rules: 1 killed by the time limit\n" in out
    assert "199 jobs, in 14 blocks by submit time; 1 job finished under one only" in out
    assert [(ends["finished"], ends["time_limit"]) for ends in document["ends"]] == [(200, 0), (199, 1)]


def test_only_the_first_jobs_are_simulated_where_asked(sadvise: Sadvise, simulator: Simulator, tmp_path: Path) -> None:
    document = json.loads(sadvise("simulate", write(tmp_path), "--cluster", CLUSTER, "--jobs", "7", "--json").out)

    assert {run["jobs"] for run in document["runs"]} == {7}


def test_options_and_configuration_reach_the_simulator(
    sadvise: Sadvise, simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sadvise.toml").write_text("[planning]\ndepth = 7\n[guard]\nmax_changes = 3\n[source]\ntimeout_s = 9\n")
    monkeypatch.setenv("SADVISE_SIM_SPEEDS", "noisy=10")
    words = ["--execution", "ideal", "--config", str(tmp_path / "sadvise.toml")]

    document = json.loads(sadvise("simulate", write(tmp_path), "--cluster", CLUSTER, *words, "--json").out)

    options = simulator.options[0]
    assert (options.execution, options.speeds) == ("ideal", "noisy=10")
    assert (options.planning.depth, options.limits.max_changes) == (7, 3)
    settings = document["meta"]["settings"]
    assert len(settings) == 2
    assert settings[0].startswith("planning.depth = 7 (")
    assert "--speeds noisy=10" in document["meta"]["command"]


def test_the_demo_simulates_the_trace_and_cluster_that_ship(sadvise: Sadvise, simulator: Simulator) -> None:
    document = json.loads(sadvise("simulate", "--demo", "--json").out)

    assert document["meta"]["cluster"] == "nodes=16,gpus=8,leaf=4"
    assert [(trace, policy) for trace, policy, _ in simulator.asked] == [("demo", "slurm"), ("demo", "rules")]


def test_the_report_is_written_and_the_same_every_time(sadvise: Sadvise, simulator: Simulator, tmp_path: Path) -> None:
    path = write(tmp_path)

    for name in ("a.html", "b.html"):
        outcome = sadvise("simulate", path, "--cluster", CLUSTER, "--report", str(tmp_path / name))
        assert (outcome.exit_code, outcome.err) == (0, "")

    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert f"sadvise simulate {path} --policy slurm --policy rules" in (tmp_path / "a.html").read_text()


def test_bad_rows_are_left_out_where_asked(sadvise: Sadvise, simulator: Simulator, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_time,run_time_s,gpus\n1,0,100,1\n2,5,nonsense,1\n")

    refused = sadvise("simulate", str(path), "--cluster", CLUSTER, "--json")
    taken = sadvise("simulate", str(path), "--cluster", CLUSTER, "--json", "--skip-bad")

    assert refused.exit_code == 1
    assert json.loads(taken.out)["runs"][0]["jobs"] == 1


def test_an_interruption_is_one_line_and_exit_code_130(sadvise: Sadvise, simulator: Simulator, tmp_path: Path) -> None:
    simulator.interrupt_at = 1

    outcome = sadvise("simulate", write(tmp_path), "--cluster", CLUSTER)

    assert (outcome.exit_code, outcome.out) == (130, "")
    assert outcome.err == "sadvise: interrupted: nothing is kept\n"


def test_hostile_names_reach_the_terminal_spelled_out(sadvise: Sadvise, simulator: Simulator, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("# name: a\x1b[2Jb\njob_id,submit_time,run_time_s,gpus\n1,0,100,1\n")

    out = sadvise("simulate", str(path), "--cluster", CLUSTER).out

    assert "\x1b" not in out
    assert "a\\x1b[2Jb" in out


def test_the_simulator_itself_answers(sadvise: Sadvise, tmp_path: Path) -> None:
    """Two jobs of 8 GPUs on one node of 8: the second waits for the first, whatever the order of its kind."""
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_time,run_time_s,gpus,user\n1,0,100,8,ann\n2,10,50,8,ann\n")

    document = json.loads(
        sadvise(
            "simulate", str(path), "--cluster", "nodes=1,gpus=8", "--policy", "fifo", "--execution", "ideal", "--json"
        ).out
    )

    run = document["runs"][0]
    assert (run["finished"], run["makespan_s"], run["mean_queueing_delay_s"]) == (2, 150.0, 45.0)
    assert run["mean_jct_s"] == pytest.approx(120.0)
    assert run["gpu_allocated_ratio"] == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_gpu_types_are_not_merged_without_a_word(
    sadvise: Sadvise, simulator: Simulator, tmp_path: Path, command: str
) -> None:
    path = write_typed(tmp_path)

    refused = sadvise(command, path, "--cluster", CLUSTER)
    merged = sadvise(command, path, "--cluster", f"{CLUSTER},type=any")

    assert refused.exit_code == 1
    assert "typed: its jobs ask for 2 GPU types (a100: 20, v100: 20), but --cluster nodes=2,gpus=8 names none" in (
        refused.err
    )
    assert (merged.exit_code, merged.err) == (0, "")


def test_jobs_of_a_type_the_cluster_lacks_get_a_warning(sadvise: Sadvise, simulator: Simulator, tmp_path: Path) -> None:
    outcome = sadvise("simulate", write_typed(tmp_path), "--cluster", f"{CLUSTER},type=a100")

    assert outcome.exit_code == 0
    assert outcome.err.startswith("sadvise: typed: 20 of 40 jobs can never run: nodes=2,gpus=8,type=a100 has no GPUs")


def test_what_the_model_leaves_out_of_a_trace_is_noted_once(
    sadvise: Sadvise, simulator: Simulator, tmp_path: Path
) -> None:
    path = tmp_path / "parts.csv"
    path.write_text(
        "job_id,submit_time,run_time_s,gpus,partition,array_id,dependency\n"
        "1,0,60,1,gpu,0,\n2,0,60,1,long,0,afterok:1\n3,0,60,1,long,3,\n"
    )

    outcome = sadvise("simulate", str(path), "--cluster", CLUSTER)

    assert outcome.exit_code == 0
    assert outcome.err == (
        "sadvise: parts: the cluster file has no partitions: jobs of gpu, long share all nodes and limits; "
        "policies other than Slurm's ignore dependencies, begin times and limits of arrays: under them 1 of 3 jobs "
        "enter the queue at their submit_time\n"
    )


def write_snapshot_file(folder: Path, release: str = "22.05") -> str:
    path = folder / "site.json.gz"
    write_snapshot(recorded.printed_snapshot(release), path)
    return str(path)


def test_snapshot_is_the_cluster_and_what_it_lacks_is_noted(
    sadvise: Sadvise, simulator: Simulator, tmp_path: Path
) -> None:
    path = write_snapshot_file(tmp_path)

    said = sadvise("simulate", write(tmp_path), "--cluster", path, "--json")

    assert json.loads(said.out)["meta"]["cluster"] == path
    notes = said.err.splitlines()
    assert (
        f"sadvise: --cluster {path}: a snapshot has no QOS, limits or shares: only --cluster live reads them" in notes
    )
    assert [note for note in notes if "the what-if model does not know Gres=shard" in note]


def test_file_that_is_no_snapshot_is_refused_in_one_line(
    sadvise: Sadvise, simulator: Simulator, tmp_path: Path
) -> None:
    path = tmp_path / "site.json"
    path.write_text("{}", encoding="utf-8")

    said = sadvise("simulate", write(tmp_path), "--cluster", str(path))

    assert said.exit_code != 0
    assert said.err.count("\n") == 1
    assert str(path) in said.err
