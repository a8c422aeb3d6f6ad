"""Builds the parts of the daemon from a configuration; its commands are counted."""

import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from advisor.apply.applier import Applier
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.budget import BudgetedCommands, RpcBudget
from advisor.backends.commands import chosen_cluster
from advisor.backends.controllers import Standby
from advisor.backends.diagnostics import read_load
from advisor.backends.named_jobs import NamedJobs
from advisor.backends.process import Answer, Commands, FedCommands, SlurmCommands, Stream
from advisor.backends.site_reader import SiteReader
from advisor.backends.sources import MOST_REQUESTS, open_source
from advisor.clock import Clock
from advisor.config import DEFAULT, Config
from advisor.cycle import ClusterSource, Cycle, NoForecaster, StartForecaster
from advisor.daemon.service import Outfit
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.load import ControllerLoad
from advisor.domain.plan import Recommendation
from advisor.errors import BudgetSpentError, ConfigError, ModelError, SlurmUnavailableError
from advisor.features.policy import Policy
from advisor.planning.observing import observed
from advisor.replay.deviations import Shadow
from advisor.site.plan_trials import trials_by
from advisor.site.site_gate import ChangeCheck, RoundDeadline, SiteGate, rights

if TYPE_CHECKING:
    from advisor.features.observe.known_models import KnownModels


_REMEMBERED: Final = 100


