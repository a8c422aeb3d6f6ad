"""The sentence of each cause, and what would change it."""

import shlex
from collections.abc import Callable, Iterator, Mapping

from advisor.domain.dataclass import dataclass
from advisor.domain.diagnosis import Alternative, Cause, Concession, Diagnosis, Disagreement, Finding, Variant
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.job import Job, JobState
from advisor.domain.plan import Evidence
from advisor.domain.topology import LocalityTier
from advisor.domain.units import MINUTE_S, duration, plural
from advisor.view.gate_words import GATES, GateCase, Words, moment
from advisor.view.request_words import asked_in_words, beside_gpus_in_words, gpus_in_words, share_sentence

_GIB_MIB = 1024

_PLACES = {
    LocalityTier.NODE: "on one node",
    LocalityTier.LEAF: "under one leaf switch",
    LocalityTier.SPINE: "on several leaf switches",
    LocalityTier.CLUSTER: "on several nodes",
}

# Causes whose sentence and remedies hold no number but that of the job.
_PLAIN: Mapping[Cause, Words] = {
    Cause.ABSENT: (
        "job {job} is not in the queue: it has ended, or is hidden from this reader",
        ("see whether it ended: sacct -j {job}",),
    ),
    Cause.HELD_BY_USER: ("its user holds it", ("the user: scontrol release {job}",)),
    Cause.HELD_BY_ADMIN: (
        "an administrator holds it, so that its user cannot release it",
        ("an operator: scontrol release {job}",),
    ),
    Cause.HELD: (
        "it is held; Slurm's reason does not show who holds it",
        ("the user or an operator: scontrol release {job}",),
    ),
    Cause.UNKNOWN: ("what stands in its way could not be read", ()),
}

_RESERVATION_GONE: Words = (
    "it is held, since the reservation that it asks for has ended or was deleted",
    (
        "the user or an operator: scontrol release {job}",
        "or, for another reservation, before that: scontrol update JobId={job} ReservationName=...",
    ),
)

# Causes that Slurm alone can show.
_NAMED: Mapping[Cause, Words] = {
    Cause.ASSOCIATION_LIMIT: (
        "a limit of its account or user is reached",
        ("wait for jobs of the account or user to end; an operator sees the limit: sacctmgr show associations",),
    ),
    Cause.QOS_LIMIT: (
        "a limit of its QOS is reached",
        ("wait for jobs of the QOS to end, or ask for another QOS; the limits: sacctmgr show qos",),
    ),
    Cause.PARTITION_LIMIT: (
        "it is outside what its partition allows",
        ("ask for less time, memory or fewer nodes, or for another partition: scontrol show partition",),
    ),
    Cause.LICENSES: (
        "too few of the licences it asks for are free",
        ("wait for the jobs that hold them to end: scontrol show licenses",),
    ),
    Cause.RESERVATION: (
        "a reservation decides when it can start",
        ("see when the reservation begins and ends: scontrol show reservation",),
    ),
    Cause.IMPOSSIBLE: (
        "Slurm finds no nodes that could ever be enough for it",
        ("ask for less or for other nodes; then: scontrol release",),
    ),
    Cause.UNKNOWN: ("Slurm gives a reason that cannot be judged here", ()),
}

_LACKING = {
    Variant.EMPTY_NODES: "too few nodes are empty",
    Variant.CPUS_OR_MEMORY: "too few CPUs or too little memory are idle",
    Variant.CPUS_BESIDE_GPUS: "GPUs are idle, but too few CPUs beside them,",
    Variant.MEMORY_BESIDE_GPUS: "GPUs are idle, but too little memory beside them,",
    Variant.BOTH_BESIDE_GPUS: "GPUs are idle, but too few CPUs and too little memory beside them,",
}


