"""The programs that write pages of results."""

import argparse
import re
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.sim.study.metrics import Ends, RunSummary
from advisor.sim.study.result import GpuCurve, RunResult
from advisor.sim.study.statistics import CellName
from tests.published_traces import write_traces
from tests.test_simulated_traces import make_trace
from tools.data.simulated_traces import Workload
from tools.pages.__main__ import main
from tools.pages.page_experiment import PROG, Experiment, add_options, command_of, described, experiment_of, summaries
from tools.pages.page_text import FOLDER, paragraph, render, table
from tools.pages.results import page, parts_of

ROOT = Path(__file__).parent.parent
NAMES = tuple(summaries())
KEPT = tuple(name for name in NAMES if "output" in described(name))


def experiment_by_default(name: str, *arguments: str) -> tuple[Experiment, str]:
    """Return the experiment of a name and its command, with the options given."""
    parser = argparse.ArgumentParser()
    description = described(name)
    add_options(parser, description)
    options = parser.parse_args(arguments)
    return experiment_of(description, options), command_of(name, description, options)


@pytest.mark.parametrize("name", NAMES)
def test_a_description_is_the_default_of_its_options(name: str) -> None:
    experiment, command = experiment_by_default(name)

    assert experiment == Experiment(**described(name))
    assert command == f"{PROG} {name}"


def test_options_that_differ_stand_in_the_command() -> None:
    experiment, command = experiment_by_default("advice", "--traces", "itp 02,itp 04", "--seeds", "2")

    assert experiment.traces == ("itp 02", "itp 04")
    assert experiment.seeds == 2
    assert command == f"{PROG} advice --traces 'itp 02,itp 04' --seeds 2"


def test_all_jobs_at_once_is_no_load() -> None:
    experiment, _ = experiment_by_default("dally", "--loads", "batch,0.9")

    assert experiment.loads == (None, 0.9)


def test_an_option_that_a_page_has_no_use_for_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["dally", "--first-jobs", "3"])

    assert "unrecognized arguments: --first-jobs 3" in capsys.readouterr().err


def test_a_value_that_cannot_be_names_its_option() -> None:
    with pytest.raises(SimulationError, match=r"--first-jobs -1: input should be greater than or equal to 0"):
        experiment_by_default("results", "--first-jobs", "-1")


@pytest.mark.parametrize("name", KEPT)
def test_the_page_that_is_kept_has_the_prose_of_its_template(name: str) -> None:
    experiment, command = experiment_by_default(name)
    kept = " ".join((ROOT / experiment.output).read_text(encoding="utf-8").split())
    template = (FOLDER / f"{experiment.page}.md").read_text(encoding="utf-8").partition("%%")[0]

    blocks = [" ".join(block.split()) for block in template.split("\n\n") if not block.startswith("|")]

    assert f"Written by `{command}`; do not edit." in kept
    assert [block for block in blocks if not re.search(re.sub(r"\\\{.+?\\\}", ".*", re.escape(block)), kept)] == []


@pytest.mark.parametrize("name", ["advice", "results"])
def test_no_policy_of_a_page_leaves_all_traces_as_they_were(name: str) -> None:
    text = (ROOT / described(name)["output"]).read_text(encoding="utf-8")
    _, _, below = text.partition("## Against slurm, over all traces\n\n")
    heads, _, *rows = [line.strip("| ").split(" | ") for line in below.split("\n\n")[0].splitlines()]

    assert heads[3:7] == ["lower", "higher", "no clear difference", "no change"]
    acted = {row[0]: any(count != "0" for count in row[3:6]) for row in rows}
    assert len(acted) > 10 and all(acted.values()), acted


def test_paragraphs_are_wrapped_and_fields_alone_are_not() -> None:
    text = render("holds", "corner", oversubscription=4.0, record="x\ny", added="z", asleep="")

    assert text.startswith(
        "## Oversubscription 4:1\n\nChange of the mean JCT from plain Slurm:\n\nx\ny\n\nWhat one lever"
    )


