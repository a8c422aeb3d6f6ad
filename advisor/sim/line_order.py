"""The tables by which a whole line of pending jobs is sorted; see `engine/order.c`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ORDER_DTYPE = np.dtype(
    [
        ("every_s", np.float64),
        ("share_exponent", np.float64),  # a factor of 1 counts 10 to the power of this; 0: shares count nothing
        ("ageing_s", np.float64),  # a wait of this doubles the weight; infinity: waiting counts nothing
        ("weighed_time", np.float64),  # when fair-share factors were last read
    ],
    align=True,
)


class Order(NamedTuple):
    """What the line is sorted by; shapes in brackets."""

    settings: NDArray[np.void]  # (1,)
    gpu_s: NDArray[np.float64]  # (n_jobs,): expected GPU-time
    weight: NDArray[np.float64]  # (n_associations,)
    key: NDArray[np.float64]  # (n_jobs,): of the pending jobs, lower first
