"""Estimates what a lift gains: how much sooner its job starts than without advice, as a mean and an 80 % interval.

The work ahead of the job is counted twice, in the site's own order and behind the jobs that stay ahead of a lifted one,
each time worked off by all GPUs at once. What comes of it is less than the difference: backfill starts many jobs before
their turn, and without advice the job can have started already. How much less was fitted on simulated parts of traces,
for run times by the rule and with each part counting the same; `docs/objective.md` has the figures, and the share of
the intervals that hold what came on parts of other traces.
"""

from typing import Final

from advisor.domain.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GainShares:
    """The shares of what a lift changes that make the ends of its interval.

    The low end loses `ahead` of the work still ahead of the lifted job, and `advised` of its wait under advice. The
    high end gains `passed` of the work that the job passes, and `run` of a run time. On average `mean` of the work that
    the job passes is gained.
    """

    ahead: float
    advised: float
    passed: float
    run: float
    mean: float


SHARES: Final = GainShares(ahead=10.0, advised=0.33, passed=2.3, run=0.9, mean=0.6)
# By how much each job that is passed starts later, as a share of the work of the lifted one, in nine of ten parts. It
# is little: most of these jobs are lifted themselves, and their own intervals count it, or backfill starts them.
LATER_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a lift changes; work is the expected GPU-time, in the seconds that all GPUs take for it.

    `site_ahead_s` is the work ahead of the job in the site's own order, `ahead_s` that ahead of it once lifted, `own_s`
    its own. `advised_s` is how long it has waited since the first known change to any job: earlier waits are not due to
    advice. `run_s` is the mean expected run time of the jobs in the line, each GPU counted once.
    """

    site_ahead_s: float
    ahead_s: float
    own_s: float
    advised_s: float
    run_s: float
    jobs_passed: int

    @property
    def losses_s(self) -> tuple[float, float]:
        """What the job can lose: the work still ahead of it, and its wait under advice."""
        return self.ahead_s, self.advised_s

    @property
    def gains_s(self) -> tuple[float, float]:
        """What the job can gain: the work that it passes, and a run time."""
        return max(0.0, self.site_ahead_s - self.ahead_s), self.run_s

    @property
    def sooner_s(self) -> tuple[float, float]:
        """By how much the job starts sooner, low and high; the low end is not above 0."""
        (ahead_s, advised_s), (passed_s, run_s) = self.losses_s, self.gains_s
        low_s = 0.0 - SHARES.ahead * ahead_s - SHARES.advised * advised_s
        return low_s, SHARES.passed * passed_s + SHARES.run * run_s

    @property
    def sooner_s_mean(self) -> float:
        """By how much the job starts sooner on average."""
        passed_s, _ = self.gains_s
        return SHARES.mean * passed_s

    @property
    def saved_s(self) -> tuple[float, float]:
        """The same for all jobs whose order the lift changes, those that it passes included."""
        low_s, high_s = self.sooner_s
        return low_s - self._later_s, high_s

    @property
    def saved_s_mean(self) -> float:
        """What the lift saves on average for all of these jobs."""
        return self.sooner_s_mean - self._later_s

    @property
    def _later_s(self) -> float:
        """By how much the jobs that are passed start later, added up."""
        return LATER_SHARE * self.jobs_passed * self.own_s