def test_a_field_alone_that_is_empty_leaves_no_gap() -> None:
    text = render("holds", "corner", oversubscription=4.0, record="", added="z", asleep="")

    assert "from plain Slurm:\n\nWhat one lever" in text


def test_a_duration_is_in_words() -> None:
    text = render(
        "holds",
        command="c", version="1", seeds="-", first="s", policies="-", loads="-", jobs=1, requests="usual", cut="",
        limits_ratio=1.0, max_switch_wait_s=7200.0,
        options=argparse.Namespace(advise_every_s=300.0, execution="e", speeds="s"),
    )  # fmt: skip

    assert "with `max_switch_wait` of 2.0 h," in " ".join(text.split())


def test_no_line_of_a_paragraph_is_longer_than_120() -> None:
    assert [len(line) for line in paragraph("word " * 30).splitlines()] == [119, 29]


def test_columns_of_figures_are_aligned_right() -> None:
    assert table(("name", "jobs:"), [["one", "2"]]) == "| name | jobs |\n|---|--:|\n| one | 2 |"


JOBS = 400
EXPERIMENT = Experiment(page="results", summary="made")


def make_workload(jobs: int) -> Workload:
    """Return a workload of jobs of one GPU, one a minute."""
    return Workload(trace=make_trace(*((60.0 * job, 60.0, 1) for job in range(jobs))), nodes=1)


def make_result(policy: str, mean_jct_s: float, *, finished: int = JOBS) -> RunResult:
    """Return a run whose jobs took `mean_jct_s`, some more and some less."""
    jct_s = mean_jct_s * np.linspace(0.9, 1.1, JOBS)
    jct_s[finished:] = np.nan
    summary = RunSummary(
        policy=policy, trace="made", seed=0, jobs=JOBS, finished=finished, mean_jct_s=mean_jct_s, p50_jct_s=1.0,
        p95_jct_s=1.0, p99_jct_s=1.0, makespan_s=1.0, mean_queueing_delay_s=1.0, p99_queueing_delay_s=1.0,
        max_queueing_delay_s=1.0, mean_bounded_slowdown=1.0, gpu_allocated_ratio=1.0,
        communication_overhead_ratio=0.0, preemptions=0, resizes=0, changes=0, wall_s=1.0,
        jobs_per_s=1.0, peak_rss_mib=1.0,
    )  # fmt: skip
    return RunResult(
        summary=summary,
        ends=Ends(finished=finished, time_limit=JOBS - finished, impossible=0, not_ended=0),
        cluster_gpus=8,
        curve=GpuCurve(start_time=0.0, step_s=1.0, gpus=()),
        sampled=("user",),
        per_job=np.stack([jct_s, jct_s, jct_s]),
    )


def test_slow_policies_have_the_first_jobs_and_the_first_policy_beside_them() -> None:
    whole, short = parts_of([make_workload(30)], ["slurm", "fifo", "rules"], 20)

    assert (len(whole.workload.trace), whole.policies) == (30, ["slurm", "fifo"])
    assert (len(short.workload.trace), short.policies) == (20, ["slurm", "rules"])
    assert short.workload.trace.name == "made (first 20)"
    assert short.workload.nodes == whole.workload.nodes


@pytest.mark.parametrize("first_jobs", [0, 30, 31])
def test_every_policy_has_the_whole_of_a_short_trace(first_jobs: int) -> None:
    (part,) = parts_of([make_workload(30)], ["slurm", "rules"], first_jobs)

    assert part.policies == ["slurm", "rules"]


def test_wins_and_losses_stand_in_the_record() -> None:
    parts = parts_of([make_workload(JOBS)], ["slurm", "fifo", "las", "sjf"], 0)
    results = [
        make_result("slurm", 1000.0),
        make_result("fifo", 1200.0),
        make_result("las", 800.0),
        make_result("sjf", 1000.0),
    ]

    lines = page(parts, {"made": results}, EXPERIMENT, "the command").splitlines()

    assert "| fifo | 1 | +20.0 % (+20.0 to +20.0) | 0 | 1 | 0 | 0 | 100.0 % |" in lines
    assert "| las | 1 | -20.0 % (-20.0 to -20.0) | 1 | 0 | 0 | 0 | 100.0 % |" in lines
    # A policy that changed nothing is no policy without a clear difference.
    assert "| sjf | 1 | 0.0 % (0.0 to 0.0) | 0 | 0 | 0 | 1 | 100.0 % |" in lines
    assert {"| fifo | **+20.0** |", "| las | **-20.0** |", "| sjf | 0.0 |"} <= set(lines)


