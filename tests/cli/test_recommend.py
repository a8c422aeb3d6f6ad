"""What `sadvise recommend` prints, for people and for programs."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.backends.snapshot_file import read_snapshot, write_snapshot
from advisor.domain.actions import SetSwitches, SetTimeMin
from advisor.domain.gang import SwitchRequest
from advisor.domain.lease import LeaseState, intended
from advisor.journal import opened
from advisor.view.documents import FIELDS, change_document
from advisor.watch.reading import demo_path
from tests.apply.test_rehearsal import CASES, mine
from tests.builders import make_cluster, make_config, make_job, make_recommendation, make_snapshot
from tests.cli.conftest import Sadvise
from tests.predict.graphs import publish_sizes
from tests.programs import write_slurm


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recommend without rollouts."""
    monkeypatch.setenv("SADVISE_PLANNING__ROLLOUT_DEADLINE_S", "0")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for rollouts on a busy machine too."""
    monkeypatch.setenv("SADVISE_PLANNING__ROLLOUT_DEADLINE_S", "80")


@pytest.mark.usefixtures("patient")
def test_demo_holds_every_kind_of_advice(sadvise: Sadvise) -> None:
    document = json.loads(sadvise("recommend", "--demo", "--json").out)

    assert {change["kind"] for change in document["recommendations"]} == {"reorder", "resize", "consolidate"}
    # By rule the first in line, which could be held to one node, does not wait.
    assert {change["lever"] for change in document["recommendations"]} == {"nice", "gpu_count", "switches"}


def test_json_has_the_published_shape(sadvise: Sadvise) -> None:
    document = json.loads(sadvise("recommend", "--demo", "--json").out)

    assert set(document) == {
        "meta", "cluster", "forecasts", "paused", "stops", "recommendations", "total", "skipped", "unused",
    }  # fmt: skip
    assert document["forecasts"]["on_probation"] == document["stops"] == []
    assert {"tool", "version", "schema", "slurm", "source", "taken_at"} <= set(document["meta"])
    assert document["meta"]["tool"] == "sadvise"
    assert document["meta"]["source"] == "demo"
    for change in document["recommendations"]:
        assert set(change) == {
            "job_id", "kind", "lever", "before", "after", "reason", "text", "expected", "evidence", "command", "revert",
            "job_ids", "name", "user", "account", "partition",
        }  # fmt: skip
        assert change["command"][:2] == change["revert"][:2] == ["scontrol", "update"]
        assert change["command"][2] == change["revert"][2] == f"JobId={change['job_id']}"
        fields = [[word.partition("=")[0] for word in change[name][3:]] for name in ("command", "revert")]
        assert fields[0] == fields[1]
        # One field, and the time limit with a smaller size.
        assert len(fields[0]) == 1 or (change["lever"], fields[0][1:]) == ("gpu_count", ["TimeLimit"])
    assert all(set(job) == {"job_id", "rule"} for job in document["skipped"])


def test_text_opens_with_the_state_of_the_cluster(sadvise: Sadvise) -> None:
    lines = sadvise("recommend", "--demo").out.splitlines()

    assert lines[0].startswith("live, Slurm 26.05")
    assert lines[0].endswith("read from the embedded queue")
    assert lines[2].split()[:2] == ["GPU", "type"]
    assert any(line.startswith("jobs") and "the oldest for 1 min" in line for line in lines)


def test_long_text_has_what_the_short_one_counts(sadvise: Sadvise) -> None:
    short, long = (sadvise("recommend", "--demo", *options).out for options in ((), ("--long",)))

    labels = {line.split("  ")[0] for line in long.splitlines()}
    assert {"oldest", "unread", "no lever", "forecasts", "left alone"} <= labels
    assert "with --long  7 jobs left alone, 1 lever this site lacks, 1 gap in what was read" in short


@pytest.mark.usefixtures("untried")
def test_every_recommendation_shows_reason_gain_and_both_commands(sadvise: Sadvise) -> None:
    out = sadvise("recommend", "--demo", "--long").out
    changes = json.loads(sadvise("recommend", "--demo", "--json").out)["recommendations"]

    for change in changes:
        assert f"{change['kind']} job {change['job_id']}" in out
        assert change["text"] in out
        assert f"({change['reason']})" in out
        assert f"   apply   {shlex.join(change['command'])}" in out
        assert f"   revert  {shlex.join(change['revert'])}" in out


def test_left_alone_jobs_are_counted_by_rule(sadvise: Sadvise) -> None:
    assert "2 not_heterogeneous" in sadvise("recommend", "--demo", "-j", "18,19").out


@pytest.mark.usefixtures("untried")
def test_parsable_output_has_one_line_per_recommendation_and_no_stray_bar(sadvise: Sadvise) -> None:
    lines = sadvise("recommend", "--demo", "-P").out.splitlines()

    assert lines[0] == "|".join(FIELDS)
    assert {line.count("|") for line in lines} == {len(FIELDS) - 1}
    assert sadvise("recommend", "--demo", "-P", "-h").out.splitlines() == lines[1:]


@pytest.mark.usefixtures("untried")
def test_chosen_fields_come_in_the_order_and_width_asked_for(sadvise: Sadvise) -> None:
    out = sadvise("recommend", "--demo", "-o", "kind:5,job_id").out.splitlines()

    assert out[0] == "kind   job_id"
    assert {"conso", "resiz"} <= {line.split()[0] for line in out[1:]}


@pytest.mark.usefixtures("untried")
def test_exit_code_tells_that_something_would_change(sadvise: Sadvise) -> None:
    assert sadvise("recommend", "--demo", "--exit-code").exit_code == 3
    assert sadvise("recommend", "--demo", "--exit-code", "-p", "debug").exit_code == 0


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    ("option", "value", "kept"),
    [
        ("-p", "gpu", True),
        ("-p", "debug", False),
        ("-u", "root", True),
        ("-w", "n01", True),
    ],
)
def test_filters_keep_the_jobs_they_name(sadvise: Sadvise, option: str, value: str, kept: bool) -> None:
    document = json.loads(sadvise("recommend", "--demo", "--json", option, value).out)

    assert bool(document["recommendations"]) is kept


@pytest.mark.parametrize("options", [(), ("--rollout",)], ids=["plain", "rollout"])
def test_quiet_cluster_gets_nothing_and_says_so(sadvise: Sadvise, options: tuple[str, ...], tmp_path: Path) -> None:
    write_snapshot(make_snapshot([]), tmp_path / "quiet.json")

    outcome = sadvise("recommend", "--snapshot", str(tmp_path / "quiet.json"), *options)

    assert outcome.exit_code == 0
    assert "Nothing to recommend." in outcome.out and "rollout" not in outcome.out


@pytest.mark.usefixtures("patient")
def test_rollout_states_what_the_plan_and_each_change_gain(sadvise: Sadvise) -> None:
    document = json.loads(sadvise("recommend", "--demo", "--rollout", "--json").out)
    text = sadvise("recommend", "--demo", "--rollout").out

    effect, changes = document["rollout"]["effect"], document["rollout"]["changes"]
    assert effect["completion_s"]["low"] <= effect["completion_s"]["median"] <= effect["completion_s"]["high"]
    assert (effect["draws"], effect["horizon_s"]) == (12, 43_200.0)
    # The demo has long work in front of short work.
    assert effect["completion_s"]["median"] < 0.0 < effect["sooner"]
    assert [(change["job_id"], change["finding"]) for change in changes] == [(10, "gains"), (11, "gains")]
    assert document["rollout"]["lifts"] == "no_clear_loss"
    assert "rollout  all that goes out together, simulated for 12.0 h under 12 draws" in text
    lines = text.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("tried")] == [
        "tried    lifts",
        "tried    job 10, switches",
        "tried    job 11, gpu_count",
    ]
    assert [line for line in lines if line.startswith("not in it")]


def test_lifts_alone_are_rolled_out_where_it_is_asked_for(sadvise: Sadvise, tmp_path: Path) -> None:
    full = [make_job(10 + n, gpus=8, running_on=[f"n0{n}"], time_limit_s=7200.0) for n in range(1, 5)]
    long, short = make_job(1, gpus=4, priority=2000, user="bob"), make_job(2, time_limit_s=600.0)
    write_snapshot(make_cluster([*full, long, short]), tmp_path / "lift.json")
    given = ("recommend", "--snapshot", str(tmp_path / "lift.json"), "--json")

    plain, rolled_out = (json.loads(sadvise(*given, *more).out) for more in ((), ("--rollout",)))

    assert "rollout" not in plain
    assert rolled_out["rollout"]["effect"]["jobs"] == 6
    assert rolled_out["recommendations"] == plain["recommendations"] != []


def test_lever_that_the_site_lacks_is_named_with_what_is_missing(sadvise: Sadvise, tmp_path: Path) -> None:
    write_snapshot(make_snapshot([], config=make_config(priority_type="priority/basic")), tmp_path / "basic.json")

    out = sadvise("recommend", "--snapshot", str(tmp_path / "basic.json")).out

    assert "no lever     nice: PriorityType is priority/basic" in out


@pytest.mark.usefixtures("untried")
def test_hostile_names_reach_the_terminal_spelled_out(sadvise: Sadvise, tmp_path: Path) -> None:
    demo = read_snapshot(demo_path())
    nasty = "\x1b[2Jowned\nfake|row\x00[red]\u202e"
    hostile = replace(demo, jobs=tuple(replace(job, name=nasty, user=nasty) for job in demo.jobs))
    write_snapshot(hostile, tmp_path / "hostile.json")

    for arguments in (["recommend"], ["recommend", "-P"], ["explain", "12"]):
        out = sadvise(*arguments, "--snapshot", str(tmp_path / "hostile.json")).out
        assert not set(out) & {"\x1b", "\x00", "\u202e"}
    assert "\\x1b[2Jowned\\nfake|row\\x00[red]\\u202e" in out


def test_soft_limit_is_keyed_as_in_a_snapshot_file() -> None:
    change = make_recommendation(SetTimeMin(job_id=7, before=None, after=5400.0))

    published = change_document(change, make_cluster([make_job(7)]), None)

    before_and_after = {"time_min_s": None}, {"time_min_s": 5400.0}
    assert (published.lever, published.before, published.after) == ("time_min", *before_and_after)
    assert published.command == ["scontrol", "update", "JobId=7", "TimeMin=90"]
    assert published.revert == ["scontrol", "update", "JobId=7", "TimeMin=0"]


def test_unlimited_wait_and_unknown_use_show_as_unknown(sadvise: Sadvise, tmp_path: Path) -> None:
    demo = read_snapshot(demo_path())
    nodes = tuple(replace(node, gpus=tuple(replace(pool, used=None) for pool in node.gpus)) for node in demo.nodes)
    write_snapshot(replace(demo, nodes=nodes), tmp_path / "unknown.json")

    lines = sadvise("recommend", "--snapshot", str(tmp_path / "unknown.json")).out.splitlines()

    assert lines[3].split()[2:4] == ["?", "?"]


def test_cluster_name_stays_out_of_the_commands_for_a_file(sadvise: Sadvise) -> None:
    changes = json.loads(sadvise("recommend", "--demo", "--json", "-M", "other").out)["recommendations"]

    assert all(change["command"][:2] == ["scontrol", "update"] for change in changes)


def test_cpu_only_cluster_says_that_no_node_has_gpus(sadvise: Sadvise, tmp_path: Path) -> None:
    write_snapshot(make_snapshot([make_job(1, gpus=0)], []), tmp_path / "cpu.json")

    assert "no node has GPUs" in sadvise("recommend", "--snapshot", str(tmp_path / "cpu.json")).out


@pytest.mark.usefixtures("untried")
def test_advice_counts_with_what_the_journal_says_is_out(sadvise: Sadvise, tmp_path: Path) -> None:
    journal = tmp_path / "journal.sqlite"
    before = json.loads(sadvise("recommend", "--demo", "--json").out)
    asked = SetSwitches(job_id=10, before=None, after=SwitchRequest(count=1, max_wait_s=600.0))
    with opened(journal) as kept:
        kept.claim(before["meta"]["cluster"])
        kept.keep(replace(intended(asked, 0.0, after_s=600.0), state=LeaseState.OUT))

    after = json.loads(sadvise("recommend", "--demo", "--json", "--journal", str(journal)).out)

    assert 10 in {row["job_id"] for row in before["recommendations"]}
    assert 10 not in {row["job_id"] for row in after["recommendations"]}
    # The job asks for no switches again, so somebody took the change back: what `apply` would find out, too.
    assert {row["rule"] for row in after["skipped"] if row["job_id"] == 10} == {"no_person_objected"}


@pytest.mark.usefixtures("untried")
def test_commands_plan_what_apply_would(sadvise: Sadvise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SADVISE_FORECASTS__ENABLED", "false")
    path, file = tmp_path / "journal.sqlite", tmp_path / "seen.json"
    cluster, kept = CASES["delay of another job of the user"]
    seen = mine(cluster).snapshot()
    write_snapshot(seen, file)
    with opened(path) as journal:
        kept.fill(journal, seen.config.cluster)
    given = ("--snapshot", str(file), "--json")

    alone = json.loads(sadvise("recommend", *given).out)
    recommended = json.loads(sadvise("recommend", *given, "--journal", str(path)).out)
    explained = json.loads(sadvise("explain", "9", *given, "--journal", str(path)).out)

    assert [change["job_id"] for change in alone["recommendations"]] == [9]
    assert recommended["recommendations"] == []
    assert explained["diagnosis"]["advice"] == []


@pytest.mark.usefixtures("untried")
def test_journal_that_cannot_be_read_is_a_line_beside_the_advice(sadvise: Sadvise, tmp_path: Path) -> None:
    broken, missing = tmp_path / "broken.sqlite", tmp_path / "missing.sqlite"
    broken.write_text("no journal at all, but long enough to be looked at " * 40)

    said = sadvise("recommend", "--demo", "--long", "--journal", str(broken))
    silent = sadvise("recommend", "--demo", "--journal", str(missing))

    assert said.exit_code == silent.exit_code == 0
    assert ". consolidate job 10" in said.out and "is not a journal of sadvise" in said.out
    assert "journal" not in silent.out and not missing.exists()


def test_policy_is_named_where_it_is_asked_for(sadvise: Sadvise, tmp_path: Path) -> None:
    publish_sizes(tmp_path / "models", constant=-100.0)
    config = tmp_path / "sadvise.toml"
    config.write_text(f'[forecasts]\nmodels = "{tmp_path / "models"}"\n')

    document = json.loads(sadvise("recommend", "--demo", "--config", str(config), "--policy", "own", "--json").out)

    assert document["policy"] == {"name": "own", "fault": None}
    assert "resize" in {change["kind"] for change in document["recommendations"]}


@pytest.mark.usefixtures("untried")
def test_programs_read_whose_job_a_change_is_about(sadvise: Sadvise) -> None:
    rows = sadvise("recommend", "--demo", "-o", "job_id,job_ids,name,user,account,partition", "-P").out.splitlines()
    changes = json.loads(sadvise("recommend", "--demo", "--json").out)["recommendations"]

    assert rows[0] == "job_id|job_ids|name|user|account|partition"
    assert rows[1:] == [
        "|".join(
            [str(change["job_id"]), ",".join(map(str, change["job_ids"])), change["name"], change["user"],
             change["account"], change["partition"]]
        )
        for change in changes
    ]  # fmt: skip
    assert all(change["user"] and change["job_ids"][0] == change["job_id"] for change in changes)


@pytest.mark.usefixtures("untried")
def test_top_keeps_the_changes_that_save_most_in_their_order(sadvise: Sadvise) -> None:
    def changes(*arguments: str) -> list[Any]:
        found: list[Any] = json.loads(sadvise("recommend", "--demo", "--json", *arguments).out)["recommendations"]
        return found

    every, two = changes(), changes("--top", "2")

    saved = [change["expected"]["jct_saved_expected_s"] for change in every]
    assert len(every) > len(two) == 2
    assert saved == sorted(saved, reverse=True)
    assert two == every[:2]
    assert changes("--top", "99") == every
    assert sadvise("recommend", "--demo", "--top", "0").exit_code == 2


@pytest.mark.slow
def test_several_clusters_stand_under_their_names_and_a_fault_hides_none(
    sadvise: Sadvise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clusters").mkdir()
    for name in ("alpha", "beta"):
        text = f'[journal]\nfile = "{tmp_path}/{name}.sqlite"\n[source]\nreader = "text"\n'
        (tmp_path / "clusters" / f"{name}.toml").write_text(text)
    (tmp_path / "clusters" / "broken.toml").write_text("nonsense")
    variables = write_slurm(tmp_path, jobs=2, changes={"Name": "x\x1b[31m"})
    for variable in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(variable, variables[variable])
    options = ("recommend", "--config", str(tmp_path / "sadvise.toml"), "-M")

    one, both, every = (sadvise(*options, names) for names in ("beta", "beta,alpha", "all"))
    lines, document = sadvise(*options, "all", "-P"), json.loads(sadvise(*options, "broken,beta", "--json").out)
    unknown = sadvise(*options, "alpha,beta", "-p", "nowhere")

    # One cluster is printed as without the option, but for the commands that name it.
    headings = [line for line in both.out.splitlines() if line.startswith("CLUSTER: ")]
    assert headings == ["CLUSTER: beta", "CLUSTER: alpha"]
    assert "CLUSTER" not in one.out
    assert both.out.split("CLUSTER: ")[1].splitlines()[2:] == [*one.out.splitlines()[1:], ""]
    assert (both.exit_code, both.err, every.exit_code) == (0, "", 1)
    assert every.err.startswith("sadvise: error: broken: ") and every.err.count("\n") == 1
    assert "CLUSTER: beta" in every.out and "broken" not in every.out
    assert lines.out == "|".join(["cluster", *FIELDS]) + "\n"
    assert [(row["cluster"], row["fault"] is None) for row in document["clusters"]] == [
        ("broken", False),
        ("beta", True),
    ]
    assert document["clusters"][1]["advice"]["meta"]["schema"] == "sadvise.recommend/1"
    assert [line.split(":")[2] for line in unknown.err.splitlines()] == [" alpha", " beta"]
    assert (unknown.exit_code, unknown.out) == (1, "")