class Tally:
    """The results of the last commands: answered or not."""

    def __init__(self) -> None:
        """Begin with none."""
        self._failed: deque[bool] = deque(maxlen=_REMEMBERED)

    def add(self, *, failed: bool) -> None:
        """Count a command."""
        self._failed.append(failed)

    def forget(self) -> None:
        """Begin with none again."""
        self._failed.clear()

    def counts(self) -> tuple[int, int]:
        """Return how many of the last commands there were, and how many of them failed."""
        return len(self._failed), sum(self._failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedCommands:
    """Commands that count how many Slurm did not answer; a refusal is an answer."""

    commands: FedCommands
    tally: Tally = field(repr=False)

    @property
    def cluster(self) -> str | None:
        """The cluster that the commands address."""
        return self.commands.cluster

    def ask(self, program: str, *arguments: str) -> Answer:
        """Run a command and count its result."""
        with self._counted():
            return self.commands.ask(program, *arguments)

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Run a program that reads lines and count its result, once."""
        with self._counted():
            return self.commands.feed(program, lines)

    def stream(self, program: str, *arguments: str, variables: Mapping[str, str]) -> Stream:
        """Run a command, and count its result when its output ends."""
        inner = self.commands.stream(program, *arguments, variables=variables)
        return _CountedStream(inner=inner, counted=self._counted)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except SlurmUnavailableError:
            self.tally.add(failed=True)
            raise
        self.tally.add(failed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedStream:
    """The output of a command, counted when it ends."""

    inner: Stream
    counted: Callable[[], AbstractContextManager[None]]

    @property
    def complaints(self) -> bytes:
        """What the command complained of."""
        return self.inner.complaints

    def __iter__(self) -> Iterator[bytes]:
        """Yield the output."""
        with self.counted():
            yield from self.inner


class LiveParts:
    """Builds outfits for the cluster of this host; the budget and the patience outlive each of them."""

    def __init__(self, clock: Clock, patience: RoundDeadline, host: Callable[[], str] = socket.gethostname) -> None:
        """Take the clock, the patience that cancels commands at shutdown, and the function that returns the host."""
        self._clock = clock
        self._host = host
        self._patience = patience
        self._budget: RpcBudget | None = None
        self._tally = Tally()

    def build(self, config: Config) -> Outfit:
        """Build the parts; raises `ConfigError` if one of them cannot be built."""
        budget = self._budget = self._budget_of(config)
        # The shutdown has no time to wait for tokens, and happens once.
        last = RoundDeadline()
        folder = Path(config.daemon.runtime_folder)
        commands = self._commands(config, self._patience, budget)
        unlimited = self._commands(config, last, None)
        gate = SiteGate(
            runtime_folder=folder,
            modes=config.mode,
            patience=self._patience,
            checks=(self._experiment(config), *rights(commands)),
            budget=budget,
        )
        site = SiteReader(commands, self._clock)
        models = forecaster(config)
        cycle = Cycle(
            planning=config.planning,
            limits=config.guard,
            forecaster=models,
            models=neighbours_known(config),
            modes=config.mode,
            trial=trials_by(config.planning, self._patience),
        )
        return Outfit(
            config=config,
            applier=Applier(
                source=self._source(config, self._patience, budget),
                actuator=ScontrolActuator(commands),
                cycle=cycle,
                named=NamedJobs(commands, self._clock, site),
                observe=observed,
                gate=gate,
            ),
            leaver=Applier(
                source=self._source(config, last, None),
                actuator=ScontrolActuator(unlimited),
                cycle=cycle,
                named=NamedJobs(unlimited, self._clock, SiteReader(unlimited, self._clock)),
                gate=SiteGate(runtime_folder=folder, modes=config.mode, patience=last),
            ),
            gate=gate,
            last=last,
            read_load=lambda: _load_within(budget, commands, site, MOST_REQUESTS[config.source.reader]),
            rpcs=lambda: budget.rpcs,
            asked=self._tally.counts,
            forget_asked=self._tally.forget,
            against_applying=Standby(commands, self._host()).against_applying,
            forecaster=models,
            policy=opened_policy(config, "policy") if config.daemon.policy else None,
            shadow=Shadow(opened_policy(config, "shadow"), config.daemon.shadow) if config.daemon.shadow else None,
        )

    def _budget_of(self, config: Config) -> RpcBudget:
        """Return the budget of this process, by the settings of a configuration."""
        if self._budget is None:
            return RpcBudget(config.budget)
        self._budget.adopt(config.budget)
        return self._budget

    def _commands(self, config: Config, patience: RoundDeadline, budget: RpcBudget | None) -> FedCommands:
        plain = SlurmCommands(timeout_s=config.source.timeout_s, cluster=chosen_cluster(None, os.environ))
        return self._within(plain, patience, budget)

    def _source(self, config: Config, patience: RoundDeadline, budget: RpcBudget | None) -> ClusterSource:
        return open_source(
            config.source.reader,
            cluster=None,
            timeout_s=config.source.timeout_s,
            clock=self._clock,
            through=lambda plain: self._within(plain, patience, budget),
        )

    def _within(self, plain: SlurmCommands, patience: RoundDeadline, budget: RpcBudget | None) -> FedCommands:
        """Return the commands, cancelled when patience ends, and limited by a budget if there is one."""
        patient = CountedCommands(commands=replace(plain, patience=patience), tally=self._tally)
        return patient if budget is None else BudgetedCommands(commands=patient, budget=budget)

    def _experiment(self, config: Config) -> ChangeCheck:
        def against(_change: Recommendation, job: Job) -> str | None:
            objection = config.experiment.against_change(self._clock.now(), job.partitions)
            return None if objection is None else f"control: {objection}"

        return against


def _load_within(budget: RpcBudget, commands: Commands, site: SiteReader, reading: int) -> ControllerLoad:
    """Read how busy slurmctld is, if that and the `reading` requests of the round fit into the budget."""
    refusal = budget.against_round(1 + reading)
    if refusal is not None:
        raise BudgetSpentError(f"slurmctld is not asked now: {refusal}")
    load = read_load(commands)
    budget.learn(load.request_times_s, site.read().limit, reading=reading)
    return load


def opened_policy(config: Config, key: str) -> Callable[[], Policy]:
    """Return a function that opens the policy named by a key of `[daemon]`; raises `ConfigError` if there is none."""
    from advisor.predict.library import Library
    from advisor.predict.served_policy import OpenedPolicy

    try:
        return OpenedPolicy(Library(Path(config.forecasts.models)), getattr(config.daemon, key))
    except ModelError as err:
        raise ConfigError(f"{config.origins.get(f'daemon.{key}', DEFAULT)}: daemon.{key}: {err}") from err


def forecaster(config: Config) -> StartForecaster:
    """Return the models that forecast, or none if they are disabled; start times are forecast on request."""
    if not config.forecasts.enabled:
        return NoForecaster()
    from advisor.predict.forecaster import ModelForecaster
    from advisor.predict.library import Library

    library = Library(Path(config.forecasts.models))
    return ModelForecaster(library, start_times=False, network=config.forecasts.network or None, learns=True)


def neighbours_known(config: Config) -> "KnownModels | None":
    """Return the models whose interference a policy for places is shown; None where no nodes are named."""
    if not config.planning.name_nodes:
        return None
    from advisor.predict.interference import known_models
    from advisor.predict.library import Library

    return known_models(Library(Path(config.forecasts.models)))
