"""Writes what a run needs to go on, and the policies that it made.

A checkpoint is the whole state of a run in Python's own format, which can run code when it is read: read only your own.
"""

import os
from pathlib import Path
from typing import Any

import torch


def write(path: Path, state: object) -> None:
    """Write a state so that a reader sees the old file or the new one, and never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def read(path: Path) -> Any:
    """Return a state."""
    return torch.load(path, weights_only=False)


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a policy; reading them runs no code."""
    weights: dict[str, torch.Tensor] = torch.load(path, weights_only=True)
    return weights
