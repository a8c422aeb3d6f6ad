"""Reads what slurmctld spent its time on, from sdiag."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_LINE: Final = re.compile(r"^\s*([A-Z][A-Za-z_ ()]*[A-Za-z)]):\s*(\d+)\s*$", re.MULTILINE)
_RPC: Final = re.compile(r"^\s+([A-Z][A-Z0-9_]+)\s*\(\s*\d+\) count:(\d+)\s+ave_time:(\d+)\s+total_time:(\d+)", re.M)
_MAIN, _BACKFILL = "Main schedule statistics", "Backfilling stats"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """The passes and requests of a slurmctld since its start; times in seconds, requests and their times by type."""

    main_passes: int
    main_mean_s: float
    backfill_passes: int
    backfill_mean_s: float
    requests: Mapping[str, int]
    request_s: float
    request_s_by_type: Mapping[str, float] = field(default_factory=dict)


def cycles_of(shown: str) -> Cycles:
    """Read the text of sdiag."""
    main = _numbers(shown.partition(_MAIN)[2].partition(_BACKFILL)[0])
    backfill = _numbers(shown.partition(_BACKFILL)[2].partition("Remote Procedure Call")[0])
    by_type = shown.partition("by message type")[2].partition("by user")[0]
    requests = [(name, int(count), int(total)) for name, count, _, total in _RPC.findall(by_type)]
    return Cycles(
        main_passes=main.get("Total cycles", 0),
        main_mean_s=main.get("Mean cycle", 0) * 1e-6,
        backfill_passes=backfill.get("Total cycles", 0),
        backfill_mean_s=backfill.get("Mean cycle", 0) * 1e-6,
        requests={name: count for name, count, _ in requests},
        request_s=sum(total for *_, total in requests) * 1e-6,
        request_s_by_type={name: total * 1e-6 for name, _, total in requests},
    )


def together(runs: Sequence[Cycles]) -> Cycles:
    """Return the passes and requests of several runs, with the means over all of them."""
    main, backfill = (sum(run.main_passes for run in runs), sum(run.backfill_passes for run in runs))
    requests, request_s = Counter[str](), Counter[str]()
    for run in runs:
        requests.update(run.requests)
        request_s.update(run.request_s_by_type)
    return Cycles(
        main_passes=main,
        main_mean_s=sum(run.main_passes * run.main_mean_s for run in runs) / max(1, main),
        backfill_passes=backfill,
        backfill_mean_s=sum(run.backfill_passes * run.backfill_mean_s for run in runs) / max(1, backfill),
        requests=dict(requests),
        request_s=sum(run.request_s for run in runs),
        request_s_by_type=dict(request_s),
    )


def _numbers(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in _LINE.findall(text)}
