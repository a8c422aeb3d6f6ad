"""The runs of live clusters that a TOML file names, with their options for `tools.live.twins`."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor.errors import SimulationError

Option = str | int | float | Sequence[str | int | float]


class PlannedRuns(BaseModel):
    """The runs of a trace: their seeds, if they are not those of all, and further options as they are."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, Option] = Field(init=False)

    seeds: tuple[int, ...] | None = None


class CampaignPlan(BaseModel):
    """Describes a campaign, as its file does: options of all runs, and the runs of each trace by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    summary: str
    seeds: tuple[int, ...] = Field(min_length=1)
    options: Mapping[str, Option] = {}
    runs: Mapping[str, PlannedRuns] = Field(min_length=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A run, the folder that it leaves, and the options of `tools.live.twins`."""

    folder: Path
    options: tuple[str, ...]

    @property
    def is_there(self) -> bool:
        """Whether the run was made earlier."""
        return any(self.folder.glob("*.json"))


def read_plan(path: Path) -> CampaignPlan:
    """Read a file; raises `SimulationError` where it cannot be read."""
    try:
        return CampaignPlan(**tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as err:
        raise SimulationError(f"{path}: cannot be read: {err.strerror}") from err
    except tomllib.TOMLDecodeError as err:
        raise SimulationError(f"{path}: not TOML: {err}") from err
    except ValidationError as err:
        fault = err.errors()[0]
        raise SimulationError(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from err


def runs_of(plan: CampaignPlan, out: Path) -> Iterator[LiveRun]:
    """Yield the runs, one seed of all traces after the other."""
    seeds_by_name = {name: own.seeds or plan.seeds for name, own in plan.runs.items()}
    for place in range(max(map(len, seeds_by_name.values()))):
        for name, seeds in seeds_by_name.items():
            if place < len(seeds):
                options = {**plan.options, **(plan.runs[name].model_extra or {}), "seed": seeds[place]}
                yield LiveRun(folder=out / f"{name}-{seeds[place]}", options=tuple(_words(options)))


def _words(options: Mapping[str, Option]) -> Iterator[str]:
    for name, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            yield f"--{name}={one}"
