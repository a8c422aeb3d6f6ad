"""pyslurm 25.11.2 as a recorded queue saw it: objects whose attributes have the types of the real library.

FAKE_PYSLURM makes it misbehave. Nothing here is JSON: `to_dict()` is not recursive, TRES are objects, a text that is no
UTF-8 raises when it is read, and TRES of an unknown type are printed to standard output. `gres/gpu:8` is no TRES to it.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

_TRICKS = os.environ.get("FAKE_PYSLURM", "").split(",")
_FILE = Path(__file__).parents[2] / "recorded" / "25.11-tres" / "pyslurm_attributes.jsonl"
_VERSION, *_RECORDS = [json.loads(line) for line in _FILE.read_text().splitlines()]

__version__ = "24.5.0" if "old" in _TRICKS else _VERSION["pyslurm"]

if "fatal" in _TRICKS:
    sys.exit("fatal: Could not establish a configuration source")
if "missing" in _TRICKS:
    raise ImportError("libslurm.so.44: cannot open shared object file")

# Attributes that were not recorded, from what squeue said of the same jobs and the way pyslurm makes them of it:
# CPUs per task are None where `--cpus-per-gpu` was used, sockets are those of `--sockets-per-node`. Those of partitions
# are from what scontrol said of them; it does not say which is the default, so that none is.
_WITH_CPUS_PER_GPU = (24, 25)
_SOCKETS = {23: 1}
_OF_PARTITIONS = {
    "is_default": {"type": "bool", "value": False},
    "max_cpus_per_node": {"type": "str", "value": "UNLIMITED"},
    "min_nodes": {"type": "int", "value": 0},
    "oversubscribe": {"type": "str", "value": "NO"},
    "priority_job_factor": {"type": "int", "value": 1},
    "qos": {"type": "NoneType", "value": None},
}


class RPCError(Exception):
    """What pyslurm raises where slurmctld gives no answer."""


class TrackableResource:
    """One TRES of a kind, such as `cpu`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.type = values["type"]
        self.count = values["count"]


class GPU(TrackableResource):
    """GPUs of one type, or of any."""


class TrackableResources:
    """The TRES of one string; a mapping of names under `gres`, objects or None under the others."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        for name in ("cpu", "mem", "node", "billing"):
            each = values.get(name)
            setattr(self, name, None if each is None else TrackableResource(each))
        self.gres = {name: GPU(each) for name, each in values["gres"].items()}
        print("other", "unknown", "other/unknown")

    @staticmethod
    def from_str(tres: str) -> "TrackableResources | None":
        """Return the TRES of a text such as `gres/gpu=8`; the trick is a library that knows `gres/gpu:8` too."""
        return TrackableResources({"gres": {}}) if "=" in tres or "forms" in _TRICKS else None

    def to_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the attributes; objects stay objects unless `recursive`."""
        return _to_dict(self, recursive)


class _Config:
    """slurm.conf, which costs slurmctld a request."""

    @staticmethod
    def load() -> None:
        """Fail, since nothing that is read of partitions needs it."""
        raise RPCError("the configuration is asked for")


db = SimpleNamespace(TrackableResources=TrackableResources)
_slurmctld = sys.modules["pyslurm.core.slurmctld"] = ModuleType("pyslurm.core.slurmctld")
_slurmctld.Config = _Config  # type: ignore[attr-defined]


class _Record:
    """One record; each attribute is made of what was recorded when it is read, as pyslurm does."""

    _recorded: Mapping[str, Any]

    def to_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the attributes; objects stay objects unless `recursive`."""
        return _to_dict(self, recursive)


def _to_dict(each: Any, recursive: bool) -> dict[str, Any]:
    found = {}
    for name in dir(each):
        value = getattr(each, name)
        if name.startswith("_") or callable(value):
            continue
        found[name] = value.to_dict(recursive=True) if recursive and hasattr(value, "to_dict") else value
    return found


def _attribute(name: str) -> property:
    def read(record: _Record) -> Any:
        recorded = record._recorded[name]
        if "raises" in recorded:
            bytes.fromhex(recorded["object_hex"]).decode()
        if recorded["type"].endswith("TrackableResources"):
            return TrackableResources(recorded["value"])
        return recorded["value"]

    return property(read)


def _derived(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    if kind == "partition":
        return values | _OF_PARTITIONS
    if kind != "job":
        return values
    job_id = values["id"]["value"]
    per_task = None if job_id in _WITH_CPUS_PER_GPU else 1
    return {
        **values,
        "cpus_per_task": {"type": "int", "value": per_task},
        "sockets_per_node": {"type": "int", "value": _SOCKETS.get(job_id)},
    }


_ALL = {
    kind: [_derived(kind, each["attributes"]) for each in _RECORDS if each["kind"] == kind]
    for kind in ("job", "node", "partition")
}


def _class(kind: str) -> type[_Record]:
    names = [name for name in _ALL[kind][0] if not ("lacks" in _TRICKS and name == "gres_per_node")]
    return type(kind.title(), (_Record,), {name: _attribute(name) for name in names})


Job, Node, Partition = _class("job"), _class("node"), _class("partition")


def _collection(kind: str, each_class: type[_Record]) -> type:
    class Collection(dict[Any, _Record]):
        @classmethod
        def load(cls) -> "Collection":
            _misbehave(kind)
            if kind == "partition":
                conf = _slurmctld.Config.load()
                assert not (conf.suspend_program and conf.resume_program)
            found = cls()
            for number, values in enumerate(_ALL[kind]):
                record = each_class()
                record._recorded = values
                found[number] = record
            return found

    return Collection


def _misbehave(kind: str) -> None:
    if "hang" in _TRICKS:
        time.sleep(60)
    if "unreachable" in _TRICKS:
        # Longer than what is kept of complaints.
        sys.stderr.write("slurm_load_jobs error: \n" * 40)
        raise RPCError("Unable to contact slurm controller (connect failure)")
    if "denied" in _TRICKS:
        raise RPCError("Access/permission denied")
    if "versions" in _TRICKS:
        raise RPCError("Incompatible versions of client and server code")
    if "broken" in _TRICKS:
        raise ValueError("invalid literal for int() with base 10: '8M'")
    if "dies" in _TRICKS and kind == "node":
        os._exit(0)


Jobs, Nodes, Partitions = _collection("job", Job), _collection("node", Node), _collection("partition", Partition)
