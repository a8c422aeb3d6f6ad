"""Reads what `sadvise tune --json` wrote."""

from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from advisor.domain.dataclass import dataclass
from advisor.errors import ConfigError
from advisor.files import check_json, read_bounded

_LARGEST_BYTES: Final = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedMeta:
    """What was replayed: a trace on a cluster, in a number of copies."""

    schema: Literal["sadvise.tune/2"]
    trace: str
    cluster: str
    repeats: int
    late_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedChange:
    """The change of the mean JCT against plain Slurm in percent, with its 95 % interval; None where undefined."""

    percent: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedLine:
    """A line of a configuration file."""

    file: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedPoint:
    """A setting, what it gains, and what it costs."""

    setting: str
    family: str
    preset: str | None
    lines: tuple[TunedLine, ...]
    mean_jct_s: float | None
    change: TunedChange
    p99_wait_s: float | None
    longest_wait_s: float | None
    late_jobs: float
    users: int
    users_worse: int
    users_worse_beyond_chance: int
    changes_per_job: float
    dominated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedFrontier:
    """The settings that were tried, the best of each preset, and which `sadvise tune` advises; None for none."""

    meta: TunedMeta
    points: tuple[TunedPoint, ...]
    presets: dict[str, str | None]
    advised: str | None

    @property
    def shown(self) -> list[TunedPoint]:
        """The points that no other one beats, and the best of each preset."""
        best = set(self.presets.values())
        return [point for point in self.points if not point.dominated or point.setting in best]

    def marks_of(self, setting: str) -> list[str]:
        """Return the presets of which a setting is the best, and whether it is advised."""
        marks = [preset for preset, best in self.presets.items() if best == setting]
        return [*marks, *(["advised"] if setting == self.advised else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedMove:
    """A setting that the daemon can take up by itself, and its change against the one in force."""

    setting: str
    fairness: str
    priority_decades: float
    change: TunedChange


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedDocument(TunedFrontier):
    """A frontier with the number of jobs, the setting in force, and the change of what is advised against that."""

    jobs: int
    in_force: str
    against_in_force: TunedChange | None
    moves_to: TunedMove | None = None


_FRONTIER: Final = TypeAdapter(TunedFrontier)
DOCUMENT: Final = TypeAdapter(TunedDocument)


def read_frontier(path: Path) -> TunedFrontier:
    """Read a frontier; raises `ConfigError` for a file that is not there or holds something else."""
    try:
        content = read_bounded(path, _LARGEST_BYTES)
        check_json(content)
        return _FRONTIER.validate_json(content)
    except OSError as err:
        raise ConfigError(f"web.frontier_file: {path}: {err.strerror or err}") from err
    except ValidationError as err:
        fault = err.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise ConfigError(
            f"web.frontier_file: {path}: not the output of `sadvise tune --json`: {where}: {fault['msg']}"
        ) from err
    except ValueError as err:
        raise ConfigError(f"web.frontier_file: {path}: {err}: write it again with `sadvise tune --json`") from err
