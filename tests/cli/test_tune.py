"""What `sadvise tune` prints, draws and publishes on a small trace, and what wrong input gets."""

import json
import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from advisor.files import parse_toml
from advisor.sim.traces.trace_file import write_trace
from tests.cli.conftest import Sadvise
from tests.made_once import made_once
from tests.sim.building import make_trace

CLUSTER = ("--cluster", "nodes=1,gpus=8")
LONG = {"gpus": 8, "run_time_s": 600, "time_limit_s": 90_000, "switches": 1}
SHORT = {"gpus": 8, "run_time_s": 100, "time_limit_s": 600}
JOBS = [
    {**(LONG if at % 2 else SHORT), "user": ("ann", "bob")[at // 2 % 2], "submit_time": 10.0 * at} for at in range(40)
]
SMALL = ("--repeats", "2", "--workers", "1", "--no-slurm")


@pytest.fixture
def kept(sadvise: Sadvise, trace: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return options that find the runs of the trace, which are simulated once for all workers."""

    def simulate(store: Path) -> None:
        document_of(sadvise, trace, *CLUSTER, "--store", str(store))

    store = shutil.copytree(made_once(tmp_path_factory, "tune", simulate), tmp_path / "kept")
    return "--store", str(store)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """A full node, for which long and short jobs of two users wait in turn."""
    path = tmp_path / "queue.csv"
    write_trace(make_trace(JOBS), path)
    return str(path)


def document_of(sadvise: Sadvise, *words: str) -> dict[str, Any]:
    outcome = sadvise("tune", *words, *SMALL, "--json")
    assert outcome.exit_code == 0, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


@pytest.mark.slow
def test_short_jobs_first_gain_and_what_that_costs_is_published(
    sadvise: Sadvise, trace: str, kept: tuple[str, str]
) -> None:
    document = document_of(sadvise, trace, *CLUSTER, *kept)

    points = {point["setting"]: point for point in document["points"]}
    plain, site = points["slurm"], points["lift site"]
    assert (plain["family"], plain["change"]["percent"], plain["changes_per_job"], plain["lines"]) == (
        "plain", 0.0, 0.0, [],
    )  # fmt: skip
    assert site["change"]["percent"] == pytest.approx(100 * (site["mean_jct_s"] / plain["mean_jct_s"] - 1))
    assert site["change"]["low"] <= site["change"]["percent"] < -5.0
    assert site["changes_per_job"] > 0.0
    assert site["users"] == 2
    assert site["lines"] == [
        {"file": "sadvise.toml", "text": '[guard] fairness = "site"'},
        {"file": "sadvise.toml", "text": "[forecasts] enabled = false"},
    ]
    assert set(document["presets"]) == {"free", "gentle", "trade"}
    assert document["presets"]["free"] is None and document["presets"]["gentle"] in points
    assert document["advised"] in {*document["presets"].values(), None}
    assert document["tuned_slurm"] == "slurm"
    assert (document["in_force"], document["jobs"], document["moves_to"]) == ("slurm", 40, None)
    advised = points[document["advised"]]
    assert document["against_in_force"] == advised["change"]
    meta = document["meta"]
    assert (meta["schema"], meta["trace"], meta["repeats"], meta["late_after_s"]) == (
        "sadvise.tune/2", "made", 2, 21_600.0,
    )  # fmt: skip
    assert "user" not in meta["sampled"]


@pytest.mark.slow
def test_the_command_in_json_gives_the_same_points_again(sadvise: Sadvise, trace: str) -> None:
    first = document_of(sadvise, trace, *CLUSTER, "--jobs", "12", "--seed", "3")

    again = json.loads(sadvise(*first["meta"]["command"].split()[1:], "--json").out)

    assert again == first


@pytest.mark.slow
def test_workers_give_the_same_points_as_one_process(sadvise: Sadvise, trace: str, tmp_path: Path) -> None:
    alone = document_of(sadvise, trace, *CLUSTER, "--jobs", "20")

    store = ["--store", str(tmp_path / "kept")]
    words = ["tune", trace, *CLUSTER, "--jobs", "20", "--repeats", "2", "--no-slurm", "--json", *store]
    together = json.loads(sadvise(*words, "--workers", "2").out)

    assert together == alone
    # What is kept is not run again, so that nothing is left to go wrong.
    assert json.loads(sadvise(*words, "--workers", "1").out) == alone


def test_parameters_of_slurm_are_varied_alone_and_reservations_under_lifts_too(sadvise: Sadvise, trace: str) -> None:
    outcome = sadvise("tune", trace, *CLUSTER, "--jobs", "12", "--repeats", "2", "--workers", "1", "--json")

    document = json.loads(outcome.out)
    names = [point["setting"] for point in document["points"]]
    assert set(names) >= {"bf_interval=120", "bf_window=1500", "PriorityWeightAge x3", "max_switch_wait=3600"}
    joined = [name.split(", ") for name in names if ", " in name]
    assert {words[0].split()[1] for words in joined} <= {"user", "account", "lane", "trade"}
    fewer = [f"bf_min_age_reserve={age}" for age in (21_600, 259_200, 1_209_600, 2_592_000)]
    assert [words[1] for words in joined] == 2 * [*fewer, "bf_job_part_count_reserve=1"]
    assert document["not_varied"] == [
        "pin_gangs: no gang of the trace leaves its node count open",
        "time_min_as_soft_limit: no job of the trace has a --time-min",
    ]


@pytest.mark.slow
def test_people_see_the_table_and_the_lines_to_set(sadvise: Sadvise, trace: str, kept: tuple[str, str]) -> None:
    out = sadvise("tune", trace, *CLUSTER, *SMALL, *kept, "--all").out

    assert out.startswith("made, 40 jobs on nodes=1,gpus=8, 8 GPUs\n")
    assert "runs    34 in all: 17 settings on 2 copies of the trace" in out
    rows = [line for line in out.splitlines() if line.startswith(("slurm ", "lift "))]
    assert rows[0].split()[:1] == ["slurm"] and rows[1].startswith("lift site ")
    assert (
        '\nlift trade 2           sadvise.toml: [guard] fairness = "trade", [planning] priority_decades = 2.0, ' in out
    )
    assert "\nlift-oracle site       cannot be set" in out
    assert "\nfree        none: nothing to try on this trace\ngentle      lift " in out
    advised = out[out.index("\nadvised") :]
    lines = advised[advised.index("\nnext") :].splitlines()
    assert "/etc/sadvise/conf.d/tune.toml" in lines[1]
    assert set(parse_toml("\n".join(line.strip() for line in lines[2:]))) <= {"guard", "planning", "forecasts"}
    assert "[guard]" in advised
    assert "mind" not in out and "hidden" not in out


def test_settings_that_others_beat_are_hidden_and_counted(sadvise: Sadvise, trace: str, kept: tuple[str, str]) -> None:
    document = document_of(sadvise, trace, *CLUSTER, *kept)
    shown = {
        point["setting"]
        for point in document["points"]
        if not point["dominated"] or point["setting"] in {*document["presets"].values(), document["tuned_slurm"]}
    }
    hidden = len(document["points"]) - len(shown)

    out = sadvise("tune", trace, *CLUSTER, *SMALL, *kept).out

    table = out.split("\n\n")[1].splitlines()[1:]
    assert {line.split("  ")[0] for line in table} == shown
    assert hidden > 0
    assert f"hidden  {hidden} setting" in out


def test_the_report_draws_the_points_and_is_the_same_again(
    sadvise: Sadvise, trace: str, kept: tuple[str, str], tmp_path: Path
) -> None:
    pages = [tmp_path / name for name in ("a.html", "b.html")]

    for page in pages:
        assert sadvise("tune", trace, *CLUSTER, *SMALL, *kept, "--all", "--report", str(page)).exit_code == 0

    text = pages[0].read_text()
    assert pages[1].read_text() == text
    charts = [json.loads(config) for config in re.findall(r'<script type="application/json">(.*?)</script>', text)]
    assert [sum(len(series["marks"]) for series in chart["series"]) for chart in charts] == [17, 17]
    assert re.search(r'<p class="verdict (better|worse|unclear)">Of 17 settings, lift.* is advised: it ', text)
    assert '[guard] fairness = "site"' in unescape(text)
    assert "http" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL).replace("http-equiv", "")


@pytest.mark.slow
def test_settings_of_the_site_are_tried_too(
    sadvise: Sadvise, trace: str, kept: tuple[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "sadvise.toml"
    config.write_text(
        "[planning]\npriority_decades = 1.5\n[guard]\nmax_added_delay_s = 60\n"
        '[mode]\ndefault = "apply"\n[forecasts]\nenabled = false\n'
    )

    document = document_of(sadvise, trace, *CLUSTER, *kept, "--config", str(config))

    assert "lift trade 1.5" in [point["setting"] for point in document["points"]]
    assert document["in_force"] == "lift trade 1.5"
    assert document["meta"]["late_after_s"] == 60.0
    assert any(setting.startswith("planning.priority_decades = 1.5") for setting in document["meta"]["settings"])


@pytest.mark.slow
def test_a_site_with_a_partition_that_gives_way_is_tuned(sadvise: Sadvise, tmp_path: Path) -> None:
    cluster, path = tmp_path / "site.toml", tmp_path / "tiers.csv"
    cluster.write_text(
        'nodes = [{ count = 1, gpus = 8 }]\nslurm = { preempt_type = "partition_prio", preempt_mode = "requeue" }\n'
        'partitions = [{ name = "scavenger", default = true }, { name = "urgent", priority_tier = 2 }]\n'
    )
    jobs = [{**job, "partition": int(at % 8 == 6)} for at, job in enumerate(JOBS)]
    write_trace(replace(make_trace(jobs), partitions=("scavenger", "urgent")), path)

    simulated = sadvise("simulate", str(path), "--cluster", str(cluster), "--json")
    document = document_of(sadvise, str(path), "--cluster", str(cluster))

    assert [run["preemptions"] for run in json.loads(simulated.out)["runs"] if run["policy"] == "slurm"] == [1]
    points = {point["setting"]: point for point in document["points"]}
    assert document["advised"] == "lift trade 0"
    assert points["lift trade 0"]["change"]["high"] < 0.0


def test_a_trace_without_users_and_limits_says_that_they_are_drawn(sadvise: Sadvise, tmp_path: Path) -> None:
    path = tmp_path / "bare.csv"
    path.write_text("job_id,submit_time,run_time_s,gpus\n" + "".join(f"{at},{at},600,8\n" for at in range(1, 9)))

    out = sadvise("tune", str(path), *CLUSTER, *SMALL).out

    assert "\nmind    users are drawn at random, not recorded" in out
    assert "\nmind    time limits are drawn at random, not recorded" in out


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example_of_the_manual_is_what_the_command_prints(sadvise: Sadvise) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tune.md").read_text(encoding="utf-8")
    _, _, example = page.partition("    $ sadvise tune --demo --no-slurm\n")

    out = sadvise("tune", "--demo", "--no-slurm", "--workers", "1").out

    assert example.startswith("".join(f"    {line}".rstrip() + "\n" for line in out.splitlines()))
