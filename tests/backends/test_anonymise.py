"""Anonymised snapshots: no name of a site survives, and what the names related stays related."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings

from advisor.backends.anonymise import anonymise
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.planning.case import Case
from advisor.planning.line import plan
from advisor.settings import PlanningSettings
from tests.builders import (
    make_cluster,
    make_config,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
    make_topology,
)
from tests.strategies import HOSTILE, hostile_texts, snapshots

REALISTIC = make_snapshot(
    [
        make_job(
            1,
            gang=make_gang(features="[a100*2|ib-rack7]&nvme", required_nodes=("gpu-b2",), excluded_nodes=("gone9",)),
            user="carol",
            account="smithlab",
            name="secret_project.sh",
            qos="smithlab_prio",
            partitions=("smith", "gpu"),
            reservation="maint_friday",
            dependency="afterok:12:13_4(unfulfilled)?singleton",
            reason="ReqNodeNotAvail, UnavailableNodes:gpu-b2",
            hints=make_hints("bert-internal", unknown=("hurry", "please")),
        ),
        make_job(2, user="bob", account="smithlab", partitions=("gpu",), running_on=["gpu-b10"]),
        make_job(3, user="carol", account="joneslab", partitions=("gpu",)),
    ],
    [
        make_node("gpu-b10", used=1, features=("a100", "nvme"), partitions=("gpu",)),
        make_node("gpu-b2", reason="disk broken, ask Dave", features=("a100",), partitions=("gpu", "smith")),
    ],
    partitions=[make_partition("gpu", ["gpu-b10", "gpu-b2"]), make_partition("smith", ["gpu-b2"])],
    topology=make_topology({"rack7": ["gpu-b10"], "rack8": ["gpu-b2"]}),
    config=make_config(
        cluster="bigsite",
        scheduler_parameters={"bf_window": "2880", "bf_continue": "", "odd": "ourword"},
        site_factor_plugin="site_factor/ours",
        accounting_tres=("cpu", "gres/gpu:a100", "license/matlab", "gres/ourcard", "oddity"),
    ),
    unread=("scontrol show topology: rack7 unknown",),
)


def texts(value: object) -> Iterator[str]:
    """List every text in a domain value."""
    if isinstance(value, str):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from texts(getattr(value, field.name))
    elif isinstance(value, dict):
        for item in value.items():
            yield from texts(item)
    elif isinstance(value, Iterable):
        for item in value:
            yield from texts(item)


def names_by_kind(snapshot: Snapshot) -> dict[str, list[str]]:
    """List the names of each kind that may stand in several places, in the order of the snapshot."""
    jobs, topology = snapshot.jobs, snapshot.topology
    named_nodes = [
        *(partition.nodes for partition in snapshot.partitions),
        *(switch.nodes for switch in topology.switches),
        *(job.allocation.nodes for job in jobs if job.allocation),
        *(job.gang.required_nodes + job.gang.excluded_nodes for job in jobs),
    ]
    return {
        "users": [job.user for job in jobs],
        "accounts": [job.account for job in jobs],
        "jobs": [job.name for job in jobs],
        "qos": [job.qos for job in jobs],
        "reservations": [job.reservation for job in jobs],
        "models": [job.hints.model or "" for job in jobs],
        "switches": [switch.name for switch in topology.switches],
        "features": [feature for node in snapshot.nodes for feature in node.features],
        "partitions": [
            *(partition.name for partition in snapshot.partitions),
            *(name for node in snapshot.nodes for name in node.partitions),
            *(name for job in jobs for name in job.partitions),
        ],
        "nodes": [node.name for node in snapshot.nodes] + [name for names in named_nodes for name in names],
    }


@settings(deadline=None)
@given(snapshot=snapshots(names=hostile_texts()))
def test_no_character_of_a_private_text_survives(snapshot: Snapshot) -> None:
    anonymous = anonymise(snapshot)

    # Slurm's own words are kept, and some of them hold spaces.
    private = set(HOSTILE) - {" "}
    assert [text for text in texts(anonymous) if private.intersection(text)] == []


PRIVATE = "private"
# Words of ours, and of Slurm.
NOT_PRIVATE = {
    ("jobs", "unseen"),
    ("jobs", "reason"),
    ("nodes", "state"),
    ("nodes", "flags"),
    ("partitions", "over_subscribe"),
}


def private_fields() -> Iterator[tuple[str, str, Any]]:
    """List the fields of jobs, nodes and partitions that hold texts, each with a private text for it."""
    for rows in ("jobs", "nodes", "partitions"):
        kind = type(getattr(REALISTIC, rows)[0])
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            hint = hints[field.name]
            if (rows, field.name) in NOT_PRIVATE:
                continue
            if hint in (str, str | None):
                yield rows, field.name, PRIVATE
            elif hint in (tuple[str, ...], frozenset[str]):
                yield rows, field.name, hint([PRIVATE])


@pytest.mark.parametrize(("rows", "field", "private"), tuple(private_fields()))
def test_every_text_of_a_row_is_replaced_also_one_that_is_new(rows: str, field: str, private: Any) -> None:
    row = dataclasses.replace(getattr(REALISTIC, rows)[0], **{field: private})
    changed: dict[str, Any] = {rows: (row,)}

    assert PRIVATE not in set(texts(anonymise(dataclasses.replace(REALISTIC, **changed))))


@pytest.mark.slow
@settings(deadline=None)
@given(snapshot=snapshots())
def test_whoever_was_the_same_stays_the_same_and_no_one_else(snapshot: Snapshot) -> None:
    before = names_by_kind(snapshot)

    after = names_by_kind(anonymise(snapshot))

    for kind, names in before.items():
        pairs = set(zip(names, after[kind], strict=True))
        assert len(pairs) == len(set(names)) == len(set(after[kind])), kind


@settings(deadline=None)
@given(snapshot=snapshots())
def test_nodes_partitions_and_switches_sort_as_before(snapshot: Snapshot) -> None:
    anonymous = anonymise(snapshot)

    for kind in ("nodes", "partitions"):
        before, after = names_by_kind(snapshot)[kind], names_by_kind(anonymous)[kind]
        assert sorted(range(len(before)), key=before.__getitem__) == sorted(range(len(after)), key=after.__getitem__)
    switches = anonymous.topology.switches
    assert list(switches) == sorted(switches, key=lambda switch: (switch.level, switch.name))


@settings(deadline=None)
@given(snapshot=snapshots())
def test_anonymising_again_changes_nothing(snapshot: Snapshot) -> None:
    once = dataclasses.replace(anonymise(snapshot), unread=())

    twice = anonymise(once)

    assert twice == once


@pytest.mark.slow
@settings(deadline=None)
@given(snapshot=snapshots())
def test_an_anonymised_snapshot_gives_the_same_advice(snapshot: Snapshot) -> None:
    eager = PlanningSettings(min_saving_s=0.0)
    advice = plan(Case(snapshot=snapshot, settings=eager))

    anonymous_advice = plan(Case(snapshot=anonymise(snapshot), settings=eager))

    assert [(change.action, change.reason, change.expected) for change in advice.recommendations] == [
        (change.action, change.reason, change.expected) for change in anonymous_advice.recommendations
    ]


def test_the_names_of_a_job_are_replaced_and_its_ids_stay() -> None:
    job = anonymise(REALISTIC).jobs[0]

    expected = make_job(
        1,
        gang=make_gang(
            features="[feature01*2|feature03]&feature02", required_nodes=("n003",), excluded_nodes=("n001",)
        ),
        user="user01",
        account="account01",
        name="job01",
        qos="qos01",
        partitions=("partition02", "partition01"),
        reservation="reservation01",
        dependency="afterok:12:13_4(unfulfilled)?singleton",
        reason="ReqNodeNotAvail, UnavailableNodes",
        hints=make_hints("model01", unknown=("word04", "word05")),
    )
    assert job == expected


def test_users_are_numbered_in_the_order_of_their_jobs() -> None:
    jobs = anonymise(REALISTIC).jobs

    assert [(job.user, job.account, job.qos) for job in jobs] == [
        ("user01", "account01", "qos01"),
        ("user02", "account01", "normal"),
        ("user01", "account02", "normal"),
    ]


def test_nodes_are_numbered_in_the_order_of_their_names() -> None:
    anonymous = anonymise(REALISTIC)

    # "gone9", which no longer exists, comes first.
    assert [(node.name, node.reason, node.features) for node in anonymous.nodes] == [
        ("n002", "", ("feature01", "feature02")),
        ("n003", "reason01", ("feature01",)),
    ]
    assert [(switch.name, switch.nodes) for switch in anonymous.topology.switches] == [
        ("switch01", ("n002",)),
        ("switch02", ("n003",)),
        ("switch03", ("n002", "n003")),
    ]


def test_the_configuration_keeps_slurms_words_only() -> None:
    anonymous = anonymise(REALISTIC)

    assert anonymous.config == make_config(
        cluster="cluster",
        scheduler_parameters={"bf_window": "2880", "bf_continue": "", "odd": "word01"},
        site_factor_plugin="site_factor/site",
        accounting_tres=("cpu", "gres/gpu:a100", "license/word02", "gres/word03", "oddity"),
    )
    assert anonymous.unread == ("something that is not named here (1)",)


@pytest.mark.parametrize(
    ("dependency", "expected"),
    [
        ("afterany:1,afternotok:2", "afterany:1,afternotok:2"),
        ("singleton", "singleton"),
        ("aftershave:1", "word01:1"),
        ("smith_lab:1", "word01_word02:1"),
        ("after:12+5", "after:12+5"),
        ("lab2go:7", "word01:7"),
    ],
)
def test_a_dependency_keeps_ids_and_slurms_words(dependency: str, expected: str) -> None:
    snapshot = make_snapshot([make_job(dependency=dependency)])

    job: Job = anonymise(snapshot).jobs[0]

    assert job.dependency == expected


def test_a_thousand_nodes_still_sort_by_number() -> None:
    names = [f"r{rack}c{node}" for rack in range(40) for node in range(30)]
    snapshot = make_cluster(leaves={"leaf1": names})

    nodes = [node.name for node in anonymise(snapshot).nodes]

    assert nodes == sorted(nodes)
    assert nodes[0] == "n0001"
