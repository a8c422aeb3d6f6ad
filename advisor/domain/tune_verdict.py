"""Defines what the weekly `sadvise tune` of a daemon found, as the audit keeps it, and what the daemon makes of it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from advisor.domain.dataclass import dataclass
from advisor.domain.units import DAY_S

# Two runs are successive that are this far apart; between is a week.
_APART_S: Final = (5 * DAY_S, 9 * DAY_S)


class Preset(StrEnum):
    """What a site can agree to, by who can lose from it: nobody; each user to the same user; some users to others."""

    FREE = "free"  # open gangs on the fewest nodes
    GENTLE = "gentle"  # jobs change places within a user or account, or few pass all; fewer jobs hold nodes
    TRADE = "trade"  # short jobs pass long ones of others; with pins and reservations as well


# The presets of `guard.fairness`; "site" belongs to none.
PRESETS: Final[Mapping[str, Preset]] = {
    "user": Preset.GENTLE,
    "account": Preset.GENTLE,
    "lane": Preset.GENTLE,
    "trade": Preset.TRADE,
}


def presets_in(text: str) -> frozenset[Preset]:
    """Return the presets of a list such as "free, gentle"; raises `ValueError` for anything else."""
    names = {name.strip() for name in text.split(",") if name.strip()}
    if not names <= set(Preset):
        raise ValueError(f"tune_presets must be a list of {', '.join(Preset)}")
    return frozenset(map(Preset, names))


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneVerdict:
    """The setting that is advised for a site, against the one in force; `preset` is "" where none is.

    It was tried on the last `jobs` of the site. `percent`, with its 95 % interval `low` to `high`, is the change of the
    mean JCT from the setting in force. Of `users` with enough jobs, `worse` lose against plain Slurm, `beyond_chance`
    of them clearly, and `beyond_chance_now` under the setting in force. `lines` are those that put it into effect;
    `fairness` and `priority_decades` are given where those of the daemon alone do.
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
    fairness: str = ""
    priority_decades: float = 0.0

    @property
    def is_better(self) -> bool:
        """Whether another setting is better than that in force: for fewer users a loss, or clearly faster."""
        if not self.preset or self.setting == self.in_force:
            return False
        return self.beyond_chance < self.beyond_chance_now or self.high < 0.0

    def confirms(self, setting: object, apart_s: float) -> bool:
        """Return whether the run before chose the same setting, which is better and leaves no more users worse."""
        least_s, most_s = _APART_S
        is_kind = self.is_better and self.beyond_chance <= self.beyond_chance_now
        return is_kind and setting == self.setting and least_s <= apart_s <= most_s


class Tuned(NamedTuple):
    """What a weekly run found: the setting that is advised, and the one that the daemon can take up by itself."""

    advised: TuneVerdict
    move: TuneVerdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """Settings that the daemon took up by itself at `since_time`, what they replace, and `why`."""

    fairness: str
    priority_decades: float
    configured_fairness: str
    configured_decades: float
    since_time: float
    why: str

    @property
    def preset(self) -> Preset | None:
        """The preset of the settings; None for a fairness that belongs to none."""
        return PRESETS.get(self.fairness)

    def against(self, allowed: frozenset[Preset], fairness: str, priority_decades: float) -> str:
        """Return why they do not hold beside what a site allows and configures, "" if they do."""
        if self.preset not in allowed:
            return f"daemon.tune_presets does not allow guard.fairness = {self.fairness[:20]!a}"
        if (fairness, priority_decades) != (self.configured_fairness, self.configured_decades):
            return "guard.fairness or planning.priority_decades was edited since"
        return ""
