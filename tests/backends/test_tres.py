import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.tres import Tres, gpu_counts, gpu_pools, gres_list, share_counts, tres
from advisor.domain.gang import GpuCount, ShareCount
from advisor.domain.node import GpuPool
from advisor.errors import DecodeError

FIELD = "sinfo Gres"


def gpus(gpu_type: str | None, count: int) -> GpuCount:
    return GpuCount(gpu_type=gpu_type, count=count)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("gpu:a100:4(IDX:0-3)", (gpus("a100", 4),)),
        ("gpu:a100:8(S:0-1)", (gpus("a100", 8),)),
        ("gres/gpu:8", (gpus(None, 8),)),
        ("gres/gpu:a100=4", (gpus("a100", 4),)),
        ("gres:gpu:2", (gpus(None, 2),)),
        ("gres/gpu=1", (gpus(None, 1),)),
        ("gres:gpu:v100:2,gres:gpu:a100:6", (gpus("a100", 6), gpus("v100", 2))),
        ("gpu:a100:2(S:0),gpu:a100:2(S:1)", (gpus("a100", 4),)),
        ("gpu:a100:3(IDX:0,2,4),shard:a100:2(1/4,1/4)", (gpus("a100", 3),)),
        ("gpu:(null):3(IDX:0-2)", (gpus(None, 3),)),
        ("gpu:1g.5gb:7", (gpus("1g.5gb", 7),)),
        ("gpu", (gpus(None, 1),)),
        ("gpu:a100", (gpus("a100", 1),)),
        ("gpu:1K", (gpus(None, 1024),)),
        ("cpu=4,gres/gpu=2", (gpus(None, 2),)),
        ("gpu:0", ()),
        ("craynetwork:4,lustre:1", ()),
        ("(null)", ()),
        ("N/A", ()),
        ("", ()),
    ],
)
def test_whole_gpus_are_counted_by_type(text: str, counts: tuple[GpuCount, ...]) -> None:
    assert gpu_counts(gres_list(text, field=FIELD)) == counts


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("gpu:2,shard:4", (ShareCount(kind="shard", count=4),)),
        ("mps:100,gpu:1", (ShareCount(kind="mps", count=100),)),
        ("shard:a100:32(S:0)", (ShareCount(kind="shard", gpu_type="a100", count=32),)),
        ("gpu:8", ()),
    ],
)
def test_parts_of_gpus_are_counted_apart(text: str, shares: tuple[ShareCount, ...]) -> None:
    assert share_counts(gres_list(text, field=FIELD)) == shares


@pytest.mark.parametrize("text", ["gpu:a100:x:4", "gpu:4)", "gpu:a:b"])
def test_gpu_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="not a generic resource"):
        gres_list(text, field=FIELD)


@pytest.mark.parametrize(
    ("configured", "used", "pools"),
    [
        ("gpu:a100:8", "gpu:a100:3(IDX:0-2)", (GpuPool(gpu_type="a100", total=8, used=3),)),
        ("gpu:a100:8", "gpu:a100:0(IDX:N/A),shard:0", (GpuPool(gpu_type="a100", total=8, used=0),)),
        ("gpu:8", "gpu:(null):3(IDX:0-2)", (GpuPool(total=8, used=3),)),
        ("gpu:a100:8", "gpu:3", (GpuPool(gpu_type="a100", total=8, used=3),)),
        (
            "gpu:a100:4,gpu:v100:4",
            "gpu:a100:1(IDX:0),gpu:v100:0(IDX:N/A)",
            (GpuPool(gpu_type="a100", total=4, used=1), GpuPool(gpu_type="v100", total=4, used=0)),
        ),
        ("gpu:a100:8", "", (GpuPool(gpu_type="a100", total=8, used=None),)),
        ("gpu:a100:8", "shard:0", (GpuPool(gpu_type="a100", total=8, used=None),)),
        (
            "gpu:a100:4,gpu:v100:4",
            "gpu:2",
            (GpuPool(gpu_type="a100", total=4, used=None), GpuPool(gpu_type="v100", total=4, used=None)),
        ),
        ("(null)", "", ()),
    ],
    ids=["typed", "idle", "untyped", "one pool", "two pools", "not told", "only shards", "untold type", "no GPUs"],
)
def test_use_of_gpus_is_known_or_none(configured: str, used: str, pools: tuple[GpuPool, ...]) -> None:
    assert gpu_pools(gres_list(configured, field=FIELD), gres_list(used, field=FIELD)) == pools


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("cpu=8,mem=62.50G,node=1,billing=8", Tres(cpus=8, memory_mib=64000, nodes=1)),
        ("cpu=1,gres/gpu=8", Tres(cpus=1, gpus=(gpus(None, 8),))),
        ("gres/gpu=8,gres/gpu:a100=8", Tres(gpus=(gpus("a100", 8),))),
        ("gres/gpu=8,gres/gpu:a100=6", Tres(gpus=(gpus(None, 2), gpus("a100", 6)))),
        ("gres/gpu:a100=6", Tres(gpus=(gpus("a100", 6),))),
        ("gres/gpu=0", Tres(gpus=())),
        ("gres/shard=4,license/x=1", Tres()),
        ("(null)", Tres()),
    ],
)
def test_tres_not_counted_are_none(text: str, counted: Tres) -> None:
    assert tres(text, field=FIELD) == counted


def test_tres_without_a_value_is_refused() -> None:
    with pytest.raises(DecodeError, match="not a list of TRES"):
        tres("cpu", field=FIELD)


@given(
    totals=st.dictionaries(st.sampled_from(["", "a100", "v100", "1g.5gb"]), st.integers(1, 4096), max_size=3),
    form=st.sampled_from(["gpu:{}{}", "gres:gpu:{}{}", "gres/gpu:{}{}"]),
)
def test_spelled_gpus_come_back(totals: dict[str, int], form: str) -> None:
    text = ",".join(form.format(f"{kind}:" if kind else "", number) for kind, number in totals.items())

    counts = gpu_counts(gres_list(text, field=FIELD))

    assert {count.gpu_type or "": count.count for count in counts} == totals
