"""How Slurm spells GPUs and other countable resources (GRES and TRES)."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from advisor.backends.spelling import CACHED_TEXTS, count, is_unset, memory_mib, unreadable
from advisor.domain.dataclass import dataclass
from advisor.domain.gang import MOST, GpuCount, GresCount, ShareCount
from advisor.domain.node import GpuPool, GresPool

GPU: Final = "gpu"
# Parts of GPUs; never mixed with whole ones.
SHARES: Final = ("mps", "shard")
# Of the resources that Slurm counts, those that are no generic ones.
_OTHER_TRES: Final = frozenset(("billing", "cpu", "energy", "mem", "node", "pages", "vmem"))

# A comma inside parentheses separates a resource's own details: `gpu:2(IDX:0,3),shard:1(1/4,0/4)`.
_COMMA = re.compile(r",(?![^()]*\))")
_DETAIL = re.compile(r"\([^()]*\)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?[KMGTP]?", re.ASCII)
_UNTYPED = ("", "(null)", "no_type")
# Jobs share such a resource without a limit, so that all of it is always idle; 22.05 leaves the word out.
_NOT_CONSUMED: Final = "no_consume"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gres:
    """One generic resource of a list: `gpu:a100:4`."""

    name: str
    gres_type: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tres:
    """What a TRES string counts; None where it counts no such thing. `gpus` is None where gres/gpu is not counted."""

    cpus: int | None = None
    memory_mib: int | None = None
    nodes: int | None = None
    gpus: tuple[GpuCount, ...] | None = None


NO_TRES: Final = Tres()


@lru_cache(CACHED_TEXTS)
def gres_list(text: str, *, field: str) -> tuple[Gres, ...]:
    """Decode a GRES list in any of Slurm's forms (`gpu:a100:4(S:0)`, `gres:gpu:2`, `gres/gpu=1`)."""
    if is_unset(text):
        return ()
    entries = (_gres(item.strip(), field=field) for item in _COMMA.split(text))
    return tuple(gres for gres in entries if gres is not None)


def requested(items: tuple[Gres, ...]) -> tuple[Gres, ...]:
    """Return what a request comes to: where it names a resource twice, Slurm goes by the last count.

    `--gres=gpu:2 --gpus-per-node=4` is kept as `gpu:4,gpu:2` and gets two GPUs (seen on 22.05 and 26.05).
    """
    return tuple({(item.name, item.gres_type): item for item in items}.values())


@lru_cache(CACHED_TEXTS)
def gpu_counts(items: tuple[Gres, ...]) -> tuple[GpuCount, ...]:
    """Add up the whole GPUs of a list, one count for each type; a count of 0 asks for none."""
    return counts_of(_totals(items, GPU))


@lru_cache(CACHED_TEXTS)
def share_counts(items: tuple[Gres, ...]) -> tuple[ShareCount, ...]:
    """Add up the parts of GPUs of a list."""
    return tuple(
        ShareCount(kind=kind, gpu_type=gpu_type, count=number)
        for kind in SHARES
        for gpu_type, number in _by_type(_totals(items, kind))
    )


def gres_counts(items: Iterable[Gres]) -> tuple[GresCount, ...]:
    """Add up the resources of a list that are no GPUs, nor parts of one."""
    totals = _others(items)
    return tuple(
        GresCount(name=name, gres_type=gres_type, count=number)
        for (name, gres_type), number in sorted(totals.items(), key=str)
        if number > 0
    )


def gres_pools(configured: Iterable[Gres], used: Iterable[Gres]) -> tuple[GresPool, ...]:
    """Pair a node's resources that are no GPUs with those in use; none of those that jobs do not use up are."""
    in_use = _others(used)
    return tuple(
        GresPool(name=name, gres_type=gres_type, total=total, used=in_use[name, gres_type])
        for (name, gres_type), total in sorted(_others(configured).items(), key=str)
    )


