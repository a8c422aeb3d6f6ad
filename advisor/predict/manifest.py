"""manifest.toml: which models a folder holds, their digests, and which of them are in use."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from advisor.domain.probation import NO_ORDER, NOTHING_ENDED, Coverage, OrderProof, Proof
from advisor.errors import ModelError
from advisor.files import EVERYONE, make_open_folder, parse_toml, replace_file

FILE_NAME = "manifest.toml"
GRAPH, PARAMETERS, CARD = "model.onnx", "parameters.json", "card.md"
# How the kinds of policies begin; their names follow.
POLICY = "policy-"
# Far above any manifest; more is damage or malice.
SIZE_LIMIT_BYTES = 4 * 2**20

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class CheckedModel(BaseModel):
    """What stands beside a graph in JSON or TOML: no key that is not known, and no number that is not finite."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class Parity(CheckedModel):
    """The deviation of the graph from its origin, on a number of real rows, and the tolerance."""

    rows: int
    max_error: float
    tolerance: float


class Tested(CheckedModel):
    """How many of the jobs of this site that were kept aside from a fit ran within their intervals, and their order.

    The fields of the order are those of `OrderProof`; `users` is 0 where it is not known.
    """

    jobs: int = Field(ge=0)
    inside: int = Field(ge=0)
    users: int = Field(ge=0, default=0)
    ordered_ratio: float = Field(ge=0, le=1, default=0.0)
    limit_ratio: float = Field(ge=0, le=1, default=0.0)
    gain_ratio: float = Field(ge=-1, le=1, default=0.0)
    error_ratio: float = Field(ge=0, default=0.0)

    @property
    def proof(self) -> Proof:
        """The same as a domain value; more inside than jobs count as none tested."""
        coverage = Coverage(jobs=self.jobs, inside=self.inside) if self.inside <= self.jobs else NOTHING_ENDED
        return Proof(coverage=coverage, order=self.order)

    @property
    def order(self) -> OrderProof:
        """How the jobs were ordered; `NO_ORDER` where that is not known."""
        return OrderProof(**self.model_dump(exclude={"inside"})) if self.users else NO_ORDER


def tested_by(proof: Proof) -> Tested:
    """Return a proof by the jobs that were kept aside from a fit as a manifest holds it."""
    coverage = proof.coverage
    return Tested(**{**asdict(proof.order or NO_ORDER), "jobs": coverage.jobs, "inside": coverage.inside})


class Entry(CheckedModel):
    """One version of one model; `made_with` maps packages to their versions, `digests` file names to SHA-256.

    `tested` is what jobs of this site that were kept aside from the fit show. `reason` says
    why this version is served in place of another, "" where there was no choice.
    """

    kind: Name
    version: Name
    fitted: str
    seed: int
    columns: tuple[str, ...] = Field(strict=False)
    outputs: tuple[str, ...] = Field(strict=False)
    fingerprint: Digest
    parity: Parity
    made_with: dict[str, str]
    digests: dict[str, Digest]
    tested: Tested | None = None
    reason: str = ""

    @property
    def is_policy(self) -> bool:
        """Whether the model is a policy, which scores options; any other model forecasts."""
        return self.kind.startswith(POLICY)


class Manifest(CheckedModel):
    """The manifest of a folder of models; `in_use` and `previous` map kinds to versions."""

    format: Literal["sadvise.models/1"] = "sadvise.models/1"
    in_use: dict[Name, Name] = Field(default_factory=dict)
    previous: dict[Name, Name] = Field(default_factory=dict)
    model: tuple[Entry, ...] = Field(default=(), strict=False)

    def entry(self, kind: str, version: str) -> Entry | None:
        """Return the entry of a version, None where there is none."""
        return next((entry for entry in self.model if (entry.kind, entry.version) == (kind, version)), None)


def fault_of(err: ValidationError) -> str:
    """Return the first fault that pydantic found: the field, and what is wrong with it."""
    first = err.errors(include_url=False)[0]
    return f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}"


def fingerprint(kind: str, columns: Sequence[str], outputs: Sequence[str]) -> str:
    """Return the fingerprint of a model's columns and outputs; equal for models of the same meaning and order."""
    return hashlib.sha256(json.dumps([kind, list(columns), list(outputs)]).encode()).hexdigest()


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder; an empty one where there is no file. Raises `ModelError`."""
    path = folder / FILE_NAME
    content = read_file(path, SIZE_LIMIT_BYTES)
    if content is None:
        return Manifest()
    try:
        return _parsed(content)
    except ValidationError as err:
        raise ModelError(f"{path}: {fault_of(err)}; restore it, or fit models into an empty folder") from err
    except ValueError as err:
        raise ModelError(f"{path}: is not valid TOML: {err}; restore it, or fit models into an empty folder") from err


@lru_cache(maxsize=4)
def _parsed(content: bytes) -> Manifest:
    """Return the manifest of a file; every model is looked up in the same two."""
    return Manifest.model_validate(parse_toml(content.decode()))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest whole or not at all; raises `ModelError`."""
    import tomli_w

    write_file(folder / FILE_NAME, tomli_w.dumps(manifest.model_dump(mode="json", exclude_none=True)).encode())


def read_file(path: Path, limit_bytes: int) -> bytes | None:
    """Read a file up to a maximum size; return None if it does not exist. Raises `ModelError`."""
    try:
        with path.open("rb") as stream:
            content = stream.read(limit_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise ModelError(f"{path}: cannot be read: {err.strerror}") from err
    if len(content) > limit_bytes:
        raise ModelError(f"{path}: is larger than {limit_bytes // 2**20} MiB, which no model of sadvise is")
    return content


def write_file(path: Path, content: bytes, *, mode: int = EVERYONE) -> None:
    """Write a file that appears whole or not at all, by default readable for everyone. Raises `ModelError`."""
    try:
        make_open_folder(path.parent)
        replace_file(path, content, mode=mode)
    except OSError as err:
        raise ModelError(f"{path}: cannot be written: {err.strerror}") from err