# With what request a job would fit now.
_OTHER_REQUESTS = {
    Concession.EXCLUDED_NODES: "on the nodes it excludes (--exclude): scontrol update JobId={job} ExcNodeList=",
    Concession.OTHER_NODES: "on other nodes than those of --nodelist: scontrol update JobId={job} ReqNodeList=",
    Concession.SHARED_NODES: "if it may share its nodes: leave out --exclusive",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """A finding as published: a sentence, the numbers behind it, what would change it."""

    cause: Cause
    text: str
    evidence: Mapping[str, Evidence]
    remedies: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A diagnosis as published."""

    job_id: int
    slurm_reason: str
    first: Obstacle
    further: tuple[Obstacle, ...]
    disagreement: str | None
    share: str | None
    unread: tuple[str, ...]


def since_sentence(job: Job, now: float) -> str:
    """Return since when a job waits: since it could start, or else since its submission."""
    submitted = f"submitted at {moment(job.submit_time, now)}"
    eligible_time = job.eligible_time
    if eligible_time is None or eligible_time > now:
        return submitted
    if eligible_time - job.submit_time < MINUTE_S:
        return moment(job.submit_time, now)
    return f"{moment(eligible_time, now)}, when it could first start; {submitted}"


def explanation(diagnosis: Diagnosis) -> Explanation:
    """Return a diagnosis in words."""
    return Explanation(
        job_id=diagnosis.job_id,
        slurm_reason=diagnosis.slurm_reason,
        first=obstacle(diagnosis.first, diagnosis),
        further=tuple(obstacle(finding, diagnosis) for finding in diagnosis.further),
        disagreement=_disagreement(diagnosis),
        share=_share(diagnosis),
        unread=diagnosis.unread,
    )


def _share(diagnosis: Diagnosis) -> str | None:
    findings = (diagnosis.first, *diagnosis.further)
    priority = next((finding.evidence for finding in findings if finding.cause is Cause.PRIORITY), {})
    return None if diagnosis.share is None else share_sentence(diagnosis.share, priority)


def obstacle(finding: Finding, diagnosis: Diagnosis) -> Obstacle:
    """Return a finding of a diagnosis in words, its numbers rounded to a thousandth."""
    text, remedies = _words(finding, diagnosis)
    evidence = finding.evidence.items()
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in evidence}
    return Obstacle(cause=finding.cause, text=text, evidence=rounded, remedies=remedies)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A finding that the snapshot shows, and the job that it is about."""

    finding: Finding
    diagnosis: Diagnosis
    job: Job

    @property
    def evidence(self) -> Mapping[str, Evidence]:
        return self.finding.evidence


def _words(finding: Finding, diagnosis: Diagnosis) -> Words:
    job, cause = diagnosis.job, finding.cause
    if finding.variant is Variant.DISPUTED:
        return _disputed(diagnosis)
    if finding.variant is Variant.NAMED:
        return _NAMED[cause]
    if finding.variant is Variant.NAMED_FOR_ONE_JOB:
        whose = "a limit of its QOS" if cause is Cause.QOS_LIMIT else "a limit of its account or user"
        return f"the job by itself is outside {whose}", ("waiting does not help: ask for what the limit allows",)
    if job is None or cause in _PLAIN:
        text, remedies = _RESERVATION_GONE if finding.variant is Variant.RESERVATION_GONE else _PLAIN[cause]
        return text.format(job=diagnosis.job_id), tuple(remedy.format(job=diagnosis.job_id) for remedy in remedies)
    if cause in GATES:
        gate = GateCase(evidence=finding.evidence, variant=finding.variant, job=job, now=diagnosis.taken_at)
        return GATES[cause](gate)
    return _SEEN[cause](_Case(finding=finding, diagnosis=diagnosis, job=job))


def _disputed(diagnosis: Diagnosis) -> Words:
    """Return what a reason of Slurm's means that the snapshot does not confirm."""
    if diagnosis.tier_now is None or (diagnosis.job is not None and diagnosis.job.het is not None):
        return "Slurm gives this reason; the snapshot does not confirm it", ()
    text = (
        f"Slurm did not start it in its last pass, although there is room for it{_place_now(diagnosis)}: Slurm sees a "
        "bar that sadvise cannot see, unless the room came free after that pass"
    )
    look = (
        (
            f"look at what it asks for and where it may run: scontrol show job {diagnosis.job_id}; scontrol show "
            "partition; scontrol show reservation; scontrol show node"
        ),
        f"see when Slurm expects to start it: squeue --start -j {diagnosis.job_id}",
    )
    return text, look


def _started(case: _Case) -> Words:
    return "it is no longer pending" if case.evidence["state"] == JobState.OTHER else "it has started already", ()


def _impossible(case: _Case) -> Words:
    asked = asked_in_words(case.job.gang)
    if "required_nodes" in case.evidence:
        text = f"{_node_words(str(case.evidence['required_nodes']))} (--nodelist) can never give {asked}; others can"
        return text, (f"the user, to take any nodes: scontrol update JobId={case.job.job_id} ReqNodeList=",)
    remedy = "waiting does not help: ask for less, for another partition or for more nodes"
    return f"no nodes of its partitions are enough for {asked}, even empty", (remedy,)


def _node_words(names: str) -> str:
    return f"nodes {names}" if "," in names else f"node {names}"


def _required_nodes(case: _Case) -> Words:
    evidence = case.evidence
    names = str(evidence["nodes"])
    which = f"it insists on {_node_words(names)} (--nodelist)"
    if "nodes_out_of_service" in evidence:
        closed = str(evidence["nodes_out_of_service"])
        text = f"{which}, of which {_node_words(closed)} {_are(closed)} out of service{_why(case)}"
        if closed == names:
            text = f"{which}, which {_are(closed)} out of service{_why(case)}"
        others = [text for text in _or_wait(case) if "ReqNodeList" in text]
        return text, (_bring_back(case), *others)
    if "nodes_coming" in evidence:
        coming = str(evidence["nodes_coming"])
        text = f"{which}, of which {_node_words(coming)} {_take(coming)} no jobs yet{_why(case)}"
        return text, (_COMES_BACK, *[text for text in _or_wait(case) if "ReqNodeList" in text])
    idle, total = evidence["gpus_idle_on_them"], plural(int(evidence["gpus_on_them"]), "GPU")
    return f"{which} for {asked_in_words(case.job.gang)}; {idle} of {total} there are idle", _or_wait(case)


def _are(names: str) -> str:
    return "are" if "," in names else "is"


def _not_tried(case: _Case) -> Words:
    seen = "nothing is seen in its way, and Slurm does not show whether it has tried to start it"
    text = f"{seen}{_could_start(case.diagnosis)}"
    return text, ("wait for Slurm's next pass over the queue",)


def _begin_time(case: _Case) -> Words:
    evidence, job = case.evidence, case.job
    if "wait_s" not in evidence:
        return "it is not to begin yet; its begin time could not be read", ()
    begins = moment(float(evidence["eligible_time"]), case.diagnosis.taken_at)
    text = f"it is not to begin before {begins}: --begin, or Slurm's pause after a requeue"
    return text, (f"the user: scontrol update JobId={job.job_id} StartTime=now",)


def _array_limit(case: _Case) -> Words:
    evidence, job = case.evidence, case.job
    running, most = evidence["array_tasks_running"], evidence["array_max_running"]
    array_job_id = job.job_id if job.array is None else job.array.array_job_id
    tasks = f"{plural(int(running), 'task')} of its array {'runs' if running == 1 else 'run'}"
    return f"{tasks}, and the array allows {most} at a time", (
        "wait for running tasks of the array to end",
        f"the user: scontrol update JobId={array_job_id} ArrayTaskThrottle=...",
    )


def _priority(case: _Case) -> Words:
    job, ahead = case.job, int(case.evidence["jobs_ahead"])
    own, users = int(case.evidence["own_jobs_ahead"]), int(case.evidence["users_ahead"])
    theirs = " of its own user" if own == ahead else f" of {plural(users, 'other user')}" if own == 0 else ""
    some = f", {own} of them of its own user," if 0 < own < ahead else ""
    verb = "comes" if ahead == 1 else "come"
    text = f"{plural(ahead, 'pending job')}{theirs}{some} {verb} before it on the same nodes"
    remedies = []
    if job.nice > 0:
        remedies.append(f"its nice of {job.nice} lowers its priority: scontrol update JobId={job.job_id} Nice=0")
    if place := _place_now(case.diagnosis):
        text += f"; by itself it would fit now{place}"
        limit = f"scontrol update JobId={job.job_id} TimeLimit=..."
        remedies.append(f"the user: a shorter time limit lets backfill start it between the others: {limit}")
    return text, (*remedies, "wait for the jobs before it to start")


def _switches(case: _Case) -> Words:
    wait = duration(float(case.evidence["max_wait_s"]))
    return f"it fits now{_place_now(case.diagnosis)}, but asks Slurm to wait up to {wait} for one leaf switch", (
        f"the user: scontrol update JobId={case.job.job_id} Switches=0 to take what there is",
        "wait: it ends by itself",
    )


_COMES_BACK = "wait: Slurm takes them into use again without an operator; their state: sinfo -N -l"


def _why(case: _Case) -> str:
    """Return the states of nodes that come back, or else the reasons that nodes were given."""
    evidence = case.evidence
    why = evidence.get("their_states") or evidence.get("their_reasons")
    return f" ({why})" if why else ""


def _take(names: str) -> str:
    return "take" if "," in names else "takes"


def _bring_back(case: _Case) -> str:
    """Return how an operator brings nodes back, as far as slurmctld takes it."""
    if "nodes_to_resume" not in case.evidence:
        return "an operator: see why their slurmd does not register, or not with what slurm.conf has: sinfo -R"
    name = f"NodeName={case.evidence['nodes_to_resume']}"
    return f"an operator: scontrol update {shlex.quote(name)} State=RESUME"


def _nodes_unavailable(case: _Case) -> Words:
    if case.finding.variant is Variant.HIDDEN:
        powered_down = bool(case.evidence["powered_down"])
        why = "are powered down and hidden (PrivateData has no cloud)" if powered_down else "could not be read"
        text = f"no nodes that are shown are enough for {asked_in_words(case.job.gang)}; others {why}"
        if (start_time := case.evidence.get("slurm_expects_start_time")) is not None:
            text += f"; Slurm expects a start at {moment(float(start_time), case.diagnosis.taken_at)}"
        remedy = "wait: Slurm boots such a node, in up to ResumeTimeout" if powered_down else "see what: sadvise check"
        return text, (remedy,)
    count, names = int(case.evidence["nodes_unavailable"]), str(case.evidence["nodes"])
    shown = names if names.count(",") + 1 == count else f"{names} and others"
    them = "it" if count == 1 else "them"
    nodes = f"{plural(count, 'node')} of its partitions"
    if case.finding.variant is Variant.COMING:
        return f"{nodes} {'takes' if count == 1 else 'take'} no jobs yet: {shown}{_why(case)}; it fits with {them}", (
            _COMES_BACK,
        )
    consequence = (
        f"with {them} back it would fit now"
        if case.finding.variant is Variant.NEEDED_NOW
        else f"it does not fit without {them}, even if every running job ended"
    )
    text = f"{nodes} {'is' if count == 1 else 'are'} out of service: {shown}{_why(case)}; {consequence}"
    return text, (_bring_back(case),)


def _cpus_or_memory(case: _Case) -> Words:
    most = case.evidence.get("max_cpus_per_node")
    within = "" if most is None else f"; jobs of its partition hold at most {most} CPUs on a node (MaxCPUsPerNode)"
    return f"{_LACKING[case.finding.variant]} for {asked_in_words(case.job.gang)}{within}", _or_wait(case)


def _gpus(case: _Case) -> Words:
    evidence, short = case.evidence, int(case.evidence["gpus_short"])
    gpu_type = str(evidence["gpu_type"]) if "gpu_type" in evidence else None
    of_type = f" {gpu_type}" if gpu_type else ""
    idle = f"{evidence['gpus_idle']} of {evidence['gpus_in_partition']}{of_type} in its partition are idle"
    return f"it asks for {asked_in_words(case.job.gang)}; {idle}, {short} too few", _or_wait(case)


def _fragmentation(case: _Case) -> Words:
    gang = case.job.gang
    text = f"enough GPUs are idle, but not as it asks for them: {asked_in_words(gang)}{beside_gpus_in_words(gang)}"
    if case.evidence.get("unjoined_switches"):
        text += ", under switches that are joined; Slurm starts no job across others"
    return text, _or_wait(case)


_SEEN: Mapping[Cause, Callable[[_Case], Words]] = {
    Cause.STARTED: _started,
    Cause.BEGIN_TIME: _begin_time,
    Cause.REQUIRED_NODES: _required_nodes,
    Cause.IMPOSSIBLE: _impossible,
    Cause.ARRAY_LIMIT: _array_limit,
    Cause.PRIORITY: _priority,
    Cause.SWITCHES: _switches,
    Cause.NODES_UNAVAILABLE: _nodes_unavailable,
    Cause.NOT_TRIED: _not_tried,
    Cause.CPUS_OR_MEMORY: _cpus_or_memory,
    Cause.GPUS: _gpus,
    Cause.FRAGMENTATION: _fragmentation,
}


def _or_wait(case: _Case) -> tuple[str, ...]:
    """Return what the gang could ask for instead, and until when to wait if it asks for the same."""
    others = [f"it fits now {_alternative(other, case.job)}" for other in case.finding.alternatives]
    return (*others, *_until(case)) or ("wait for running jobs to end",)


def _until(case: _Case) -> Iterator[str]:
    """Yield when the gang fits at the latest as it asks."""
    time = case.evidence.get("fits_by_limits_time")
    if time is not None:
        latest = f"{duration(float(time) - case.diagnosis.taken_at)} at the latest"
        yield f"wait: by the time limits of running jobs it fits in {latest}, if no other job takes what they free"
    if yielding := case.evidence.get("jobs_that_give_way"):
        jobs = plural(int(yielding), "running job")
        yield f"wait: Slurm can preempt {jobs} of partitions of a lower tier for it, in its next passes (PreemptType)"


def _alternative(other: Alternative, job: Job) -> str:
    count, gang = other.count, job.gang
    match other.concession:
        case Concession.MORE_NODES:
            return f"on {plural(count, 'node')}: ask for --nodes={gang.nodes_min}-{count}"
        case Concession.OPEN_SPLIT:
            asked = (gang.gpus_by_type or {}).items()
            option = ",".join(f"{gpu_type}:{gpus}" if gpu_type else str(gpus) for gpu_type, gpus in asked)
            return f"if its GPUs may be split unevenly over nodes: --gpus={option} in place of a count per node"
        case Concession.ANY_GPU_TYPE:
            return f"if any type of GPU will do: leave {gang.gpu_type} out of the request"
        case Concession.FEWER_CPUS:
            return f"with {plural(count, 'CPU')} in place of {gang.cpus}"
        case Concession.FEWER_CPUS_PER_GPU:
            return f"with {plural(count, 'CPU')} per GPU in place of {gang.cpus_per_gpu}"
        case Concession.LESS_MEMORY:
            asked_gib = (gang.memory_mib_per_node or 0) / _GIB_MIB
            return f"with {count} GiB of memory on each node, in place of {asked_gib:.4g} GiB"
        case Concession.FEWER_GPUS:
            (gpu,) = gang.all_counts
            on_each = " on each node" if gang.scope is GpuScope.NODE else ""
            fewer = gpus_in_words((GpuCount(gpu_type=gpu.gpu_type, count=count),))
            return f"with {fewer}{on_each} in place of {gpu.count}, if it can run on fewer"
        case _:
            return _OTHER_REQUESTS[other.concession].format(job=job.job_id)


def _disagreement(diagnosis: Diagnosis) -> str | None:
    match diagnosis.disagreement:
        case None:
            return None
        case Disagreement.POSSIBLE:
            return "Slurm finds no nodes that could ever be enough for it; sadvise finds some"
        case Disagreement.NOT_BORNE_OUT:
            findings = (diagnosis.first, *diagnosis.further)
            seen = [finding.cause.replace("_", " ") for finding in findings if finding.variant is not Variant.DISPUTED]
            ours = f"{' and '.join(seen) or 'nothing in its way'}{_could_start(diagnosis)}"
            return f"the snapshot does not confirm Slurm's reason; sadvise finds {ours}"


def _could_start(diagnosis: Diagnosis) -> str:
    place = _place_now(diagnosis)
    return f"; by itself the job fits now{place}" if place else ""


def _place_now(diagnosis: Diagnosis) -> str:
    return "" if diagnosis.tier_now is None else f" {_PLACES[diagnosis.tier_now]}"
