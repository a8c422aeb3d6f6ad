"""Holds what `explain` and `recommend` claim against what slurmctld then does, on random clusters and queues.

    python -m tools.live_claims [--minutes 60] [--release 22.05 ...] [--seed 1] [--json]

Each round starts a cluster with random nodes, limits, partitions, resources and reservations, fills a part of it with
running jobs, and submits random requests of two users. Then each claim is tried alone, all other pending jobs being
held: a job that fits now has to start in the next passes, one that is impossible must not start, not even on the
emptied cluster if Slurm expects it to, and a resize that starts now has to start at that size. A claim that something
unread bars is no claim. Jobs that start although no claim was made are counted as missed, and claims about an option
that Slurm hides from the reader, which says so, as hidden. It takes root. It exits with 1 if more than 1 in 1,000
claims is wrong. A job that Slurm gives fewer GPUs than it asks for has not started as asked; such starts are counted
as short.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Final

from advisor.backends.particulars_reader import read_particulars
from advisor.backends.process import SlurmCommands
from advisor.backends.spelling import node_names
from advisor.cycle import Cycle
from advisor.diagnose.causes import diagnose
from advisor.domain.actions import Lever, SetGpus
from advisor.domain.diagnosis import Cause, Diagnosis
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.settings import Limits
from tools.stage import LiveCluster
from tools.stage.roots import RELEASES, LiveSlurmError
from tools.stage.watch import snapshot_of, talking_to

# Ordinary ones: Slurm lets root pass limits that bind others.
USERS: Final = ("games", "mail")
# What Slurm is given to start a job that it can start: several passes of both schedulers, on a busy machine more.
PATIENCE_S: Final = 6.0
LONGEST_S: Final = 30.0
LEAST_PASSES: Final = 3
# How much longer these passes are waited for.
_AT_MOST: Final = 4.0
# Of the jobs about which nothing is claimed, how many are tried, for the count of those that start all the same.
UNCLAIMED: Final = 0.2
PASSES: Final = "bf_interval=2,sched_interval=2,bf_resolution=1"
MOST_WRONG: Final = 1e-3
# What keeps a job that by itself fits now from starting, and does not contradict that it does.
ONLY_OTHERS: Final = frozenset((Cause.PRIORITY, Cause.NOT_TRIED, Cause.UNKNOWN, Cause.HELD_BY_USER, Cause.HELD_BY_ADMIN,
                                Cause.HELD, Cause.BEGIN_TIME))  # fmt: skip

# What `scontrol -d show job` prints of the nodes that a job has.
_NODES_GIVEN: Final = re.compile(r"Nodes=(\S+) CPU_IDs=.*? GRES=(\S*)")
_GPUS_GIVEN: Final = re.compile(r"\bgpu(?::[a-z]\w*)?:(\d+)\(")

# By release: the option of a job that squeue does not show, which the reader says of each queue.
HIDDEN: Final = {"22.05": "--exclude"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A claim that slurmctld did not bear out."""

    claim: str
    release: str
    seed: int
    request: str
    slurm_says: str
    sadvise_says: str
    cluster: str


@dataclass(slots=True, kw_only=True)
class Found:
    """Counts claims on one release by kind, those that were wrong, `HIDDEN`, short, and starts without a claim."""

    claims: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    short: Counter[str] = field(default_factory=Counter)
    wrong: list[Wrong] = field(default_factory=list)


