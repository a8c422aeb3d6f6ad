"""Which places are tried to learn from them: within the bound of every affected job, and the share of GPU-time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain.actions import Reason, SetNodeList
from advisor.domain.gang import GpuScope
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.plan import Kind
from advisor.features.observe.graph import Floats
from advisor.features.observe.subspaces import NOTHING_SEEN, Subspace, Subspaces
from advisor.journal.rows import action_text
from advisor.settings import PlanningSettings
from advisor.view.sentences import assumption, sentence
from tests.builders import DAY_S, HOUR_S, LEAVES, MINUTE_S, TAKEN_AT, make_gang, make_hints
from tests.examples import examples
from tests.planning.exploring_site import (
    EXPLORING,
    HALVES,
    MODELS,
    WELL_KNOWN,
    pending,
    planned,
    queue,
    resident,
    site_speeds,
    tried,
    without_speeds,
)
from tests.planning.test_gang_nodes import Places, Waiting

BESIDE_BERT = ("n01", "n02")
AS_CHOSEN = ("n03", "n04")
FULL = make_gang(8, nodes_min=1, nodes_max=1)
OFF = replace(EXPLORING, explore_ratio=0.0)


def test_place_that_was_never_seen_is_tried_instead_of_one_that_is_well_known() -> None:
    (change,) = planned(queue(pending(), resident())).judged

    assert change.action == SetNodeList(job_id=1, before=(), after=BESIDE_BERT, explored_gpu_s=8 * HOUR_S)
    assert (change.kind, change.reason, change.refused_by) == (Kind.CONSOLIDATE, Reason.EXPLORE_PLACE, None)
    assert (change.revert_after_s, change.expected.added_delay_max_s) == (120.0, 120.0)
    # The bound is 0.05 of time and 1.64 standard deviations of 0.02; 8 GPUs have run for a day.
    assert change.evidence["slowed_ratio_max"] == round(1.0 - np.exp(-1.64 * 0.02) / 1.05, 3)
    assert change.evidence["used_ratio"] == round(8.0 / (0.05 * 8 * 24), 3)
    assert {name: change.evidence[name] for name in ("signature", "seen", "affected", "instead_of", "by_policy")} == {
        "signature": "bert+gpt2|one leaf|half|other",
        "seen": 0,
        "affected": 1,
        "instead_of": "n03 n04",
        "by_policy": "places",
    }


def test_sentence_says_what_is_at_stake_and_what_the_policy_would_have_chosen() -> None:
    (change,) = planned(queue(pending(), resident())).judged

    assert sentence(change) == (
        "8 GPUs are idle on 2 nodes where such a gang never ran. It and 1 other gang can lose up to 7.8% of speed, "
        "15% at most. After 2 min Slurm chooses again"
    )
    assert assumption(change).endswith(
        "The policy places would have chosen n03 n04. With it, 83% of the GPU-time for tries is used"
    )


class Unread(Subspaces):
    """Subspaces that fail when anything is read of them."""

    def __getattribute__(self, name: str) -> object:
        raise AssertionError(f"{name} was read")


def test_nothing_is_tried_and_nothing_read_where_the_ratio_is_0() -> None:
    snapshot = queue(pending(), resident())

    record = planned(snapshot, site_speeds(subspaces=object.__new__(Unread)), planning=OFF)

    assert record.judged == without_speeds(snapshot, EXPLORING).judged
    assert [change.reason for change in record.judged] == [Reason.PLACE_FOR_GANG]
    with pytest.raises(AssertionError, match="was read"):
        planned(snapshot, site_speeds(subspaces=object.__new__(Unread)))


def test_nothing_is_tried_by_default() -> None:
    default = PlanningSettings(name_nodes=True)

    assert (default.explore_ratio, default.explore_slowdown) == (0.0, 0.15)
    assert tried(planned(queue(pending(), resident()), planning=default)) == []


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param([pending(qos="high"), resident()], id="names a QOS"),
        pytest.param([pending(time_limit_s=None), resident()], id="no time limit"),
        pytest.param([pending(time_limit_s=1.5 * HOUR_S), resident()], id="more GPU-time than the share"),
        pytest.param([pending(), resident(qos="high")], id="neighbour names a QOS"),
        pytest.param([pending(), resident(reservation="course")], id="neighbour in a reservation"),
        pytest.param([pending(), resident(hints=make_hints("bert", opted_out=True))], id="neighbour opted out"),
        pytest.param([pending(hints=make_hints("gpt2", opted_out=True)), resident()], id="opted out"),
    ],
)
def test_place_is_not_tried(jobs: Sequence[Job]) -> None:
    assert tried(planned(queue(*jobs))) == []


@pytest.mark.parametrize("qos", ["", "normal"])
def test_the_usual_qos_is_none_that_is_named(qos: str) -> None:
    assert len(tried(planned(queue(pending(qos=qos), resident())))) == 1


def test_place_that_cannot_hold_the_gang_is_not_tried() -> None:
    # Thirteen GPUs on two nodes of seven and six free ones; the others have four each.
    used = {"n01": 4, "n02": 4, "n03": 1, "n04": 2}
    small = [resident(20 + row, (name,), gang=make_gang(count)) for row, (name, count) in enumerate(used.items())]
    odd = pending(gang=make_gang(13, nodes_min=2, nodes_max=2, tasks=2, cpus=2), time_limit_s=600.0)

    (change,) = planned(queue(odd, *small), site_speeds(subspaces=NOTHING_SEEN)).judged

    assert (change.reason, change.action.after) == (Reason.PLACE_FOR_GANG, AS_CHOSEN)


def test_policy_that_leaves_the_gang_to_slurm_is_followed() -> None:
    assert planned(queue(pending(), resident()), policy=Waiting()).judged == ()


def test_rule_in_the_place_of_a_policy_that_failed_is_explored_too() -> None:
    (change,) = planned(queue(pending(), resident()), site_speeds(), policy=Places()).judged

    assert (change.reason, change.evidence["by_policy"]) in [
        (Reason.EXPLORE_PLACE, ""),
        (Reason.PLACE_FOR_GANG, ""),
    ]


@pytest.mark.parametrize(("added", "is_tried"), [(0.12, True), (0.16, False)])
def test_neighbour_keeps_its_speed_but_for_the_stated_share(added: float, is_tried: bool) -> None:
    # The lower bound of 0.16 with a deviation of 0.02 is 0.166 of speed, that of 0.12 is 0.136.
    harm = np.zeros((3, 3))
    harm[0, 1] = added

    assert bool(tried(planned(queue(pending(), resident()), site_speeds(harm)))) is is_tried


@pytest.mark.parametrize(("variance", "is_tried"), [(0.0004, True), (0.04, False)])
def test_what_the_model_is_unsure_of_counts_as_lost(variance: float, is_tried: bool) -> None:
    assert bool(tried(planned(queue(pending(), resident()), site_speeds(variance=variance)))) is is_tried


@pytest.mark.parametrize(("bound", "is_tried"), [(0.05, False), (0.15, True)])
def test_bound_is_the_site_s(bound: float, is_tried: bool) -> None:
    record = planned(queue(pending(), resident()), planning=replace(EXPLORING, explore_slowdown=bound))

    assert bool(tried(record)) is is_tried


def lease_of(job_id: int, nodes: tuple[str, ...], gpu_s: float, *, ago_s: float = HOUR_S, open_: bool = False) -> Lease:
    """Return the lease of a place that was tried, of a job that has started since unless it is open."""
    action = SetNodeList(job_id=job_id, before=(), after=nodes, explored_gpu_s=gpu_s)
    lease = replace(intended(action, TAKEN_AT - ago_s, after_s=120.0), state=LeaseState.OUT)
    return lease if open_ else lease.ended(Ending.NO_LONGER_PENDING, lease.applied_time + MINUTE_S)


@pytest.mark.parametrize(
    ("lease", "is_tried"),
    [
        (lease_of(99, ("n07",), HOUR_S), True),
        (lease_of(99, ("n07",), 2 * HOUR_S), False),
        (lease_of(99, ("n07",), 2 * HOUR_S, ago_s=2 * DAY_S), True),
        (lease_of(99, ("n07",), 2 * HOUR_S, open_=True, ago_s=MINUTE_S), False),
        (replace(lease_of(99, ("n07",), 2 * HOUR_S), ending=Ending.NOT_APPLIED), True),
    ],
    ids=["room left", "no room left", "before the window", "open", "never took effect"],
)
def test_tries_of_the_window_count_against_the_share(lease: Lease, is_tried: bool) -> None:
    assert bool(tried(planned(queue(pending(), resident()), leases=[lease]))) is is_tried


@pytest.mark.parametrize(
    "lease",
    [lease_of(8, BESIDE_BERT, 1.0, ago_s=20 * DAY_S), lease_of(5, BESIDE_BERT, 1.0, open_=True, ago_s=MINUTE_S)],
    ids=["is itself on such a place", "a gang was sent beside it"],
)
def test_job_is_affected_by_one_try_at_most(lease: Lease) -> None:
    assert tried(planned(queue(pending(), resident()), leases=[lease])) == []


def test_neighbour_of_a_tried_gang_is_not_affected_again() -> None:
    quarter = make_gang(2, scope=GpuScope.NODE, nodes_min=2, nodes_max=2, tasks=2, cpus=2)
    running = [resident(8, gang=quarter), resident(9, ("n02", "n03"), gang=quarter), resident(10, ("n05",), gang=FULL)]
    snapshot = queue(*running, pending(), leaves={**LEAVES, "leaf3": ("n05",)})

    before = tried(planned(snapshot))
    after = tried(planned(snapshot, leases=[lease_of(9, ("n02", "n03"), 1.0)]))

    assert before != []
    assert not any({"n01", "n02", "n03"} & set(change.action.after) for change in after)  # type: ignore[arg-type]


def test_two_gangs_of_one_cycle_do_not_affect_one_neighbour_twice() -> None:
    short = [pending(number, time_limit_s=600.0) for number in (1, 2)]
    spread = resident(8, ("n01", "n02", "n05", "n06"), gang=replace(HALVES, nodes_min=4, nodes_max=4))
    leaves = {"leaf1": ("n01", "n02", "n05", "n06"), "leaf2": ("n03", "n04", "n07", "n08")}

    record = planned(queue(*short, spread, leaves=leaves))

    assert [change.evidence["affected"] for change in tried(record)] == [1]
    assert len(record.recommendations) == 2


def test_links_between_leaves_that_others_use_are_not_tried() -> None:
    crossing = resident(8, ("n02", "n03"))
    place_of_its_own = replace(pending(), gang=make_gang(16, nodes_min=2, nodes_max=2, tasks=2, cpus=2))

    record = planned(queue(place_of_its_own, crossing), site_speeds(subspaces=NOTHING_SEEN))

    assert tried(record) == []


def tables() -> st.SearchStrategy[Floats]:
    return st.lists(st.floats(0.0, 0.3), min_size=9, max_size=9).map(lambda cells: np.array(cells).reshape(3, 3))


PAIRS = [("n01", "n02"), ("n03", "n04"), ("n02", "n03")]


@st.composite
def runners(draw: st.DrawFn) -> list[Job]:
    """Draw gangs that run on half of two nodes each, no node in full."""
    places = draw(st.lists(st.sampled_from(PAIRS[:2]), unique=True, max_size=2)) or [PAIRS[2]]
    models = draw(st.lists(st.sampled_from([*MODELS, "unknown"]), min_size=3, max_size=3))
    return [resident(20 + number, place, model=models[number]) for number, place in enumerate(places)]


@settings(max_examples=examples(60), deadline=None)
@given(
    running=runners(),
    added=tables(),
    variance=st.floats(0.0, 0.01),
    model=st.sampled_from([*MODELS, "unknown"]),
    bound=st.floats(0.01, 0.5),
    seen=st.dictionaries(st.sampled_from(sorted(WELL_KNOWN.seen)), st.just(Subspace(count=9, squared=2.0))),
)
def test_every_affected_job_keeps_its_bound_and_equal_inputs_give_equal_plans(
    running: list[Job], added: Floats, variance: float, model: str, bound: float, seen: dict[str, Subspace]
) -> None:
    speeds = site_speeds(added, variance, subspaces=Subspaces(seen=seen, total=9 * len(seen)))
    snapshot = queue(pending(hints=make_hints(model)), *running)
    planning = replace(EXPLORING, explore_slowdown=bound)

    record, again = (planned(snapshot, speeds, planning=planning) for _ in range(2))

    assert record.judged == again.judged
    assert [_bytes_of(change.action) for change in record.judged] == [
        _bytes_of(change.action) for change in again.judged
    ]
    assert tried(planned(snapshot, speeds, planning=OFF)) == []
    for change in tried(record):
        names, chosen = set(change.action.after), set(str(change.evidence["instead_of"]).split())  # type: ignore[arg-type]
        mine = _row(model)
        load, before = (_load(added, mine, running, places) for places in (names, chosen))
        assert (1.0 + before) / (1.0 + load) >= 1.0 - bound - 1e-12
        for job in _beside(running, names):
            lowest = np.exp(-1.64 * np.sqrt(variance)) / (1.0 + added[_row(job.hints.model), mine])
            assert lowest >= 1.0 - bound - 1e-12


def _bytes_of(action: object) -> bytes:
    assert isinstance(action, SetNodeList)
    return action_text(action).encode()


def _row(model: str | None) -> int:
    return MODELS.index(model) if model in MODELS else len(MODELS)


def _beside(running: Sequence[Job], names: set[str]) -> list[Job]:
    return [job for job in running if job.allocation is not None and names & set(job.allocation.nodes)]


def _load(added: Floats, mine: int, running: Sequence[Job], names: set[str]) -> float:
    return float(max(sum(added[mine, _row(job.hints.model)] for job in _beside(running, {name})) for name in names))


@dataclass
class Held:
    """A simulated job: what it is, when it started, and how long it really runs."""

    job: Job
    start_time: float
    run_s: float
    is_tried: bool


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "ratio"), [(1, 0.01), (2, 0.01), (3, 0.05), (4, 0.05)])
def test_share_of_gpu_time_is_never_exceeded_over_many_cycles(seed: int, ratio: float) -> None:
    rng, window_s, tries, refused = np.random.default_rng(seed), DAY_S, 0, 0
    planning = replace(EXPLORING, explore_ratio=ratio)
    seen = {"gpt2+gpt2|one leaf|half|other": Subspace(count=5000, squared=0.5)}
    speeds = site_speeds(subspaces=Subspaces(seen=seen, total=5000))
    residents = [resident(8), resident(9, AS_CHOSEN, model="gpt2")]
    held = [Held(job, TAKEN_AT - DAY_S, 90 * DAY_S, is_tried=False) for job in residents]
    leases: list[Lease] = []
    for cycle in range(120):
        now, number = TAKEN_AT + 1200.0 * (cycle + 1), 100 + cycle
        running = [replace(one.job, start_time=one.start_time) for one in held if one.start_time + one.run_s > now]
        limit_s = float(rng.choice([300.0, HOUR_S / 2, HOUR_S]))
        gang = pending(number, time_limit_s=limit_s, submit_time=now - HOUR_S)
        record = planned(queue(gang, *running, taken_at=now), speeds, planning=planning, leases=leases)
        refused += sum(change.refused_by is not None for change in record.judged)
        for change in record.recommendations:
            assert isinstance(change.action, SetNodeList)
            lease = replace(intended(change.action, now, after_s=120.0), state=LeaseState.OUT)
            leases.append(lease.ended(Ending.NO_LONGER_PENDING, now + 1.0))
            is_tried = change.reason is Reason.EXPLORE_PLACE
            tries += is_tried
            started = resident(number, change.action.after, model="gpt2")
            held.append(Held(started, now, limit_s * rng.uniform(0.5, 1.0), is_tried=is_tried))
        held_gpu_s, tried_gpu_s = (_gpu_s(held, now - window_s, now, only_tried=only) for only in (False, True))
        assert tried_gpu_s <= ratio * held_gpu_s
    assert tries > 2 and refused == 0
    # The share, and no lack of safe places, ends the tries.
    assert tries < 60


def _gpu_s(held: Sequence[Held], since: float, now: float, *, only_tried: bool) -> float:
    return sum(
        8 * max(0.0, min(now, one.start_time + one.run_s) - max(since, one.start_time))
        for one in held
        if one.is_tried or not only_tried
    )
