"""Slurm's commands as a fake: it prints given rows in whatever format it is asked for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor.backends.process import Answer, Commands, Stream
from advisor.backends.site_reader import Identity, SiteReader
from advisor.backends.text_decode import job_format
from advisor.backends.text_source import TextSource
from advisor.clock import ManualClock
from advisor.errors import SlurmError

_SPECIFICATION = re.compile(r"([\w-]+):(\d*)(.*)", re.DOTALL)

JOB_ROW: Mapping[str, str] = {
    "JobID": "7",
    "JobArrayID": "7",
    "HetJobID": "N/A",
    "HetJobOffset": "N/A",
    "State": "PENDING",
    "Reason": "Priority",
    "Name": "train",
    "UserName": "ada",
    "Account": "physics",
    "Partition": "gpu",
    "QOS": "normal",
    "Comment": "(null)",
    "NumNodes": "1",
    "MaxNodes": "1",
    "NumTasks": "4",
    "NumCPUs": "4",
    "tres-alloc": "cpu=4,mem=4000M,node=1,billing=4",
    "tres-per-job": "N/A",
    "tres-per-node": "gres/gpu:2",
    "tres-per-socket": "N/A",
    "tres-per-task": "N/A",
    "cpus-per-tres": "N/A",
    "OverSubscribe": "OK",
    "Exclusive": "NO",
    "ReqSwitch": "0",
    "Wait4Switch": "0:00",
    "Feature": "(null)",
    "ReqNodes": "",
    "ExcNodes": "",
    "NodeList": "",
    "SubmitTime": "1000",
    "EligibleTime": "1000",
    "StartTime": "N/A",
    "EndTime": "N/A",
    "TimeLimit": "1:00:00",
    "MinTime": "0:00",
    "PriorityLong": "100",
    "Nice": "0",
    "Dependency": "(null)",
    "Reservation": "(null)",
    "Requeue": "1",
    "CronJob": "No",
}
NODE_ROW: Mapping[str, str] = {
    "NodeList": "n01",
    "PartitionName": "gpu",
    "StateComplete": "mixed",
    "Reason": "none",
    "CPUs": "16",
    "CPUsState": "4/12/0/16",
    "Memory": "64000",
    "AllocMem": "4000",
    "Gres": "gpu:a100:8",
    "GresUsed": "gpu:a100:2(IDX:0-1)",
    "features_act": "(null)",
    "Weight": "1",
    "Available": "up",
    "Time": "infinite",
    "DefaultTime": "1-00:00:00",
    "PriorityTier": "1",
    "Size": "1-infinite",
    "PriorityJobFactor": "1",
    "Partition": "gpu*",
    "OverSubscribe": "NO",
}
CONFIG_TEXT = """Configuration data as of 2026-11-21T00:28:23
ClusterName             = fake
SLURM_VERSION           = 25.11.7
SchedulerType           = sched/backfill
PriorityType            = priority/multifactor
TopologyPlugin          = topology/tree
SlurmUser               = slurm(64030)

Slurmctld(primary) at vm is UP
"""
TOPOLOGY_TEXT = "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[01-02]\n"


def job_row(**changes: str) -> dict[str, str]:
    """Make the fields of a job as squeue prints them; `_` in a name stands for `-`."""
    return {**JOB_ROW, **{name.replace("_", "-"): value for name, value in changes.items()}}


def node_row(**changes: str) -> dict[str, str]:
    """Make the fields of a node in one partition as sinfo prints them."""
    return {**NODE_ROW, **changes}


def printed(rows: Sequence[Mapping[str, str]], layout: str) -> bytes:
    """Print rows as squeue and sinfo do: a field of a width is cut and filled to it, by the byte."""
    return b"".join(b"".join(_value(row, each) for each in layout.split(",")) + b"\n" for row in rows)


def _value(row: Mapping[str, str], specification: str) -> bytes:
    match = _SPECIFICATION.fullmatch(specification)
    assert match is not None, specification
    field_name, width, suffix = match.groups()
    # A field that the release does not have leaves nothing but what follows it.
    value = row.get(field_name, "").encode("utf-8", "surrogateescape")
    shown = value[: int(width)].ljust(int(width)) if width and field_name in row else value
    return shown + suffix.encode()


def printed_row(row: Mapping[str, str], delimiter: str) -> bytes:
    """Print a job as squeue does, without the end of the row."""
    return printed([row], job_format(delimiter)).removesuffix(f"{delimiter}!\n".encode())


def accounted(jobs: Sequence[Mapping[str, str]], *arguments: str) -> bytes:
    """Print jobs as sacct does, by its options: nothing is escaped, and `-p` ends each field with the delimiter."""
    fields = arguments[arguments.index("-o") + 1].split(",")
    named = next((value.partition("=")[2] for value in arguments if value.startswith("--delimiter=")), "|")
    last = named if "-p" in arguments else ""
    rows = [[job.get(field, "") for field in fields] for job in jobs]
    header = [] if "-n" in arguments else [fields]
    return "".join(f"{named.join(row)}{last}\n" for row in [*header, *rows]).encode("utf-8", "surrogateescape")


class Streaming:
    """Commands whose squeue reads its format from the environment, where those of a test read an argument."""

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer a command."""
        raise NotImplementedError

    def stream(self, program: str, *arguments: str, variables: Mapping[str, str]) -> Stream:
        """Answer a command at once."""
        return self.ask(program, *arguments, "-O", variables["SQUEUE_FORMAT2"])


@dataclass
class FakeSlurm(Streaming):
    """Answers squeue, sinfo, sacct and sprio by rows, everything else by the text of the whole command."""

    jobs: Sequence[Mapping[str, str]] = (JOB_ROW,)
    nodes: Sequence[Mapping[str, str]] = (NODE_ROW,)
    ended: Sequence[Mapping[str, str]] = ()
    texts: dict[str, str | bytes | SlurmError] = field(
        default_factory=lambda: {
            "sinfo --version": "slurm 25.11.7\n",
            "scontrol show config": CONFIG_TEXT,
            "scontrol show topology": TOPOLOGY_TEXT,
            "scontrol show node": "",
        }
    )
    complaints: str = ""
    cluster: str | None = None
    against: SlurmError | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer a command."""
        self.asked.append((program, *arguments))
        if "-O" in arguments:
            if self.against is not None:
                raise self.against
            rows = self.jobs if program == "squeue" else self.nodes
            output = printed(rows, arguments[arguments.index("-O") + 1])
            return Answer(output=output, complaints=self.complaints.encode())
        if program == "sacct":
            return Answer(output=accounted(self.ended, *arguments))
        answer = self.texts[" ".join((program, *arguments))]
        if isinstance(answer, SlurmError):
            raise answer
        return Answer(output=answer if isinstance(answer, bytes) else answer.encode("utf-8", "surrogateescape"))

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Take lines, and do nothing."""
        self.asked.append((program, *lines))
        return self.complaints


def root_site(commands: Commands, clock: ManualClock) -> SiteReader:
    """Return the reader of a site for root, from whom nothing is hidden."""
    return SiteReader(commands, clock, identity=Identity(uid=0, name="root"))


def text_reader(commands: Commands, now: float = 5000.0) -> TextSource:
    """Return the text reader of a fake cluster for root."""
    clock = ManualClock(now)
    return TextSource(commands, clock, root_site(commands, clock))
