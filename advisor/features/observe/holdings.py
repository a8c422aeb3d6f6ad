"""Spreads the GPUs of running gangs over their servers: Slurm shows the servers of a gang and its GPUs in all."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.features.observe.graph import Flags, Floats, Residents, Rows, Servers


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldParts:
    """What running gangs hold, as Slurm shows it; parts stand gang by gang, and in the order of servers."""

    gang: Rows  # (n_parts,): row of the gang
    server: Rows  # (n_parts,)
    gpus: Rows  # (n_gangs,)
    nodes: Rows  # (n_gangs,)
    is_alike: Flags  # (n_gangs,): it takes the same number on every server
    is_exclusive: Flags  # (n_gangs,): it takes all GPUs of its servers

    def residents(self, servers: Servers, model: Rows, left_s: Floats) -> Residents:
        """Return the gangs with the GPUs that they hold on each server; `model` and `left_s` are `(n_gangs,)`."""
        return Residents(
            gang=self.gang,
            server=self.server,
            held=self._held(servers),
            gpus=self.gpus,
            nodes=self.nodes,
            model=model,
            left_s=left_s,
        )

    def _held(self, servers: Servers) -> Rows:
        """Return the GPUs of each part, `(n_parts,)`.

        Gangs on one server are certain, as are those that take the same number on every server and exclusive ones. Any
        other takes what is in use on its servers beside the certain ones.
        """
        is_certain = (self.nodes == 1) | self.is_exclusive | (self.is_alike & (self.gpus % self.nodes == 0))
        alike = (self.gpus // self.nodes)[self.gang]
        most = servers.gpus[self.server]
        held = np.minimum(np.where(self.is_exclusive[self.gang], most, alike), most)
        is_sure = is_certain[self.gang]
        taken = np.bincount(self.server[is_sure], held[is_sure], minlength=len(servers)).astype(np.intp)
        in_use = (servers.gpus - servers.free - taken).tolist()
        first = np.searchsorted(self.gang, np.arange(len(self.gpus)))
        for row in np.flatnonzero(~is_certain).tolist():
            parts = slice(int(first[row]), int(first[row] + self.nodes[row]))
            shared = shared_out(self.server[parts].tolist(), int(self.gpus[row]), in_use)
            held[parts] = np.minimum(shared, most[parts])
            for server, gpus in zip(self.server[parts].tolist(), held[parts].tolist(), strict=True):
                in_use[server] -= gpus
        return held.astype(np.intp)


def shared_out(places: Sequence[int], count: int, in_use: Sequence[int]) -> list[int]:
    """Return the GPUs of a gang on its places: what is in use there, one at least, and the rest on the first."""
    left, held = count, []
    for rank, place in enumerate(places):
        owed = len(places) - rank - 1
        held.append(max(min(1, left), min(in_use[place], left - owed)))
        left -= held[-1]
    if held and left > 0:
        held[0] += left
    return held
