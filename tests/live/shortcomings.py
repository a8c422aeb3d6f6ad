"""Says what a run of live clusters must not show: jobs lost or beyond their bound, or a mean JCT that advice raised."""

from collections.abc import Iterator
from typing import Final

from tools.live.kept import Runs
from tools.live.user_sections import lateness, limits_of

# How much higher the mean JCT can be than the higher one of two plain clusters, as a share.
MARGIN: Final = 0.05


def shortcomings(runs: Runs) -> Iterator[str]:
    """Yield a sentence for each; the first two clusters must be plain."""
    for arm in runs.arms:
        yield from arm.faults
    for name, results in runs.by_arm.items():
        for cell, result in results.items():
            if result.ends.not_ended:
                yield f"{name}, {cell.trace}, seed {cell.seed}: {result.ends.not_ended} jobs have not ended"
    first, again = runs.by_arm[runs.first], runs.by_arm[runs.plain_again or runs.first]
    for name in runs.others:
        if name == runs.plain_again:
            continue
        late = lateness(first, runs.by_arm[name], limits_of(runs, name))
        if late.beyond:
            yield f"{name}: {late.beyond} jobs started beyond their bound, the latest {late.worst_s:.0f} s late"
        for cell, result in runs.by_arm[name].items():
            plain_s = [results[cell].summary.mean_jct_s for results in (first, again)]
            allowed_s = max(plain_s) * (1.0 + MARGIN)
            if not result.summary.mean_jct_s <= allowed_s:
                yield (
                    f"{name}, {cell.trace}, seed {cell.seed}: the mean JCT is {result.summary.mean_jct_s:.0f} s, "
                    f"at most {allowed_s:.0f} s are within the noise of {plain_s[0]:.0f} and {plain_s[1]:.0f} s"
                )
