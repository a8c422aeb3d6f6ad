import time
from collections.abc import Callable

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends import spelling, tres
from advisor.backends.hints import hints
from advisor.backends.tres import Tres, gpu_counts, gpu_pools, gres_list, share_counts
from advisor.backends.tres import tres as decoded_tres
from advisor.domain.gang import GpuCount, ShareCount
from advisor.domain.job import GpuRange, JobHints, Sensitivity
from advisor.domain.node import GpuPool
from advisor.errors import DecodeError

FIELD = "squeue Field"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2-00:00:00", 172800.0),
        ("1:30:00", 5400.0),
        ("30:00", 1800.0),
        ("0:05", 5.0),
        ("00:05:00", 300.0),
        ("90", 5400.0),
        ("7-0", 604800.0),
        ("1-12", 129600.0),
        ("UNLIMITED", None),
        ("infinite", None),
        ("INVALID", None),
        ("NOT_SET", None),
        ("Partition_Limit", None),
        ("n/a", None),
        ("NONE", None),
    ],
)
def test_duration_is_seconds_or_none(text: str, seconds: float | None) -> None:
    assert spelling.duration_s(text, field=FIELD) == seconds


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1795220899", 1795220899.0),
        ("2026-11-21T00:28:19", 1795220899.0),
        ("Unknown", None),
        ("N/A", None),
        ("None", None),
        ("0", None),
        (" 1795220899 ", 1795220899.0),
        (" 0 ", None),
    ],
)
def test_instant_is_posix_seconds_or_none(text: str, instant: float | None) -> None:
    assert spelling.instant(text, field=FIELD) == instant


def test_iso_time_is_read_in_the_local_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    try:
        assert spelling.instant("2026-11-21T02:28:19", field=FIELD) == 1795220899.0
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "mib"), [("62.50G", 64000), ("3000M", 3000), ("1T", 1 << 20), ("512", 512), ("2048K", 2)]
)
def test_memory_is_mib(text: str, mib: int) -> None:
    assert spelling.memory_mib(text, field=FIELD) == mib


@pytest.mark.parametrize(("text", "number"), [("4", 4), ("1K", 1024), ("2.5K", 2560), ("1.5", 2), (" 7 ", 7)])
def test_count_knows_binary_suffixes(text: str, number: int) -> None:
    assert spelling.count(text, field=FIELD) == number


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n[01-03,07]", ("n01", "n02", "n03", "n07")),
        ("n2,n10,a", ("a", "n10", "n2")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("", ()),
        ("(null)", ()),
        ("N/A", ()),
    ],
)
def test_node_list_is_unfolded_in_name_order(text: str, nodes: tuple[str, ...]) -> None:
    assert spelling.node_names(text, field=FIELD) == nodes


_NUMBERS = st.integers(0, 120).flatmap(lambda number: st.sampled_from([str(number), f"{number:03}", f"{number:05}"]))
_PARTS = st.one_of(_NUMBERS, st.builds("{}-{}".format, _NUMBERS, _NUMBERS))
_PREFIXES = st.sampled_from(["n", "gpu-a", "r1n", "x_", "a1", "9"])
_ITEMS = st.one_of(
    st.builds("{}{}".format, _PREFIXES, _NUMBERS),
    st.builds(lambda prefix, parts: f"{prefix}[{','.join(parts)}]", _PREFIXES, st.lists(_PARTS, max_size=4)),
    st.sampled_from(["", "n[1-2]x[3-4]", "n[1]b", "n[1-2-3]", "n["]),
)


@given(st.lists(_ITEMS, min_size=1, max_size=4).map(",".join))
def test_node_list_is_unfolded_as_clustershell_does(text: str) -> None:
    try:
        expected = tuple(sorted(map(str, NodeSet(text, resolver=RESOLVER_NOGROUP))))
    except NodeSetException:
        expected = None

    try:
        seen = spelling.node_names(text, field=FIELD)
    except DecodeError:
        seen = None

    assert seen == expected


@pytest.mark.parametrize(
    "text",
    [
        "n[1-",
        "n]",
        "@all",
        "n1;id",
        "n[1-99999999]",
        "n[0-9]" * 8,
        "n[3-1]",
        "n[3-1],m1",
        "n[05-9]",
        "n[9-010]",
        "n[" + "9" * 5000 + "-1]",
    ],
)
def test_bad_node_list_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match=r"squeue Field reads .* which is not a node list"):
        spelling.node_names(text, field=FIELD)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Resources", "Resources"),
        ("None", "None"),
        ("(null)", ""),
        ("ReqNodeNotAvail, UnavailableNodes:n08", "ReqNodeNotAvail"),
        ("ReqNodeNotAvail,_UnavailableNodes:n08", "ReqNodeNotAvail"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "Resources"),
        ("JobArrayTaskLimit,Priority", "JobArrayTaskLimit"),
        ("", ""),
    ],
)
def test_reason_is_one_plain_word(text: str, word: str) -> None:
    assert spelling.reason_word(text) == word


def test_number_longer_than_any_of_slurms_is_refused() -> None:
    assert spelling.integer("-" + "9" * 20, field=FIELD) == 1 - 10**20
    with pytest.raises(DecodeError, match="which is not a whole number"):
        spelling.integer("9" * 21, field=FIELD)


