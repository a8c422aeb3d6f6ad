"""The Lua scripts of `slurm/` on live clusters: hints reach the comment, advice reaches the user, no job is lost."""

import subprocess
from collections.abc import Iterator

import pytest

from advisor.backends.hints import hints
from advisor.domain.job import GpuRange
from tests.live.conftest import started
from tests.live.reading import taken
from tools.stage import LiveCluster
from tools.stage.submit_scripts import SCRIPTS, install_scripts, replace_script

pytestmark = pytest.mark.live

SITE = """
return {
  variable = "SADVISE_HINTS",
  variables = { model = "MODEL_NAME", ckpt = "CHECKPOINT_INTERVAL_S" },
  rules = {
    { name = "bert-", hints = "model=bert sensitivity=high" },
    { partition = "debug", requeue = true, hints = "ckpt=1800" },
    { hints = 7 },
    "nonsense",
  },
  gpus_per_node = { default = 8 },
}
"""
GPU = "--gpus=2"
USER = "games"


@pytest.fixture(scope="module")
def scripted(release: str) -> Iterator[LiveCluster]:
    """A cluster whose slurmctld and commands run our scripts; its nodes never start, so that jobs stay pending."""
    with started(LiveCluster(release, node_count=2, start_slurmd=False)) as live:
        install_scripts(live, SITE)
        yield live


