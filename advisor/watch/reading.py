"""Opens the source and the configuration that the options name."""

import os
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import AdvisorError, OptionsError
from advisor.files import opened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.config import Config
    from advisor.cycle import ClusterSource, Cycle, CycleRecord
    from advisor.domain.job import Job
    from advisor.domain.lease import Purposes
    from advisor.domain.memory import Memory
    from advisor.domain.probation import Coverage
    from advisor.domain.snapshot import Snapshot
    from advisor.guard.breakers import OpenBreaker
    from advisor.journal import SqliteJournal
    from advisor.predict.forecaster import ModelForecaster
    from advisor.site.pause_file import Pause


_COST = "so outstanding changes and observed waits are unknown"
_MISSING = "changes in effect and observed waits are missing from this advice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A cycle as `apply` would run it now; `note` says why nothing is known of earlier ones, "" if it is.

    `memory` holds the contents of the journal, `purposes` why the changes in effect were made; in `record`, changes
    that are due count as reverted. `is_broken` is whether there is a journal that cannot be read. `stops` are the open
    circuit breakers of the daemon, `pause` its pause in force, `coverage` how the forecasts of run-time models on
    probation held so far.
    """

    record: "CycleRecord"
    memory: "Memory"
    purposes: "Purposes" = field(default_factory=dict)
    note: str = ""
    is_broken: bool = False
    stops: "tuple[OpenBreaker, ...]" = ()
    coverage: "Mapping[str, Coverage]" = field(default_factory=dict)
    pause: "Pause | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The options that select the source; `tries_plans` is whether plans are rolled out before they are shown."""

    snapshot: Path | None = None
    demo: bool = False
    source: str | None = None
    cluster: str | None = None
    timeout_s: float | None = None
    config: Path | None = None
    policy: str | None = None
    tries_plans: bool = False

    @property
    def is_live(self) -> bool:
        """Whether the live queue is read, rather than a file or the demo."""
        return not self.demo and self.snapshot is None

    def load_config(self) -> "Config":
        """Load the configuration in force: that of the cluster, if it has one of its own.

        Raises `ConfigError` if several clusters are named.
        """
        from advisor.config import load_config

        cluster = None
        if self.is_live:
            from advisor.backends.sources import chosen_cluster

            cluster = chosen_cluster(self.cluster, os.environ)
        return load_config(self.config, os.environ, cluster=cluster)

    def timeout_of(self, config: "Config") -> float:
        """Return the time limit of one Slurm command in seconds."""
        return config.source.timeout_s if self.timeout_s is None else self.timeout_s

    def plan(
        self,
        config: "Config",
        journal: Path | None,
        seen: "Snapshot",
        forecaster: "ModelForecaster | None" = None,
        about: "Job | None" = None,
    ) -> "Planned":
        """Plan as `apply` would now, and see whether the daemon is paused.

        For a file or the demo there is no journal, unless one is named, and no daemon. `forecaster` is that of the
        configuration, opened already. Delay timers of other jobs can be missing from a plan `about` one job.
        """
        from advisor.site.pause_file import paused

        cycle = self.cycle(config, forecaster)
        planned = self._planned_about(about, config, journal, seen, cycle)
        return replace(planned, pause=paused(Path(config.daemon.runtime_folder))) if self.is_live else planned

    def _planned_about(
        self, job: "Job | None", config: "Config", journal: Path | None, seen: "Snapshot", cycle: "Cycle"
    ) -> "Planned":
        """Plan for one job, or for all: the rest of the plan is needed only if there is a change of the job.

        The size of an elastic job depends on the timers of others, and so does whether the guard accepts a change.
        """
        if job is not None and job.is_pending and job.hints.gpus is None:
            asked = replace(cycle, asked=frozenset({job.job_id}))
            planned = self._planned_now(config, journal, seen, asked)
            if all(change.job_id != job.job_id for change in planned.record.judged):
                return planned
        return self._planned_now(config, journal, seen, cycle)

    def _planned_now(self, config: "Config", journal: Path | None, seen: "Snapshot", cycle: "Cycle") -> "Planned":
        """Plan with what is known of earlier cycles.

        The daemon is asked about a journal that is closed to this user. A journal that is missing or cannot be read is
        a note, not an error.
        """
        from advisor.apply.memory_journal import MemoryJournal
        from advisor.apply.rehearsal import rehearse
        from advisor.domain.memory import check_owner
        from advisor.domain.probation import NOTHING_PROVEN

        note, is_broken = "", False
        if journal is not None or self.is_live:
            from advisor.journal import SqliteJournal

            path = journal_file(config, journal)
            try:
                if is_closed(path):
                    return _plan_by_daemon(config, path, seen, cycle)
                if path.exists():
                    with SqliteJournal.read_only(path) as kept:
                        if kept.leases() or kept.waits(0.0):
                            check_owner(kept.cluster(), seen.config.cluster, str(path))
                        return _planned(cycle, kept, seen)
                note = f"{path}: no such journal, {_COST}"
            except (AdvisorError, OSError) as err:
                note, is_broken = f"{err}; {_COST}", True
        # A file is no site: no jobs of it can prove a model.
        record = rehearse(cycle, MemoryJournal(trust=NOTHING_PROVEN if self.is_live else None), seen).record
        return Planned(record=record, memory=record.memory, note=note, is_broken=is_broken)

    def forecaster(self, config: "Config", *, start_times: bool = True) -> "ModelForecaster | None":
        """Return the forecaster with the models in force, of starts too; None where forecasts are off."""
        if not config.forecasts.enabled:
            return None
        from advisor.predict.forecaster import ModelForecaster
        from advisor.predict.library import Library

        library, network = Library(Path(config.forecasts.models)), config.forecasts.network or None
        return ModelForecaster(library, start_times=start_times, network=network)

    def cycle(self, config: "Config", forecaster: "ModelForecaster | None" = None) -> "Cycle":
        """Return the pipeline with the settings and the models in force, or with a forecaster opened already."""
        from advisor.cycle import Cycle, NoForecaster

        # Plans do not use when jobs start.
        serving = forecaster or self.forecaster(config, start_times=False) or NoForecaster()
        cycle = Cycle(planning=config.planning, limits=config.guard, forecaster=serving)
        if self.tries_plans:
            from advisor.site.plan_trials import trials_by

            cycle = replace(cycle, trial=trials_by(config.planning, is_command=True))
        if self.policy is None:
            return cycle
        from advisor.predict.library import Library
        from advisor.predict.neighbours import known_models
        from advisor.predict.served_policy import open_policy

        library = Library(Path(config.forecasts.models))
        policy = open_policy(library, self.policy)
        return replace(
            cycle, policy=policy, models=known_models(library) if config.planning.name_nodes else cycle.models
        )

    def open(self, config: "Config") -> "ClusterSource":
        """Open the source that the options select, or else the configuration."""
        if self.demo and self.snapshot is not None:
            raise OptionsError("--demo and --snapshot exclude each other: give one")
        if self.demo or self.snapshot is not None:
            from advisor.backends.snapshot_file import SnapshotFileSource

            path = demo_path() if self.snapshot is None else self.snapshot
            return SnapshotFileSource(path, name="demo" if self.demo else "file")
        from advisor.backends.sources import open_source
        from advisor.clock import SystemClock

        return open_source(
            self.source or config.source.reader,
            cluster=self.cluster,
            timeout_s=self.timeout_of(config),
            clock=SystemClock(),
        )


