"""`sadvise recommend`: one dry-run cycle for one cluster, or for each of several; a fault of one hides no other."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from advisor.cli.advice import Advice, document, print_advice, trial_of
from advisor.cli.filters import JobFilter, Wanted
from advisor.cli.options import OUTPUT, Form, JournalFile, SeveralQueues, option
from advisor.clock import SystemClock
from advisor.config import Config
from advisor.domain.dataclass import dataclass
from advisor.domain.snapshot import Snapshot
from advisor.errors import AdvisorError, OptionsError
from advisor.text import one_line
from advisor.view.documents import FIELDS, ChangeDocument
from advisor.view.terminal import Output, chosen_fields, console, print_json, print_rows, tool_meta
from advisor.watch.clusters import MOST_AT_ONCE, check_one_journal, readings_of
from advisor.watch.planned import plan_now
from advisor.watch.reading import Reading, open_queue

SEVERAL_SCHEMA: Final = "sadvise.recommend-clusters/1"
SOMETHING: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCluster:
    """The queue of a cluster, where it was read from, and the configuration of the cluster."""

    seen: Snapshot
    source: str
    settings: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAdvice:
    """The advice for a cluster, or the fault because of which there is none; `name` is "" for that of this host."""

    name: str
    advice: Advice | None = None
    fault: AdvisorError | None = None

    @property
    def rows(self) -> list[ChangeDocument]:
        """Return the changes as published."""
        return [] if self.advice is None else self.advice.rows

    @property
    def cluster(self) -> str:
        """Return the name of the cluster, also of that of this host."""
        return self.name or ("" if self.advice is None else self.advice.record.snapshot.config.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRequest:
    """What is asked of each cluster; `has_trial` is whether its plan is rolled out for the reader, too."""

    journal: Path | None
    wanted: JobFilter
    top: int | None
    policy: str | None
    has_trial: bool

    def answers(self, readings: Sequence[Reading]) -> tuple[ClusterAdvice, ...]:
        """Return the advice for each cluster; raises `AdvisorError` if a single one cannot be read.

        Several are read at once, as Slurm answers slowly when it is loaded, and planned one after another.
        """
        answers: list[ClusterAdvice] = []
        if len(readings) == 1:
            advice = self._planned(readings[0], _read(readings[0]))
            self.wanted.check_jobs([advice.record.snapshot])
            return (ClusterAdvice(name=readings[0].cluster or "", advice=advice),)
        with ThreadPoolExecutor(max_workers=min(len(readings), MOST_AT_ONCE)) as pool:
            reads = [pool.submit(_read, reading) for reading in readings]
            for reading, read in zip(readings, reads, strict=True):
                name = reading.cluster or ""
                try:
                    answers.append(ClusterAdvice(name=name, advice=self._planned(reading, read.result())))
                except AdvisorError as err:
                    answers.append(ClusterAdvice(name=name, fault=err))
        seen = [answer.advice.record.snapshot for answer in answers if answer.advice is not None]
        if len(seen) == len(answers):
            self.wanted.check_jobs(seen)
        return tuple(answers)

    def _planned(self, reading: Reading, read: ReadCluster) -> Advice:
        planned = plan_now(reading, read.settings, self.journal, read.seen)
        self.wanted.check_partitions_and_nodes(read.seen)
        return Advice(
            planned=planned,
            settings=read.settings,
            source=read.source,
            wanted=self.wanted,
            top=self.top,
            named=reading.cluster,
            policy=self.policy,
            trial=trial_of(planned.record, read.settings) if self.has_trial else None,
        )


def _read(reading: Reading) -> ReadCluster:
    settings = reading.load_config()
    opened = open_queue(reading, settings)
    return ReadCluster(seen=opened.snapshot(), source=opened.name, settings=settings)


def print_documents(answers: Sequence[ClusterAdvice]) -> None:
    """Print the document of one cluster, or one that lists those of several."""
    if len(answers) == 1 and answers[0].advice is not None:
        print_json(document(answers[0].advice))
        return
    meta = tool_meta(SEVERAL_SCHEMA, now=SystemClock().now())
    clusters = [
        {
            "cluster": answer.name,
            "fault": None if answer.fault is None else str(answer.fault),
            "advice": None if answer.advice is None else document(answer.advice),
        }
        for answer in answers
    ]
    print_json({"meta": meta, "clusters": clusters})


def print_fields(
    answers: Sequence[ClusterAdvice], fields: Sequence[str], widths: Sequence[int], output: Output
) -> None:
    """Print the changes of all clusters as lines of fields."""
    rows = [
        [answer.cluster if field == "cluster" else FIELDS[field](row) for field in fields]
        for answer in answers
        for row in answer.rows
    ]
    print_rows(fields, rows, as_parsable=output.parsable, noheader=output.noheader, widths=widths)


def print_answers(answers: Sequence[ClusterAdvice], *, long: bool, noheader: bool) -> None:
    """Print the advice for people, that for each of several clusters under its name, as squeue does."""
    out = console()
    lead = ""
    for answer in answers:
        if answer.advice is None:
            continue
        if len(answers) > 1:
            out.print(Text(f"{lead}CLUSTER: {answer.name}", style="bold"), soft_wrap=True)
        lead = "\n"
        print_advice(answer.advice, long=long, noheader=noheader)


def print_faults(answers: Sequence[ClusterAdvice]) -> None:
    """Name on standard error the clusters for which there is no advice, and say why."""
    sys.stdout.flush()
    for answer in answers:
        if answer.fault is not None:
            sys.stderr.write(f"sadvise: error: {answer.name}: {one_line(str(answer.fault))}\n")


def exit_status(answers: Sequence[ClusterAdvice], *, tells: bool) -> int:
    """Return the worst exit code: that of a fault, or where advice `tells` by its code that there is some, that."""
    faults = [answer.fault.exit_code for answer in answers if answer.fault is not None]
    advised = SOMETHING if tells and any(answer.rows for answer in answers) else 0
    return max(faults, default=advised)


def recommend(
    *,
    reading: SeveralQueues,
    journal: JournalFile = None,
    policy: Annotated[
        str | None,
        option(
            "--policy NAME[@VERSION]",
            "Choose with this learned policy, of the site or the package; default: the rules.",
        ),
    ] = None,
    rollout: Annotated[
        bool,
        option(
            "--rollout", "Simulate the next 12 h with and without the plan, and print what it and each change gain."
        ),
    ] = False,
    wanted: Wanted,
    output: Form,
    format_: Annotated[
        str | None,
        option(
            "-o --format FIELDS",
            "Fields as a comma separated list, each with an optional width: job_id,kind:12,text.",
            OUTPUT,
        ),
    ] = None,
    top: Annotated[
        int | None, option("--top N", "Only the N changes that should save most job completion time.", min=1)
    ] = None,
    long: Annotated[
        bool,
        option(
            "--long",
            "For each change also why, what its gain rests on, and the commands to apply and revert it.",
            OUTPUT,
        ),
    ] = False,
    exit_code: Annotated[bool, option("--exit-code", "Exit with 3 if there is something to recommend.")] = False,
) -> None:
    """Print which GPU jobs to reorder, resize, consolidate or stop, those that save most first.

    Starts with the state of the cluster, then prints a line for each change. --long adds why, and how to do and undo it
    by hand. Read-only: nothing is changed. Of several clusters (-M all), it prints the advice for each under its name;
    filters and --top apply to each. Exits with 1 if one of them cannot be read, or if no queue has a job of a user or
    an account, or a job, that is named.
    """
    if output.json and (output.parsable or format_ is not None):
        raise OptionsError("--json excludes -P and -o: give one")
    readings = readings_of(replace(reading, policy=policy, tries_plans=True))
    check_one_journal(readings, journal)
    usual = FIELDS if len(readings) == 1 else ("cluster", *FIELDS)
    fields, widths = chosen_fields(format_ or ",".join(usual), [*FIELDS, "cluster"])
    request = AdviceRequest(journal=journal, wanted=wanted, top=top, policy=policy, has_trial=rollout)
    answers = request.answers(readings)
    if output.json:
        print_documents(answers)
    elif output.parsable or format_ is not None:
        print_fields(answers, fields, widths, output)
    else:
        print_answers(answers, long=long, noheader=output.noheader)
    print_faults(answers)
    if status := exit_status(answers, tells=exit_code):
        raise typer.Exit(status)
