"""The table of policies: complete, without doubles, and as in the documentation."""

import pkgutil
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from advisor.domain.actions import Action, SetGpus, SetNodeList
from advisor.domain.plan import Outcome, Receipt
from advisor.predict.library import Library
from advisor.predict.served_policy import policies as served
from advisor.settings import Limits, PlanningSettings
from advisor.sim import policies
from advisor.sim.cluster import parse_cluster
from advisor.sim.policies import POLICIES
from advisor.sim.policies.advised import AdvisedSlurm
from advisor.sim.policies.learning import NOWHERE
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from tests.sim.building import make_trace, run_of

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"


def test_every_policy_stands_in_the_documentation_and_no_other() -> None:
    rows = re.findall(r"^\| `([\w+-]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert sorted(rows) == sorted(POLICIES)


def test_every_file_with_a_policy_has_its_row() -> None:
    modules = [
        import_module(f"{policies.__name__}.{module.name}") for module in pkgutil.iter_modules(policies.__path__)
    ]
    own = [module.POLICY for module in modules if hasattr(module, "POLICY")]

    assert len(own) > 5
    assert all(POLICIES[policy.name] is policy for policy in own)


def test_every_name_is_given_once() -> None:
    assert len(POLICIES) == len(policies._TABLE)


OPTIONS = SimulationOptions(planning=PlanningSettings(min_saving_s=1.0), limits=Limits(min_job_age_s=0.0))


@pytest.fixture(name="receipts")
def _receipts(monkeypatch: pytest.MonkeyPatch) -> list[Receipt]:
    """Keep what becomes of every change."""
    kept: list[Receipt] = []
    apply = SimulatedSlurm.apply

    def watched(self: SimulatedSlurm, action: Action) -> Receipt:
        kept.append(apply(self, action))
        return kept[-1]

    monkeypatch.setattr(SimulatedSlurm, "apply", watched)
    return kept


def test_every_policy_that_ships_is_a_row_of_its_name() -> None:
    rows = {name: POLICIES[name] for name in served(Library(NOWHERE))}

    assert set(rows) == {"dl2", "marl", "metarl", "price"}
    for name, row in rows.items():
        policy = row.policy() if isinstance(row, AdvisedSlurm) else None
        assert policy is not None and policy.name == name


@pytest.mark.parametrize("policy", ["dl2", "price"])
def test_policy_for_sizes_makes_jobs_smaller_where_many_wait(policy: str, receipts: list[Receipt]) -> None:
    full = {"gpus": 4, "run_time_s": 4000, "time_limit_s": 4200}
    wide = {"submit_time": 10, "gpus": 4, "gpus_min": 1, "gpus_max": 4, "run_time_s": 3600, "time_limit_s": 7200}
    trace = make_trace([full, *({**wide, "model": "bert"} for _ in range(12))])

    run = run_of(trace, "nodes=1,gpus=4", policy, OPTIONS)

    sizes = [receipt.action for receipt in receipts if isinstance(receipt.action, SetGpus)]
    assert sizes
    assert run.segments["gpus"].min() < 4
    assert run.outcomes["end_time"].max() < run_of(trace, "nodes=1,gpus=4", "slurm", OPTIONS).outcomes["end_time"].max()


@pytest.mark.parametrize("policy", ["marl", "metarl"])
def test_policy_for_places_names_nodes_on_which_the_gang_starts(policy: str, receipts: list[Receipt]) -> None:
    # The first three nodes come free at 199, slurmctld looks at its line at 203, and the advisor in between.
    full = {"gpus": 12, "nodes_min": 3, "nodes_max": 3, "run_time_s": 199, "time_limit_s": 600}
    gang = {"submit_time": 10, "gpus": 8, "nodes_min": 2, "nodes_max": 2, "run_time_s": 500, "time_limit_s": 600}
    trace = make_trace([full, {"gpus": 2, "run_time_s": 9000, "time_limit_s": 9900}, {**gang, "model": "bert"}])
    cluster = parse_cluster("nodes=4,gpus=4,leaf=2")
    cluster = replace(cluster, slurm=replace(cluster.slurm, tick_s=7.0))

    run = run_of(trace, cluster, policy, replace(OPTIONS, advise_every_s=201.0))

    (named,) = receipts
    assert isinstance(named.action, SetNodeList) and named.outcome is Outcome.APPLIED
    assert named.action.after == ("n1", "n2")
    (segment,) = run.segments[run.segments["job"] == 2]
    assert (segment["nodes"], segment["tier"], segment["start_time"]) == (2, 1, 203.0)
