"""Fills the metrics from the rounds of the daemon, and writes them out for Prometheus."""

import math
import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from advisor.apply.step import Reconciled, Step
from advisor.cycle import CycleRecord
from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.job import JobState
from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.load import ControllerLoad
from advisor.domain.mode import Mode
from advisor.domain.plan import Kind, Outcome, Receipt
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import NO_STANDINGS, Standing, Standings
from advisor.domain.topology import LocalityTier
from advisor.features.nodes import UNTYPED
from advisor.guard.breakers import BREAKERS
from advisor.metrics.catalogue import METRICS, PAUSED, BoundedValues, Metric, MetricKind, class_of
from advisor.metrics.health import Health
from advisor.metrics.round import Forecasted, Round
from advisor.trial.accuracy import NOT_KNOWN, Accuracy


@dataclass(slots=True, kw_only=True)
class PoolUse:
    """Counts of GPUs; `idle` on nodes that start jobs, `fragmented` beside GPUs in use, `largest` idle on one node."""

    total: int = 0
    idle: int = 0
    fragmented: int = 0
    largest: int = 0


def use_by_pool(snapshot: Snapshot) -> Mapping[tuple[str, str], PoolUse]:
    """Count the GPUs by partition and type, in one pass over the nodes; cheap enough for every round."""
    uses: dict[tuple[str, str], PoolUse] = {}
    for node in snapshot.nodes:
        usable = node.is_usable
        for gpus in node.gpus:
            idle = gpus.idle if usable else 0
            for partition in node.partitions:
                use = uses.setdefault((partition, gpus.gpu_type or UNTYPED), PoolUse())
                use.total += gpus.total
                use.idle += idle
                use.fragmented += idle if idle < gpus.total else 0
                use.largest = max(use.largest, idle)
    return dict(sorted(uses.items()))


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
ACCEPTED: Final = "accepted"
_TRIED: Final = "tried"
_FAILED: Final = "failed"
REVERTED: Final = "reverted"
OVERRULED: Final = "overruled"
_BUCKETS_S: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0)
_UNKNOWN: Final = float("nan")
# A timer of a tier is a change of this field.
_TIMER_TIERS: Final[Mapping[Lever, LocalityTier]] = {
    Lever.NODE_RANGE: LocalityTier.NODE,
    Lever.SWITCHES: LocalityTier.LEAF,
}
# Names of waits, and the share of jobs that waited no longer.
_SHARES: Final[Mapping[str, float]] = {"median": 0.5, "p90": 0.9, "longest": 1.0}
# The series that are known from the start, by the values of their labels.
_KNOWN: Final[Mapping[str, Sequence[tuple[str, ...]]]] = {
    "sadvise_cycles_total": (("planned",), ("no_plan",)),
    "sadvise_plan_trials_total": ((_TRIED,), (_FAILED,)),
    "sadvise_recommendations_total": tuple((kind, ACCEPTED) for kind in Kind),
    "sadvise_changes_total": tuple(product(Lever, Outcome)),
    "sadvise_returns_total": tuple(product(Lever, Outcome)),
    "sadvise_objections_total": ((REVERTED,), (OVERRULED,)),
    "sadvise_notices_total": tuple(product(("mail", "webhook"), ("sent", "put_off", "given_up"))),
    "sadvise_leases": tuple((state,) for state in LeaseState),
    "sadvise_collector_success": tuple((name,) for name in ("round", "plan", "sent", "leases", "gpus", "journal")),
}

# One change to one job, by when it was sent, and what a person did about it.
_Objection = tuple[int, Lever, float, str]