def submit(live: LiveCluster, *options: str, **variables: str) -> tuple[str, str]:
    """Submit as a user would; return the comment that the job then has, and what the user was told."""
    answer = subprocess.run(
        ["sbatch", "--output=/dev/null", *options],
        input="#!/bin/sh\nsleep 60\n",
        capture_output=True,
        text=True,
        env={**live.env, **variables},
        cwd="/",
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    if "--quiet" in options:
        return "", answer.stderr
    job_id = answer.stdout.split()[-1]
    return live.run("squeue", "-h", "-j", job_id, "-o", "%k").removesuffix("\n"), answer.stderr


def site(live: LiveCluster, text: str) -> None:
    """Give the cluster another site table; slurmctld reads it again once the script looks newer."""
    install_scripts(live, text)


@pytest.mark.parametrize(
    ("options", "variables", "comment"),
    [
        ((GPU, "-Jbert-large"), {}, "sadvise: model=bert sensitivity=high"),
        (("--gres=gpu:2", "-Jbert-large"), {}, "sadvise: model=bert sensitivity=high"),
        (("-pdebug", GPU, "--requeue"), {}, "sadvise: ckpt=1800"),
        (("-pdebug", GPU, "--no-requeue"), {}, "(null)"),
        ((GPU,), {"SADVISE_HINTS": "gpus=2-8, ckpt=300 off"}, "sadvise: gpus=2-8 ckpt=300 off"),
        ((GPU,), {"MODEL_NAME": "vit", "CHECKPOINT_INTERVAL_S": "600"}, "sadvise: model=vit ckpt=600"),
        ((GPU, "-Jbert-x"), {"MODEL_NAME": "own"}, "sadvise: model=bert sensitivity=high model=own"),
        ((GPU, "-Jother"), {}, "(null)"),
        (("-Jbert-cpu",), {"SADVISE_HINTS": "gpus=2-8"}, "(null)"),
        ((GPU, "-Jbert-x", "--comment=mine"), {"SADVISE_HINTS": "gpus=2-8"}, "mine"),
        ((GPU, "-Jbert-x", "--comment=Sadvise: off"), {}, "Sadvise: off"),
        ((GPU,), {"SADVISE_HINTS": 'gpus=1-2 a=$(id) b="c" x;y %n gpus=1|2 \x1b[31m'}, "sadvise: gpus=1-2"),
        ((GPU,), {"MODEL_NAME": "x y;z\nsadvise: off"}, "(null)"),
        ((GPU,), {"SADVISE_HINTS": "a=b " * 5000}, "sadvise: " + "a=b " * 7 + "a=b"),
    ],
    ids=lambda value: None if isinstance(value, dict | str) else " ".join(value),
)
def test_habits_become_hints_of_gpu_jobs_whose_users_said_nothing(
    scripted: LiveCluster, options: tuple[str, ...], variables: dict[str, str], comment: str
) -> None:
    found, _ = submit(scripted, *options, **variables)

    assert (found or "(null)") == comment


def test_hints_that_the_script_wrote_are_read_as_if_the_user_had(scripted: LiveCluster) -> None:
    job_id = scripted.submit(GPU, "-Jbert-read", "--hold")

    job = taken(scripted, "text").jobs_by_id[job_id]

    assert job.hints.model == "bert"
    assert job.hints.unknown == ()


@pytest.mark.parametrize(
    "name", ["a'b\"c\nd", "%s %n %d", "\x1b[31mred", "bert-" + "x" * 1000, "|<b>&", "\udcff"], ids=ascii
)
def test_jobs_with_hostile_names_go_through(scripted: LiveCluster, name: str) -> None:
    found, _ = submit(scripted, GPU, f"--job-name={name}")

    assert found == ("sadvise: model=bert sensitivity=high" if name.startswith("bert-") else "(null)")


def test_comment_of_the_user_is_kept_where_the_site_adds_to_it(scripted: LiveCluster) -> None:
    site(scripted, SITE.replace("variables =", "extend_comments = true, variables ="))

    found, _ = submit(scripted, GPU, "-Jbert-x", "--comment=mine % 'a'", SADVISE_HINTS="gpus=2-8")

    assert found == "mine % 'a'; sadvise: model=bert sensitivity=high gpus=2-8"
    assert hints(found).gpus == GpuRange(low=2, high=8)


@pytest.mark.parametrize(
    "text",
    [
        "return {",
        "error('broken')",
        "return 7",
        "return { rules = 'x', variables = 3 }",
        None,
        "local x = nil; x.y = 1",
    ],
    ids=["not Lua", "an error", "a number", "wrong types", "no file", "a late error"],
)
def test_broken_site_table_lets_every_job_through(scripted: LiveCluster, text: str | None) -> None:
    site(scripted, text or "")
    if text is None:
        (scripted.folder / "sadvise_site.lua").unlink()

    found, said = submit(scripted, GPU, "-N2", "-Jbert-x")

    assert found == "(null)"
    assert "error" not in said


def test_failing_script_lets_every_job_through(scripted: LiveCluster) -> None:
    site(scripted, SITE)
    for name, function in (("job_submit", "hint"), ("cli_filter", "advise")):
        script = (SCRIPTS / f"{name}.lua").read_text()
        opening = f"local function {function}("
        assert opening in script
        broken = script.replace(opening, f"local function {function}() error('boom', 0) end\nlocal function unused(")
        replace_script(scripted.folder / f"{name}.lua", broken)

    found, said = submit(scripted, GPU, "-Jbert-x")
    log = (scripted.folder / "slurmctld.log").read_text(errors="replace")
    site(scripted, SITE)

    assert (found, said) == ("(null)", "")
    assert "sadvise: a job goes without hints: boom" in log


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("-N4", "--gpus-per-node=1"), ["--nodes=1 --gpus-per-node=4", "no --time", "gpus=2-8"]),
        (("-N2", "--gres=gpu:a100:2", "-t10"), ["--nodes=1 --gpus-per-node=4", "gpus=2-8"]),
        (("-N2", "--gpus-per-node=8", "-t1-0"), ["gpus=2-8"]),
        (("--gpus=1", "-t10"), []),
        (("-N2", "--gpus=a100:16", "-t10", "--comment=sadvise: ckpt=60"), []),
        (("-N2", "-t10"), []),
        (("-N2",), []),
    ],
    ids=" ".join,
)  # fmt: skip
def test_user_is_told_at_submission(scripted: LiveCluster, options: tuple[str, ...], told: list[str]) -> None:
    site(scripted, SITE)

    _, said = submit(scripted, "--hold", *options)

    lines = said.splitlines()
    assert len(lines) == len(told)
    assert all(line.startswith("sbatch: lua: sadvise: ") for line in lines)
    assert all(any(words in line for line in lines) for words in told)


