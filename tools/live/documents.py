"""The parts of documents that show the results of live runs, and their picture."""

from pathlib import Path
from textwrap import indent
from typing import Any, Final

from tools.live.kept_runs import Report, in_words
from tools.live.picture import called, picture
from tools.live.plan import read_plan, runs_of
from tools.live.reported import markdown, read_values, sections
from tools.live.targets import MET, advised, metric_of, overall, plain_clusters, targets_values
from tools.pages.text import render, table

FOLDER: Final = Path(__file__).parent
RESULTS: Final = FOLDER / "results.json"
PICTURE: Final = "live.svg"
CAMPAIGN: Final = FOLDER / "campaign.toml"
# Runs all that the results are of, and writes the documents.
COMMAND: Final = "python -m tools.live.campaign tools/live/campaign.toml --out runs --report"
# What a reader sees first: the gain, then what it costs.
_METRICS: Final = {
    "mean_jct_s": "mean job completion time",
    "p99_queueing_delay_s": "99th percentile of wait",
    "max_queueing_delay_s": "longest wait",
    "makespan_s": "time until all jobs are done",
}
_ALT: Final = "Change of the mean job completion time and of the 99th percentile of waits, trace by trace"
_CODE: Final = " " * 4
_WORSE: Final = "users worse off, by more than 5 % and 5 min"


def live_picture() -> str:
    """Draw the picture of the results."""
    return picture(read_values(RESULTS))


def front_part(report: Report | None = None) -> str:
    """Return the part of the front page."""
    report = report or read_values(RESULTS)
    names = [*advised(report), *(name for name in plain_clusters(report)[1:] if _is_there(report, name))]
    rows = [(words, *(_change(report, name, metric) for name in names)) for metric, words in _METRICS.items()]
    rows.append((_WORSE, *(_worse(report, name) for name in names)))
    return render(
        "live",
        "front",
        **_facts(report),
        changes=table(("", *(f"{called(report, name)}:" for name in names)), rows),
        met=_met(report),
        picture=f"![{_ALT}](docs/{PICTURE})",
        command=indent(COMMAND, _CODE),
    )


def results_part(report: Report | None = None) -> str:
    """Return the part of the page on live runs."""
    report = report or read_values(RESULTS)
    parts = markdown(sections(report), level=3).rstrip("\n")
    return render(
        "live", **_facts(report), command=indent(COMMAND, _CODE), picture=f"![{_ALT}]({PICTURE})", parts=parts
    )


def _facts(report: Report) -> dict[str, Any]:
    runs = report["runs"]
    jobs = [run["jobs"] for run in runs]
    return {
        "runs": len(runs),
        "planned": len(list(runs_of(read_plan(CAMPAIGN), Path()))),
        "traces": len({run["trace"] for run in runs}),
        "versions": ", ".join(sorted({run["version"] for run in runs})),
        "least_jobs": min(jobs),
        "most_jobs": max(jobs),
        "least_gpus": min(run["gpus"] for run in runs),
        "most_gpus": max(run["gpus"] for run in runs),
    }


def _is_there(report: Report, name: str) -> bool:
    return any(one["cluster"] == name for one in report["metrics"])


def _change(report: Report, name: str, metric: str) -> str:
    one = metric_of(report, name, metric)
    return "not run" if one is None else in_words(one["change"], one["low"], one["high"])


def _worse(report: Report, name: str) -> str:
    return ", ".join(f"{one['worse']} of {one['users']}" for one in overall(report["users"], name))


def _met(report: Report) -> str:
    """Return how many targets each advised cluster meets."""
    own = {name: [one for one in targets_values(report) if one["cluster"] == name] for name in advised(report)}
    return ", ".join(
        f"`{name}` meets {sum(one['verdict'] == MET for one in targets)} of {len(targets)}"
        for name, targets in own.items()
    )
