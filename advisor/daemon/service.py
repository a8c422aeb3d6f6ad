"""Runs rounds: check the load, read the cluster, revert, plan, apply, follow."""

import gc
import json
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Final

from advisor import __version__
from advisor.apply.applier import Applier
from advisor.apply.step import Reconciled, Step, StepJournal
from advisor.backends.diagnostics import next_interval_s, strained
from advisor.clock import Clock
from advisor.config import Config, with_adoption
from advisor.cycle import Cycle, CycleRecord, StartForecaster
from advisor.daemon.gang_watch import GangWatch
from advisor.daemon.journal_keeper import Keeper
from advisor.daemon.submit_table import SubmitTables
from advisor.daemon.twin_keeper import TwinKeeper
from advisor.domain.dataclass import dataclass
from advisor.domain.idle_gpus import MOST_JOBS, IdleLook
from advisor.domain.job import Job
from advisor.domain.lease import LeaseState
from advisor.domain.load import ControllerLoad
from advisor.domain.memory import Memory
from advisor.domain.mode import Mode
from advisor.domain.plan import Outcome
from advisor.domain.snapshot import Snapshot
from advisor.domain.tune_verdict import Tuned, TuneVerdict
from advisor.domain.units import HOUR_S
from advisor.errors import AdvisorError, BudgetSpentError, ConfigError, JournalError, JournalFullError, ModelError
from advisor.features.policy import Policy, RefusedPolicy
from advisor.guard.breakers import Vitals
from advisor.journal import SqliteJournal
from advisor.journal.base import FAILING, IDLE, TUNED
from advisor.journal.disclosure import Disclosure
from advisor.metrics.catalogue import JOURNAL
from advisor.metrics.round import Round
from advisor.planning.strays import Stray, strays
from advisor.replay.deviations import SHADOW, Shadow
from advisor.site.adoption import consider, drop, settings_words
from advisor.site.pause_file import paused
from advisor.site.round_state import RoundState
from advisor.site.site_gate import RoundDeadline, SiteGate
from advisor.trial.follower import NO_FORECASTER
from advisor.view.overall import trial_fields

