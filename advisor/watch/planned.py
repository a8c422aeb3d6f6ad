"""Plans as `apply` would now, with what is remembered of earlier rounds, for commands and live views."""

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.rehearsal import rehearse
from advisor.config import Config
from advisor.cycle import Cycle, CycleRecord, NoForecaster
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.lease import Purposes
from advisor.domain.memory import Memory
from advisor.domain.probation import NOTHING_PROVEN, Proof
from advisor.domain.snapshot import Snapshot
from advisor.guard.breakers import OpenBreaker
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.library import Library
from advisor.site.pause_file import Pause, paused
from advisor.watch.reading import Reading, journal_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is known of earlier rounds; `note` says why nothing is, "" if it is.

    `journal` holds in memory what a plan depends on, `purposes` why the changes in effect were made. `is_broken` is
    whether there is a journal that cannot be read. `stops` are the open circuit breakers of the daemon, `proofs` what
    jobs that ended show of run-time models so far.
    """

    journal: MemoryJournal = field(default_factory=MemoryJournal)
    purposes: Purposes = field(default_factory=dict)
    note: str = ""
    is_broken: bool = False
    stops: tuple[OpenBreaker, ...] = ()
    proofs: Mapping[str, Proof] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A cycle as `apply` would run it now, and what it knew of earlier ones.

    `memory` holds the contents of the journal; in `record`, changes that are due count as reverted. `pause` is the
    daemon's pause in force.
    """

    record: CycleRecord
    memory: Memory
    remembered: Remembered = field(default_factory=Remembered)
    pause: Pause | None = None

    @property
    def proofs(self) -> Mapping[str, Proof]:
        """What jobs that ended show of run-time models so far, where one of them is on probation."""
        return self.remembered.proofs if self.record.forecasts.on_probation else {}


def remembered_by(reading: Reading, config: Config, journal: Path | None, seen: Snapshot, cycle: Cycle) -> Remembered:
    """Return what is known of earlier rounds: by the journal, or by the daemon where that is closed to this user.

    For a file or the demo there is no journal, unless one is named, and no daemon.
    """
    if journal is None and not reading.is_live:
        return Remembered()
    # The demo needs no journal, and with it no database.
    from advisor.watch.recall import recall

    # A file is no site: no jobs of it can prove a model.
    nothing = MemoryJournal(trust=NOTHING_PROVEN if reading.is_live else None)
    return recall(config, journal_file(config, journal), seen, cycle, nothing)


def plan_with(cycle: Cycle, seen: Snapshot, remembered: Remembered, about: Job | None = None) -> Planned:
    """Plan as `apply` would now; delay timers of other jobs can be missing from a plan `about` one job.

    The rest of the plan is needed only if there is a change of the job. The size of an elastic job depends on the
    timers of others, and so does whether the guard accepts a change.
    """
    if about is not None and about.is_pending and about.hints.gpus is None:
        planned = plan_with(replace(cycle, asked=frozenset({about.job_id})), seen, remembered)
        if all(change.job_id != about.job_id for change in planned.record.judged):
            return planned
    record = rehearse(cycle, remembered.journal, seen).record
    return Planned(record=record, memory=cycle.memory(remembered.journal, seen), remembered=remembered)


def plan_now(
    reading: Reading,
    config: Config,
    journal: Path | None,
    seen: Snapshot,
    forecaster: ModelForecaster | None = None,
    about: Job | None = None,
) -> Planned:
    """Plan with what is known of earlier rounds, and see whether the daemon is paused.

    `forecaster` is that of the configuration, opened already.
    """
    cycle = cycle_of(reading, config, forecaster)
    found = plan_with(cycle, seen, remembered_by(reading, config, journal, seen, cycle), about)
    return replace(found, pause=paused(Path(config.daemon.runtime_folder))) if reading.is_live else found


def forecaster_of(config: Config, *, start_times: bool = True) -> ModelForecaster | None:
    """Return the forecaster with the models in force, of starts too; None where forecasts are off."""
    if not config.forecasts.enabled:
        return None
    library, network = Library(Path(config.forecasts.models)), config.forecasts.network or None
    return ModelForecaster(library, start_times=start_times, network=network)


def cycle_of(reading: Reading, config: Config, forecaster: ModelForecaster | None = None) -> Cycle:
    """Return the pipeline with the settings and the models in force, or with a forecaster opened already."""
    # Plans do not use when jobs start.
    serving = forecaster or forecaster_of(config, start_times=False) or NoForecaster()
    cycle = Cycle(planning=config.planning, limits=config.guard, forecaster=serving)
    # What only some commands or options need is imported with them.
    if reading.tries_plans:
        from advisor.site.plan_trials import trials_by

        cycle = replace(cycle, trial=trials_by(config.planning, is_command=True))
    if reading.policy is not None:
        from advisor.predict.interference import known_models
        from advisor.predict.served_policy import open_policy

        library = Library(Path(config.forecasts.models))
        cycle = replace(cycle, policy=open_policy(library, reading.policy))
        if config.planning.name_nodes:
            cycle = replace(cycle, models=known_models(library))
    return cycle
