"""One waiting job behind the commands of every reader and of the actuator, which changes it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.backends.process import Answer
from advisor.backends.pyslurm_source import CHILD
from advisor.errors import SlurmRefusedError
from tests.backends import recorded_pyslurm
from tests.backends.fake_slurm import FakeSlurm, Streaming, job_row, node_row

JOB_ID = 7
NODES = 4
_UPDATE = re.compile(r"(\w+)=(\S*)")


@dataclass
class OneQueue(Streaming):
    """The job's fields as slurmctld holds them; `Commands` for text, pyslurm and scontrol.

    `gpus` is spelled as `--gpus` takes it, `switches` as scontrol does, times are in minutes.
    """

    release: str = "25.11.7"
    nice: int = 0
    nodes: tuple[int, int] = (1, 4)
    switches: str = "0@0"
    gpus: str = "gres/gpu:a100:8"
    time_min: int = 0
    limit: int = 60
    named: str = ""
    unseen: tuple[str, ...] = ()
    cluster: str | None = None
    sent: list[str] = field(default_factory=list)

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer a command."""
        if str(CHILD) in arguments:
            return Answer(output=self._by_pyslurm())
        if "--json" in arguments:
            return Answer(output=self._by_json())
        slurm = FakeSlurm(jobs=[self._by_squeue()], nodes=[node_row(NodeList=f"n{n + 1:02}") for n in range(NODES)])
        slurm.texts["sinfo --version"] = f"slurm {self.release}\n"
        return slurm.ask(program, *arguments)

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Carry out the lines for scontrol."""
        assert program == "scontrol"
        for line in lines:
            update, job, *changes = line.split(" ")
            assert update == "update"
            for change in changes:
                self._update(job, change)
        return ""

    def held(self) -> tuple[object, ...]:
        """Return the fields that changes touch."""
        return (
            self.nice,
            self.nodes,
            self.switches,
            self.gpus.replace("gres:", "gres/"),
            self.limit,
            self.time_min,
            self.named,
        )

    def _update(self, job: str, change: str) -> None:
        match = _UPDATE.fullmatch(change)
        if match is None or job != f"JobId={JOB_ID}":
            raise SlurmRefusedError(f"scontrol failed with exit status 1: {job} {change}")
        self.sent.append(change)
        name, value = match.groups()
        match name:
            case "Nice":
                self.nice = int(value)
            case "NumNodes":
                low, _, high = value.partition("-")
                self.nodes = int(low), int(high)
            case "Switches":
                self.switches = value
            case "TresPerJob":
                self.gpus = value.replace("gres:", "gres/")
            case "TimeLimit":
                self.limit = int(value)
            case "TimeMin":
                self.time_min = int(value)
            case "ReqNodeList":
                self.named = value
            case _:
                raise SlurmRefusedError(f"scontrol failed with exit status 1: {change}")

    @property
    def _wait(self) -> tuple[int, int]:
        count, _, minutes = self.switches.partition("@")
        return int(count), int(minutes)

    @property
    def _total(self) -> int:
        return int(self.gpus.rpartition(":")[2])

    def _by_squeue(self) -> dict[str, str]:
        count, minutes = self._wait
        return job_row(
            tres_alloc=f"cpu=4,mem=4000M,node={self.nodes[0]},billing=4,gres/gpu={self._total}",
            NumNodes=str(self.nodes[0]),
            MaxNodes=str(self.nodes[1]),
            tres_per_node="N/A",
            tres_per_job=self.gpus,
            ReqSwitch=str(count),
            Wait4Switch=f"{minutes}:00",
            TimeLimit=f"{self.limit}:00",
            MinTime=f"{self.time_min}:00",
            Nice=str(self.nice),
            ReqNodes=self.named,
        )

    def _by_json(self) -> bytes:
        """Return what the actuator looks for, where squeue shows one end of the node range."""
        most = {"set": True, "infinite": False, "number": self.nodes[1]}
        return json.dumps({"jobs": [{"job_id": JOB_ID, "job_state": ["PENDING"], "max_nodes": most}]}).encode()

    def _by_pyslurm(self) -> bytes:
        records = recorded_pyslurm.counted_records()
        base = next(raw.values for raw in records["job"] if raw.values["id"] == 11)
        count, minutes = self._wait
        values = {
            **base,
            "id": JOB_ID,
            "requested_tres": {"cpu": 4, "mem": 4000, "node": self.nodes[0], "gres": {"gpu": self._total}},
            "num_nodes": self.nodes[0],
            "max_nodes": self.nodes[1],
            "gres_per_node": {},
            "required_switches": count or None,
            "max_wait_time_switches": minutes * 60 or None,
            "time_limit": self.limit,
            "time_limit_min": self.time_min or None,
            "nice": self.nice,
            "required_nodes": self.named.split(",") if self.named else [],
        }
        seen = {key: value for key, value in values.items() if key not in self.unseen}
        lines: list[dict[str, Any]] = [{"version": self.release.rpartition(".")[0] + ".2"}]
        lines.append({"kind": "job", "values": seen, "unseen": list(self.unseen)})
        lines += [{"kind": kind, "values": raw.values} for kind in ("node", "partition") for raw in records[kind]]
        lines.append({"kind": "end", "lines": len(lines) - 1})
        return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
