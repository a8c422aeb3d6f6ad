"""A report as the values that it shows: kept as JSON, written as text, and as parts of README.md and docs/live.md."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any, Final

from tools.live.advice_sections import fidelity_section, savings_section, slurmctld_section
from tools.live.campaign_plan import read_plan, runs_of
from tools.live.job_sections import metrics_section, runs_section, sizes_section
from tools.live.kept import Report, ReportSection, Values, in_words
from tools.live.picture import picture
from tools.live.targets import metric_of, overall, targets_section, targets_values
from tools.live.user_sections import losses_section, users_section
from tools.pages.page_text import paragraph, render, table

_SECTIONS: Final[Mapping[str, Callable[[Values], ReportSection]]] = {
    "runs": runs_section,
    "metrics": metrics_section,
    "users": users_section,
    "losses": losses_section,
    "sizes": sizes_section,
    "changes": savings_section,
    "slurmctld": slurmctld_section,
    "fidelity": fidelity_section,
}


def sections(report: Report) -> Iterator[ReportSection]:
    """Yield the parts of a report, what was aimed for first."""
    if targets := targets_values(report):
        yield targets_section(targets)
    for name, show in _SECTIONS.items():
        # That no change was applied is shown as well.
        if report.get(name) or name == "changes":
            yield show(report[name])


def markdown(parts: Iterable[ReportSection], *, level: int = 2) -> str:
    """Return parts as Markdown, with headings of a level."""
    blocks: list[str] = []
    for part in parts:
        blocks += [f"{'#' * level} {part.title}", *map(paragraph, part.text)]
        blocks += [table(heads, rows) for heads, rows in part.tables]
    return "\n\n".join(blocks) + "\n"


def write_values(path: Path, report: Report) -> None:
    """Write the values of a report as JSON, a line for each row."""
    parts = [
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(row) for row in values) + "\n]"
        for name, values in report.items()
    ]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read_values(path: Path) -> Report:
    """Read the values of a report."""
    report: Report = json.loads(path.read_text(encoding="utf-8"))
    return report


FOLDER: Final = Path(__file__).parent
RESULTS: Final = FOLDER / "results.json"
PICTURE: Final = "live.svg"
CAMPAIGN: Final = FOLDER / "campaign.toml"
# Runs all that the results are of, and writes the documents.
COMMAND: Final = "python -m tools.live.campaign tools/live/campaign.toml --out runs --report"
# What the front page shows.
PRESETS: Final = ("trade", "gentle")
# What the page shows over all traces; the JSON has the rest, and `arms_report` writes all of it.
_ON_PAGE: Final = ("metrics", "users", "sizes", "changes")
_ALT: Final = "Change of the mean job completion time and of the 99th percentile of waits, trace by trace"
_CODE: Final = " " * 4


def live_picture() -> str:
    """Draw the picture of the results."""
    return picture(read_values(RESULTS))


def front_part(report: Report | None = None) -> str:
    """Return the part of the front page: what the presets gain, and what they cost."""
    report = report or read_values(RESULTS)
    return render(
        "live",
        "front",
        **_facts(report),
        gains=[_change(report, preset, "mean_jct_s") for preset in PRESETS],
        prices=[_change(report, preset, "p99_queueing_delay_s") for preset in PRESETS],
        worse=[_worse(report, preset) for preset in PRESETS],
        presets_runs=[overall(report["users"], preset)[0]["runs"] for preset in PRESETS],
        picture=f"![{_ALT}](docs/{PICTURE})",
    )


def results_part(report: Report | None = None) -> str:
    """Return the part of the page on live runs: what was aimed for, and the figures over all traces behind it."""
    report = report or read_values(RESULTS)
    over_all = {name: [one for one in report[name] if one.get("trace") is None] for name in _ON_PAGE}
    shown = [targets_section(targets_values(report)), *(_SECTIONS[name](values) for name, values in over_all.items())]
    parts = markdown(shown, level=3).rstrip("\n")
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
    one = overall(report["users"], name)[0]
    chance = f" ({one['chance_worse']} by chance)" if one["chance_runs"] else ""
    return f"{one['worse']} of {one['users']} users{chance}"
