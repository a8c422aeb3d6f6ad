"""A report as the values that it shows: kept as JSON, and written as text."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.live.advice_sections import fidelity_section, savings_section, slurmctld_section
from tools.live.job_sections import metrics_section, runs_section, sizes_section
from tools.live.kept_runs import Report, ReportSection, Values
from tools.live.targets import targets_section, targets_values
from tools.live.user_sections import losses_section, users_section
from tools.pages.page_text import paragraph, table

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
