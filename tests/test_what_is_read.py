"""docs/what-is-read.md names every field that a decoder reads, and none that it does not."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest

from advisor.backends import pyslurm_child, text_decode
from advisor.backends.assoc_text import COUNTS
from advisor.backends.association_limits import CHECKED
from advisor.backends.pyslurm_decode import Counted, Raw, job_record, node_record, partition
from advisor.backends.scontrol_text import partitions
from advisor.backends.site_config import further_settings, site_config
from advisor.backends.slurm_conf import FOR_SYSTEM
from advisor.features.capacity import Doubt
from advisor.sim.slurm.slurm_settings import OTHERS_LEFT_OUT
from tests.backends import recorded_pyslurm
from tools import what_is_read as page
from tools.what_is_read import Input


class Traced(dict[str, Any]):
    """Settings that record the keys that a decoder looks for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.seen: set[str] = set()
        super().__init__(values)

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.seen.add(str(key))
        return super().__contains__(key)


def looked_for(decode: Callable[[Any], object], values: Mapping[str, Any]) -> set[str]:
    """Return the keys that a decoder of settings looks for."""
    raw = Traced(values)
    decode(raw)
    return raw.seen


def named(entries: Iterable[Input], reader: str) -> set[str]:
    return {field for entry in entries for field in getattr(entry, reader).split()}


JOB_ENTRIES = (*page.REQUESTS, *page.DOUBTS.values(), page.DESCRIBING)
NODE_ENTRIES = (*page.NODES, page.FOR_SYSTEM, page.DESCRIBING_NODES)
PARTITION_ENTRIES = (*page.PARTITIONS, page.DESCRIBING_PARTITIONS)
READ: Mapping[str, tuple[set[Any], set[Any]]] = {
    "squeue": (set(text_decode.JOB_FIELDS), named(JOB_ENTRIES, "text") | text_decode.UNCOUNTED.keys()),
    "sinfo": (set(text_decode.NODE_FIELDS), named((*NODE_ENTRIES, *PARTITION_ENTRIES), "text")),
    "jobs of pyslurm": (set(pyslurm_child.JOB), named(JOB_ENTRIES, "pyslurm")),
    "nodes of pyslurm": (set(pyslurm_child.NODE), named(NODE_ENTRIES, "pyslurm")),
    "partitions of pyslurm": (set(pyslurm_child.PARTITION), named(PARTITION_ENTRIES, "pyslurm")),
    "slurm.conf": (
        looked_for(lambda raw: site_config(raw, version="26.05.0"), {"prioritytype": "priority/multifactor"}),
        {name.lower() for name in (*page.SETTINGS, *page.NAMED_ONLY)},
    ),
    "settings of nodes in slurm.conf": (set(FOR_SYSTEM), set(page.FOR_SYSTEM.name.lower().split(", "))),
    "further settings": (
        looked_for(further_settings, {}),
        {*(name.lower() for name in OTHERS_LEFT_OUT), "preemptmode", "preemptexempttime", "killwait", "messagetimeout"},
    ),
    "doubts": (set(Doubt), set(page.DOUBTS)),
}


@pytest.mark.parametrize(
    ("kind", "asked", "decode"),
    [
        ("job", pyslurm_child.JOB, partial(job_record, tres_counted=Counted(gpus=True))),
        ("node", pyslurm_child.NODE, partial(node_record, gpus_counted=True)),
        ("partition", pyslurm_child.PARTITION, partition),
    ],
)
def test_each_attribute_that_pyslurm_is_asked_for_is_decoded(
    kind: str, asked: Iterable[str], decode: Callable[[Raw], object]
) -> None:
    records = recorded_pyslurm.counted_records()[kind]

    assert set().union(*(looked_for(lambda values: decode(Raw(values=values)), raw.values) for raw in records)) == {
        *asked
    }


@pytest.mark.parametrize("answer", READ)
def test_the_page_names_what_is_read_of_an_answer_and_nothing_else(answer: str) -> None:
    read, on_the_page = READ[answer]

    assert sorted(read - on_the_page) == []
    assert sorted(on_the_page - read) == []


@pytest.mark.parametrize("answer", ["squeue", "sinfo"])
def test_what_is_called_not_read_is_in_no_decoder(answer: str) -> None:
    unread = page.UNREAD_REQUESTS if answer == "squeue" else page.UNREAD_NODES

    assert sorted(named(unread, "text") & READ[answer][0]) == []


def test_settings_called_not_read_are_in_no_decoder() -> None:
    unread = {name.lower() for entry in page.UNREAD_SETTINGS for name in re.findall(r"\w+", entry.name)}

    assert sorted(unread & READ["slurm.conf"][0]) == []


def test_a_partition_setting_called_not_read_changes_no_partition() -> None:
    names = [name for entry in page.UNREAD_PARTITIONS for name in re.findall(r"\w+", entry.name)]
    text = "PartitionName=gpu State=UP MaxTime=1:00:00 DefaultTime=1:00:00 PriorityTier=1 MaxNodes=4 "
    text += "PriorityJobFactor=1 Nodes=n1"

    assert partitions(f"{text} {' '.join(f'{name}=7' for name in names)}") == partitions(text)


def test_limits_called_not_read_are_not_checked() -> None:
    unread = {name for entry in page.UNREAD_LIMITS for name in re.findall(r"\w+", entry.name)}

    assert sorted(unread & {*CHECKED, *COUNTS}) == []


def test_every_doubted_option_stands_on_the_page() -> None:
    listed = " ".join(name for name, _, _ in page.doubted())

    assert [option for option in sorted(text_decode.UNCOUNTED.values()) if option not in listed] == []