_STANDBY: Final = "standby"
# The event by which the audit records that plain Slurm could not be run beside the cluster.
_TWIN: Final = "plain twin"
# The event by which the audit records what rollouts found about a plan.
_TRIAL: Final = "plan trial"
# The event by which the audit records why the rules decide in place of a policy.
_POLICY: Final = "policy fault"
# The settings that take a restart to change.
_LASTING: Final = (("journal", "file"), ("daemon", "runtime_folder"), ("metrics", "listen"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outfit:
    """The parts that are built from a configuration and swapped together by a reload.

    `applier` is limited by the budget of requests; `leaver` reverts at the shutdown, without it, within the patience
    `last`. `asked` returns how many of the last commands there were, and how many of them failed, and `forget_asked`
    begins to count them again. `forecaster` forecasts starts for the outcomes. `against_applying` returns why this
    daemon must not apply, or None. `policy` opens the policy that decides in place of the rules, in every round; None
    for the rules. `shadow` plans with another policy, for comparison.
    """

    config: Config
    applier: Applier
    leaver: Applier
    gate: SiteGate
    last: RoundDeadline
    read_load: Callable[[], ControllerLoad]
    rpcs: Callable[[], Mapping[str, int]]
    asked: Callable[[], tuple[int, int]] = lambda: (0, 0)
    forget_asked: Callable[[], None] = lambda: None
    forecaster: StartForecaster = NO_FORECASTER
    against_applying: Callable[[], str | None] = lambda: None
    policy: Callable[[], Policy] | None = None
    shadow: Shadow | None = None


class Service:
    """The rounds of one daemon; one thread at a time uses it."""

    def __init__(
        self,
        build: Callable[[Config], Outfit],
        config: Config,
        clock: Clock,
        observer: Callable[[Round], None],
        show: Callable[[Disclosure], None] = lambda _: None,
        twin: TwinKeeper | None = None,
    ) -> None:
        """Take the builder of the parts, the configuration, the clock, and callbacks for every round.

        `show` gets what users see of the journal; `twin` runs plain Slurm beside the cluster.
        """
        self._build = build
        self._clock = clock
        self._observer = observer
        self._show = show
        self._twin = twin
        self._outfit = build(config)
        self._keeper = Keeper(config.journal, clock)
        self._round_state = RoundState()
        self._submit_tables = SubmitTables()
        self._gang_watch = GangWatch()
        self._round_state.note("started", version=__version__, mode=str(config.mode.farthest))
        self._reads_failed = 0
        self._is_settled = False
        self._policy_fault = ""
        self._failing_nodes: str | None = None
        self._idle: IdleLook | None = None
        self._idle_noted_time = -math.inf
        self._move: TuneVerdict | None = None
        # Whether settings were taken up or dropped that a reload puts into effect.
        self.is_outdated = False
        self.node_count = 0
        # The last snapshot with its started jobs alone, kept where idle GPUs are looked for.
        self.running: Snapshot | None = None
        # The loads since the breakers were last judged.
        self._loads: deque[ControllerLoad] = deque(maxlen=16)
        self.interval_s = config.daemon.interval_s

    @property
    def config(self) -> Config:
        """The configuration in effect."""
        return self._outfit.config

    def round(self) -> Round:
        """Run one round; failures are recorded in it, and the next round tries again."""
        outfit, begun, cpu_s = self._outfit, time.monotonic(), time.process_time()
        started_time = self._clock.now()
        outfit.gate.patience.start(outfit.config.daemon.deadline_s)
        load, step, fault = None, None, ""
        pacing = outfit.config.daemon
        try:
            load = outfit.read_load()
            strain = strained(load, pacing)
            self._loads.append(load)
            if strain:
                fault = f"slurmctld is under strain, so this round is skipped: {strain}"
            else:
                step = self._step(outfit, outfit.applier.source.snapshot())
                self._reads_failed = 0
        except BudgetSpentError as err:
            fault = str(err)
        except AdvisorError as err:
            fault = str(err)
            self._reads_failed += 1
        returned = Reconciled()
        if step is None:
            returned, unreturned = self._return_due(outfit)
            fault += unreturned
        self.interval_s = next_interval_s(self.interval_s, pacing, trouble=step is None)
        found = () if step is None else self._strays(step)
        done = Round(
            started_time=started_time,
            duration_s=time.monotonic() - begun,
            cpu_s=time.process_time() - cpu_s,
            mode=self._mode(),
            interval_s=self.interval_s,
            step=step,
            returned=returned,
            fault=fault,
            held_to=self._held_to(),
            load=load,
            rpcs=outfit.rpcs(),
            open_leases=Counter(lease.state for lease in self._keeper.leases),
            overdue=self._overdue(step),
            strays=tuple(stray.job_id for stray in found),
            unknown_lifts=tuple(stray.job_id for stray in found if stray.is_lift),
            accuracy=self._round_state.accuracy,
            breakers=self._round_state.breakers,
            on_probation={} if step is None else self._round_state.on_probation(step.record, outfit.config),
            order=self._round_state.order,
            failing_nodes=self._failing_nodes or "",
            idle=self._idle if outfit.config.utilisation.is_on else None,
            gangs=self._gang_watch.look,
            settings=settings_words(outfit.config),
        )
        self._observer(done)
        if not self._is_settled and step is not None:
            _settle_memory()
            self._is_settled = True
        return done

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from the next round on; raises `ConfigError` if it cannot be used."""
        for table, key in _LASTING:
            before, after = (getattr(getattr(config_of, table), key) for config_of in (self.config, config))
            if before != after:
                raise ConfigError(f"{table}.{key} takes a restart to change: it stays {before!a}")
        self._outfit = self._build(config)
        self.interval_s = config.daemon.interval_s
        self._round_state.note("configuration read again", mode=str(config.mode.farthest))

    def prune(self) -> None:
        """Delete expired rows of the journal; raises `JournalError`."""
        with self._keeper.held() as journal:
            journal.prune(self._clock.now())

    def note_tune(self, tuned: Tuned) -> None:
        """Have the next round write what `sadvise tune` advises into the audit, and consider it; for any thread."""
        self._round_state.note(TUNED, **asdict(tuned.advised))
        self._move = tuned.move

    def note_failing(self, nodes: str) -> None:
        """Have the next round publish which nodes fail more often than chance makes, "" for none; for any thread."""
        self._round_state.note(FAILING, nodes=nodes)
        self._failing_nodes = nodes

    def note_idle(self, look: IdleLook, running: Snapshot) -> None:
        """Have rounds publish a look at idle GPUs, and once an hour write its jobs into the audit; for any thread."""
        jobs = look.jobs[:MOST_JOBS]
        self._idle = replace(look, jobs=jobs, unmapped=look.unmapped[:MOST_JOBS])
        if not jobs or abs(look.looked_time - self._idle_noted_time) < HOUR_S:
            return
        self._idle_noted_time = look.looked_time
        by_id = running.jobs_by_id
        rows = [
            (job.job_id, by_id[job.job_id].user, job.idle_gpus, round(job.since_time), round(look.looked_time))
            for job in jobs
        ]
        self._round_state.note(IDLE, jobs=json.dumps(rows))

    def stop(self) -> None:
        """Cancel running commands at once; for any thread."""
        self._outfit.gate.patience.stopping.set()

    def close(self) -> None:
        """Close the journal; the next round opens it again."""
        self._keeper.close()

    def leave(self, for_s: float) -> Mapping[str, str | int]:
        """Revert, within a time limit, the changes that do not expire, and return the outcome.

        Changes that stay in effect are in the journal; `sadvise revert` or the next start reverts them.
        """
        outfit = self._outfit
        outfit.last.start(for_s)
        try:
            try:
                with self._keeper.held() as journal:
                    left = self._leave(journal, outfit.leaver)
                    journal.note(self._clock.now(), "ended", left)
                    return left
            except JournalFullError:
                with self._keeper.held_full() as full:
                    return self._leave(full, outfit.leaver)
        except AdvisorError as err:
            return {"taken_back": 0, "still_out": len(self._keeper.leases), "because": str(err)}
        finally:
            self.close()

    def _return_due(self, outfit: Outfit) -> tuple[Reconciled, str]:
        """Revert what is due in a round that did not read the cluster, and return why not, "" if nothing failed."""
        try:
            with self._keeper.held() as journal:
                return replace(outfit.applier, journal=journal).return_due(self._clock.now()), ""
        except AdvisorError as err:
            return Reconciled(), f"; what is due was not reverted: {err}"

    def _leave(self, journal: StepJournal, leaver: Applier) -> Mapping[str, str | int]:
        reconciled = Reconciled()
        if journal.leases():
            leaving = replace(leaver, journal=journal)
            reconciled = leaving.leave(leaving.leased())
        return {
            "taken_back": sum(1 for receipt in reconciled.taken_back if receipt.outcome is not Outcome.FAILED),
            "still_out": sum(1 for lease in journal.leases() if lease.state is not LeaseState.HANDS_OFF),
            **({"because": reconciled.put_off[0].text} if reconciled.put_off else {}),
        }

    def _step(self, outfit: Outfit, snapshot: Snapshot) -> Step:
        """Revert, plan and apply; without a journal nothing is sent, with a full one only what is due is reverted."""
        step, reconciled = None, Reconciled()
        try:
            with self._keeper.held() as journal:
                step = self._applied_step(outfit, snapshot, journal)
                self._record(outfit, step, journal)
        except JournalFullError as err:
            outfit.gate.held_to = {JOURNAL: str(err)}
            if step is None:
                reconciled = self._reconciled_full(outfit, snapshot)
        except JournalError as err:
            outfit.gate.held_to = {JOURNAL: str(err)}
        if step is not None:
            return step
        busy = frozenset(lease.job_id for lease in self._keeper.leases)
        record = outfit.applier.cycle.judge(snapshot, Memory(busy=busy))
        return Step(record=record, reconciled=reconciled, applied=())

    def _reconciled_full(self, outfit: Outfit, snapshot: Snapshot) -> Reconciled:
        """Revert what is due while the journal cannot grow."""
        try:
            with self._keeper.held_full() as journal:
                return replace(outfit.applier, journal=journal).reconcile(snapshot)
        except JournalError as err:
            outfit.gate.held_to = {JOURNAL: str(err)}
            return Reconciled()

    def _applied_step(self, outfit: Outfit, snapshot: Snapshot, journal: SqliteJournal) -> Step:
        """Judge the breakers, then run one step, which journals each change before it is sent."""
        state = self._round_state
        state.begin(journal, outfit.config, snapshot.taken_at, paused=self._paused())
        self._heed_settings(journal, outfit.config, snapshot.taken_at)
        if "slurm_errors" in state.heed(journal):
            self._reads_failed = 0
            outfit.forget_asked()
        asked, failed = outfit.asked()
        health = Vitals(
            now=snapshot.taken_at,
            reads_failed=self._reads_failed,
            error_ratio=failed / asked if asked else None,
            requests=asked,
        )
        breakers = state.judged(journal, health, tuple(self._loads), outfit.config.breakers)
        # A daemon that is already kept from applying asks nothing further.
        applies = outfit.config.mode.farthest is Mode.APPLY
        standby = outfit.against_applying() if applies else None
        outfit.gate.held_to = {**({_STANDBY: standby} if standby else {}), **breakers}
        self._loads.clear()
        self._submit_tables.adopt(outfit.config, journal, snapshot)
        # What a policy would do in a cycle can be asked later, and where the jobs started.
        journal.keeps_waits = outfit.policy is not None or outfit.shadow is not None
        # Start times are fitted to polls of the queue, whether anything was proposed or not.
        journal.keeps_polls = True
        return replace(outfit.applier, journal=journal, cycle=_decided_by_policy(outfit)).step(snapshot)

    def _heed_settings(self, journal: SqliteJournal, config: Config, now: float) -> None:
        """Drop settings that no longer hold, and move where two weekly runs of `sadvise tune` agree."""
        move, self._move = self._move, None
        if config.not_adopted or not config.daemon.tune_presets:
            drop(journal, config, now, by="sadvised", why=config.not_adopted or "daemon.tune_presets is empty")
        elif move is not None:
            consider(journal, config, move, now)
        self.is_outdated = with_adoption(config).adoption != config.adoption

    def _record(self, outfit: Outfit, step: Step, journal: SqliteJournal) -> None:
        """Store what follows from a step: outcomes, the table for submissions, the shadow's plan and the twin's."""
        snapshot = step.record.snapshot
        self._note_fault(journal, step.record)
        self.node_count = len(snapshot.nodes)
        is_watched = outfit.config.utilisation.is_on
        self.running = replace(snapshot, jobs=_started(snapshot)) if is_watched else None
        if self._failing_nodes is None:
            last = journal.last(FAILING)
            self._failing_nodes = "" if last is None else str(last.detail.get("nodes", ""))
        self._submit_tables.publish(outfit.config, journal, step.record, applies=self._mode() is Mode.APPLY)
        self._round_state.follow(journal, step, outfit.forecaster, outfit.config)
        self._gang_watch.observe(journal, snapshot, outfit.config.guard.max_job_wait_s)
        if outfit.shadow is not None:
            different = outfit.shadow.difference(outfit.applier.cycle, step.record)
            if different is not None:
                journal.note(snapshot.taken_at, SHADOW, different)
        trial = step.record.trial
        if trial.fault or trial.effect is not None:
            journal.note(snapshot.taken_at, _TRIAL, trial_fields(trial))
        self._keep_twin(outfit.config.daemon.twin_interval_s, journal, step)
        self._show(disclosure_after(journal, outfit.applier.cycle, snapshot))

    def _note_fault(self, journal: SqliteJournal, record: CycleRecord) -> None:
        """Write into the audit why the rules decide in place of a policy, if that changed."""
        if record.policy_fault and record.policy_fault != self._policy_fault:
            journal.note(record.snapshot.taken_at, _POLICY, {"fault": record.policy_fault})
        self._policy_fault = record.policy_fault

    def _keep_twin(self, interval_s: float, journal: SqliteJournal, step: Step) -> None:
        """Store what plain Slurm gave beside the cluster, and note the snapshot of a round; a new fault is recorded."""
        twin, record = self._twin, step.record
        if twin is None:
            return
        fault = twin.fault
        for stretch in twin.finished():
            journal.keep_stretch(stretch)
        if interval_s:
            twin.observe(record.snapshot, record.memory.leases, record.forecasts.counted, interval_s=interval_s)
        else:
            twin.forget()
        if twin.fault and twin.fault != fault:
            journal.note(record.snapshot.taken_at, _TWIN, {"fault": twin.fault})

    def _paused(self) -> str:
        pause = paused(self._outfit.gate.runtime_folder)
        return "" if pause is None else pause.text

    def _held_to(self) -> Mapping[str, str]:
        """Map each cause that keeps the daemon from applying now to its reason."""
        pause = self._paused()
        return {**self._outfit.gate.held_to, **({"paused": pause} if pause else {})}

    def _overdue(self, step: Step | None) -> int:
        """Return the number of changes that were due by the last look at the cluster and are still in effect."""
        now = self._clock.now() if step is None else step.record.snapshot.taken_at
        return sum(1 for lease in self._keeper.leases if lease.is_overdue(now))

    def _strays(self, step: Step) -> tuple[Stray, ...]:
        # The snapshot is from before what was reverted since.
        reverted = {receipt.action.job_id for receipt in step.reconciled.taken_back}
        marked = strays(step.record.snapshot, self._keeper.leases)
        return tuple(stray for stray in marked if stray.job_id not in reverted)

    def _mode(self) -> Mode:
        farthest = self.config.mode.farthest
        return Mode.RECOMMEND if farthest is Mode.APPLY and self._held_to() else farthest


def _started(snapshot: Snapshot) -> tuple[Job, ...]:
    return tuple(job for job in snapshot.jobs if job.allocation is not None)


def disclosure_after(journal: SqliteJournal, cycle: Cycle, snapshot: Snapshot) -> Disclosure:
    """Return what users see of a journal after a round on a snapshot."""
    memory = cycle.memory(journal, snapshot)
    return Disclosure(
        cluster=snapshot.config.cluster,
        taken_at=snapshot.taken_at,
        hides_jobs=snapshot.config.hides_jobs,
        leases=memory.leases,
        waits=memory.waits,
        observed_until=journal.observed_until(),
        trust=journal.trust(),
        standings=memory.standings,
        purposes=journal.purposes(lease for lease in memory.leases if lease.ending is None),
    )


def _settle_memory() -> None:
    """Exclude permanent objects, such as modules and models, from garbage collection, and run it less often.

    A round makes and drops values by the ten thousand, none of which refer to each other in circles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def _decided_by_policy(outfit: Outfit) -> Cycle:
    """Return the pipeline of a round; a policy that cannot be opened leaves it to the rules."""
    cycle = outfit.applier.cycle
    if outfit.policy is None:
        return cycle
    try:
        return replace(cycle, policy=outfit.policy())
    except ModelError as err:
        return replace(cycle, policy=RefusedPolicy(outfit.config.daemon.policy, str(err)))
