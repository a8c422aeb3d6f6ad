"""Every key of sadvise.toml: its default, its bounds and the sentence that documents it.

The tables `mode`, `experiment`, `notify` and `utilisation` stand beside what they decide, in `domain`; `config` lists
and reads all.
"""

import re
from typing import Annotated, Final, Literal

from advisor.domain.dataclass import dataclass
from advisor.domain.notice import is_loopback
from advisor.domain.tune_verdict import Preset, presets_in
from advisor.domain.units import DAY_S, HOUR_S

Reader = Literal["auto", "text", "pyslurm"]
Level = Literal["debug", "info", "warning", "error"]
Layout = Literal["auto", "logfmt", "json"]
Fairness = Literal["user", "account", "lane", "trade", "site"]

# The unit's WatchdogSec has to be longer than the longest round.
LONGEST_DEADLINE_S: Final = 80.0
_UNIX: Final = "unix:"
# The kernel accepts no longer path for a socket.
_LONGEST_PATH: Final = 107
_PORT: Final = re.compile(r"(?P<host>[^:]+|\[[^\]]+\]):(?P<port>[0-9]{1,5})")
# Bounds that catch typing errors; they are far above what any site needs.
_LARGEST, _LARGEST_INFLATION, _MOST_DECADES = 1e9, 100.0, 20.0
_SHORTEST_TWIN_S: Final = 5.0
_SHORTEST_AGE_S: Final = 5.0
_MOST_CREDIT: Final = 10.0
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]{1,64}){1,8}")
_HEADER: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
# Slurm keeps the three lowest values for itself.
_LOWEST_NICE: Final = -(2**31 - 3)
PLANNING_BOUNDS: Final = {
    **dict.fromkeys(("depth", "lift_places", "lift_work_s", "lift_lease_s", "patience_s"), (1.0, _LARGEST)),
    "node_list_lease_s": (1.0, HOUR_S),
    **dict.fromkeys(("node_timer_s", "leaf_timer_s", "timer_memory_s", "timer_imagined"), (1.0, _LARGEST)),
    "min_saving_s": (0.0, _LARGEST),
    **dict.fromkeys(("leaf_inflation", "spine_inflation", "insensitive_inflation"), (1.0, _LARGEST_INFLATION)),
    "priority_decades": (0.0, _MOST_DECADES),
    "max_credit": (1.0, _MOST_CREDIT),
}
# With fewer, a few friends would decide for all.
_LEAST_VOTERS: Final = 4
# Keys of `Limits` that are words, or have bounds of their own; no other one can be negative.
_OTHERWISE_BOUNDED: Final = frozenset({"fairness", "max_limit_ratio", "nice_min"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSettings:
    """What the rule-based planner assumes and where it stops."""

    depth: Annotated[
        int, "number of pending jobs per pool that are planned, highest priority first; all can be lifted"
    ] = 200
    priority_decades: Annotated[
        float, "the weight of a job grows by this many powers of ten over the full range of fair share and age"
    ] = 2.0
    patience_s: Annotated[float, "a wait below this is no sign that the turn of a job comes near"] = 1800.0
    max_credit: Annotated[
        float,
        "jobs of users who waited longer than without advice weigh this many times as much at most; 1: no more",
    ] = 3.0
    lift_places: Annotated[int, "number of jobs of a pool that are kept at the head of the line by lifts"] = 20
    lift_work_s: Annotated[
        float,
        "how long all GPUs of a pool work at most on the jobs that are lifted and have not started, by their time "
        "limits; a job of one task is lifted in any case while no other is, an array only if all its tasks fit",
    ] = 8 * HOUR_S
    lift_user_ratio: Annotated[
        float, "share of those places and of that work that the jobs of one user have at most while jobs of others wait"
    ] = 0.5
    lift_lease_s: Annotated[float, "time after which a job that was lifted and has not started is put back"] = DAY_S
    min_saving_s: Annotated[float, "least job completion time that a new size or a soft limit must save"] = 600.0
    used_limit_ratio_low: Annotated[float, "least share of their time limit that jobs are assumed to use"] = 0.2
    soft_limit_ratio_high: Annotated[float, "soft limits above this share of the time limit are not proposed"] = 0.75
    node_timer_s: Annotated[float, "mean wait for the fewest nodes, assumed until waits are observed"] = 600.0
    leaf_timer_s: Annotated[float, "mean wait for one leaf switch, assumed until waits are observed"] = 1800.0
    timer_memory_s: Annotated[float, "half-life of the weight of an observed wait"] = 3600.0
    timer_imagined: Annotated[float, "number of observed waits that an assumed mean counts as"] = 2.0
    insensitive_inflation: Annotated[
        float, "a gang whose inflation in a worse place is below this does not wait for a better one"
    ] = 1.05
    rollout_deadline_s: Annotated[
        float,
        "time limit of the rollouts that try delay timers, sizes and soft limits before they are sent; what was not "
        "tried in time is not sent; 0 sends them untried",
    ] = 15.0
    name_nodes: Annotated[
        bool, "whether the nodes on which a pending gang starts can be named (ReqNodeList), where a policy chooses them"
    ] = False
    node_list_lease_s: Annotated[
        float, "time after which named nodes are taken back from a gang that has not started"
    ] = 120.0
    leaf_inflation: Annotated[float, "assumed inflation of a gang spread over nodes of one leaf"] = 1.1
    spine_inflation: Annotated[float, "assumed inflation of a gang spread over leaves"] = 1.3
    scaling_exponent: Annotated[float, "the speed of n GPUs is assumed to be n to this power"] = 0.9
    min_marginal_ratio: Annotated[float, "least speed that an added GPU must contribute, as a share of one GPU's"] = 0.5

    def __post_init__(self) -> None:
        for name, (least, most) in PLANNING_BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be at least {least:g} and at most {most:.10g}")
        for name in (
            "lift_user_ratio",
            "used_limit_ratio_low",
            "soft_limit_ratio_high",
            "scaling_exponent",
            "min_marginal_ratio",
        ):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1")
        if not 0 <= self.rollout_deadline_s <= LONGEST_DEADLINE_S:
            raise ValueError(f"rollout_deadline_s must be at least 0 and at most {LONGEST_DEADLINE_S:g}")
        if self.leaf_inflation > self.spine_inflation:
            raise ValueError("leaf_inflation must be at least 1 and at most spine_inflation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far changes can go."""

    fairness: Annotated[
        Fairness,
        "whose jobs change places: those of one user, of one account, of all users weighed by the site's own order "
        "(trade), or of all users by size alone (site); with user and account two jobs exchange their places, so that "
        "no job of another user or account is passed; with lane the smallest jobs pass all others, up to lane_ratio",
    ] = "trade"
    lane_ratio: Annotated[
        float,
        "at fairness lane, the share of a pool's GPU-time that goes to lifted jobs in each fairness_window_s, by their "
        "expected run times",
    ] = 0.02
    interactive_ratio: Annotated[
        float,
        "share of a pool's GPUs that jobs which salloc and srun submit have at most by being lifted at submission, "
        "waiting and running; one user has half of it; it needs daemon.submit_table; 0 lifts none",
    ] = 0.0
    interactive_limit_s: Annotated[float, "longest time limit of the interactive jobs that are lifted"] = 8 * HOUR_S
    max_lateness_s: Annotated[float, "a job that starts this much later than without advice goes before all others"] = (
        14 * DAY_S
    )
    max_lateness_ratio: Annotated[
        float, "the same bound as a share of the job's wait without advice; the larger of the two counts"
    ] = 1.0
    agreed_delay_s: Annotated[
        float, "by how much longer than without advice the jobs of a user can wait in the mean before they weigh more"
    ] = 1800.0
    agreed_delay_ratio: Annotated[
        float, "the same as a share of the user's wait without advice; the larger of the two counts"
    ] = 0.05
    min_job_age_s: Annotated[float, "jobs submitted less than this ago are left alone"] = 60.0
    max_job_wait_s: Annotated[float, "no change is made that delays a job eligible for longer than this"] = 48 * HOUR_S
    max_added_delay_s: Annotated[
        float, "bound on the delay of one job by changes: no change without room for it, a lift after half of it"
    ] = 6 * HOUR_S
    max_limit_ratio: Annotated[
        float, "most by which the time limit of a job is raised that is made smaller and so runs longer; 1 raises none"
    ] = 4.0
    nice_min: Annotated[int, "lowest nice value that is set, 0 or below; below 0 it takes an Operator"] = -2_000_000_000
    cooldown_s: Annotated[float, "time for which a job is left alone after it was changed, or its change refused"] = (
        600.0
    )
    max_changes: Annotated[int, "most changes in one cycle"] = 300
    max_changes_per_user: Annotated[int, "most changes in one cycle to jobs of one user, but for reordering"] = 5
    max_changes_per_account: Annotated[int, "most changes in one cycle to jobs of one account, but for reordering"] = 10
    max_user_delay_s: Annotated[
        float,
        "bound for new changes on the delay of all jobs of a user in the window, realised and expected",
    ] = 24 * HOUR_S
    max_account_delay_s: Annotated[
        float,
        "bound for new changes on the delay of all jobs of an account in the window, realised and expected",
    ] = 96 * HOUR_S
    fairness_window_s: Annotated[
        float, "time over which lifts of the lane, and the delays of users and accounts, are added up"
    ] = 24 * HOUR_S
    probation_jobs: Annotated[
        int,
        "least number of ended jobs of this site that must confirm the intervals of a run-time model, and in a weekly "
        "look its order, before plans count with its run times, and again after it drifted; 0 trusts every model at "
        "once",
    ] = 100

    def __post_init__(self) -> None:
        for name in Limits.__slots__:
            if name not in _OTHERWISE_BOUNDED and getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if not self.max_limit_ratio >= 1:
            raise ValueError("max_limit_ratio must be at least 1")
        if not self.lane_ratio <= 1:
            raise ValueError("lane_ratio must be at most 1")
        if not self.interactive_ratio <= 1:
            raise ValueError("interactive_ratio must be at most 1")
        if not self.interactive_limit_s <= 7 * DAY_S:
            raise ValueError("interactive_limit_s must be at most 604800")
        if not _LOWEST_NICE <= self.nice_min <= 0:
            raise ValueError(f"nice_min must not be above 0, nor below {_LOWEST_NICE}")

    @property
    def is_lane(self) -> bool:
        """Whether lifts are bounded by the GPU-time that they take in a window."""
        return self.fairness == "lane"

    @property
    def lifts_pass_others(self) -> bool:
        """Whether jobs can be lifted above those of other users and accounts."""
        return self.fairness in ("trade", "site", "lane")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """How the cluster is read."""

    reader: Annotated[Reader, "how Slurm is read: auto, text or pyslurm"] = "auto"
    timeout_s: Annotated[float, "time limit of one Slurm command"] = 30.0

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise ValueError("timeout_s must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSettings:
    """Which models make the forecasts."""

    enabled: Annotated[bool, "whether forecasts of models are used; without them the planner uses its rules alone"] = (
        True
    )
    models: Annotated[str, "folder of the models that this site fitted; for the others, those that ship are used"] = (
        "/var/lib/sadvise/models"
    )
    network: Annotated[
        str, "measured network that is this site's, as the throughput model names it; empty for none of them"
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """Where the journal of all changes is kept, and for how long."""

    file: Annotated[str, "SQLite file of outstanding changes, of what was done and why; one per cluster"] = (
        "/var/lib/sadvise/journal.sqlite"
    )
    keep_days: Annotated[float, "days for which cycles, outcomes and the audit are kept"] = 90.0
    records_mib: Annotated[float, "size limit of the cycles recorded in full for `sadvise replay`"] = 512.0

    def __post_init__(self) -> None:
        for name in ("keep_days", "records_mib"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """How `sadvise serve` runs."""

    interval_s: Annotated[float, "time from the start of one round to the next"] = 60.0
    interval_max_s: Annotated[
        float, "longest interval, used after rounds that were not done, as while slurmctld is under strain"
    ] = 600.0
    jitter_s: Annotated[
        float, "largest random delay of the start of a round, so that clusters do not query in step"
    ] = 5.0
    deadline_s: Annotated[float, "time limit of one round; what is left then waits for the next round"] = 45.0
    runtime_folder: Annotated[
        str, "folder of the pause file, the socket of the leases and the lock that excludes a second daemon"
    ] = "/run/sadvise"
    refit: Annotated[bool, "whether run times are fitted again every night; needs the package sadvise-fit"] = False
    tune: Annotated[
        bool,
        "whether `sadvise tune live` tries other settings on the last four weeks of the site every Sunday night; the "
        "digest and the audit say which preset would do better, and at whose price; nothing is changed but by "
        "tune_presets",
    ] = False
    tune_presets: Annotated[
        str,
        'presets, such as "gentle, trade", to whose guard.fairness and planning.priority_decades a daemon that applies '
        "moves by itself, where two successive runs choose the same setting; empty for none",
    ] = ""
    tune_cpu_s: Annotated[float, "CPU time after which that is ended"] = 2 * HOUR_S
    policy: Annotated[
        str,
        "learned policy, NAME or NAME@VERSION, that decides in place of the rules; without a version the one in use in "
        "each round; empty for the rules",
    ] = ""
    shadow: Annotated[
        str,
        "learned policy, NAME, NAME@VERSION or NAME@newest, whose plans are recorded in the journal beside those in "
        "force and never sent; newest is the last version that the site fitted; empty for none",
    ] = ""
    submit_table: Annotated[
        str,
        "absolute path of the table by which slurm/sadvise_lift.lua lifts jobs at submission, written in each round; "
        "empty for none",
    ] = ""
    twin_interval_s: Annotated[
        float,
        "time from one run of plain Slurm beside the cluster to the next, which say what users gained and gave by the "
        "advice; 0 for none",
    ] = 600.0
    night_hour: Annotated[int, "hour of the day, UTC, of fits, of tune and of pruning the journal"] = 3
    strain_threads: Annotated[int, "number of slurmctld threads from which on it counts as strained"] = 64
    strain_queue: Annotated[int, "length of slurmctld's agent queue from which on it counts as strained"] = 200
    strain_cycle_s: Annotated[
        float, "duration of a pass of slurmctld's main scheduler from which on it counts as strained"
    ] = 5.0
    log_level: Annotated[Level, "lowest severity of events that are logged: debug, info, warning or error"] = "info"
    log_format: Annotated[Layout, "layout of log lines: auto, logfmt or json"] = "auto"

    def __post_init__(self) -> None:
        if not 1.0 <= self.interval_s <= self.interval_max_s <= DAY_S:
            raise ValueError("interval_s must be at least 1 and at most interval_max_s, which is at most 86400")
        if not 0.0 <= self.jitter_s <= self.interval_s:
            raise ValueError("jitter_s must not be negative, nor above interval_s")
        if not 0.0 < self.deadline_s <= LONGEST_DEADLINE_S:
            raise ValueError(f"deadline_s must be above 0 and at most {LONGEST_DEADLINE_S:g}")
        if not (self.twin_interval_s == 0.0 or _SHORTEST_TWIN_S <= self.twin_interval_s <= DAY_S):
            raise ValueError("twin_interval_s must be 0, or at least 5 and at most 86400")
        if not 0 <= self.night_hour <= 23:
            raise ValueError("night_hour must be an hour from 0 to 23")
        presets_in(self.tune_presets)
        if self.tune_cpu_s < 1.0:
            raise ValueError("tune_cpu_s must be at least 1")
        if min(self.strain_threads, self.strain_queue, self.strain_cycle_s) <= 0:
            raise ValueError("strain_threads, strain_queue and strain_cycle_s must be above 0")
        if not self.runtime_folder.startswith("/"):
            raise ValueError("runtime_folder must be an absolute path")
        if self.submit_table and not self.submit_table.startswith("/"):
            raise ValueError("submit_table must be an absolute path, or empty")

    @property
    def presets(self) -> frozenset[Preset]:
        """The presets to which the daemon moves by itself."""
        return presets_in(self.tune_presets)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSettings:
    """How much of slurmctld's time requests take, reads and changes together."""

    time_ratio: Annotated[float, "share of slurmctld's time that requests can take, by sdiag's means"] = 0.005

    def __post_init__(self) -> None:
        if not 0 < self.time_ratio <= 1:
            raise ValueError("time_ratio must be above 0 and at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopbackAddress:
    """A port that can be reached only from this machine."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketFile:
    """A Unix socket."""

    path: str


Address = LoopbackAddress | SocketFile


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """Where metrics and health are served, read only, to every program that can reach the address."""

    listen: Annotated[
        str, 'loopback address with a port, or "unix:" and the path of a socket, for /metrics and /healthz; "" for none'
    ] = "127.0.0.1:9341"

    def __post_init__(self) -> None:
        address_of(self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The web view, `sadvise web`: where it listens, who uses it, and what they can do.

    Any process that can connect to a TCP port can send any header. Actions therefore need a Unix socket, whose
    permissions let only the proxy connect.
    """

    listen: Annotated[str, 'loopback address with a port, or "unix:" and the path of a socket for a reverse proxy'] = (
        "127.0.0.1:9342"
    )
    hosts: Annotated[
        str, "names by which browsers reach the web view through a proxy, separated by commas; loopback is always one"
    ] = ""
    prefix: Annotated[str, 'path below which a proxy serves the web view, such as "/sadvise"'] = ""
    max_age_s: Annotated[float, "the cluster is read again when it was read longer ago and someone looks"] = 60.0
    user_header: Annotated[str, 'header in which the proxy names the user, such as "X-Remote-User"; "" for none'] = ""
    actions: Annotated[bool, "whether administrators can pause, apply and revert from the browser"] = False
    admin_group: Annotated[str, "Unix group of those administrators"] = ""
    hide_names: Annotated[
        bool,
        "whether users, accounts and job names are left out; behind a Unix socket the members of admin_group see all, "
        "and users those of their own jobs",
    ] = False
    frontier_file: Annotated[str, "output of `sadvise tune --json` that the web view shows"] = ""

    def __post_init__(self) -> None:
        address = address_of(self.listen)
        if address is None:
            raise ValueError('listen must be a loopback address with a port, or "unix:/path"')
        if not _SHORTEST_AGE_S <= self.max_age_s <= HOUR_S:
            raise ValueError(f"max_age_s must be from {_SHORTEST_AGE_S:.0f} to {HOUR_S:.0f}")
        for name in self.host_names:
            if not _HOST_NAME.fullmatch(name):
                raise ValueError("hosts must be host names without ports, separated by commas")
        if self.prefix and not _PREFIX.fullmatch(self.prefix):
            raise ValueError('prefix must be a path such as "/sadvise", without a slash at its end')
        if self.user_header and not _HEADER.fullmatch(self.user_header):
            raise ValueError("user_header must be the name of a header: letters, digits and -")
        if self.actions and not (self.user_header and self.admin_group and isinstance(address, SocketFile)):
            raise ValueError(
                'actions need user_header, admin_group, and a listen of "unix:/path": any local user can send the '
                "header to a port"
            )

    @property
    def trusts_header(self) -> bool:
        """Whether only the proxy can connect, so that the user in the header is the one who logged in."""
        return bool(self.user_header) and isinstance(address_of(self.listen), SocketFile)

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names of `hosts`."""
        return tuple(name.strip() for name in self.hosts.split(",") if name.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When the daemon stops changing jobs by itself, and when it resumes."""

    rest_s: Annotated[float, "time for which the cause of a breaker must be absent before changes are made again"] = (
        1800.0
    )
    max_server_threads: Annotated[int, "most busy slurmctld threads; it has 256"] = 64
    max_cycle_s: Annotated[float, "longest pass of Slurm's main scheduler"] = 5.0
    max_backfill_cycle_s: Annotated[float, "longest pass of Slurm's backfill scheduler"] = 300.0
    max_agent_queue: Annotated[int, "longest queue of slurmctld messages to nodes"] = 1000
    max_database_queue: Annotated[int, "longest queue of slurmctld records for slurmdbd"] = 10_000
    max_reads_failed: Annotated[int, "most reads of the cluster that can fail in a row"] = 2
    max_error_ratio: Annotated[float, "largest share of failed requests to slurmctld"] = 0.2
    min_requests: Annotated[int, "least number of requests for the share of failures to count"] = 20
    min_coverage_ratio: Annotated[
        float, "least share of run times within their 80 % intervals; below it they are set aside"
    ] = 0.6
    min_ended_jobs: Annotated[int, "least number of ended jobs for that share to count"] = 50
    max_objections: Annotated[int, "most jobs whose changes administrators revert within the window"] = 3
    max_overruled_ratio: Annotated[
        float, "largest share both of the users with changes and of their changed jobs that overrule within the window"
    ] = 0.1
    min_overruling_users: Annotated[int, "least number of users who overrule for that share to count, 4 at least"] = 4
    max_objections_of_user: Annotated[int, "most jobs of one user that are counted in that share"] = 2
    objections_window_s: Annotated[float, "time over which people's objections are counted"] = 24 * HOUR_S

    def __post_init__(self) -> None:
        for name in ("max_error_ratio", "min_coverage_ratio", "max_overruled_ratio"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1")
        for name in BreakerSettings.__slots__:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if self.min_overruling_users < _LEAST_VOTERS:
            raise ValueError(f"min_overruling_users must be {_LEAST_VOTERS} at least")


def address_of(listen: str) -> Address | None:
    """Parse a `listen`; return None if it is empty. Raises `ValueError` if it is neither loopback nor a path."""
    if not listen:
        return None
    if listen.startswith(_UNIX):
        path = listen.removeprefix(_UNIX)
        if not path.startswith("/") or "\0" in path or len(path.encode()) > _LONGEST_PATH:
            raise ValueError(f'listen must be "unix:" and an absolute path of at most {_LONGEST_PATH} bytes')
        return SocketFile(path=path)
    match = _PORT.fullmatch(listen)
    host = match["host"].strip("[]") if match else ""
    if match is None or not is_loopback(host) or int(match["port"]) > 65_535:
        raise ValueError(
            'listen must be a loopback address with a port, such as "127.0.0.1:9341" or "[::1]:9341", or "unix:/path"'
        )
    return LoopbackAddress(host=host, port=int(match["port"]))
