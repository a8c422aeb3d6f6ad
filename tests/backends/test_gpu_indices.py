"""The indices of the GPUs of running jobs, as `squeue --json` shows them."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from advisor.backends.gpu_indices import read_gpu_indices
from advisor.backends.process import SlurmCommands
from advisor.errors import DecodeError, SlurmMissingError

OLD: Final = {
    "job_id": 1,
    "name": "evil\n   Nodes=n1 GRES=gpu:8(IDX:0-7)",
    "nodes": "n[01-02]",
    "gres_detail": ["gpu:a100:2(IDX:0-1)", "gpu:a100:3(IDX:2,4-5)"],
    "job_resources": {"nodes": "n[01-02]", "allocated_nodes": [{"nodename": "n01"}, {"nodename": "n02"}]},
}
# As configured, which is not the order of names.
NEW: Final = {
    **OLD,
    "job_id": 2,
    "job_resources": {"nodes": {"list": "n[01-02]", "allocation": [{"name": "n02"}, {"name": "n01"}]}},
}


@dataclass
class Squeue:
    """A folder with a squeue that prints an answer, in front of PATH."""

    folder: Path
    commands: SlurmCommands = field(default_factory=lambda: SlurmCommands(timeout_s=20.0))

    def prints(self, answer: bytes) -> SlurmCommands:
        """Let it print an answer, and return what asks it."""
        (self.folder / "answer").write_bytes(answer)
        (self.folder / "squeue").write_text(f'#!/bin/sh\necho "$@" > {self.folder}/asked\ncat {self.folder}/answer\n')
        (self.folder / "squeue").chmod(0o755)
        return self.commands


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Squeue:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Squeue(tmp_path)


def answer(*jobs: dict[str, Any]) -> bytes:
    return json.dumps({"jobs": jobs}).encode()


def test_indices_stand_by_job_and_node_in_the_order_of_the_allocation(squeue: Squeue) -> None:
    found = read_gpu_indices(squeue.prints(answer(OLD, NEW, {**OLD, "job_id": 3})), [1, 2])

    assert found == {
        1: {"n01": {0, 1}, "n02": {2, 4, 5}},
        2: {"n02": {0, 1}, "n01": {2, 4, 5}},
    }
    assert (squeue.folder / "asked").read_text() == "-a -j 1,2 --json\n"


def test_types_on_one_node_are_added_and_parts_of_gpus_are_none(squeue: Squeue) -> None:
    one = {"nodes": "n1", "job_resources": {"nodes": {"allocation": [{"name": "n1"}]}}}
    both = {**one, "job_id": 1, "gres_detail": ["gpu:a100:1(IDX:0),shard:a100:2(1/4,1/4),gpu:v100:1(IDX:3)"]}
    parts = {**one, "job_id": 2, "gres_detail": ["shard:a100:2(1/4,1/4)"]}

    assert read_gpu_indices(squeue.prints(answer(both, parts)), [1, 2]) == {1: {"n1": {0, 3}}}


@pytest.mark.parametrize(
    "change",
    [
        {"gres_detail": []},
        {"gres_detail": None},
        {"gres_detail": ["gpu:2(IDX:0-1)"]},
        {"gres_detail": ["gpu:2(IDX:0-1)", "gpu:2(IDX:N/A)"]},
        {"gres_detail": ["gpu:2(IDX:0-1)", "gpu:2(IDX:5-)"]},
        {"gres_detail": ["gpu:2(IDX:0-1)", f"gpu:2(IDX:0-{'9' * 30})"]},
        {"job_resources": None},
        {"job_resources": {"allocated_nodes": [{"nodename": "n01"}, 7]}},
        {"job_resources": {"allocated_nodes": [{"nodename": "n01"}, {"nodename": "n03"}]}},
        {"nodes": "n[01-"},
        {"job_id": "1"},
    ],
    ids=str,
)
def test_a_job_of_which_that_is_not_certain_is_left_out(squeue: Squeue, change: dict[str, Any]) -> None:
    assert read_gpu_indices(squeue.prints(answer({**OLD, **change}, NEW)), [1, 2]).keys() == {2}


def test_names_that_are_no_text_cost_nothing_else(squeue: Squeue) -> None:
    raw = answer({**OLD, "name": "@"}).replace(b'"@"', b'"\xff\x01\n"')

    assert read_gpu_indices(squeue.prints(raw), [1]).keys() == {1}


@pytest.mark.parametrize("raw", [b"", b"<html>", b"[" * 200_000, b'{"jobs": 1}', b"[]"], ids=lambda raw: repr(raw[:9]))
def test_an_answer_that_is_not_whole_is_one_line(squeue: Squeue, raw: bytes) -> None:
    with pytest.raises(DecodeError, match="squeue --json gave"):
        read_gpu_indices(squeue.prints(raw), [1])


def test_a_squeue_that_is_not_there_is_named(squeue: Squeue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(squeue.folder / "nothing"))

    with pytest.raises(SlurmMissingError, match="squeue is not on PATH"):
        read_gpu_indices(squeue.commands, [1])