def gpu_pools(configured: Iterable[Gres], used: Iterable[Gres]) -> tuple[GpuPool, ...]:
    """Pair a node's GPUs with those in use, which are unknown unless Slurm names them by the same types."""
    totals = _totals(configured, GPU)
    in_use = _totals(used, GPU)
    if len(totals) == 1 and in_use:
        # One pool: whatever is in use is from it, however its type is spelled there.
        in_use = Counter({next(iter(totals)): sum(in_use.values())})
    known = bool(in_use) and in_use.keys() <= totals.keys()
    return tuple(
        GpuPool(gpu_type=gpu_type, total=total, used=in_use[gpu_type] if known else None)
        for gpu_type, total in _by_type(totals)
    )


@lru_cache(CACHED_TEXTS)
def tres(text: str, *, field: str) -> Tres:
    """Decode a TRES string (`cpu=8,mem=62.50G,node=1,billing=8,gres/gpu=8,gres/gpu:a100=8`)."""
    if is_unset(text):
        return NO_TRES
    values: dict[str, str] = {}
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if not equals:
            raise unreadable(field, text, "a list of TRES")
        values[key.strip()] = value
    return Tres(
        cpus=count(values["cpu"], field=field) if "cpu" in values else None,
        memory_mib=memory_mib(values["mem"], field=field) if "mem" in values else None,
        nodes=count(values["node"], field=field) if "node" in values else None,
        gpus=_tres_gpus(values, field=field),
    )


def counts_of(totals: Mapping[str | None, int]) -> tuple[GpuCount, ...]:
    """Return GPU counts in order, those of any type first, without empty ones.

    Slurm takes a request for billions of GPUs; it never starts, and is read as the most that we count.
    """
    return tuple(
        GpuCount(gpu_type=gpu_type, count=min(number, MOST)) for gpu_type, number in _by_type(totals) if number > 0
    )


def _tres_gpus(values: Mapping[str, str], *, field: str) -> tuple[GpuCount, ...] | None:
    """Return the GPUs of a TRES string: each type, and what the total counts above them."""
    prefix = f"gres/{GPU}"
    if not any(key == prefix or key.startswith(f"{prefix}:") for key in values):
        return None
    typed: dict[str | None, int] = {
        key.removeprefix(f"{prefix}:"): count(value, field=field)
        for key, value in values.items()
        if key.startswith(f"{prefix}:")
    }
    total = count(values.get(prefix, "0"), field=field)
    return counts_of({**typed, None: total - sum(typed.values())})


def _gres(item: str, *, field: str) -> Gres | None:
    """Decode one resource; None for one that is not generic, or unreadable and no GPU nor part of one."""
    bare = _DETAIL.sub("", item.replace("(null)", "no_type"))
    for prefix in ("gres:", "gres/"):
        bare = bare.removeprefix(prefix)
    name, *rest = (word for word in re.split("[:=]", bare) if word.lower() != _NOT_CONSUMED)
    # Such as `cpu` or `license/matlab`.
    if name in _OTHER_TRES or "/" in name:
        return None
    number = rest.pop() if rest and _NUMBER.fullmatch(rest[-1]) else "1"
    if len(rest) > 1 or any(char in bare for char in "()"):
        if name != GPU and name not in SHARES:
            return None
        raise unreadable(field, item, "a generic resource")
    gres_type = rest[0] if rest and rest[0] not in _UNTYPED else None
    return Gres(name=name, gres_type=gres_type, count=count(number, field=field))


def _others(items: Iterable[Gres]) -> Counter[tuple[str, str | None]]:
    totals: Counter[tuple[str, str | None]] = Counter()
    for item in items:
        if item.name != GPU and item.name not in SHARES:
            totals[item.name, item.gres_type] += item.count
    return totals


def _totals(items: Iterable[Gres], name: str) -> Counter[str | None]:
    totals: Counter[str | None] = Counter()
    for item in items:
        if item.name == name:
            totals[item.gres_type] += item.count
    return totals


def _by_type(totals: Mapping[str | None, int]) -> list[tuple[str | None, int]]:
    return sorted(totals.items(), key=lambda entry: entry[0] or "")
