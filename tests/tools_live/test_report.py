"""The report on live runs, of made clusters, and promises of changes against what came."""

import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from advisor.domain.actions import Lever
from advisor.errors import SimulationError
from advisor.sim.run_outcome import End
from tests.live.shortcomings import shortcomings
from tests.tools_live.made_arms import SPEEDUP, keep_made, made_run, made_trace
from tools.live.arms_report import main, read_runs, report_of
from tools.live.kept import Runs, read_kept, stretched
from tools.live.replayed import begun
from tools.live.reported import markdown, read_values, sections
from tools.live.savings import Promise, savings
from tools.live.targets import targets_values
from tools.live.twins import differences, fields_of

# Waits in live seconds: bob's jobs gain a minute and ann's lose 20 s, so that the mean falls by 20 s.
PLAIN = [100.0] * 12
AGAIN = [101.0, 99.0] * 6
ADVISED = [120.0, 40.0] * 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of two plain clusters and an advised one."""
    for name, waits_s in (("default-1", ADVISED), ("none-1", PLAIN), ("none-2", AGAIN)):
        keep_made(tmp_path / "one", name, made_run(made_trace(), waits_s))
    return tmp_path / "one"


def test_a_kept_run_is_read_as_it_was_with_the_plain_clusters_first(folder: Path) -> None:
    arms = read_kept(folder)

    run = made_run(made_trace(), ADVISED)
    assert [arm.name for arm in arms] == ["plain", "plain 2", "default"]
    assert arms[2].run.outcomes.tolist() == run.outcomes.tolist()
    assert arms[2].run.segments.tolist() == run.segments.tolist()
    kept, made = (
        {field.name: getattr(trace, field.name) for field in fields(trace) if field.name != "jobs"}
        for trace in (arms[2].run.trace, replace(run.trace, seed=1))
    )
    assert kept == made
    assert arms[2].job_ids.tolist() == list(range(101, 113))
    assert arms[2].cluster.gpus == 16
    assert arms[2].cycles == arms[0].cycles is not None


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="holds no kept run"):
        read_kept(tmp_path)


def test_all_times_of_a_run_are_stretched(folder: Path) -> None:
    live = read_kept(folder)[0].run

    run = stretched(live, SPEEDUP)

    assert run.trace.jobs["submit_time"][1] == pytest.approx(300.0)
    assert run.trace.jobs["time_limit_s"][0] == pytest.approx(3600.0)
    assert (run.outcomes["end_time"] == SPEEDUP * live.outcomes["end_time"]).all()
    assert (run.outcomes["held_gpu_s"] == SPEEDUP * live.outcomes["held_gpu_s"]).all()
    assert (run.segments["start_time"] == SPEEDUP * live.segments["start_time"]).all()


def test_a_trace_and_seed_that_was_run_twice_is_refused(folder: Path, tmp_path: Path) -> None:
    keep_made(tmp_path / "two", "none-1", made_run(made_trace(), PLAIN))

    with pytest.raises(SimulationError, match="is also in"):
        read_runs([folder, tmp_path / "two"])


def test_the_report_shows_gains_losses_and_the_noise(folder: Path, tmp_path: Path) -> None:
    output = ["-o", str(tmp_path / "r.md"), "--html", str(tmp_path / "r.html"), "--json", str(tmp_path / "r.json")]

    assert main([str(folder), *output, "--no-simulator"]) == 0

    text, values = (tmp_path / "r.md").read_text(), read_values(tmp_path / "r.json")
    metrics = {(one["cluster"], one["metric"]): one["change"] for one in values["metrics"]}
    users = {one["cluster"]: one for one in values["users"]}
    losses = [one for one in values["losses"] if one["cluster"] == "default"]
    assert metrics["default", "mean_jct_s"] == pytest.approx(100 * (90 / 110 - 1))
    assert abs(metrics["plain 2", "mean_jct_s"]) < 1.0
    assert [(one["user"], one["is_worse"]) for one in losses] == [("ann", True), ("bob", False)]
    assert losses[0]["after_s"] == pytest.approx(130.0 * SPEEDUP)
    assert [users["default"][key] for key in ("worse", "better", "users")] == [1, 1, 2]
    assert [users["default"][key] for key in ("chance_worse", "beyond_points")] == [0, 50.0]
    assert (users["plain 2"]["worse"], users["plain 2"]["chance_runs"]) == (0, 0)
    assert users["default"]["worst_s"] == pytest.approx(20.0 * SPEEDUP)
    assert "| mean JCT | 1.8 h | 1.8 h, 0.0 %" in text
    assert "No change was applied." in text
    assert "default against plain" in (tmp_path / "r.html").read_text()


def test_the_kept_values_give_the_same_report(folder: Path, tmp_path: Path) -> None:
    files = ["-o", str(tmp_path / "r.md"), "--json", str(tmp_path / "r.json"), "--store", str(tmp_path / "store")]

    assert main([str(folder), *files]) == 0

    assert markdown(sections(read_values(tmp_path / "r.json"))) == (tmp_path / "r.md").read_text()


def test_a_single_cluster_has_a_report_without_comparisons(tmp_path: Path) -> None:
    keep_made(tmp_path / "one", "none-1", made_run(made_trace(), PLAIN))

    report = report_of(read_runs([tmp_path / "one"]), simulator=False, store=None)

    assert [part.title for part in sections(report)] == ["Runs", "Metrics", "What changes did", "slurmctld"]


def test_the_simulator_begins_when_slurmctld_worked_out_priorities(folder: Path) -> None:
    arm = read_kept(folder)[0]

    assert (begun(arm).jobs["submit_time"] - arm.run.trace.jobs["submit_time"]).tolist() == [13.0] * 12


def test_clusters_are_named_by_label_or_options_and_by_number(folder: Path) -> None:
    texts = ("default:fairness=site", "default", "gentle=default:fairness=user,pin=yes", "none:reserve-after=3d")
    for number, planned in enumerate(texts, start=2):
        keep_made(folder, f"other-{number}", made_run(made_trace(), ADVISED), planned=planned)

    runs = Runs(read_kept(folder))

    named = ["plain", "plain 2", "default", "default 2", "default fairness=site", "gentle", "plain reserve-after=3d"]
    assert list(runs.by_arm) == named
    assert runs.plain_again == "plain 2"
    assert runs.kept("gentle").popitem()[1].stem == "other-4"


def test_changes_are_over_seeds_of_a_trace_and_then_over_traces(tmp_path: Path) -> None:
    folders = []
    for trace in ("a", "b", "c"):
        for seed in (1, 2, 3):
            folders.append(tmp_path / f"{trace}-{seed}")
            plain = made_run(replace(made_trace(), name=trace), PLAIN, seed=seed)
            # A job takes 110 s on the plain cluster, and as many seconds less with advice as its seed says.
            advised = made_run(replace(made_trace(), name=trace), [100.0 - seed] * 12, seed=seed)
            keep_made(folders[-1], "none-1", plain)
            keep_made(folders[-1], "default-1", advised)

    values = report_of(read_runs(folders), simulator=False, store=None)

    changes = {
        one["trace"]: one for one in values["metrics"] if (one["cluster"], one["metric"]) == ("default", "mean_jct_s")
    }
    assert [(one["trace"], one["runs"]) for one in changes.values()] == [("a", 3), ("b", 3), ("c", 3), (None, 9)]
    assert changes[None]["change"] == pytest.approx(-2 / 1.1, rel=0.01)
    # Each trace has the same seeds, so that there is more to draw within a trace than between them.
    assert changes["a"]["low"] < changes[None]["low"] < -2 / 1.1 < changes[None]["high"] < changes["a"]["high"]


@pytest.mark.parametrize(
    ("planned", "waits_s", "gain", "tail", "users"),
    [
        ("trade=default", [*[60.0] * 11, 61.0], "met", "met", "met"),
        ("trade=default", [*[60.0] * 11, 130.0], "met", "missed", "met"),
        ("trade=default", [120.0, 40.0] * 6, "missed", "missed", "missed"),
        ("gentle=default", [120.0, 40.0] * 6, "met", "missed", "missed"),
    ],
    ids=["all gain", "a longer tail", "ann loses", "less is asked of gentle"],
)
def test_what_misses_its_target_is_said_to(
    planned: str, waits_s: list[float], gain: str, tail: str, users: str, tmp_path: Path
) -> None:
    for name, own_s in (("none-1", PLAIN), ("none-2", AGAIN)):
        keep_made(tmp_path / "one", name, made_run(made_trace(), own_s))
    keep_made(tmp_path / "one", "default-1", made_run(made_trace(), waits_s), planned=planned)

    found = targets_values(report_of(read_runs([tmp_path / "one"]), simulator=False, store=None))

    assert [one["verdict"] for one in found][:3] == [gain, tail, users]


def test_seeds_with_jobs_of_their_own_are_told_apart_by_user(folder: Path, tmp_path: Path) -> None:
    trace = made_trace(6)
    for name, waits_s in (("none-1", [100.0] * 6), ("default-1", [50.0] * 6)):
        keep_made(tmp_path / "two", name, made_run(trace, waits_s, seed=2))

    runs = read_runs([folder, tmp_path / "two"])
    code = main([str(folder), str(tmp_path / "two"), "--no-simulator", "--html", str(tmp_path / "r.html")])

    page = (tmp_path / "r.html").read_text()
    assert code == 0
    assert len(runs.jobs()) == 18
    assert runs.plain_again == "plain 2"
    # Nine jobs of each user, of which three are in the second run.
    assert re.search(r'<th scope="row"[^>]*>ann</th><td[^>]*>9</td>', page.replace("\n", ""))


def test_the_simulator_runs_the_same_jobs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([str(folder), "--store", str(tmp_path / "store"), "--json", str(tmp_path / "r.json")])

    found = read_values(tmp_path / "r.json")["fidelity"]
    makespans = {(one["arm"], one["policy"]): one["simulated"] for one in found if one["metric"] == "makespan_s"}
    assert code == 0
    assert set(makespans) == {
        ("plain", "slurm"), ("plain 2", "slurm"),
        ("default", "lift"), ("default", "lift-forecast"),
    }  # fmt: skip
    # No job waits on 16 GPUs: the last one is submitted after 55 s, starts within some seconds and takes 10 s.
    assert makespans["plain", "slurm"] == pytest.approx(SPEEDUP * 66.0, abs=SPEEDUP * 4.0)
    assert "Simulator against live" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("waits_s", "ends", "faults", "says"),
    [
        (ADVISED, None, (), None),
        ([130.0] * 12, None, (), "the mean JCT is"),
        (ADVISED, [End.FINISHED] * 11 + [End.NOT], (), "1 jobs have not ended"),
        ([100.0] * 11 + [100.0 + 15 * 86400 / SPEEDUP], None, (), "1 jobs started beyond their bound"),
        (ADVISED, None, ("default-1: after revert --all, job 3 has Nice=5",), "after revert --all"),
    ],
    ids=["gains", "worse", "stuck", "beyond its bound", "changed"],
)
def test_the_short_form_fails_for_what_must_not_be(
    waits_s: list[float], ends: list[End] | None, faults: tuple[str, ...], says: str | None, tmp_path: Path
) -> None:
    for name, plain_s in (("none-1", PLAIN), ("none-2", AGAIN)):
        keep_made(tmp_path / "one", name, made_run(made_trace(), plain_s))
    run = made_run(made_trace(), waits_s, ends=ends)
    if ends is not None:
        run.outcomes["end_time"][-1] = np.nan
    keep_made(tmp_path / "one", "default-1", run, faults=faults)

    found = list(shortcomings(Runs(read_kept(tmp_path / "one"))))

    assert (found == []) if says is None else any(says in sentence for sentence in found)


IDS = np.arange(101, 105)


def promise(job_id: int, low_s: float, high_s: float, *, is_start: bool = True) -> Promise:
    """Return the promise of a lift, or of another change."""
    lever = Lever.NICE if is_start else Lever.GPU_COUNT
    return Promise(job_id=job_id, lever=lever, low_s=low_s, high_s=high_s, is_start=is_start)


def test_a_promise_is_held_if_the_paired_difference_is_in_it() -> None:
    trace = made_trace(4)
    plain, again, advised = (
        stretched(made_run(trace, waits_s), SPEEDUP)
        for waits_s in ([100.0] * 4, [101.0, 99.0, 101.0, 104.0], [60.0, 95.0, 150.0, 60.0])
    )
    promises = [
        promise(101, 30.0, 50.0),
        promise(102, 6.0, 9.0),
        promise(103, 10.0, 20.0),
        promise(104, 39.0, 41.0, is_start=False),
        promise(999, 1.0, 2.0),
    ]

    found = list(savings(promises, plain, advised, again, IDS, SPEEDUP))

    assert [saving.came_s / SPEEDUP for saving in found] == pytest.approx([40.0, 5.0, -50.0, 40.0])
    assert [saving.is_held for saving in found] == [True, False, False, True]
    # Three of four jobs differ by a second between the plain clusters.
    assert [saving.is_held_or_noise for saving in found] == [True, True, False, True]
    assert found[0].low_s == 30.0 * SPEEDUP


def test_without_a_second_plain_cluster_nothing_is_noise() -> None:
    trace = made_trace(4)
    plain, advised = (stretched(made_run(trace, [wait_s] * 4), SPEEDUP) for wait_s in (100.0, 95.0))

    found = list(savings([promise(101, 6.0, 9.0)], plain, advised, None, IDS, SPEEDUP))

    assert [(saving.is_held, saving.is_held_or_noise) for saving in found] == [(False, False)]


def test_a_job_that_did_not_finish_tells_nothing_of_its_end() -> None:
    plain, advised = (made_run(made_trace(4), [100.0] * 4) for _ in range(2))
    outcomes = advised.outcomes.copy()
    outcomes["end"][0] = 0

    found = savings(
        [promise(101, 1.0, 2.0, is_start=False)], plain, replace(advised, outcomes=outcomes), None, IDS, 1.0
    )

    assert list(found) == []


RECORDED = Path(__file__).parents[1] / "recorded" / "22.05" / "scontrol_job_oneline.txt"
SHOWN = "JobId=7 JobName=a Nice=0 TimeLimit=00:05:00 NumNodes=1-2 TRES=cpu=1,node=1 Features=(null) Command=/a b=c"


def test_the_fields_that_changes_show_in_are_read() -> None:
    fields = fields_of(SHOWN)

    assert fields == {
        "Nice": "0", "TimeLimit": "00:05:00", "NumNodes": "1-2", "Features": "(null)", "TRES": "cpu=1,node=1"
    }  # fmt: skip
    assert {"Nice", "TimeLimit", "NumNodes"} <= fields_of(RECORDED.read_text().splitlines()[0]).keys()


def test_a_field_that_was_left_changed_is_named() -> None:
    after = fields_of(SHOWN.replace("Nice=0", "Nice=-5"))

    assert list(differences(7, fields_of(SHOWN), fields_of(SHOWN))) == []
    assert list(differences(7, fields_of(SHOWN), after)) == ["job 7 has Nice=-5, submitted was 0"]
