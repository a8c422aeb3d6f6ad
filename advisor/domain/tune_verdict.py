"""Defines what the weekly `sadvise tune` of a daemon found, as the audit keeps it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneVerdict:
    """The setting that is advised for a site, against the one in force; `preset` is "" where none is.

    It was tried on the last `jobs` of the site. `percent`, with its 95 % interval `low` to `high`, is the change of the
    mean JCT from the setting in force. Of `users` with enough jobs, `worse` lose against plain Slurm, `beyond_chance`
    of them clearly, and `beyond_chance_now` under the setting in force. `lines` are those that put it into effect.
    """

    jobs: int
    in_force: str
    preset: str = ""
    setting: str = ""
    lines: str = ""
    percent: float = 0.0
    low: float = 0.0
    high: float = 0.0
    users: int = 0
    worse: int = 0
    beyond_chance: int = 0
    beyond_chance_now: int = 0

    @property
    def is_better(self) -> bool:
        """Whether another setting is better than that in force: for fewer users a loss, or clearly faster."""
        if not self.preset or self.setting == self.in_force:
            return False
        return self.beyond_chance < self.beyond_chance_now or self.high < 0.0
