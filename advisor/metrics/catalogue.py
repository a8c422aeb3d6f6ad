"""Lists every metric that the daemon exports: its name, kind, labels and description."""

import re
from enum import StrEnum
from typing import Final

from advisor.domain.dataclass import dataclass


class MetricKind(StrEnum):
    """The kinds of Prometheus that are used here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric; `sentence` documents it in the exposition and in docs/metrics.md."""

    name: str
    kind: MetricKind
    sentence: str
    labels: tuple[str, ...] = ()


def _counter(name: str, sentence: str, *labels: str) -> Metric:
    return Metric(name=f"sadvise_{name}_total", kind=MetricKind.COUNTER, sentence=sentence, labels=labels)


def _gauge(name: str, sentence: str, *labels: str) -> Metric:
    return Metric(name=f"sadvise_{name}", kind=MetricKind.GAUGE, sentence=sentence, labels=labels)


def _histogram(name: str, sentence: str) -> Metric:
    return Metric(name=f"sadvise_{name}", kind=MetricKind.HISTOGRAM, sentence=sentence)


# No label names a job, a user or an account: people who can read metrics need not have the right to see jobs, and an
# unbounded number of labels fills a Prometheus.
METRICS: Final[tuple[Metric, ...]] = (
    _gauge("build_info", "Always 1; the label holds the version.", "version"),
    _counter("cycles", "Rounds since the start: planned, or no_plan for what failed or was left out.", "outcome"),
    _counter("reader_fallbacks", "Rounds that read text because the preferred reader failed."),
    _histogram("cycle_duration_seconds", "Wall-clock time of a round, all waiting for Slurm included."),
    _counter("cycle_cpu_seconds", "CPU time of this process in rounds."),
    _gauge("last_good_cycle_timestamp_seconds", "When the last round that made a plan started; 0 before the first."),
    _gauge("interval_seconds", "Time from the start of the last round to the next."),
    _gauge("mode", "1 for the mode in which the daemon is now, 0 for the others.", "mode"),
    _gauge("paused", "1 while a person has paused the daemon."),
    _gauge("held", "1 for what keeps the daemon from applying now: a pause, the journal, a breaker, standby.", "by"),
    _gauge("breaker_open", "1 for an open circuit breaker, 0 for a closed one.", "breaker"),
    _counter(
        "recommendations", "Recommendations of all rounds: accepted, or the rule that refused.", "kind", "verdict"
    ),
    _counter("plan_trials", "Rollouts of plans in a process of its own: tried, or failed or too late.", "outcome"),
    _gauge("recommended", "Recommendations of the last round that no rule refused.", "kind"),
    _gauge("jobs", "Records of the queue in the last snapshot; an array that waits is one.", "state"),
    _gauge("users", "Users with pending jobs, and with running jobs, in the last snapshot.", "state"),
    _gauge("users_changed", "Users with a change in effect on one of their jobs."),
    _gauge(
        "pending_wait_seconds",
        "Waits so far of the pending GPU jobs, those on hold left out: the median, p90 and longest.",
        "of",
    ),
    _gauge("jobs_left_alone", "Pending GPU jobs that must not be changed, by the first rule that says so.", "rule"),
    _counter("changes", "Changes sent to Slurm, as read back: applied, already_so or failed.", "lever", "outcome"),
    _counter("held_back", "Changes that no rule refused and that were not sent, by what held them back.", "by"),
    _counter("returns", "Changes taken back, or tried to, as read back.", "lever", "outcome"),
    _counter("returns_put_off", "Changes that were due to be taken back and could not be sent, by why.", "by"),
    _counter("objections", "Changes that people had taken back (reverted) or overwrote (overruled).", "kind"),
    _counter("notices", "Deliveries of notices: sent, put_off for another attempt, or given_up.", "target", "outcome"),
    _gauge("leases", "Changes that the journal holds open.", "state"),
    _gauge("leases_overdue", "Changes that were due to be taken back before the last round and still are out."),
    _gauge("timers", "Delay timers that are out now, by the locality tier they wait for.", "tier"),
    _gauge("timer_waits", "Waits that the timers are tuned with: got the tier, or gave_up.", "tier", "outcome"),
    _counter("rpcs", "Requests of this process to slurmctld.", "kind"),
    _gauge("controller_server_threads", "Server threads of slurmctld, by its own account."),
    _gauge("controller_agent_queue", "Agent queue of slurmctld, by its own account."),
    _gauge("controller_database_queue", "Messages that slurmctld has yet to send to slurmdbd."),
    _gauge("controller_main_cycle_seconds", "Last pass of slurmctld's main scheduler."),
    _gauge("controller_backfill_cycle_seconds", "Last pass of slurmctld's backfill scheduler."),
    _gauge("forecast_coverage_ratio", "Share of forecasts whose 80 % interval held what came; 0.8 is right.", "of"),
    _gauge(
        "forecast_error_factor",
        "Half of the forecasts' medians were off by this factor or more, up or down; 1 is right.",
        "of",
    ),
    _gauge("forecast_coverage_jobs", "Jobs that this share and this factor rest on.", "of"),
    _gauge("forecast_models_on_probation", "Run-time models that are not proven here, so that plans set them aside."),
    _gauge("forecast_models_refused", "Models that were refused or answered nonsense in the last round."),
    _gauge(
        "wait_difference_seconds",
        "Mean wait of a week's jobs less that on plain Slurm, by the model: low, median or high of 80 %.",
        "of",
    ),
    _gauge(
        "users_compared",
        "Users by how their waits of a week compare with plain Slurm: shorter or longer for certain, or unclear.",
        "wait",
    ),
    _gauge("wait_difference_timestamp_seconds", "Up to when those waits are known; 0 before the first run."),
    _gauge("gpus", "Whole GPUs of a partition; one of several partitions counts in each.", "partition", "gpu_type"),
    _gauge("idle_gpus", "Idle GPUs on nodes that start jobs.", "partition", "gpu_type"),
    _gauge("fragmented_gpus", "Idle GPUs on nodes some of whose GPUs are in use.", "partition", "gpu_type"),
    _gauge("largest_idle_gpus", "The most GPUs that are idle on one node.", "partition", "gpu_type"),
    _gauge("journal_size_bytes", "Size of the journal with its log."),
    _gauge("collector_success", "1 where the last round filled this part of the metrics.", "collector"),
    _gauge("collector_duration_seconds", "How long the last round took to fill this part.", "collector"),
)

# Under this name a round says that a person paused it.
PAUSED: Final = "paused"
# Under this name a round says that the journal failed.
JOURNAL: Final = "journal"

OTHER: Final = "other"
_WORD: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,47}")


class BoundedValues:
    """Limits the values of one label: the first words are kept, all others become "other"."""

    def __init__(self, *, most: int = 64) -> None:
        """Start without a value; `most` bounds their number."""
        self._values: set[str] = set()
        self._most = most

    def of(self, text: str) -> str:
        """Return a text as the value of a label."""
        if text in self._values:
            return text
        if len(self._values) >= self._most or _WORD.fullmatch(text) is None:
            return OTHER
        self._values.add(text)
        return text


def class_of(text: str) -> str:
    """Return the name before the colon in a gate's reason."""
    name, colon, _ = text.partition(":")
    return name.strip() if colon else OTHER
