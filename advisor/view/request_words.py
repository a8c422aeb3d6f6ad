"""Words a job's request, what its account has used of its share, and the numbers behind what was found about it."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from advisor.domain.gang import GangRequest, GpuCount, GpuScope, share_of_gpu
from advisor.domain.job import JobHints
from advisor.domain.particulars import FairShare
from advisor.domain.plan import Evidence
from advisor.domain.units import duration, plural
from advisor.view.terminal import instant

_PINNED: Final = (
    "job_submit.lua holds it to the fewest nodes, as its user names no number of nodes; once it could start on more, "
    "it waits no longer than that saves, and the daemon then gives its request back"
)


def gpus_in_words(counts: tuple[GpuCount, ...]) -> str:
    """Return counts with their types: `8 a100 GPUs`, `1 GPU`, `4 a100 GPUs and 2 h100 GPUs`, `2 1g.10gb slices`."""
    return " and ".join(
        plural(gpu.count, f"{gpu.gpu_type} {noun_of(gpu.gpu_type)}" if gpu.gpu_type else "GPU") for gpu in counts
    )


def noun_of(gpu_type: str | None) -> str:
    """Return what one of a type is: a GPU, or a slice of one."""
    return "GPU" if share_of_gpu(gpu_type) >= 1.0 else "slice"


def asked_in_words(gang: GangRequest) -> str:
    """Return what a gang asks for, with where: `8 a100 GPUs on one node`, `2 GPUs for each of 4 tasks`."""
    match gang.scope:
        case None:
            return f"{plural(gang.cpus, 'CPU')}{_at_most(gang.most_nodes)}"
        case GpuScope.JOB:
            return f"{gpus_in_words(gang.per_job)}{_at_most(gang.most_nodes)}"
        case GpuScope.NODE:
            each = "one node" if gang.nodes_min == 1 else f"each of {gang.nodes_min} nodes"
            return f"{gpus_in_words(gang.per_node)} on {each}"
        case GpuScope.TASK:
            each = "one task" if gang.tasks == 1 else f"each of {gang.tasks} tasks"
            return f"{gpus_in_words(gang.per_task)} for {each}{_at_most(gang.most_nodes)}"
        case GpuScope.SOCKET:
            return f"{gpus_in_words(gang.per_socket)} on each socket{_at_most(gang.most_nodes)}"


def beside_gpus_in_words(gang: GangRequest) -> str:
    """Return what each node has to give beside GPUs, CPUs and memory: `, with VramPerGpu:40G`; "" for nothing."""
    parts = [f"with {gres}" for gres in gang.gres]
    if gang.tmp_disk_mib:
        parts.append(f"with {gang.tmp_disk_mib} MiB of local disk (--tmp)")
    if gang.exclusive:
        parts.append("on nodes without other jobs")
    if gang.only_beside:
        parts.append("on nodes without jobs of other users (--exclusive=user)")
    return "".join(f", {part}" for part in parts)


def _at_most(nodes: int | None) -> str:
    if nodes is None:
        return ""
    return " on one node" if nodes == 1 else f" on at most {nodes} nodes"


def hint_sentences(hints: JobHints) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences about the hints of a job; none where its user gave none."""
    declared = list(_declared(hints))
    if declared:
        yield "hints", f"its user declares in --comment: {'; '.join(declared)}"
    if hints.pinned is not None:
        yield "hints", _PINNED
    if hints.unknown:
        yield "hints", f"not understood in --comment: {' '.join(hints.unknown)}"


def _declared(hints: JobHints) -> Iterator[str]:
    if hints.opted_out:
        yield "sadvise is to leave it alone"
    if hints.model is not None:
        yield f"it trains the model {hints.model}"
    if hints.gpus is not None:
        low, high = hints.gpus.low, hints.gpus.high
        yield f"it can run on {plural(low, 'GPU') if low == high else f'{low} to {high} GPUs'}"
    if hints.checkpoint_s is not None:
        yield f"it saves its state every {duration(hints.checkpoint_s)}"
    if hints.step_s is not None:
        yield f"a step takes {hints.step_s:.3g} s"
    if hints.deadline_time is not None:
        yield f"it is to end by {instant(hints.deadline_time)}"
    if hints.wants_mail:
        yield "its user wants mail"
    if hints.sensitivity is not None:
        yield f"spreading it out costs {'much' if hints.sensitivity == 'high' else 'little'}"


# Closer to the share than this is all of it.
_NEAR = 0.05


def share_sentence(share: FairShare, priority: Mapping[str, Evidence]) -> str:
    """Return the use of a job's account in words; `priority` is the evidence of who comes before it, empty for none."""
    half = "" if share.half_life_s is None else f" (past use counts half after {duration(share.half_life_s)})"
    accounts = share.accounts
    parts = [f"user {share.user.name} has lately used {_of_share(share.user.used_of_share)}{half}"]
    if accounts:
        own = accounts[0]
        parts = [f"account {own.name} has lately used {_of_share(own.used_of_share)}{half}"]
        above = max(accounts[1:], key=lambda account: account.used_of_share, default=own)
        if above.used_of_share > own.used_of_share:
            parts.append(f"account {above.name} above it {_of_share(above.used_of_share)}")
        if own.used_of_share > 0.0 and abs(share.user.used_of_share - 1.0) > _NEAR:
            parts.append(f"user {share.user.name} {_of_share(share.user.used_of_share)} in it")
    sentence = ", ".join(parts)
    if "priority_fair_share" in priority:
        points = priority["priority_fair_share"]
        sentence += f"; fair share gives {points} of the job's {priority['priority']} points of priority"
    if users := int(priority.get("users_ahead", 0)):
        sentence += f"; {plural(users, 'other user')} {'stands' if users == 1 else 'stand'} before it"
    return sentence


def _of_share(ratio: float) -> str:
    if math.isinf(ratio):
        return "resources, and has no share"
    if ratio == 0.0:
        return "none of its share"
    return f"{ratio:.1f} times its share" if ratio > 1.0 + _NEAR else f"{100.0 * ratio:.0f} % of its share"


_FLAGS: Final[Mapping[str, str]] = {
    "any_will_do": "any of them will do",
    "is_maintenance": "maintenance",
    "powered_down": "powered-down nodes are hidden",
}
_SPELLED: Final[Mapping[str, str]] = {
    "gpu": "GPU", "gpus": "GPUs", "cpus": "CPUs", "qos": "QOS", "tres": "TRES", "slurm": "Slurm",
}  # fmt: skip


def evidence_words(
    evidence: Mapping[str, Evidence], instant: Callable[[float], str] = instant
) -> Iterator[tuple[str, str]]:
    """Yield each name in words with its value: `queueing_delay_s` 5400 is `queueing delay` and `1.5 h`."""
    for name, value in evidence.items():
        *words, unit = name.split("_")
        if name in _FLAGS:
            yield _FLAGS[name], "yes" if value else "no"
        elif isinstance(value, str):
            yield _spaced([*words, unit]), value
        elif unit == "s":
            yield _spaced(words), duration(value)
        elif unit == "time":
            yield _spaced([*words, unit]), instant(value)
        elif "mib" in words or unit == "mib":
            yield _spaced([word for word in (*words, unit) if word != "mib"]), f"{value} MiB"
        else:
            yield _spaced([*words, unit]), str(value)


def _spaced(words: list[str]) -> str:
    return " ".join(_SPELLED.get(word, word) for word in words)
