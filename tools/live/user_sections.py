"""Pairs the jobs of two clusters of a run, and writes of the users and jobs that gained and gave."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from advisor.domain.units import MINUTE_S, duration
from advisor.planning.objective import bound_s
from advisor.settings import Limits
from advisor.sim.study.comparison import Groupings, Results, compare_groups, tally_jobs
from advisor.sim.study.metrics import by_user
from advisor.sim.study.statistics import CellName, mean_over_cells
from advisor.sim.study.user_losses import ALLOWED_RATIO
from advisor.view.wording import shown, signed
from tools.live.kept import ReportSection, Runs, Values, in_words
from tools.live.replayed import options_of

ALLOWED_S: Final = 5 * MINUTE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class UserChange:
    """The mean JCT of the jobs of a user in one run, on the first cluster and on another."""

    trace: str
    seed: int
    user: str
    jobs: int
    before_s: float
    after_s: float

    @property
    def loss_s(self) -> float:
        """The time by which the jobs take longer on average."""
        return self.after_s - self.before_s

    @property
    def percent(self) -> float:
        """The loss in percent of what the jobs took before."""
        return 100.0 * self.loss_s / self.before_s

    @property
    def is_worse(self) -> bool:
        """Whether the loss is above 5 % and above 5 min."""
        return self.loss_s > self._allowed_s

    @property
    def is_better(self) -> bool:
        """Whether the gain is above 5 % and above 5 min."""
        return -self.loss_s > self._allowed_s

    @property
    def _allowed_s(self) -> float:
        return max(ALLOWED_RATIO * self.before_s, ALLOWED_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Says how much later jobs started than on the first cluster, in seconds; `beyond` were later than their bound."""

    jobs: int
    later: int
    beyond: int
    p99_s: float
    worst_s: float


def user_changes(before: Results, after: Results, groupings: Groupings, *, seed: int) -> list[UserChange]:
    """Compare the users of each run, those that lost most first."""
    found = [
        UserChange(
            trace=cell.trace,
            seed=cell.seed,
            user=group.group,
            jobs=group.jobs,
            before_s=group.before_s,
            after_s=group.after_s,
        )
        for cell in sorted(before.keys() & after.keys())
        for group in compare_groups({cell: before[cell]}, {cell: after[cell]}, {cell: groupings[cell]}, seed=seed)
    ]
    return sorted(found, key=lambda user: (-user.loss_s, user.trace, user.seed, user.user))


def lateness(before: Results, after: Results, limits: Mapping[CellName, Limits]) -> Lateness:
    """Count the jobs that started later than on the first cluster; `limits` are in the time of the trace."""
    late, beyond = [], 0
    for cell in sorted(before.keys() & after.keys()):
        plain_s = before[cell].queueing_delay_s
        late_s = after[cell].queueing_delay_s - plain_s
        beyond += int((late_s > bound_s(plain_s, limits[cell])).sum())
        late.append(late_s[np.isfinite(late_s)])
    seconds = np.concatenate(late)
    return Lateness(
        jobs=len(seconds),
        later=int((seconds > ALLOWED_S).sum()),
        beyond=beyond,
        p99_s=float(np.quantile(seconds, 0.99)),
        worst_s=float(seconds.max()),
    )


def in_trace_time(limits: Limits, speedup: float) -> Limits:
    """Return the limits of a daemon whose clock runs `speedup` times as fast, as far as they bound lateness."""
    return replace(limits, max_lateness_s=limits.max_lateness_s * speedup)


_WORST_USERS: Final = 5
_ALL: Final = "all traces"

ByRun = Mapping[CellName, Sequence[UserChange]]


def users_values(runs: Runs, seed: int) -> Values:
    """Count the users and the jobs that lost, for each trace and for all, beside those that lose by chance."""
    users = _by_run(runs, seed)
    again = users.get(runs.plain_again or "", {})
    return [
        {
            "trace": trace,
            "cluster": name,
            "against": runs.first,
            **_users(
                {cell: own for cell, own in users[name].items() if trace in (None, cell.trace)},
                {} if name == runs.plain_again else again,
                seed,
            ),
            **_jobs(runs, name, trace),
        }
        for trace in runs.scopes
        for name in runs.others
        if runs.on(name, trace)
    ]


def _by_run(runs: Runs, seed: int) -> dict[str, ByRun]:
    groupings = runs.grouped(by_user(runs.jobs()))
    first = runs.by_arm[runs.first]
    return {
        name: {
            cell: user_changes({cell: first[cell]}, {cell: own}, {cell: groupings[cell]}, seed=seed)
            for cell, own in runs.by_arm[name].items()
        }
        for name in runs.others
    }


