"""What the budget counts is what slurmctld counts, and rounds stay within it, with Slurm's own rate limiter too."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from advisor.backends.actuator import ScontrolActuator
from advisor.backends.budget import BudgetedCommands, RpcBudget
from advisor.backends.diagnostics import read_load
from advisor.backends.named_jobs import hidden_ends
from advisor.backends.particulars_reader import read_priority_factors
from advisor.backends.process import Answer, Commands, failure
from advisor.backends.site_reader import Identity, SiteReader, running_config
from advisor.backends.text_source import TextSource
from advisor.clock import SystemClock
from advisor.domain.actions import Action, NodeRange, SetNice, SetNodeRange
from advisor.domain.load import RateLimit
from advisor.domain.plan import Outcome
from advisor.settings import BudgetSettings
from tests.backends.fake_slurm import Streaming
from tests.live.conftest import started
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

USER = Identity(uid=5, name="games")
ROUNDS = 3
LIMITED = "SlurmctldParameters=rl_enable,rl_bucket_size=10,rl_refill_rate=5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running(Streaming):
    """Slurm's commands on a test cluster, as a user."""

    live: LiveCluster
    user: str | None = None
    cluster: str | None = None
    seen: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, program: str, *arguments: str) -> Answer:
        """Run a command."""
        self.seen.append((program, *arguments))
        answer = self.live.ask(program, *arguments, user=self.user)
        if answer.returncode != 0:
            raise failure(program, answer.returncode, answer.stderr.encode(), self.live.env)
        return Answer(output=answer.stdout.encode(), complaints=answer.stderr.encode())

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Run a command that reads lines."""
        return self.live.ask(program, stdin="".join(f"{line}\n" for line in lines), user=self.user).stderr


@pytest.fixture(scope="module")
def limited(release: str) -> Iterator[LiveCluster]:
    """A small cluster that limits how often each user may ask, where its release can."""
    lines = () if release == "22.05" else (LIMITED,)
    with started(LiveCluster(release, node_count=2, extra_lines=lines)) as live:
        yield live


def source_of(commands: Commands, monkeypatch: pytest.MonkeyPatch, live: LiveCluster) -> TextSource:
    monkeypatch.setenv("SLURM_CONF", live.env["SLURM_CONF"])
    return TextSource(commands, SystemClock(), SiteReader(commands, SystemClock()))


def counted(live: LiveCluster) -> Counter[str]:
    return Counter(live.rpc_counts())


def test_budget_counts_what_slurmctld_counts(limited: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = limited.submit("--hold", "-n1")
    budget = RpcBudget(BudgetSettings())
    commands = BudgetedCommands(commands=Running(live=limited), budget=budget)
    source, actuator = source_of(commands, monkeypatch, limited), ScontrolActuator(commands)
    change = SetNice(job_id=job_id, before=0, after=25)
    limited.run("sdiag", "--reset")
    before = counted(limited)

    outcomes = []
    for _ in range(ROUNDS):
        read_load(commands)
        source.snapshot()
        outcomes += [actuator.apply(change).outcome, actuator.apply(change.swapped()).outcome]
    hidden_ends(commands, (job_id, job_id + 1))
    read_priority_factors(commands, job_id)
    running_config(commands)
    commands.ask("scontrol", "ping")
    commands.ask("scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos")
    commands.ask("scontrol", "-o", "-a", "show", "partition")
    commands.ask("scontrol", "show", "node")
    commands.ask("scontrol", "-o", "show", "job", str(job_id))

    sent = counted(limited) - before
    expected = Counter(budget.rpcs)
    assert expected.pop("REQUEST_STATS_INFO") == ROUNDS
    assert outcomes == [Outcome.APPLIED] * 2 * ROUNDS
    assert {name: sent[name] for name in expected} == dict(expected)
    # Nodes that register are the only others who ask.
    assert {name for name in sent if name not in expected} <= {"MESSAGE_NODE_REGISTRATION_STATUS"}
    assert sum(budget.rpcs.values()) == ROUNDS * (5 + 2 * 5) + 1 + 1 + 2 + 1 + 1 + 1 + 2 + 2
    limited.run("scancel", str(job_id))


def test_batch_costs_one_request_for_each_change_and_two_reads(limited: LiveCluster) -> None:
    job_ids = limited.submit_many(20, "-N1-2", "-n2")
    budget = RpcBudget(BudgetSettings())
    actuator = ScontrolActuator(BudgetedCommands(commands=Running(live=limited), budget=budget))
    one, two = NodeRange(low=1, high=1), NodeRange(low=1, high=2)
    changes: list[Action] = [SetNice(job_id=job_id, before=0, after=job_id) for job_id in job_ids[:10]]
    changes += [SetNodeRange(job_id=job_id, before=two, after=one) for job_id in job_ids[10:]]
    limited.run("sdiag", "--reset")
    before = counted(limited)

    receipts = actuator.apply_all(changes)

    sent = counted(limited) - before
    assert [receipt.outcome for receipt in receipts] == [Outcome.APPLIED] * 20
    assert dict(budget.rpcs) == {name: sent[name] for name in budget.rpcs}
    # scontrol looks at a job before it changes its node range.
    assert sum(budget.rpcs.values()) == 2 * 2 + 20 + 2 * 10
    assert set(sent) - set(budget.rpcs) <= {"MESSAGE_NODE_REGISTRATION_STATUS"}
    assert sum(budget.rpcs.values()) == 2 * 2 + 20 + 2 * 10
    limited.run("scancel", *map(str, job_ids))


def test_change_that_changes_nothing_is_never_sent(limited: LiveCluster) -> None:
    job_id = limited.submit("--hold", "-n1", "--nice=25")
    actuator = ScontrolActuator(Running(live=limited))
    before = counted(limited)

    receipt = actuator.apply(SetNice(job_id=job_id, before=0, after=25))

    assert receipt.outcome is Outcome.ALREADY_SO
    assert counted(limited)["REQUEST_UPDATE_JOB"] == before["REQUEST_UPDATE_JOB"]
    limited.run("scancel", str(job_id))


def test_ordinary_user_gets_through_rounds_under_slurms_own_rate_limiter(
    limited: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = limited.submit("--hold", "-n1", user=USER.name)
    budget = RpcBudget(BudgetSettings())
    budget.learn({}, RateLimit(size=100, per_s=10.0), reading=100)
    commands = BudgetedCommands(commands=Running(live=limited, user=USER.name), budget=budget)
    source, actuator = source_of(commands, monkeypatch, limited), ScontrolActuator(commands)
    change = SetNice(job_id=job_id, before=0, after=25)

    outcomes = []
    for _ in range(2):
        read_load(commands)
        assert source.snapshot().jobs_by_id[job_id].nice == 0
        outcomes += [actuator.apply(change).outcome, actuator.apply(change.swapped()).outcome]

    assert outcomes == [Outcome.APPLIED] * 4
    limited.run("scancel", str(job_id))