def site_config(path: Path | None) -> "Config":
    """Load the configuration of the site, whichever cluster is named in the environment."""
    from advisor.config import CLUSTER_VARIABLE, load_config

    return load_config(path, {name: value for name, value in os.environ.items() if name != CLUSTER_VARIABLE})


def _plan_by_daemon(config: "Config", path: Path, seen: "Snapshot", cycle: "Cycle") -> Planned:
    """Plan with what the daemon shows of a journal, or without if it shows nothing."""
    from advisor.apply.memory_journal import MemoryJournal
    from advisor.apply.rehearsal import rehearse
    from advisor.domain.memory import check_owner
    from advisor.domain.probation import NOTHING_PROVEN
    from advisor.site.lease_socket import asked

    purposes: Purposes = {}
    try:
        disclosure = asked(Path(config.daemon.runtime_folder))
        check_owner(disclosure.cluster, seen.config.cluster, str(path))
        kept, note, purposes = disclosure.journal(), "", disclosure.purposes
    except AdvisorError as err:
        kept, note = MemoryJournal(trust=NOTHING_PROVEN), f"{path} is closed to this user, and {err}; {_MISSING}"
    record = rehearse(cycle, kept, seen).record
    return Planned(record=record, memory=cycle.memory(kept, seen), purposes=purposes, note=note, is_broken=bool(note))


def is_closed(path: Path) -> bool:
    """Return whether this user is not permitted to read a file that can be there."""
    try:
        with opened(path):
            return False
    except PermissionError:
        return True
    except OSError:
        return False


def _planned(cycle: "Cycle", kept: "SqliteJournal", seen: "Snapshot") -> Planned:
    """Plan with what a journal holds; raises what it raises."""
    from advisor.apply.rehearsal import rehearse
    from advisor.site.breaker_events import read_breakers
    from advisor.site.round_state import coverage_so_far

    record, memory = rehearse(cycle, kept, seen).record, cycle.memory(kept, seen)
    return Planned(
        record=record,
        memory=memory,
        purposes=kept.purposes(kept.leases()),
        stops=read_breakers(kept)[0].open,
        coverage=coverage_so_far(kept, seen.taken_at) if record.forecasts.on_probation else {},
    )


def journal_file(config: "Config", given: Path | None) -> Path:
    """Return the path of the journal: that of the option, else that of the configuration."""
    return Path(config.journal.file) if given is None else given


def demo_path() -> Path:
    """Return the snapshot that ships with the package, recorded from a live test cluster."""
    return Path(str(files("advisor") / "demo" / "snapshot.json"))