class Metrics:
    """The metrics of one daemon, in a registry of their own; one thread fills them, any thread can read them."""

    def __init__(
        self,
        *,
        version: str,
        interval_s: float,
        journal: Path | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin at zero; `journal` is the file whose size is exported."""
        self.health = Health(interval_s=interval_s, monotonic=monotonic)
        self._journal = journal
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        # When a series began is of use to OpenMetrics alone, and would double the number of series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        made = self._made = {metric.name: _made(metric, self._registry) for metric in METRICS}
        self._counters = {name: metric for name, metric in made.items() if isinstance(metric, Counter)}
        self._gauges = {name: metric for name, metric in made.items() if isinstance(metric, Gauge)}
        self._durations = {name: metric for name, metric in made.items() if isinstance(metric, Histogram)}
        self._rules, self._classes, self._kinds, self._held = (BoundedValues() for _ in range(4))
        self._rpcs: Mapping[str, int] = {}
        self._objections: set[_Objection] = set()
        self._began_time: float | None = None
        self._start(version, interval_s)

    def observe(self, done: Round) -> tuple[str, ...]:
        """Update from a round; return one line for each part that could not be filled, with the reason."""
        self.health.observe(done)
        for of, accuracy in done.accuracy.items():
            self.observe_accuracy(of, accuracy)
        self._began_time = done.started_time if self._began_time is None else self._began_time
        faults: list[str] = []
        with self._lock:
            with self._collected("round", faults):
                self._observe_round(done)
            with self._collected("sent", faults):
                self._observe_returned(done.reconciled)
                if done.step is not None:
                    self._observe_sent(done.step)
            if done.step is not None:
                with self._collected("plan", faults):
                    self._observe_plan(done.step.record)
                with self._collected("leases", faults):
                    self._observe_leases(done.step.record)
                with self._collected("gpus", faults):
                    self._observe_gpus(done.step.record)
            with self._collected("journal", faults):
                self._gauges["sadvise_journal_size_bytes"].set(_size(self._journal))
        return tuple(faults)

    def observe_accuracy(self, of: Forecasted, accuracy: Accuracy) -> None:
        """Update the accuracy of the forecasts of one kind."""
        with self._lock:
            self._gauges["sadvise_forecast_coverage_ratio"].labels(of).set(accuracy.coverage_ratio)
            self._gauges["sadvise_forecast_error_factor"].labels(of).set(accuracy.error_factor)
            self._gauges["sadvise_forecast_coverage_jobs"].labels(of).set(accuracy.jobs)

    def count_notice(self, target: str, outcome: str) -> None:
        """Count a delivery of a notice, or an attempt at one."""
        with self._lock:
            self._counters["sadvise_notices_total"].labels(target, outcome).inc()

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        with self._lock:
            return generate_latest(self._registry)

    def _start(self, version: str, interval_s: float) -> None:
        """Initialise the known series at zero, so that their first increase is visible."""
        self._gauges["sadvise_build_info"].labels(version).set(1)
        self._gauges["sadvise_interval_seconds"].set(interval_s)
        for name, labels in _KNOWN.items():
            for values in labels:
                self._made[name].labels(*values)
        for breaker in sorted(BREAKERS):
            self._gauges["sadvise_breaker_open"].labels(breaker)
        self.observe_accuracy("start", NOT_KNOWN)
        self.observe_accuracy("run_time", NOT_KNOWN)
        self._observe_load(ControllerLoad())
        self._observe_standings(NO_STANDINGS)

    @contextmanager
    def _collected(self, collector: str, faults: list[str]) -> Iterator[None]:
        """Fill one part of the metrics; an error there is logged and does not stop the daemon."""
        begun, success = time.monotonic(), 1
        try:
            yield
        except Exception as err:
            success = 0
            faults.append(f"{collector}: {type(err).__name__}: {err}")
        self._gauges["sadvise_collector_success"].labels(collector).set(success)
        self._gauges["sadvise_collector_duration_seconds"].labels(collector).set(time.monotonic() - begun)

    def _observe_round(self, done: Round) -> None:
        self._counters["sadvise_cycles_total"].labels("no_plan" if done.step is None else "planned").inc()
        self._durations["sadvise_cycle_duration_seconds"].observe(done.duration_s)
        self._counters["sadvise_cycle_cpu_seconds_total"].inc(max(0.0, done.cpu_s))
        self._gauges["sadvise_interval_seconds"].set(done.interval_s)
        if done.step is not None:
            self._counters["sadvise_reader_fallbacks_total"].inc(bool(done.step.record.snapshot.reader_fault))
            self._gauges["sadvise_last_good_cycle_timestamp_seconds"].set(done.started_time)
        for mode in Mode:
            self._gauges["sadvise_mode"].labels(mode).set(mode is done.mode)
        self._gauges["sadvise_paused"].set(PAUSED in done.held_to)
        self._show("sadvise_held", Tally(self._held.of(name) for name in done.held_to))
        for breaker in sorted(BREAKERS):
            self._gauges["sadvise_breaker_open"].labels(breaker).set(breaker in done.held_to)
        for state in LeaseState:
            self._gauges["sadvise_leases"].labels(state).set(done.open_leases.get(state, 0))
        for kind, count in done.rpcs.items():
            # A count that fell was restarted.
            before = self._rpcs.get(kind, 0)
            self._counters["sadvise_rpcs_total"].labels(self._kinds.of(kind)).inc(
                count - before if count >= before else count
            )
        self._rpcs = dict(done.rpcs)
        self._observe_load(done.load or ControllerLoad())

    def _observe_load(self, load: ControllerLoad) -> None:
        for name, value in (
            ("server_threads", load.server_threads),
            ("agent_queue", load.agent_queue),
            ("database_queue", load.database_queue),
            ("main_cycle_seconds", load.cycle_s),
            ("backfill_cycle_seconds", load.backfill_cycle_s),
        ):
            self._gauges[f"sadvise_controller_{name}"].set(_UNKNOWN if value is None else value)

    def _observe_plan(self, record: CycleRecord) -> None:
        for change in record.judged:
            rule = ACCEPTED if change.refused_by is None else self._rules.of(change.refused_by)
            self._counters["sadvise_recommendations_total"].labels(change.kind, rule).inc()
        if record.trial.fault or record.trial.effect is not None:
            outcome = _FAILED if record.trial.fault else _TRIED
            self._counters["sadvise_plan_trials_total"].labels(outcome).inc()
        kinds = Tally(change.kind for change in record.recommendations)
        for kind in Kind:
            self._gauges["sadvise_recommended"].labels(kind).set(kinds[kind])
        states = Tally(job.state for job in record.snapshot.jobs)
        for state in JobState:
            self._gauges["sadvise_jobs"].labels(state).set(states[state])
        self._observe_queue(record.snapshot)
        self._show("sadvise_jobs_left_alone", Tally(map(self._rules.of, record.left_alone.values())))
        self._gauges["sadvise_forecast_models_refused"].set(len(record.forecasts.notes))
        self._gauges["sadvise_forecast_models_on_probation"].set(len(record.forecasts.on_probation))
        self._observe_standings(record.memory.standings)
        waits = Tally((wait.tier, "got" if wait.got else "gave_up") for wait in record.memory.waits)
        for tier in _TIMER_TIERS.values():
            for outcome in ("got", "gave_up"):
                self._gauges["sadvise_timer_waits"].labels(tier.name.lower(), outcome).set(waits[tier, outcome])

    def _observe_standings(self, standings: Standings) -> None:
        self._gauges["sadvise_wait_difference_timestamp_seconds"].set(standings.until or 0.0)
        total = standings.total
        for end in ("low", "median", "high"):
            value = _UNKNOWN if total is None else getattr(total.difference_s, end) / max(1, total.jobs)
            self._gauges["sadvise_wait_difference_seconds"].labels(end).set(value)
        compared = Tally(map(_compared, standings.by_user.values()))
        for wait in ("shorter", "longer", "unclear"):
            self._gauges["sadvise_users_compared"].labels(wait).set(compared[wait])

    def _observe_queue(self, snapshot: Snapshot) -> None:
        """Update the waits so far, and the numbers of users."""
        for state in (JobState.PENDING, JobState.RUNNING):
            users = {job.user for job in snapshot.jobs if job.state is state}
            self._gauges["sadvise_users"].labels(state).set(len(users))
        waits = sorted(
            job.queueing_delay_s(snapshot.taken_at)
            for job in snapshot.jobs
            if job.is_pending and not job.held and job.gang.gpu_count
        )
        for of, share in _SHARES.items():
            value = waits[math.ceil(share * len(waits)) - 1] if waits else _UNKNOWN
            self._gauges["sadvise_pending_wait_seconds"].labels(of).set(value)

    def _observe_sent(self, step: Step) -> None:
        _count_receipts(self._counters["sadvise_changes_total"], step.applied)
        self._count_put_off("sadvise_held_back_total", step.held_back)

    def _observe_returned(self, reconciled: Reconciled) -> None:
        _count_receipts(self._counters["sadvise_returns_total"], reconciled.taken_back)
        self._count_put_off("sadvise_returns_put_off_total", reconciled.put_off)

    def _observe_leases(self, record: CycleRecord) -> None:
        still_open = [lease for lease in record.memory.leases if lease.ending is None]
        overdue = sum(1 for lease in still_open if lease.is_due(record.snapshot.taken_at))
        self._gauges["sadvise_leases_overdue"].set(overdue)
        in_effect = [lease for lease in still_open if lease.state is LeaseState.OUT]
        self._gauges["sadvise_users_changed"].set(len({lease.user for lease in in_effect}))
        out = Tally(lease.lever for lease in in_effect)
        for lever, tier in _TIMER_TIERS.items():
            self._gauges["sadvise_timers"].labels(tier.name.lower()).set(out[lever])
        for objection, instant in _objections(record.memory.leases):
            # What was there at the start happened before it, and each lease recurs in many rounds.
            if instant >= (self._began_time or 0.0) and objection not in self._objections:
                self._objections.add(objection)
                self._counters["sadvise_objections_total"].labels(objection[-1]).inc()

    def _observe_gpus(self, record: CycleRecord) -> None:
        gauges = [self._gauges[f"sadvise_{name}gpus"] for name in ("", "idle_", "fragmented_", "largest_idle_")]
        for gauge in gauges:
            gauge.clear()
        for (partition, gpu_type), use in use_by_pool(record.snapshot).items():
            for gauge, value in zip(gauges, (use.total, use.idle, use.fragmented, use.largest), strict=True):
                gauge.labels(partition, gpu_type).set(value)

    def _count_put_off(self, name: str, put_off: Iterable[Receipt]) -> None:
        for each in put_off:
            self._counters[name].labels(self._classes.of(class_of(each.text))).inc()

    def _show(self, name: str, counts: Mapping[str, int]) -> None:
        """Set gauges to counts by label, and to 0 for labels that no longer occur."""
        gauge = self._gauges[name]
        for sample in next(iter(gauge.collect())).samples:
            gauge.labels(**sample.labels).set(0)
        for value, count in counts.items():
            gauge.labels(value).set(count)


def _made(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    match metric.kind:
        case MetricKind.COUNTER:
            return Counter(metric.name, metric.sentence, metric.labels, registry=registry)
        case MetricKind.GAUGE:
            return Gauge(metric.name, metric.sentence, metric.labels, registry=registry)
        case MetricKind.HISTOGRAM:
            return Histogram(metric.name, metric.sentence, metric.labels, registry=registry, buckets=_BUCKETS_S)


def _count_receipts(counter: Counter, receipts: Iterable[Receipt]) -> None:
    for receipt in receipts:
        counter.labels(receipt.action.lever, receipt.outcome).inc()


def _objections(leases: Iterable[Lease]) -> Iterator[tuple[_Objection, float]]:
    """Return the changes that people objected to, each with the time of the objection."""
    for lease in leases:
        if lease.ending is Ending.REVERTED:
            yield (lease.job_id, lease.lever, lease.applied_time, REVERTED), lease.ended_time or lease.applied_time
        elif lease.ending is Ending.OVERRULED or (lease.ending is None and lease.state is LeaseState.HANDS_OFF):
            seen_time = lease.overruled_time or lease.ended_time or lease.applied_time
            yield (lease.job_id, lease.lever, lease.applied_time, OVERRULED), seen_time


def _compared(standing: Standing) -> str:
    """Return how the waits of a user compare with plain Slurm."""
    if not standing.is_known:
        return "unclear"
    return "shorter" if standing.difference_s.high < 0.0 else "longer"


def _size(journal: Path | None) -> float:
    """Return the bytes of a journal and its log; unknown without a file."""
    if journal is None:
        return _UNKNOWN
    log = journal.with_name(f"{journal.name}-wal")
    return float(journal.stat().st_size + (log.stat().st_size if log.exists() else 0))