def cluster(release: str, draw: Random) -> LiveCluster:
    """Make a random cluster of a release."""
    count = draw.choice((2, 3, 4, 6))
    names = [f"n{number:02d}" for number in range(1, count + 1)]
    types = draw.choice((["a100"] * count, [*["a100"] * (count - 1), "v100"], [""] * count))
    words = {
        name: " ".join(
            word
            for word in (
                draw.choice(("", "", "CoreSpecCount=2")),
                draw.choice(("", "", "MemSpecLimit=8000")),
                draw.choice(("TmpDisk=1000", "TmpDisk=9000", "")),
            )
            if word
        )
        for name in names
    }
    others = {name: {"vram": draw.choice((24, 40, 80))} for name in names if draw.random() < 0.6}
    some = ",".join(draw.sample(names, max(1, count // 2)))
    limits = draw.choice(("MaxCPUsPerNode=8", "ExclusiveUser=YES", "OverSubscribe=EXCLUSIVE", "MaxNodes=1", "LLN=YES"))
    return LiveCluster(
        release,
        topology=draw.choice(("tree", "tree", "flat")),
        node_count=count,
        leaf_nodes=draw.choice((1, 2)),
        gpus_per_node=draw.choice((2, 4, 8)),
        gpu_types=types,
        shards={},
        node_words=words,
        other_gres=others,
        scheduler_parameters=PASSES,
        extra_lines=(f"PartitionName=odd Nodes={some} MaxTime=UNLIMITED State=UP {limits}",),
    )


def request(draw: Random, gpus: int, nodes: Sequence[str]) -> list[str]:
    """Draw the options of a job, as people combine them."""
    form = draw.choice(("gpus", "gres", "per_node", "per_task"))
    options = {
        "gpus": [f"--gpus={draw.randint(1, 2 * gpus)}"],
        "gres": [f"--gres=gpu:{draw.randint(1, gpus)}"],
        "per_node": [f"--gpus-per-node={draw.randint(1, gpus)}"],
        "per_task": [f"--gpus-per-task={draw.choice((1, 1, 2))}", f"--ntasks={draw.randint(1, 4)}"],
    }[form]
    if draw.random() < 0.4:
        low = draw.randint(1, 3)
        options.append(draw.choice((f"--nodes={low}", f"--nodes={low}-{low + 1}")))
    for chance, drawn in (
        (0.35, f"--cpus-per-task={draw.choice((1, 2, 4, 7, 12))}"),
        (0.15, f"--mem={draw.choice((4000, 30000, 60000))}"),
        (0.1, "--exclusive"),
        (0.1, "--exclusive=user"),
        (0.15, f"--tmp={draw.choice((500, 5000))}"),
        (0.1, f"--exclude={draw.choice(nodes)}"),
        (0.1, f"--nodelist={draw.choice(nodes)}"),
        (0.1, f"--mincpus={draw.choice((2, 6, 14))}"),
        (0.1, "--ntasks-per-node=2"),
        (0.15 if form == "gpus" else 0.0, f"--ntasks={draw.randint(1, 3)}"),
        (0.05, "--contiguous"),
        (0.05, "--threads-per-core=1"),
        (0.05, "--cores-per-socket=4"),
        (0.05, "--constraint=a100"),
        (0.3, draw.choice(("--partition=odd", "--partition=odd", "--partition=gpu,odd"))),
    ):
        if draw.random() < chance:
            options.append(drawn)
    if draw.random() < 0.2:
        others = f"vram:{draw.choice((20, 40, 60))}"
        options = [f"{option},{others}" if option.startswith("--gres") else option for option in options]
        if not any("vram" in option for option in options):
            options.append(f"--gres={others}")
    return options


def submitted(live: LiveCluster, draw: Random, *options: str) -> int | None:
    """Submit a job; None where Slurm refuses it."""
    try:
        return live.submit(*options, user=draw.choice(USERS))
    except LiveSlurmError:
        return None


def fill(live: LiveCluster, draw: Random) -> dict[int, list[str]]:
    """Start some jobs, close some nodes, and submit the jobs about which claims are made; return their requests."""
    nodes, gpus = [node.name for node in live.shape.nodes()], live.shape.gpus_per_node
    for _ in range(draw.randint(1, 2 * len(nodes))):
        width = ["--nodes=1", f"--gres=gpu:{draw.randint(1, max(1, gpus // 2))}"]
        options = [
            *width,
            f"--cpus-per-task={draw.choice((1, 2, 6))}",
            draw.choice(("--partition=gpu", "--partition=odd")),
        ]
        submitted(live, draw, "--time=600", *options)
    if draw.random() < 0.3:
        live.drain(draw.choice(nodes), "fuzz")
    if draw.random() < 0.3:
        when = draw.choice(("now", "now+2hours"))
        size = draw.choice((f"Nodes={draw.choice(nodes)}", f"Nodes={draw.choice(nodes)} CoreCnt=2"))
        live.run("scontrol", "create", "reservation", f"StartTime={when}", "Duration=600", "Users=root", *size.split(),
                 check=False)  # fmt: skip
    time.sleep(2.0)
    # Slurm checks the request of a job that may start later, and not that of one on hold.
    waits = draw.choices((["--begin=now+1day"], ["--hold"], []), (5, 1, 4))[0]
    requests: dict[int, list[str]] = {}
    for _ in range(draw.randint(8, 16)):
        options = request(draw, gpus, nodes)
        if draw.random() < 0.3:
            options.append(f"--comment=sadvise: gpus=1-{2 * gpus}")
        job_id = submitted(live, draw, "--time=60", *waits, *options)
        if job_id is not None:
            requests[job_id] = options
    time.sleep(2 * PATIENCE_S / 3)
    return requests


class Patience:
    """A time that slurmctld is given, longer where its schedulers have made few passes in it."""

    def __init__(self, live: LiveCluster, within_s: float) -> None:
        self._live, self._begun, self._within_s = live, time.monotonic(), within_s
        self._before = self._passes()

    def is_over(self) -> bool:
        """Return whether the time has passed, with enough passes of each scheduler."""
        passed_s = time.monotonic() - self._begun
        if not self._within_s <= passed_s < _AT_MOST * self._within_s:
            return passed_s >= self._within_s
        return all(now - then >= LEAST_PASSES for now, then in zip(self._passes(), self._before, strict=False))

    def wait(self) -> None:
        """Wait until it is over."""
        while not self.is_over():
            time.sleep(0.3)

    def _passes(self) -> list[int]:
        return list(map(int, re.findall(r"Total cycles:\s*(\d+)", self._live.run("sdiag", check=False))))


def started(live: LiveCluster, job_id: int, within_s: float) -> bool:
    """Return whether a job has started, after at most the passes that Slurm is given."""
    patience = Patience(live, within_s)
    while not patience.is_over():
        if live.state_of(job_id) not in ("PENDING", ""):
            return True
        time.sleep(0.3)
    return False


def ended(live: LiveCluster, job_id: int) -> None:
    """Cancel a job, and wait until it has left its nodes."""
    live.run("scancel", str(job_id), check=False)
    live.wait_for(
        lambda: not live.run("squeue", "-h", "-a", "-j", str(job_id), "-t", "R,CG,S", "-o", "%i", check=False).strip(),
        30.0,
        what="a cancelled job has left its nodes",
    )


def diagnosed(snapshot: Snapshot, job: Job) -> Diagnosis:
    """Return what `explain` says of a job."""
    particulars = read_particulars(SlurmCommands(timeout_s=30.0), job, snapshot.config)
    return diagnose(snapshot, job.job_id, particulars=particulars)


def claim_of(diagnosis: Diagnosis) -> str | None:
    """Return what is claimed of a job: that it fits now, or never; None for neither."""
    causes = {finding.cause for finding in (diagnosis.first, *diagnosis.further)}
    if Cause.IMPOSSIBLE in causes and diagnosis.slurm_reason != "BadConstraints":
        return "impossible"
    if diagnosis.tier_now is None or diagnosis.disagreement is not None:
        return None
    return "fits now" if causes <= ONLY_OTHERS else None


@dataclass(slots=True, kw_only=True)
class ClaimTrial:
    """A queue that was read, what is claimed of its jobs, and where the results go.

    `is_hidden` is whether a job that runs has an option that is hidden, which can bar others from its nodes.
    """

    live: LiveCluster
    seed: int
    requests: dict[int, list[str]]
    said: dict[int, str]
    cluster: str
    found: Found
    is_hidden: bool = False

    def uses_hidden(self, job_id: int) -> bool:
        """Return whether a job was submitted with an option that its release hides from the reader."""
        hidden = HIDDEN.get(self.live.release)
        return hidden is not None and any(option.startswith(hidden) for option in self.requests.get(job_id, ()))

    def squeue(self, job: Job, layout: str) -> str:
        """Return what squeue prints of a job."""
        return self.live.run("squeue", "-h", "-a", "-j", str(job.job_id), "-o", layout, check=False).strip()

    def _gives(self, job: Job) -> str:
        """Return the nodes that a job has, with their CPUs and GPUs."""
        shown = self.live.run("scontrol", "-d", "show", "job", str(job.job_id), check=False)
        return "".join(f" {line.strip()}" for line in shown.splitlines() if "CPU_IDs=" in line)

    def is_short(self, job: Job) -> bool:
        """Return whether a job has started with fewer GPUs than it asks for."""
        gives = self._gives(job)
        gpus = sum(
            len(node_names(names, field="Nodes")) * sum(map(int, _GPUS_GIVEN.findall(gres)))
            for names, gres in _NODES_GIVEN.findall(gives)
        )
        return bool(gives) and gpus < (job.gang.gpu_count or 0)

    def release(self, job: Job) -> None:
        """Let Slurm start a job that was held or was to wait."""
        self.live.run("scontrol", "release", str(job.job_id), check=False)
        self.live.run("scontrol", "update", f"JobId={job.job_id}", "StartTime=now", check=False)

    def judge(self, job: Job, claim: str, *, is_right: bool) -> None:
        """Count a claim, and keep it if it was wrong; those about a job with a hidden option apart."""
        if self.is_hidden or self.uses_hidden(job.job_id):
            self.found.hidden[f"{claim}, {'right' if is_right else 'wrong'}"] += 1
            return
        self.found.claims[claim] += 1
        if claim == "impossible" and not is_right and self.is_short(job):
            self.found.short[claim] += 1
            is_right = True
        if is_right:
            return
        request = f"{job.user}: {' '.join(self.requests[job.job_id])}"
        wrong = Wrong(
            claim=claim,
            release=self.live.release,
            seed=self.seed,
            request=request,
            slurm_says=f"{self.squeue(job, '%T %r %S')}{self._gives(job)}",
            sadvise_says=self.said[job.job_id],
            cluster=self.cluster,
        )
        self.found.wrong.append(wrong)
        print(_line(asdict(wrong)), self.cluster, sep="\n", file=sys.stderr)

    def attempt(self, job: Job, claim: str | None, resize: SetGpus | None) -> None:
        """Let Slurm start one job, all others being held, and hold that against what was claimed of it."""
        if resize is not None:
            self.live.run("scontrol", *resize.command(), check=False)
        self.release(job)
        claimed = resize is not None or claim is not None
        has_started = started(self.live, job.job_id, LONGEST_S if claimed else PATIENCE_S)
        if resize is not None:
            self.judge(job, "starts now at another size", is_right=has_started)
        elif claim is not None:
            self.judge(job, claim, is_right=has_started)
        elif has_started:
            self.found.missed["started without a claim"] += 1
        ended(self.live, job.job_id)

    def attempt_all(self, jobs: Sequence[Job]) -> list[Job]:
        """Let Slurm try the jobs that are called impossible, all at once: none of them keeps another from starting.

        Return those that Slurm expects to start, on hold: 26.05 plans some on busy nodes and never starts them.
        """
        for job in jobs:
            self.release(job)
        if jobs:
            Patience(self.live, PATIENCE_S).wait()
        planned = []
        for job in jobs:
            said = self.squeue(job, "%T %S")
            if said.startswith("PENDING") and said != "PENDING N/A":
                self.live.run("scontrol", "hold", str(job.job_id), check=False)
                planned.append(job)
                continue
            self.judge(job, "impossible", is_right=said in ("PENDING N/A", ""))
            ended(self.live, job.job_id)
        return planned

    def attempt_planned(self, jobs: Sequence[Job]) -> None:
        """Let Slurm try the impossible jobs that it expects to start, on a cluster without other jobs."""
        left = list(jobs)
        if left:
            emptied(self.live, but={job.job_id for job in left})
        for job in left:
            self.release(job)
        while left:
            Patience(self.live, 2 * PATIENCE_S).wait()
            fired = [job for job in left if not self.squeue(job, "%T").startswith("PENDING")]
            for job in fired or left:
                self.judge(job, "impossible", is_right=not fired)
                ended(self.live, job.job_id)
            left = [job for job in left if fired and job not in fired]


def described(live: LiveCluster) -> str:
    """Return the nodes, partitions, jobs and reservations of a cluster as Slurm prints them."""
    return "\n".join(
        live.run(*argv, check=False)
        for argv in (
            ("scontrol", "-o", "show", "node"),
            ("scontrol", "-o", "show", "partition"),
            ("scontrol", "-o", "show", "reservation"),
            ("sinfo", "-N", "-h", "-O", "NodeHost,Partition,CPUsState,GresUsed:60"),
            ("squeue", "-a", "-t", "R", "-O", "JobID,UserName,NodeList,tres-alloc:120,OverSubscribe"),
        )
    )


def round_of(live: LiveCluster, draw: Random, seed: int, found: Found) -> None:
    """Fill a cluster once, and try every claim about its queue."""
    requests = fill(live, draw)
    snapshot = snapshot_of(live)
    waiting = [job for job in snapshot.pending if job.job_id in requests]
    diagnoses = {job.job_id: diagnosed(snapshot, job) for job in waiting}
    claimed = {job_id: claim_of(diagnosis) for job_id, diagnosis in diagnoses.items()}
    cycle = Cycle(levers=frozenset({Lever.GPU_COUNT}), limits=Limits(min_job_age_s=0.0, nice_min=0))
    resizes = {
        change.job_id: change.action
        for change in cycle.judge(snapshot).recommendations
        if isinstance(change.action, SetGpus) and change.action.shrinks
    }
    said = {
        job_id: "; ".join(f"{found.cause.value} {dict(found.evidence)}" for found in (each.first, *each.further))
        for job_id, each in diagnoses.items()
    }
    trial = ClaimTrial(live=live, seed=seed, requests=requests, said=said, cluster=described(live), found=found)
    trial.is_hidden = any(trial.uses_hidden(job.job_id) for job in snapshot.jobs if not job.is_pending)
    # Those of the filling that wait, too: Slurm keeps nodes for them.
    eligible = [job for job in snapshot.pending if not job.held and job.eligible_time is not None
                and job.eligible_time <= snapshot.taken_at]  # fmt: skip
    for job in eligible:
        # Of a list, slurmctld holds none after one that has started.
        live.run("scontrol", "hold", str(job.job_id), check=False)
    # Those that have started since the queue was read have nodes that the claims about others count on.
    overtaken = [job.job_id for job in eligible if trial.squeue(job, "%T") != "PENDING"]
    for job_id in overtaken:
        ended(live, job_id)
    waiting = [job for job in waiting if job.job_id not in overtaken]
    planned = trial.attempt_all(
        [job for job in waiting if claimed[job.job_id] == "impossible" and job.job_id not in resizes]
    )
    for job in waiting:
        claim, resize = claimed[job.job_id], resizes.get(job.job_id)
        if claim == "fits now" or resize is not None or (claim is None and draw.random() < UNCLAIMED):
            trial.attempt(job, claim, resize)
    trial.attempt_planned(planned)
    emptied(live)


def emptied(live: LiveCluster, *, but: Collection[int] = ()) -> None:
    """Cancel all jobs but some, delete the reservations, and return closed nodes to service."""
    kept = {str(job_id) for job_id in but}
    others = sorted(set(live.run("squeue", "-h", "-a", "-o", "%i").split()) - kept)
    if others:
        live.run("scancel", *others, check=False)
    live.wait_for(
        lambda: set(live.run("squeue", "-h", "-a", "-o", "%i").split()) <= kept, 60.0, what="the other jobs are gone"
    )
    for line in live.run("scontrol", "-o", "show", "reservation", check=False).splitlines():
        if line.startswith("ReservationName="):
            live.run("scontrol", "delete", line.split()[0], check=False)
    for node in live.shape.nodes():
        live.run("scontrol", "update", f"NodeName={node.name}", "State=RESUME", check=False)


def rounds(release: str, minutes: float, seed: int) -> Found:
    """Try claims on random clusters of one release for some minutes."""
    found, until = Found(), time.monotonic() + 60 * minutes
    while time.monotonic() < until:
        draw = Random(seed)
        with cluster(release, draw) as live, talking_to(live):
            for _ in range(8):
                round_of(live, draw, seed, found)
                print(
                    f"{release} seed {seed}: {found.claims.total()} claims, {len(found.wrong)} wrong", file=sys.stderr
                )
                if time.monotonic() > until:
                    break
        seed += 1
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Try claims on every release at once, each in a process of its own, and print what they came to."""
    parser = argparse.ArgumentParser(prog="python -m tools.live_claims", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to try claims")
    parser.add_argument("--release", action="append", choices=RELEASES, help="a release of Slurm; default: all")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first cluster")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    releases = options.release or list(RELEASES)
    if len(releases) == 1:
        documents = [_document(releases[0], rounds(releases[0], options.minutes, options.seed))]
    else:
        with ThreadPoolExecutor() as pool:
            documents = list(pool.map(lambda name: _apart(name, options.minutes, options.seed), releases))
    if options.json:
        print(json.dumps(documents, indent=1))
    else:
        for line in _table(documents):
            print(line)
    total, wrong = (sum(len(each["wrong"]) if key == "wrong" else sum(each[key].values()) for each in documents)
                    for key in ("claims", "wrong"))  # fmt: skip
    return 1 if wrong > MOST_WRONG * total else 0


def _document(release: str, found: Found) -> dict[str, Any]:
    return {
        "release": release,
        "claims": dict(found.claims),
        "missed": dict(found.missed),
        "hidden": dict(found.hidden),
        "short": dict(found.short),
        "wrong": [asdict(each) for each in found.wrong],
    }


def _apart(release: str, minutes: float, seed: int) -> dict[str, Any]:
    argv = [sys.executable, "-m", "tools.live_claims", "--release", release, "--minutes", str(minutes), "--json",
            "--seed", str(seed)]  # fmt: skip
    answer = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False).stdout
    if not answer:
        raise LiveSlurmError(f"the process of release {release} ended without a result")
    [document] = json.loads(answer)
    return dict(document)


def _table(documents: Sequence[dict[str, Any]]) -> Iterator[str]:
    kinds = sorted({kind for document in documents for kind in document["claims"]})
    yield f"{'release':9}{''.join(f'{kind:>28}' for kind in kinds)}{'wrong':>8}{'missed':>8}{'hidden':>8}{'short':>8}"
    for document in documents:
        claims = "".join(f"{document['claims'].get(kind, 0):28}" for kind in kinds)
        others = "".join(f"{sum(document[key].values()):8}" for key in ("missed", "hidden", "short"))
        yield f"{document['release']:9}{claims}{len(document['wrong']):8}{others}"
    for document in documents:
        for each in document["wrong"]:
            yield _line(each)


def _line(wrong: dict[str, Any]) -> str:
    where = f"{wrong['release']} seed {wrong['seed']}"
    return f"{where}: {wrong['claim']}: {wrong['request']} ({wrong['slurm_says']}; {wrong['sadvise_says']})"


if __name__ == "__main__":
    sys.exit(main())