def test_limit_above_a_year_counts_as_none() -> None:
    assert spelling.time_limit_s(365 * 86400.0) == 365 * 86400.0
    assert spelling.time_limit_s(365 * 86400.0 + 60) is None
    assert spelling.time_limit_s(None) is None


DECODERS: dict[str, Callable[[str], object]] = {
    "count": lambda text: spelling.count(text, field=FIELD),
    "integer": lambda text: spelling.integer(text, field=FIELD),
    "memory": lambda text: spelling.memory_mib(text, field=FIELD),
    "duration": lambda text: spelling.duration_s(text, field=FIELD),
    "instant": lambda text: spelling.instant(text, field=FIELD),
    "nodes": lambda text: spelling.node_names(text, field=FIELD),
    "names": spelling.names,
    "reason": spelling.reason_word,
    "gres": lambda text: tres.gres_list(text, field=FIELD),
    "tres": lambda text: tres.tres(text, field=FIELD),
}
SPELLED = st.text(st.sampled_from("0123456789-:.,@[]()=/ gpuresatnodKMGT\n\x00\x1b\udc80"), max_size=40)


@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS.keys())
@given(text=st.one_of(st.text(max_size=60), SPELLED))
def test_any_text_is_decoded_or_refused(decode: Callable[[str], object], text: str) -> None:
    refused = ""
    try:
        decode(text)
    except DecodeError as err:
        refused = str(err)

    assert "\n" not in refused


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
    assert decoded_tres(text, field=FIELD) == counted


def test_tres_without_a_value_is_refused() -> None:
    with pytest.raises(DecodeError, match="not a list of TRES"):
        decoded_tres("cpu", field=FIELD)


@given(
    totals=st.dictionaries(st.sampled_from(["", "a100", "v100", "1g.5gb"]), st.integers(1, 4096), max_size=3),
    form=st.sampled_from(["gpu:{}{}", "gres:gpu:{}{}", "gres/gpu:{}{}"]),
)
def test_spelled_gpus_come_back(totals: dict[str, int], form: str) -> None:
    text = ",".join(form.format(f"{kind}:" if kind else "", number) for kind, number in totals.items())

    counts = gpu_counts(gres_list(text, field=FIELD))

    assert {count.gpu_type or "": count.count for count in counts} == totals


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        (
            "sadvise: model=bert gpus=2-8 ckpt=300 step=0.31 sensitivity=high off",
            JobHints(
                model="bert",
                gpus=GpuRange(low=2, high=8),
                checkpoint_s=300.0,
                step_s=0.31,
                sensitivity=Sensitivity.HIGH,
                opted_out=True,
            ),
        ),
        ("mine; sadvise: ckpt=5 pinned=2", JobHints(checkpoint_s=5.0, pinned=2)),
        ("sadvise: by=2026-12-01T09:00", JobHints(deadline_time=time.mktime((2026, 12, 1, 9, 0, 0, 0, 0, -1)))),
        ("sadvise: by=2026-12-01", JobHints(deadline_time=time.mktime((2026, 12, 1, 0, 0, 0, 0, 0, -1)))),
        ("sadvise:model=bert,gpus=4", JobHints(model="bert", gpus=GpuRange(low=4, high=4))),
        ("for paper 3 sadvise: gpus=1-2; urgent off", JobHints(gpus=GpuRange(low=1, high=2))),
        ("SADVISE: OFF", JobHints(opted_out=True)),
        ("sadvise: sensitivity=LOW", JobHints(sensitivity=Sensitivity.LOW)),
        ("sadvise:", JobHints()),
        ("off", JobHints()),
        ("notsadvise: off", JobHints()),
        ("", JobHints()),
    ],
)
def test_declared_words_are_read(comment: str, found: JobHints) -> None:
    assert hints(comment) == found


@pytest.mark.parametrize(
    "word",
    [
        "gpus=8-2",
        "gpus=0",
        "gpus=many",
        "ckpt=soon",
        "step=0",
        "step=nan",
        "sensitivity=extreme",
        "model=",
        "by=tomorrow",
        "by=2026-13-01",
        "by=9999-12-31T23:59",
        "by=0001-01-01",
        "by=2026-12-01T09:00+99:99",
        "off=1",
        "pinned=0",
        "elastic=2-8",
        "fast",
        "model=" + "x" * 30 + "é\x1b",
    ],
)
def test_word_that_cannot_be_read_is_kept_as_unknown(word: str) -> None:
    found = hints(f"sadvise: {word} ckpt=5")

    assert found == JobHints(checkpoint_s=5.0, unknown=(word,)) or found.model == word.removeprefix("model=")


def test_unknown_words_are_bounded() -> None:
    found = hints("sadvise: " + " ".join(f"{number}{'y' * 100}" for number in range(50)))

    assert len(found.unknown) == 8
    assert max(map(len, found.unknown)) == 40


@given(st.text())
def test_any_comment_is_read(comment: str) -> None:
    assert isinstance(hints(comment), JobHints)
    assert isinstance(hints(f"sadvise: {comment}"), JobHints)
