"""Sums up the part of a cluster that an agent owns, as it reports it to others."""

import hashlib
import json
from typing import Final

import numpy as np

from advisor.features.observe.graph import (
    LEAF_COLUMNS,
    SERVER_COLUMNS,
    SLOT_COLUMNS,
    Floats32,
    Residents,
    Servers,
    size_log,
)
from advisor.features.observe.pointer import CHOICE_COLUMNS, GANG_COLUMNS

REPORT_COLUMNS: Final = ("free", "idle", "largest_leaf", "demand", "queue", "gpus", "senders")
_COLUMNS: Final = (SLOT_COLUMNS, SERVER_COLUMNS, LEAF_COLUMNS, CHOICE_COLUMNS, GANG_COLUMNS, REPORT_COLUMNS)
# What names the observation that a policy for places was trained on.
FINGERPRINT: Final = hashlib.sha256(json.dumps(_COLUMNS).encode()).hexdigest()
MOST_DEMAND: Final = 4.0


def report_of(servers: Servers, residents: Residents, queue: int, demand: int) -> Floats32:
    """Return the report of a part, `(len(REPORT_COLUMNS),)`; `queue` jobs wait in it for `demand` GPUs."""
    gpus = int(servers.gpus.sum())
    per_leaf = np.bincount(servers.leaf, servers.free, minlength=max(servers.leaves, 1))
    senders = np.count_nonzero(residents.nodes[residents.gang] > 1)
    columns = (
        servers.free.sum() / max(gpus, 1),
        (servers.free == servers.gpus).mean() if len(servers) else 0.0,
        per_leaf.max() / max(gpus / max(servers.leaves, 1), 1.0),
        min(demand / max(gpus, 1), MOST_DEMAND),
        float(size_log(np.array(queue + 1))),
        float(size_log(np.array(gpus))),
        senders / max(len(servers), 1),
    )
    return np.array(columns, np.float32)
