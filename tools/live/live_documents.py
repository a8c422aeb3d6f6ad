"""The parts of documents that show the results of live runs, and their picture."""

from pathlib import Path
from textwrap import indent
from typing import Any, Final

from tools.live.campaign_plan import read_plan, runs_of
from tools.live.kept_runs import Report, in_words
from tools.live.picture import picture
from tools.live.reported import markdown, read_values, sections
from tools.live.targets import advised, metric_of, overall, plain_clusters
from tools.pages.page_text import render

FOLDER: Final = Path(__file__).parent
RESULTS: Final = FOLDER / "results.json"
PICTURE: Final = "live.svg"
CAMPAIGN: Final = FOLDER / "campaign.toml"
# Runs all that the results are of, and writes the documents.
COMMAND: Final = "python -m tools.live.campaign tools/live/campaign.toml --out runs --report"
_ALT: Final = "Change of the mean job completion time and of the 99th percentile of waits, trace by trace"
_CODE: Final = " " * 4


def live_picture() -> str:
    """Draw the picture of the results."""
    return picture(read_values(RESULTS))


def front_part(report: Report | None = None) -> str:
    """Return the part of the front page: the gain of the first advised cluster, then what it costs."""
    report = report or read_values(RESULTS)
    default, again = advised(report)[0], plain_clusters(report)[1]
    return render(
        "live",
        "front",
        **_facts(report),
        gain=_change(report, default, "mean_jct_s"),
        price=_change(report, default, "p99_queueing_delay_s"),
        worse=_worse(report, default),
        chance=_worse(report, again).partition(" ")[0],
        picture=f"![{_ALT}](docs/{PICTURE})",
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


def _change(report: Report, name: str, metric: str) -> str:
    one = metric_of(report, name, metric)
    return "not run" if one is None else in_words(one["change"], one["low"], one["high"])


def _worse(report: Report, name: str) -> str:
    return ", ".join(f"{one['worse']} of {one['users']}" for one in overall(report["users"], name))