@pytest.mark.parametrize(
    ("options", "variables"),
    [((), {"SADVISE_ADVICE": "off"}), (("--quiet",), {}), (("--parsable",), {})],
    ids=["variable", "quiet", "parsable"],
)
def test_user_can_have_it_keep_quiet(
    scripted: LiveCluster, options: tuple[str, ...], variables: dict[str, str]
) -> None:
    _, said = submit(scripted, "-N2", "--gpus-per-node=1", *options, **variables)

    assert said == ""


def test_interactive_job_is_neither_hindered_nor_fills_the_log(scripted: LiveCluster) -> None:
    site(scripted, SITE)
    log = scripted.folder / "slurmctld.log"
    before = log.stat().st_size

    answer = scripted.ask("srun", "--immediate=1", GPU, "-Jbert-x", "true")

    # Nodes never start here, so Slurm itself has no place for it.
    # Slurm logs it each time that a script asks for the environment of such a job.
    assert "error: lua" not in answer.stderr
    assert "environment" not in log.read_text(errors="replace")[before:]


def test_changes_to_pending_jobs_pass_through_unchanged(scripted: LiveCluster) -> None:
    job_id = scripted.submit(GPU, "-Jbert-x", "--hold")

    answer = scripted.ask("scontrol", "update", f"JobId={job_id}", "Comment=other")

    assert answer.returncode == 0
    assert scripted.run("squeue", "-h", "-j", str(job_id), "-o", "%k").strip() == "other"


LIFTED, BY_HAND = -1007, -1000


@pytest.mark.parametrize(
    ("update", "nice"),
    [
        ("NumNodes=2-2", 0),
        ("TresPerJob=gres:gpu:8", 0),
        ("NumCPUs=4", 0),
        ("MinMemoryNode=4000", 0),
        ("MinMemoryCPU=400", 0),
        ("TimeLimit=2:00:00", 0),
        ("Partition=debug", 0),
        ("TimeLimit=5", LIFTED),
        ("Comment=other", LIFTED),
        ("Requeue=0", LIFTED),
    ],
)
def test_lifted_job_whose_user_asks_for_more_loses_its_nice_at_once_where_the_site_wants_it(
    scripted: LiveCluster, update: str, nice: int
) -> None:
    site(scripted, "return { hold_requests = true }")
    job_id = lifted_job(scripted, LIFTED)

    # For a moment after a submission, slurmctld answers "temporarily unavailable".
    changes = ("scontrol", "update", f"JobId={job_id}", update)
    scripted.wait_for(lambda: scripted.ask(*changes, user=USER).returncode == 0, 15.0)

    assert nice_of(scripted, job_id) == nice


@pytest.mark.parametrize(
    ("table", "nice", "user"),
    [
        ("return {}", LIFTED, USER),
        ("return { hold_requests = true }", BY_HAND, USER),
        ("return { hold_requests = true }", LIFTED, "root"),
    ],
    ids=["not wanted", "nice of a person", "update by an operator"],
)
def test_nice_stays_otherwise(scripted: LiveCluster, table: str, nice: int, user: str) -> None:
    site(scripted, table)
    job_id = lifted_job(scripted, nice)

    scripted.run("scontrol", "update", f"JobId={job_id}", "TimeLimit=2:00:00", user=user)

    assert nice_of(scripted, job_id) == nice


def lifted_job(live: LiveCluster, nice: int) -> int:
    """Submit a job of an ordinary user, and give it a nice as root."""
    job_id = live.submit(GPU, "-N1", "-n2", "--time=10", user=USER)
    live.run("scontrol", "update", f"JobId={job_id}", f"Nice={nice}")
    assert nice_of(live, job_id) == nice
    return job_id


