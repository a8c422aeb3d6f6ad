"""Makes nodes in every state on a real slurmctld, and records on which of them it starts a job."""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from advisor.domain.node import Node, NodeService
from tools.stage.live_cluster import LiveCluster
from tools.stage.roots import RELEASES, LiveSlurmError

LONG: Final = "--time=02:00:00"
RESIDENT: Final = ("--gres=gpu:4", "-n4", LONG)
PROBE: Final = ("--gres=gpu:1", "-n1", "--mem=100", "--time=00:10:00")
# Slurm considers a job when it is submitted, and backfills every 5 s.
SETTLE_S: Final = 12.0
ROOT: Final = Path(__file__).parent.parent.parent
RECORDED: Final = ROOT / "tests" / "recorded" / "node_states.json"
PAGE: Final = ROOT / "docs" / "node-states.md"
# A node that is there for the state of the next one.
HELPER: Final = "helper:"
# Of a reservation of a part of a node, in the words of how a state came to be.
PART: Final = "half its cores"
# Until a node that powers down has done so.
EVENTS_S: Final = 60.0
NOT_SHOWN: Final = "(not shown)"
LINES: Final = (
    "SuspendProgram=/bin/true",
    "ResumeProgram=/bin/true",
    "SuspendTime=36000",
    "SuspendTimeout=75",
    "ResumeTimeout=3600",
    "BatchStartTimeout=3600",
    "RebootProgram=/bin/true",
    "TreeWidth=65533",
)
UPDATE: Final = ("scontrol", "update")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node in a state, and what became of a job that asks for one GPU of it.

    `words` are those of sinfo. `starts` is "now", "later" if Slurm expects a start of it or starts it without an
    operator, or "never"; `resume` is what State=RESUME does then: "opens", "no effect" or "refused", "" for a node that
    has started the job.
    """

    how: str
    words: str
    starts: str
    reason: str = ""
    resume: str = ""


Setup = Callable[[LiveCluster, str], None]


@dataclass(frozen=True, slots=True)
class StateRecipe:
    """One way to bring a node into a state: in words, by what, and the word that sinfo then prints of it.

    `then` is what happens next where no operator does anything, such as the end of a boot.
    """

    how: str
    setup: Setup
    word: str
    releases: tuple[str, ...] = ()
    then: Setup | None = None


def _node(*changes: str) -> Setup:
    def setup(cluster: LiveCluster, node: str) -> None:
        for change in changes:
            cluster.run(*UPDATE, f"NodeName={node}", f"State={change}", "Reason=table")

    return setup


def _job(cluster: LiveCluster, node: str, *request: str) -> int:
    job_id = cluster.submit(f"--nodelist={node}", "-N1", "--mem=100", *(request or RESIDENT))
    cluster.wait_for(
        lambda: cluster.run("squeue", "-h", "-j", str(job_id), "-t", "R,CF", "-o", "%A").strip() == str(job_id),
        what=f"a job runs on {node}",
    )
    return job_id


def _busy(then: Setup | None = None, *request: str) -> Setup:
    def setup(cluster: LiveCluster, node: str) -> None:
        _job(cluster, node, *request)
        if then is not None:
            then(cluster, node)

    return setup


def _in_turn(*setups: Setup) -> Setup:
    def setup(cluster: LiveCluster, node: str) -> None:
        for each in setups:
            each(cluster, node)

    return setup


def _silent(cluster: LiveCluster, node: str) -> None:
    cluster.stop_slurmd(node)
    cluster.run(*UPDATE, f"NodeName={node}", "State=NoResp")


def _reboot(*options: str) -> Setup:
    return lambda cluster, node: _run(cluster, "scontrol", "reboot", *options, node)


def _reserved(*what: str) -> Setup:
    def setup(cluster: LiveCluster, node: str) -> None:
        flags = next((word for word in what if word.startswith("flags=")), "flags=IGNORE_JOBS")
        rest = [word for word in what if word != flags]
        _run(
            cluster, "scontrol", "create", "reservation", f"ReservationName=r{node}", "starttime=now",
            "duration=01:00:00", f"nodes={node}", "users=root", *rest, flags,
        )  # fmt: skip

    return setup


def _run(cluster: LiveCluster, *argv: str) -> None:
    cluster.run(*argv)


def _planned(cluster: LiveCluster, node: str) -> None:
    """Let a job wait for the whole node and for one that is busy."""
    other = f"n{int(node[1:]) - 1:02d}"
    cluster.submit(f"--nodelist={other},{node}", "-N2", "--gres=gpu:8", "-n2", "--mem=100", LONG)


def _completing(cluster: LiveCluster, node: str) -> None:
    job_id = _job(cluster, node)
    (cluster.inner_folder / f"hold.{node}").touch()
    cluster.run("scancel", str(job_id))


def _invalid(cluster: LiveCluster, node: str) -> None:
    """Register the node with fewer GPUs than configured."""
    cluster.stop_slurmd(node)
    path = cluster.inner_folder / "gres.conf"
    whole = path.read_text()
    path.write_text(f"NodeName={node} Name=gpu Type=a100 File={cluster.folder}/gpu[0-3]\n")
    cluster.start_slurmd(node)
    time.sleep(3.0)
    path.write_text(whole)


def _exclusive_topology(cluster: LiveCluster, node: str) -> None:
    """Give the block of the node to a job on it."""
    _job(cluster, node, "--exclusive=topo", "--gres=gpu:1", "-n1", LONG)


def _booted(cluster: LiveCluster, node: str) -> None:
    cluster.run(*UPDATE, f"NodeName={node}", "State=POWER_UP")
    time.sleep(1.0)
    cluster.start_slurmd(node, rebooted=True)
    cluster.wait_for(lambda: "POWERING_UP" not in _words(cluster)[node], what=f"{node} is up")


def _restarted(cluster: LiveCluster, node: str) -> None:
    """Let the machine of a node come up again."""
    if (cluster.inner_folder / f"slurmd.{node}.pid").exists():
        cluster.stop_slurmd(node)
    cluster.start_slurmd(node, rebooted=True)


def _answering(cluster: LiveCluster, node: str) -> None:
    cluster.start_slurmd(node)


def _let_go(cluster: LiveCluster, node: str) -> None:
    (cluster.inner_folder / f"hold.{node}").unlink()


IDLE: Final = StateRecipe("idle", lambda *_: None, "IDLE")
NOT_22: Final = ("24.11", "26.05")
# Blocks hold two nodes: the first and the third node are there for the one after them.
STATIC: Final = (
    StateRecipe(f"{HELPER} busy", _busy(None, "--gres=gpu:6", "-n4", LONG), "MIXED"),
    StateRecipe("Slurm plans a job on it", _planned, "PLANNED"),
    StateRecipe(f"{HELPER} a job takes its block", _exclusive_topology, "", NOT_22),
    StateRecipe("a job on another node takes its block (--exclusive=topo)", lambda *_: None, "BLOCKED", NOT_22),
    IDLE,
    StateRecipe("a job holds half of it", _busy(), "MIXED"),
    StateRecipe("jobs hold all of it", _busy(None, "--gres=gpu:8", "-n16", LONG), "ALLOCATED"),
    StateRecipe("State=DOWN", _node("DOWN"), "DOWN"),
    StateRecipe("State=DRAIN", _node("DRAIN"), "DRAIN"),
    StateRecipe("State=DRAIN with a job", _busy(_node("DRAIN")), "DRAIN"),
    StateRecipe("State=DRAIN, then DOWN", _node("DRAIN", "DOWN"), "DRAIN"),
    StateRecipe("State=FAIL", _node("FAIL"), "FAIL"),
    StateRecipe("State=FAIL with a job", _busy(_node("FAIL")), "FAIL"),
    StateRecipe("State=FUTURE", _node("FUTURE"), ""),
    StateRecipe("its slurmd does not answer", _silent, "NOT_RESPONDING", then=_answering),
    StateRecipe("State=DOWN, and its slurmd does not answer", _in_turn(_silent, _node("DOWN")), "DOWN"),
    StateRecipe("State=DRAIN, and its slurmd does not answer", _in_turn(_silent, _node("DRAIN")), "DRAIN"),
    StateRecipe("`scontrol reboot`", _reboot(), "REBOOT", then=_restarted),
    StateRecipe("`scontrol reboot` with a job", _busy(_reboot()), "REBOOT", then=_restarted),
    StateRecipe("`scontrol reboot ASAP` with a job", _busy(_reboot("ASAP")), "REBOOT", then=_restarted),
    StateRecipe(
        "`scontrol reboot nextstate=RESUME` with a job", _busy(_reboot("nextstate=RESUME")), "REBOOT", then=_restarted
    ),
    StateRecipe(
        "`scontrol reboot ASAP nextstate=RESUME` with a job",
        _busy(_reboot("ASAP", "nextstate=RESUME")),
        "REBOOT",
        then=_restarted,
    ),
    StateRecipe(
        "`scontrol reboot ASAP nextstate=RESUME`", _reboot("ASAP", "nextstate=RESUME"), "REBOOT", then=_restarted
    ),
    StateRecipe("`scontrol reboot ASAP nextstate=DOWN`", _reboot("ASAP", "nextstate=DOWN"), "REBOOT", then=_restarted),
    StateRecipe("State=DOWN, then `scontrol reboot`", _in_turn(_node("DOWN"), _reboot()), "REBOOT", then=_restarted),
    StateRecipe("a reservation of all of it", _reserved(), "RESERVED"),
    StateRecipe("a reservation of all of it, with a job", _busy(_reserved()), "RESERVED"),
    StateRecipe("a reservation of half its cores", _reserved("corecnt=8"), "RESERVED"),
    StateRecipe("a maintenance reservation", _reserved("flags=MAINT,IGNORE_JOBS"), "MAINT"),
    StateRecipe("a maintenance reservation, with a job", _busy(_reserved("flags=MAINT,IGNORE_JOBS")), "MAINT"),
    StateRecipe(
        "a maintenance reservation and State=DRAIN", _in_turn(_reserved("flags=MAINT"), _node("DRAIN")), "MAINT"
    ),
    StateRecipe(
        "a reservation of half its cores and State=DRAIN", _in_turn(_reserved("corecnt=8"), _node("DRAIN")), "DRAIN"
    ),
    StateRecipe("the epilog of a job runs", _completing, "COMPLETING", then=_let_go),
    StateRecipe(
        "the epilog of a job runs, beside another job", _busy(_completing, "--gres=gpu:2", "-n2", LONG), "COMPLETING"
    ),
    StateRecipe("the epilog of a job runs, and State=DRAIN", _in_turn(_completing, _node("DRAIN")), "DRAIN"),
    StateRecipe("it registers with too few GPUs", _invalid, "INVAL"),
    StateRecipe("State=POWER_DOWN", _node("POWER_DOWN"), "POWER"),
)
CLOUD: Final = (
    StateRecipe("cloud node, powered down", lambda *_: None, "POWERED_DOWN"),
    StateRecipe("cloud node, State=POWER_UP", _node("POWER_UP"), "POWERING_UP"),
    StateRecipe("cloud node, a job powers it up", _busy(), "POWERING_UP"),
    StateRecipe("cloud node, booted", _booted, "IDLE"),
    StateRecipe("cloud node, booted, with a job", _in_turn(_booted, _busy()), "MIXED"),
    StateRecipe("cloud node, booted, then State=POWER_DOWN", _in_turn(_booted, _node("POWER_DOWN")), "POWER"),
    StateRecipe(
        "cloud node, booted, State=POWER_DOWN with a job", _in_turn(_booted, _busy(_node("POWER_DOWN"))), "POWER"
    ),
    StateRecipe(
        "cloud node, booted, State=POWER_DOWN_ASAP with a job",
        _in_turn(_booted, _busy(_node("POWER_DOWN_ASAP"))),
        "POWER",
    ),
    StateRecipe("cloud node, powered down, and State=DRAIN", _node("DRAIN"), "DRAIN"),
    StateRecipe("cloud node, powered down, and State=DOWN", _node("DOWN"), "DOWN"),
    StateRecipe("cloud node, State=POWER_UP, then DRAIN", _node("POWER_UP", "DRAIN"), "DRAIN"),
    StateRecipe("cloud node, powered down, a reservation of all of it", _reserved(), "RESERVED"),
    StateRecipe(
        "cloud node, powering up, a reservation of all of it", _in_turn(_node("POWER_UP"), _reserved()), "RESERVED"
    ),
)


@contextmanager
def states_cluster(release: str) -> Iterator[tuple[LiveCluster, Mapping[str, StateRecipe]]]:
    """Run a cluster with a node in each state; return the recipe of each node by its name."""
    static = [recipe for recipe in STATIC if not recipe.releases or release in recipe.releases]
    if (len(static) + len(CLOUD)) % 2:
        static.append(IDLE)
    recipes = [*static, *CLOUD]
    names = [f"n{number:02d}" for number in range(1, len(recipes) + 1)]
    cluster = LiveCluster(
        release,
        topology="tree" if release == "22.05" else "block",
        node_count=len(recipes),
        gpu_types=["a100"] * len(recipes),
        shards={},
        leaf_nodes=2,
        cloud_count=len(CLOUD),
        # Later releases show cloud nodes that are powered down anyway.
        extra_lines=(*LINES, "Epilog=@FOLDER@/epilog", *(("PrivateData=cloud",) if release == "22.05" else ())),
    )
    with cluster:
        for name, recipe in zip(names, recipes, strict=True):
            try:
                recipe.setup(cluster, name)
                if recipe.word:
                    cluster.wait_for(partial(_shows, cluster, name, recipe.word), 20.0, what=recipe.how)
            except LiveSlurmError as err:
                print(f"  {release} {recipe.how}: {err}", flush=True)
        time.sleep(SETTLE_S)
        yield cluster, dict(zip(names, recipes, strict=True))


def rows(cluster: LiveCluster, recipes: Mapping[str, StateRecipe]) -> Mapping[str, NodeRow]:
    """Submit a job to each node, and return by its name what became of it."""
    words = _words(cluster)
    probes = {name: cluster.submit(f"--nodelist={name}", "--nice=10", *PROBE) for name in recipes}
    time.sleep(SETTLE_S)
    before = _jobs(cluster)
    waiting = [name for name in recipes if before[probes[name]][0] not in _STARTED]
    for name in waiting:
        if (then := recipes[name].then) is not None:
            then(cluster, name)
    time.sleep(max(SETTLE_S, EVENTS_S))
    between = _jobs(cluster)
    answers = {name: _resumed(cluster, name) for name in waiting if between[probes[name]][0] not in _STARTED}
    time.sleep(2 * SETTLE_S)
    after = _jobs(cluster)
    found = {}
    for name, recipe in recipes.items():
        if recipe.how.startswith(HELPER):
            continue
        state, reason, start = before[probes[name]]
        now = state in _STARTED
        came = between[probes[name]][0] in _STARTED
        opened = after.get(probes[name], ("",))[0] in _STARTED
        found[name] = NodeRow(
            how=recipe.how,
            words=words.get(name, NOT_SHOWN),
            starts="now" if now else "later" if came or start not in ("N/A", "") else "never",
            reason="" if now else re.sub(r"[,(].*", "", reason),
            resume="" if now or came else "opens" if opened else answers[name],
        )
    return found


def _shows(cluster: LiveCluster, name: str, word: str) -> bool:
    return word in _words(cluster).get(name, NOT_SHOWN)


_STARTED: Final = ("RUNNING", "CONFIGURING")


def _resumed(cluster: LiveCluster, name: str) -> str:
    return "no effect" if cluster.ask(*UPDATE, f"NodeName={name}", "State=RESUME").returncode == 0 else "refused"


def _words(cluster: LiveCluster) -> Mapping[str, str]:
    """Return what sinfo prints of the state of each node; nothing of those that it hides."""
    lines = cluster.run("sinfo", "-h", "-a", "-N", "-O", "NodeList:8,StateComplete:90").splitlines()
    # scontrol shows nodes that sinfo leaves out, such as those of State=FUTURE.
    hidden = re.findall(r"NodeName=(\S+).*? State=(\S+)", cluster.run("scontrol", "-a", "-o", "show", "node"))
    return {name: f"({state})" for name, state in hidden} | {
        line.split()[0]: line.split()[1].upper() for line in lines if line.strip()
    }


def _jobs(cluster: LiveCluster) -> Mapping[int, tuple[str, str, str]]:
    lines = cluster.run("squeue", "-h", "-a", "-o", "%A|%T|%S|%r").splitlines()
    split = (line.split("|", 3) for line in lines)
    return {int(job_id): (state, reason, start) for job_id, state, start, reason in split}


def read_states() -> Mapping[str, tuple[NodeRow, ...]]:
    """Return the rows that were recorded, by release."""
    recorded = json.loads(RECORDED.read_text())
    return {release: tuple(NodeRow(**row) for row in listed) for release, listed in recorded.items()}


def node_with(words: Sequence[str]) -> Node:
    """Return a node in the state that some words spell."""
    base, *flags = words
    cpus_reserved = None
    return Node(
        name="n1", state=base, flags=tuple(sorted(flags)), cpus=16, memory_mib=64000, cpus_reserved=cpus_reserved
    )


def disagreement(row: NodeRow, node: Node) -> str:
    """Return how a node as sadvise reads it differs from what slurmctld did with a job there; "" for not at all."""
    words = row.words.split("+")
    answers = {"now": {NodeService.NOW}, "later": {NodeService.LATER}, "never": {NodeService.OUT}}[row.starts]
    if "ALLOCATED" in words:
        # It takes jobs, and has no room.
        answers |= {NodeService.NOW}
    if "REBOOT_REQUESTED" in words or "REBOOT_ISSUED" in words or "POWER_DOWN" in words:
        # The words do not show what comes after the reboot.
        answers |= {NodeService.LATER}
    if "REBOOT_REQUESTED" in words:
        answers |= {NodeService.NOW}
    if node.service not in answers:
        return f"{node.service}: it starts {row.starts}"
    # A maintenance that goes on keeps the node from jobs all the same.
    if node.can_be_resumed and row.resume != "opens" and "MAINTENANCE" not in words:
        return f"State=RESUME: {row.resume}"
    return ""


def page(states: Mapping[str, Sequence[NodeRow]]) -> str:
    """Write the page of what was recorded, beside what sadvise makes of each state."""
    releases = sorted(states)
    by_how = {row.how: row for release in releases for row in states[release]}
    lines = [
        "# States of nodes",
        "",
        "Whether slurmctld starts a job on a node, by the state of the node, as live clusters show it. `now`: it",
        "starts a job there. `later`: it starts it without an operator, or expects to. `never`: neither. The column",
        "before the last shows what `scontrol update NodeName=... State=RESUME` does then. The last is what sadvise",
        "makes of the state (`advisor/domain/node.py`): the node takes jobs, comes back by itself, or is out of",
        "service. Only of the last kind it says that an operator has to act, and State=RESUME only where slurmctld",
        "takes it.",
        "",
        "Written as root by `.venv/bin/python -m tools.stage.node_states`.",
        "",
        "| how it came to be | state (sinfo) | " + " | ".join(releases) + " | State=RESUME | sadvise |",
        "|---|---|" + "---|" * len(releases) + "---|---|",
    ]
    for how, last in by_how.items():
        found = {release: row for release in releases for row in states[release] if row.how == how}
        words = list(dict.fromkeys(row.words for row in found.values()))
        starts = [found[release].starts if release in found else "" for release in releases]
        says = list(dict.fromkeys(_says(row) for row in found.values()))
        cells = [how, " or ".join(words), *starts, last.resume, " or ".join(says)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "ALLOCATED is a node that takes jobs and has no room. A reservation of a part of a node takes the CPUs and",
        "GPUs that `scontrol show reservation` names; the rest of the node takes jobs. Slurm spells some states alike",
        "that differ in what comes next: a reboot that leaves the node down, and on 22.05 one that is requested with",
        "`nextstate=RESUME`, after which no job starts there until it has rebooted.",
        "",
    ]
    return "\n".join(lines)


SAYS: Final = {NodeService.NOW: "takes jobs", NodeService.LATER: "comes by itself", NodeService.OUT: "out of service"}


def _says(row: NodeRow) -> str:
    if row.words == NOT_SHOWN:
        return "not shown"
    node = node_with(row.words.split("+"))
    return SAYS[replace(node, cpus_reserved=8).service if PART in row.how else node.service]


def main() -> int:
    """Record the releases that are named, or all, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.stage.node_states", description=__doc__)
    parser.add_argument("releases", nargs="*", choices=[[], *RELEASES], help="releases of Slurm; by default all")
    for release in parser.parse_args().releases or list(RELEASES):
        with states_cluster(release) as (cluster, recipes):
            found = rows(cluster, recipes)
        kept = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
        kept[release] = [asdict(row) for row in found.values()]
        RECORDED.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    PAGE.write_text(page(read_states()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
