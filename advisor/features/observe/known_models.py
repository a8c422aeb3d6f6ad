"""Defines the models that a chooser of servers knows by name, and what a performance model says of a site.

That is how fast models are on GPU types, and what they add to each other.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.features.observe.graph import Floats, Floats32, Neighbours, Residents, Rows, Servers

OUTLOOK_COLUMNS: Final = ("behind_best", "behind_chosen", "slows_by_time", "unsure")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOutlook:
    """What a gang can expect of each server, `(n_servers,)` each.

    `behind_best` is the logarithm of its speed on the server's GPU type over that on the best type of the cluster, at
    most 0. `slows_by_time` is what it adds to the run times of others while both run, in its own run times. `unsure` is
    the standard deviation of the logarithm of its speed there.
    """

    behind_best: Floats
    slows_by_time: Floats
    unsure: Floats

    def columns(self, chosen: list[int]) -> Floats32:
        """Return the numbers behind each server as the next choice, `(n_servers, len(OUTLOOK_COLUMNS))`."""
        slowest = self.behind_best[chosen].min() if chosen else 0.0
        further = np.minimum(self.behind_best - slowest, 0.0) if chosen else np.zeros(len(self.behind_best))
        return np.stack([self.behind_best, further, self.slows_by_time, self.unsure], axis=1).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class SiteSpeeds:
    """The beliefs of a performance model, tabulated; the last row and column stand for what is not known by name.

    `log_speed` is that of a model alone on one GPU type, relative to its mean over types; `place_weight` the power to
    which the forecast inflation of a place is raised. Variances are those of logarithms of speeds: of one type, and of
    a model beside one other. `neighbours.added` is the expected inflation that one other model adds.
    """

    models: tuple[str, ...]
    gpu_types: tuple[str, ...]
    log_speed: Floats  # (n_models + 1, n_types + 1)
    speed_variance: Floats  # (n_models + 1, n_types + 1)
    place_weight: Floats  # (n_models + 1,)
    neighbours: Neighbours  # tables (n_models + 1, n_models + 1)
    added_variance: Floats  # (n_models + 1, n_models + 1)

    @cached_property
    def _code_of_type(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self.gpu_types)}

    def type_codes(self, names: Sequence[str]) -> Rows:
        """Return the columns of GPU types, by name in any case; the last is that of a type that is not known."""
        unknown = len(self.gpu_types)
        return np.array([self._code_of_type.get(name.lower(), unknown) for name in names], np.intp)

    def outlook(self, model: int, run_s: float, types: Rows, servers: Servers, residents: Residents) -> ServerOutlook:
        """Return what a gang of a model can expect of each server; `types` `(n_servers,)` are codes of GPU types.

        A gang on several servers is slowed by those that send from the same servers, and slows them, for as long as
        both run.
        """
        speed = self.log_speed[model, types]
        present = speed[servers.is_up] if servers.is_up.any() else speed
        sends = residents.nodes[residents.gang] > 1
        at, gang = residents.server[sends], residents.gang[sends]
        other = residents.model[gang]
        left_s = np.nan_to_num(residents.left_s[gang], nan=run_s)
        together = np.minimum(left_s, run_s) / max(run_s, 1.0)
        count = len(servers)
        slows = np.asarray(np.bincount(at, self.neighbours.added[other, model] * together, minlength=count), np.float64)
        unsure = self.speed_variance[model, types] + np.bincount(at, self.added_variance[model, other], minlength=count)
        return ServerOutlook(
            behind_best=np.minimum(speed - present.max(initial=-np.inf), 0.0),
            slows_by_time=slows,
            unsure=np.sqrt(unsure),
        )


def _none_known(names: Sequence[str]) -> Rows:
    return np.full(len(names), -1, np.intp)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModels:
    """A table of neighbours, and how names of models give its rows; `codes` gives -1 for a model that is not known.

    `speeds` is what a performance model says of the site beside that, for policies that look at it.
    """

    codes: Callable[[Sequence[str]], Rows]
    neighbours: Neighbours
    speeds: SiteSpeeds | None = None

    def rows(self, names: Sequence[str]) -> Rows:
        """Return the rows of the table for models, by name; the last is that of all models that are not known."""
        codes = self.codes(names)
        return np.where(codes < 0, len(self.neighbours.added) - 1, codes).astype(np.intp)


# Nothing was measured, so that no model counts as slowing another.
NO_MODELS: Final = KnownModels(codes=_none_known, neighbours=Neighbours.of(np.zeros((1, 1))))