def nice_of(live: LiveCluster, job_id: int) -> int:
    return int(live.run("squeue", "-h", "-j", str(job_id), "-o", "%y"))


PINS = """
return {
  pin_gangs = true,
  gpus_per_node = { default = 8, debug = 4, ["gpu/h100"] = 4, broken = "many" },
  cpus_per_node = { gpu = 16 },
}
"""


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        (("--gpus=8",), "1-1"),
        (("--gpus=8", "-n8"), "1-1"),
        (("--gpus=a100:8", "-n1"), "1-1"),
        (("--gpus=16",), "1-2"),
        (("--gpus=8", "-p", "debug"), "1-2"),
        (("-n8", "--gpus-per-task=1"), "1-1"),
        (("-n6", "--gpus-per-task=3"), "1-3"),
        (("--gpus=8", "-n4", "-c8"), "2-2"),
        (("--gpus=8", "--mem=1G"), "1-1"),
        (("--gpus=8", "--array=1-3"), "1-1"),
    ],
)
def test_gang_that_leaves_its_node_count_open_is_held_to_the_fewest_nodes(
    scripted: LiveCluster, options: tuple[str, ...], nodes: str
) -> None:
    site(scripted, PINS)

    assert nodes_asked(scripted, *options) == nodes


@pytest.mark.parametrize(
    "options",
    [
        ("--gpus=1",),
        ("--gpus=8", "-N2"),
        ("--gpus=8", "-N1-4"),
        ("--gres=gpu:4",),
        ("--gpus=8", "--ntasks-per-node=4", "-n8"),
        ("--gpus=8", "--cpus-per-gpu=2"),
        ("--gpus=8", "--mem-per-cpu=1G"),
        ("--gpus=8", "--mincpus=4"),
        ("--gpus=8", "--exclusive"),
        ("--gpus=8", "-w", "n01"),
        ("--gpus=8", "-p", "gpu,debug"),
        ("--gpus=8", "-n2", "-c17"),
        ("--gpus=8", "--comment=sadvise: sensitivity=low"),
    ],
)
def test_other_jobs_keep_the_nodes_that_they_ask_for(scripted: LiveCluster, options: tuple[str, ...]) -> None:
    site(scripted, SITE)
    as_asked = nodes_asked(scripted, *options)

    site(scripted, PINS)

    assert nodes_asked(scripted, *options) == as_asked


def nodes_asked(live: LiveCluster, *options: str) -> str:
    """Submit a held job; return its nodes as scontrol prints them, and cancel it."""
    job_id = str(live.submit("--hold", *options))
    (nodes,) = {word for word in live.run("scontrol", "show", "job", job_id).split() if word.startswith("NumNodes=")}
    live.run("scancel", job_id)
    return nodes.removeprefix("NumNodes=")


@pytest.mark.parametrize("name", ["scheduler", "priority", "rate-limit"])
def test_slurm_takes_the_settings_that_we_recommend(scripted: LiveCluster, name: str) -> None:
    fragment = (SCRIPTS / f"slurm.conf.d/{name}.conf").read_text()
    settings = dict(line.split("=", 1) for line in fragment.splitlines() if line and not line.startswith("#"))
    conf = scripted.folder / "slurm.conf"
    kept = conf.read_text()
    others = [line for line in kept.splitlines() if line.partition("=")[0] not in settings]

    conf.write_text("\n".join([*others, fragment]))
    scripted.stop_controller()
    scripted.start_controller()
    shown = scripted.run("scontrol", "show", "config")
    conf.write_text(kept)

    lines = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in shown.splitlines())}
    for key, value in settings.items():
        # Times are shown in other units than they are given in.
        assert key == "PriorityCalcPeriod" or lines[key] == value
