"""Finds the changes of a request with which a job would fit now; each is tried on the idle nodes first."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from advisor.diagnose.inquiry import Inquiry
from advisor.domain.diagnosis import Alternative, Concession
from advisor.domain.gang import GpuCount, GpuScope

GIB_MIB = 1024
# A gang on more nodes than this is not one a user would open by hand.
MOST_NODES = 64


def alternatives(inquiry: Inquiry) -> Iterator[Alternative]:
    """Yield the single changes of the request that let the job fit now, the smallest first."""
    for alternative in (
        _more_nodes,
        _open_split,
        _any_type,
        _fewer_cpus,
        _less_memory,
        _all_nodes,
        _shared_nodes,
        _fewer_gpus,
    ):
        yield from alternative(inquiry)


def _more_nodes(inquiry: Inquiry) -> Iterator[Alternative]:
    gang = inquiry.gang
    if gang.most_nodes is None or gang.scope not in {GpuScope.JOB, GpuScope.TASK}:
        return
    most = min(gang.gpu_count or 0, MOST_NODES)
    if not inquiry.fits_now_as(replace(gang, nodes_max=max(most, gang.most_nodes))):
        return
    nodes = _least(gang.most_nodes, most, lambda count: inquiry.fits_now_as(replace(gang, nodes_max=count)))
    yield Alternative(concession=Concession.MORE_NODES, count=nodes)


def _open_split(inquiry: Inquiry) -> Iterator[Alternative]:
    asked = inquiry.gang.gpus_by_type
    if inquiry.gang.scope is not GpuScope.NODE or not asked:
        return
    total = tuple(GpuCount(gpu_type=gpu_type, count=count) for gpu_type, count in asked.items())
    if inquiry.fits_now_as(replace(inquiry.gang, per_node=(), per_job=total, nodes_min=1, nodes_max=None)):
        yield Alternative(concession=Concession.OPEN_SPLIT)


def _any_type(inquiry: Inquiry) -> Iterator[Alternative]:
    gang = inquiry.gang
    if gang.gpu_type is None or gang.has_slices:
        return
    untyped = replace(
        gang,
        per_job=_untyped(gang.per_job),
        per_node=_untyped(gang.per_node),
        per_socket=_untyped(gang.per_socket),
        per_task=_untyped(gang.per_task),
    )
    if inquiry.fits_on_whole_gpus(untyped):
        yield Alternative(concession=Concession.ANY_GPU_TYPE)


def _untyped(counts: tuple[GpuCount, ...]) -> tuple[GpuCount, ...]:
    return tuple(GpuCount(count=gpu.count) for gpu in counts)


def _fewer_cpus(inquiry: Inquiry) -> Iterator[Alternative]:
    gang = inquiry.gang
    if gang.cpus_per_gpu is not None:
        yield from _fewer_cpus_per_gpu(inquiry, gang.cpus_per_gpu)
        return
    least = max(1, gang.tasks)
    if gang.cpus > least and inquiry.fits_now_as(replace(gang, cpus=least)):
        cpus = _most(least, gang.cpus, lambda count: inquiry.fits_now_as(replace(gang, cpus=count)))
        yield Alternative(concession=Concession.FEWER_CPUS, count=cpus)


def _fewer_cpus_per_gpu(inquiry: Inquiry, asked: int) -> Iterator[Alternative]:
    def fits(count: int) -> bool:
        # Slurm counts the CPUs in all from those of one GPU.
        return inquiry.fits_now_as(replace(inquiry.gang, cpus_per_gpu=count, cpus=inquiry.gang.cpus * count // asked))

    if asked > 1 and fits(1):
        cpus = _most(1, asked, fits)
        yield Alternative(concession=Concession.FEWER_CPUS_PER_GPU, count=cpus)


def _less_memory(inquiry: Inquiry) -> Iterator[Alternative]:
    gang = inquiry.gang

    def fits(gib: int) -> bool:
        return inquiry.fits_now_as(replace(gang, memory_mib_per_node=gib * GIB_MIB))

    if gang.memory_mib_per_node is not None and fits(1):
        gib = _most(1, gang.memory_mib_per_node // GIB_MIB + 1, fits)
        yield Alternative(concession=Concession.LESS_MEMORY, count=gib)


def _all_nodes(inquiry: Inquiry) -> Iterator[Alternative]:
    gang = inquiry.gang
    if gang.excluded_nodes and inquiry.fits_now_as(replace(gang, excluded_nodes=())):
        yield Alternative(concession=Concession.EXCLUDED_NODES)
    if gang.required_nodes and inquiry.fits_now_as(replace(gang, required_nodes=())):
        yield Alternative(concession=Concession.OTHER_NODES)


def _shared_nodes(inquiry: Inquiry) -> Iterator[Alternative]:
    if any(partition.gives_whole_nodes for partition in inquiry.partitions):
        return
    if inquiry.gang.exclusive and inquiry.fits_now_as(replace(inquiry.gang, exclusive=False)):
        yield Alternative(concession=Concession.SHARED_NODES)


def _fewer_gpus(inquiry: Inquiry) -> Iterator[Alternative]:
    gang, scope = inquiry.gang, inquiry.gang.scope
    if scope not in {GpuScope.JOB, GpuScope.NODE} or len(gang.all_counts) != 1:
        return
    (gpu,) = gang.all_counts

    def fits(count: int) -> bool:
        cpus = gang.cpus if gang.cpus_per_gpu is None else gang.cpus * count // gpu.count
        return inquiry.fits_now_as(replace(gang.with_counts(scope, (replace(gpu, count=count),)), cpus=cpus))

    least = gang.nodes_min if scope is GpuScope.JOB else 1
    if gpu.count > least and fits(least):
        yield Alternative(concession=Concession.FEWER_GPUS, count=_most(least, gpu.count, fits))


def _most(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest count from `low` up to, not including, `high` that fits; `low` is known to fit."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _least(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the smallest count above `low`, up to and including `high`, that fits; `high` is known to fit."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
