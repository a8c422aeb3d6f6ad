"""Every document that a command prints as JSON."""

import contextlib
import functools
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from advisor.backends.snapshot_file import read_snapshot
from advisor.cli.main import main
from tests.golden.numbers import rounded
from tests.golden.plans import DEMO

ROOT: Final = Path(__file__).parents[2]
# What differs from run to run: times, memory and the program's own version.
PASSING: Final = ("version", "wall_s", "jobs_per_s", "peak_rss_mib", "cpu_s", "digest")
# The keys of English, which sentences.json has.
ENGLISH: Final = (
    *("text", "assumes", "remedies", "disagreement", "share", "unread", "notes"),
    *("rests_on", "next_step", "unknown", "cost"),
)
SOME_ENGLISH: Final = "..."
# Settings of this machine that a command would obey.
SETTINGS: Final = ("SADVISE_CONFIG", "SADVISE_SNAPSHOT", "SLURM_CONF", "SLURM_CLUSTERS")


def _explained() -> Iterator[int]:
    """Yield one job that runs, and those that wait."""
    seen = read_snapshot(DEMO / "snapshot.json")
    yield next(job.job_id for job in seen.jobs if not job.is_pending)
    yield from (job.job_id for job in seen.pending)


DOCUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "recommend": ("recommend", "--demo", "--json"),
    "check": ("check", "--demo", "--json"),
    **{f"explain-{job}": ("explain", str(job), "--demo", "--json") for job in _explained()},
    "models-list": ("models", "list", "--json"),
    "models-show": ("models", "show", "run_time", "--json"),
    "config-show": ("config", "show", "--json"),
    "simulate": ("simulate", "--demo", "--json"),
    "compare": (
        *("compare", str(DEMO / "trace.csv"), "--cluster", "nodes=4,gpus=4,leaf=2", "--jobs", "40"),
        *("--policy", "slurm", "--policy", "rules", "--policy", "las", "--seeds", "2", "--workers", "1", "--json"),
    ),
}


def sadvise(*arguments: str) -> str:
    """Return what a command prints."""
    # On a busy machine a trial of the plan can be late.
    patience = {"SADVISE_PLANNING__ROLLOUT_DEADLINE_S": "80"} if arguments[0] == "recommend" else {}
    here = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    with (
        patch.dict(os.environ, here | patience, clear=True),
        patch.object(sys, "argv", ["sadvise", *arguments]),
        contextlib.redirect_stdout(io.StringIO()) as printed,
        contextlib.suppress(SystemExit),
    ):
        main()
    return printed.getvalue()


# The sentences are read from the same documents.
@functools.cache
def document(name: str) -> Any:
    """Return what a command prints as JSON, as on any machine."""
    return json.loads(sadvise(*DOCUMENTS[name]).replace(str(ROOT), "ROOT"))


def decided(name: str) -> str:
    """Return a document without English, and without what differs from run to run."""
    return json.dumps(rounded(_lasting(document(name))), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _lasting(value: Any) -> Any:
    match value:
        case dict():
            kept = {key: each for key, each in value.items() if key not in PASSING}
            return {key: _without_english(each) if key in ENGLISH else _lasting(each) for key, each in kept.items()}
        case list():
            return [_lasting(each) for each in value]
        case _:
            return value


def _without_english(value: Any) -> Any:
    match value:
        case str():
            return SOME_ENGLISH if value else ""
        case list():
            return [_without_english(each) for each in value]
        case _:
            return _lasting(value)


def english(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the English of a document, each text with its key."""
    match value:
        case dict():
            for name, each in value.items():
                yield from english(each, name)
        case list():
            for each in value:
                yield from english(each, key)
        case str() if value and key in ENGLISH:
            yield key, value
