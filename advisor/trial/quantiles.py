"""Statistics that simulations and experiments share."""

from typing import Final

# The 97.5 % quantiles of Student's t for 1 to 19 degrees of freedom; beyond them, Abramowitz and Stegun 26.7.5.
_T: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
      2.120, 2.110, 2.101, 2.093)  # fmt: skip
_NORMAL: Final = 1.959964


def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t with `freedom` degrees of freedom, at least 1."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = _NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