def test_best_of_slurm_conf_for_each_trace_is_a_policy_of_its_own() -> None:
    parts = parts_of([make_workload(JOBS)], ["slurm", "a", "b", "fifo"], 0)
    results = [
        make_result(name, jct_s) for name, jct_s in (("slurm", 1e3), ("a", 900.0), ("b", 950.0), ("fifo", 450.0))
    ]
    experiment = EXPERIMENT.model_copy(update={"over_all": ("p99_jct_s",), "tuned": ("slurm", "a", "b")})

    text = page(parts, {"made": results}, experiment, "the command")

    assert "| slurm, tuned | 1 | -10.0 % (-10.0 to -10.0) | 1 | 0 | 0 | 0 | 100.0 % |" in text
    assert "| policy | mean JCT against slurm, tuned | 99th percentile of JCT |" in text
    assert "| fifo | -50.0 % (-50.0 to -50.0) | -55.0 %" in text
    assert "best of `slurm`, `a`, `b` for each trace" in " ".join(text.split())
    others = EXPERIMENT.model_copy(update={"tuned": ("slurm", "c")})
    assert "slurm, tuned" not in page(parts, {"made": results}, others, "the command")


def test_jobs_that_did_not_finish_show() -> None:
    parts = parts_of([make_workload(JOBS)], ["slurm", "fifo"], 0)

    text = page(
        parts,
        {"made": [make_result("slurm", 1000.0), make_result("fifo", 900.0, finished=300)]},
        EXPERIMENT,
        "the command",
    )

    assert "| 75.0 % |" in text


def test_other_figures_and_users_stand_beside_the_mean() -> None:
    user_by_cell = {CellName("made", 0): np.repeat([1, 2, 3, 4], JOBS // 4)}
    parts = parts_of([make_workload(JOBS)], ["slurm", "fifo"], 0)
    results = [make_result("slurm", 80_000.0), make_result("fifo", 96_000.0, finished=300)]

    experiment = EXPERIMENT.model_copy(update={"over_all": ("p99_jct_s",)})
    text = page(parts, {"made": results}, experiment, "the command", user_by_cell=user_by_cell)

    assert "| policy | 99th percentile of JCT | finished, points | users worse | users better |" in text
    # The fourth user has no job that finished under both.
    assert "| fifo | +20.0 % (+20.0 to +20.0) | -25.00 | 100.0 % | 0.0 % |" in text


def test_the_page_is_written_and_finished_runs_are_kept(tmp_path: Path) -> None:
    folder = write_traces(tmp_path / "data", clusters=("09",), jobs=12)
    output, store = tmp_path / "results.md", tmp_path / "store"
    arguments = ["results", "--traces", "itp 09", "--data", str(folder), "--policies", "slurm,fifo,rules"]
    arguments += ["--seeds", "1", "--workers", "1", "--first-jobs", "8", "--store", str(store), "-o", str(output)]

    status = main(arguments)

    first = output.read_text()
    assert status == 0
    kept = (store / "results.jsonl").read_text()
    assert len(kept.splitlines()) == 4
    assert "| itp 09 (first 8) | 8 |" in first
    assert "| itp 09 | 12 |" in first
    assert first.splitlines()[-1].startswith("| rules |  | ")
    assert main(arguments) == 0
    assert (store / "results.jsonl").read_text() == kept
    assert output.read_text() == first


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--policies", "fifi"], "did you mean fifo?"), (["--traces", "itp 77"], "trace 'itp 77' is not known")],
)
def test_what_is_not_known_is_one_line(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_traces(tmp_path)

    status = main(["results", *arguments, "--data", str(folder), "-o", str(tmp_path / "results.md")])

    assert status == 1
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1
    assert not (tmp_path / "results.md").exists()
