"""Selects, sorts and pages the line as the query of an address asks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.watch.cluster_view import WaitingJob

PAGE_SIZE: Final = 100
LARGEST_PAGE: Final = 1000
# Longer texts match nothing that Slurm knows.
_LONGEST: Final = 200
_UNKNOWN: Final = float("inf")

# By what the line can be sorted; what is not known comes last.
SORTS: Final[Mapping[str, Callable[[WaitingJob], float | str]]] = {
    "place": lambda job: job.place,
    "job": lambda job: job.job_id,
    "name": lambda job: job.name,
    "user": lambda job: job.user,
    "account": lambda job: job.account,
    "partition": lambda job: job.partition,
    "gpus": lambda job: _UNKNOWN if job.gpus is None else job.gpus * job.tasks,
    "type": lambda job: job.gpu_type,
    "wait": lambda job: job.wait_s,
    "limit": lambda job: _UNKNOWN if job.limit_s is None else job.limit_s,
    "start": lambda job: _UNKNOWN if job.start is None else job.start.median,
    "slurm": lambda job: _UNKNOWN if job.slurms_start_time is None else job.slurms_start_time,
    "reason": lambda job: job.reason,
}
_EXACT: Final[Mapping[str, Callable[[WaitingJob], str]]] = {
    "user": lambda job: job.user,
    "account": lambda job: job.account,
    "type": lambda job: job.gpu_type or "any",
    "reason": lambda job: job.reason,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LineQuery:
    """What is asked of the line; an empty text asks for nothing. `partition` is one of those that a job names."""

    search: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    type: str = ""
    reason: str = ""
    advised: bool = False
    sort: str = "place"
    descending: bool = False
    page: int = 1
    size: int = PAGE_SIZE

    @property
    def filters(self) -> Mapping[str, str]:
        """The texts that jobs are selected by, without empty ones, by their name in an address."""
        texts = {name: str(getattr(self, name)) for name in ("user", "account", "partition", "type", "reason")}
        known = {"q": self.search, **texts, "advised": "1" if self.advised else ""}
        return {name: text for name, text in known.items() if text}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePage:
    """The part of the line that a query selects; `matching` jobs are on all `pages` together."""

    jobs: Sequence[WaitingJob]
    matching: int
    page: int
    pages: int
    first: int


def line_query(arguments: Mapping[str, str]) -> LineQuery:
    """Read a query from the arguments of an address; what is not understood counts as not given."""

    def text(name: str) -> str:
        return arguments.get(name, "").strip()[:_LONGEST]

    sort = text("sort")
    return LineQuery(
        search=text("q"),
        user=text("user"),
        account=text("account"),
        partition=text("partition"),
        type=text("type"),
        reason=text("reason"),
        advised=text("advised") == "1",
        sort=sort if sort in SORTS else "place",
        descending=text("order") == "desc",
        page=_number(text("page"), 1),
        size=min(LARGEST_PAGE, _number(text("size"), PAGE_SIZE)),
    )


def line_page(line: Sequence[WaitingJob], query: LineQuery) -> LinePage:
    """Return a page of the line; one behind the last is the last."""
    matching = [job for job in line if _matches(job, query)]
    if query.sort != "place" or query.descending:
        value = SORTS[query.sort]
        known = [job for job in matching if value(job) != _UNKNOWN]
        unknown = [job for job in matching if value(job) == _UNKNOWN]
        # Both sorts are stable, so that equal jobs keep their order in the line.
        matching = [*sorted(known, key=value, reverse=query.descending), *unknown]
    pages = max(1, -(-len(matching) // query.size))
    page = min(query.page, pages)
    begin = (page - 1) * query.size
    return LinePage(
        jobs=matching[begin : begin + query.size], matching=len(matching), page=page, pages=pages, first=begin + 1
    )


def _matches(job: WaitingJob, query: LineQuery) -> bool:
    if query.advised and not (job.advice or job.in_effect):
        return False
    if query.partition and query.partition not in job.partition.split(","):
        return False
    if any((wanted := getattr(query, name)) and wanted != value(job) for name, value in _EXACT.items()):
        return False
    sought = query.search.casefold()
    texts = (str(job.job_id), job.name, job.user, job.account)
    return not sought or any(sought in text.casefold() for text in texts)


def _number(text: str, otherwise: int) -> int:
    """Return a positive number of few digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) > 0 else otherwise
