"""Defines the models whose interference is known by name, as a chooser of servers sees them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.features.observe.graph import Neighbours, Rows
from advisor.features.observe.site_speeds import SiteSpeeds


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