def _users(own: ByRun, again: ByRun, seed: int) -> dict[str, Any]:
    """Count users; those that lose by chance are counted between the plain clusters of the same runs."""
    worse = {cell: _worse_percent(users) for cell, users in own.items()}
    chance = {cell: _worse_percent(again[cell]) for cell in own.keys() & again.keys()}
    share = mean_over_cells(worse, seed=seed)
    beyond = mean_over_cells({cell: worse[cell] - percent for cell, percent in chance.items()}, seed=seed)
    by_chance = [user for cell in chance for user in again[cell]]
    users = [user for of_run in own.values() for user in of_run]
    return {
        "runs": len(own),
        "users": len(users),
        "worse": sum(user.is_worse for user in users),
        "better": sum(user.is_better for user in users),
        "worse_percent": share.mean,
        "worse_low": share.low,
        "worse_high": share.high,
        "chance_runs": len(chance),
        "chance_users": len(by_chance),
        "chance_worse": sum(user.is_worse for user in by_chance),
        "beyond_points": beyond.mean,
        "beyond_low": beyond.low,
        "beyond_high": beyond.high,
    }


def _worse_percent(users: Sequence[UserChange]) -> float:
    return 100.0 * sum(user.is_worse for user in users) / len(users) if users else float("nan")


def _jobs(runs: Runs, name: str, trace: str | None) -> dict[str, Any]:
    first, own = runs.on(runs.first, trace), runs.on(name, trace)
    tally, late = tally_jobs(first, own), lateness(first, own, limits_of(runs, name))
    return {
        "sooner": tally.lower,
        "later": tally.higher,
        "same": tally.same,
        "jobs": late.jobs,
        "started_later": late.later,
        "beyond_bound": late.beyond,
        "p99_s": late.p99_s,
        "worst_s": late.worst_s,
    }


def limits_of(runs: Runs, name: str) -> dict[CellName, Limits]:
    """Return what bounds the lateness of jobs, by run; the defaults where there is no daemon."""
    return {
        cell: Limits() if arm.config is None else in_trace_time(options_of(arm).limits, arm.site.speedup)
        for cell, arm in runs.kept(name).items()
    }


def users_section(values: Values) -> ReportSection:
    """Show which users and jobs have lost."""
    first = values[0]["against"] if values else ""
    heads = (
        "trace", f"against {first}", "runs:", "users worse:", "share of users:", "by chance:",
        "beyond chance:", "users better:",
    )  # fmt: skip
    job_heads = (
        "trace", f"against {first}", "jobs ended sooner / later / same", "started later by over 5 min:",
        "99th percentile of lateness:", "latest job:", "beyond the bound:",
    )  # fmt: skip
    text = [
        "A user is worse off whose mean JCT in a run is longer by more than 5 % and 5 min, better off if shorter.",
        "By chance: as many are worse off between the two plain clusters of the same runs, where there are two.",
        "Beyond chance: the difference of the two shares in these runs.",
        "The bound of a job is the longer of guard.max_lateness_s and guard.max_lateness_ratio times its plain wait.",
    ]
    return ReportSection(
        title="Who gained, who gave",
        text=text,
        tables=[(heads, list(map(_user_row, values))), (job_heads, list(map(_job_row, values)))],
    )


def _user_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        one["trace"] or _ALL,
        one["cluster"],
        str(one["runs"]),
        f"{one['worse']} of {one['users']}",
        share_in_words(one["worse_percent"], one["worse_low"], one["worse_high"]),
        f"{one['chance_worse']} of {one['chance_users']}" if one["chance_runs"] else "",
        in_words(one["beyond_points"], one["beyond_low"], one["beyond_high"], "points") if one["chance_runs"] else "",
        f"{one['better']} of {one['users']}",
    )


def share_in_words(percent: float | None, low: float | None, high: float | None) -> str:
    """Return a share with its interval, which is cut off at 0 and at 100: `25.0 % (9.1 to 40.9)`."""
    if percent is None:
        return "none"
    middle = f"{percent:.1f} %"
    return middle if low is None or high is None else f"{middle} ({max(0.0, low):.1f} to {min(100.0, high):.1f})"


def _job_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        one["trace"] or _ALL,
        one["cluster"],
        f"{one['sooner']} / {one['later']} / {one['same']}",
        f"{one['started_later']} of {one['jobs']}",
        shown("p99_s", one["p99_s"]),
        duration(one["worst_s"]),
        str(one["beyond_bound"]),
    )


def losses_values(runs: Runs, seed: int) -> Values:
    """Return the users that lost most on each cluster."""
    return [
        {"cluster": name, "against": runs.first, **asdict(user), "change": user.percent, "is_worse": user.is_worse}
        for name, by_run in _by_run(runs, seed).items()
        for user in sorted(
            (user for users in by_run.values() for user in users),
            key=lambda user: (-user.loss_s, user.trace, user.seed, user.user),
        )[:_WORST_USERS]
    ]


def losses_section(values: Values) -> ReportSection:
    """Show the users that lost most."""
    first = values[0]["against"] if values else ""
    heads = ("cluster", "trace", "seed:", "user", "jobs:", f"mean JCT {first}:", "mean JCT:", "change:", "worse")
    rows = [
        (
            one["cluster"], one["trace"], str(one["seed"]), one["user"], str(one["jobs"]), duration(one["before_s"]),
            duration(one["after_s"]), f"{signed(one['change'])} %", "yes" if one["is_worse"] else "no",
        )
        for one in values
    ]  # fmt: skip
    return ReportSection(title="The largest losses of users", tables=[(heads, rows)])
