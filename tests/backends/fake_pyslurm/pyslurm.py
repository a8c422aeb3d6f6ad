"""pyslurm as the recorded queue saw it; FAKE_PYSLURM makes it misbehave."""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_RECORDED = json.loads((Path(__file__).parents[2] / "recorded" / "25.11" / "pyslurm.json").read_text())
_TRICK = os.environ.get("FAKE_PYSLURM", "")

__version__ = "24.5.0" if _TRICK == "old" else _RECORDED["version"]

if _TRICK == "fatal":
    sys.exit("fatal: Could not establish a configuration source")
if _TRICK == "missing":
    raise ImportError("libslurm.so.44: cannot open shared object file")


class _Record:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def to_dict(self) -> dict[str, Any]:
        return dict(self._values)


def _collection(kind: str) -> type:
    class Collection(dict[str, _Record]):
        @classmethod
        def load(cls) -> "Collection":
            if _TRICK == "hang":
                time.sleep(60)
            if _TRICK == "dies" and kind == "nodes":
                os._exit(0)
            return cls({name: _Record(values) for name, values in _RECORDED[kind].items()})

    return Collection


Jobs = _collection("jobs")
Nodes = _collection("nodes")
Partitions = _collection("partitions")
