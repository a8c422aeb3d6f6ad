"""The models at hand: the site's own before those that ship with the package, each checked before it is opened."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import advisor
from advisor.domain.dataclass import dataclass
from advisor.domain.probation import FITTED_HERE
from advisor.errors import ModelError
from advisor.predict.manifest import (
    CARD,
    GRAPH,
    PARAMETERS,
    Entry,
    Manifest,
    digest,
    fingerprint,
    read_file,
    read_manifest,
    write_manifest,
)
from advisor.predict.onnx_model import Bundle, OnnxModel, TensorGraph
from advisor.predict.tryout import admit

SITE_FOLDER = Path("/var/lib/sadvise/models")
LARGEST_FILE_BYTES = 64 * 2**20
# The kind of the performance model, and the key under which the parameters of a policy name its version.
PERFORMANCE: Final = "performance"


def shipped_folder() -> Path:
    """Return the folder of the models that ship: inside an installed package, beside it in a checkout."""
    package = Path(advisor.__file__).parent
    inside = package / "models"
    return inside if inside.is_dir() else package.parent / "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A version of a model and the folder that holds it."""

    folder: Path
    entry: Entry
    in_use: bool
    shipped: bool

    @property
    def name(self) -> str:
        """The kind and the version."""
        return f"{self.entry.kind} {self.entry.version}"

    @property
    def files(self) -> Path:
        """The folder of this version."""
        return self.folder / self.entry.kind / self.entry.version


class Library:
    """Two folders of models; a model in use in the site's manifest hides the shipped one."""

    def __init__(self, site: Path = SITE_FOLDER, shipped: Path | None = None) -> None:
        """Look into the site's folder, which need not exist, and into that of the package."""
        self.site = site
        self.shipped = shipped_folder() if shipped is None else shipped

    def held(self) -> list[Held]:
        """Return every version there is, by kind; raises `ModelError` for a manifest that cannot be read."""
        return self._held(read_manifest(self.site), read_manifest(self.shipped))

    def _held(self, ours: Manifest, theirs: Manifest) -> list[Held]:
        """Return the versions in the site's manifest and that of the package, by kind."""
        chosen = theirs.in_use | ours.in_use
        held = [
            Held(folder=folder, entry=entry, in_use=chosen.get(entry.kind) == entry.version, shipped=shipped)
            for folder, manifest, shipped in ((self.shipped, theirs, True), (self.site, ours, False))
            for entry in manifest.model
        ]
        return sorted(held, key=lambda model: (model.entry.kind, not model.shipped, model.entry.version))

    def load(self, kind: str) -> Bundle:
        """Check and open the model in use of a kind; raises `ModelError` with the reason where it is not sound."""
        ours, theirs = read_manifest(self.site), read_manifest(self.shipped)
        version = ours.in_use.get(kind) or theirs.in_use.get(kind)
        if version is None:
            raise ModelError(f"there is no {kind} model in use: see sadvise models list, or fit one: sadvise fit")
        of_kind = (model for model in self._held(ours, theirs) if model.entry.kind == kind)
        held = next((model for model in of_kind if model.in_use), None)
        if held is None:
            raise ModelError(f"model {kind} {version} is in use but is not there: sadvise models use {kind} VERSION")
        return opened(held)

    def shipped_model(self, kind: str) -> Held:
        """Return the version of a kind that the package puts in use; raises `ModelError` where it ships none."""
        version = read_manifest(self.shipped).in_use.get(kind)
        for model in self.held():
            if model.shipped and (model.entry.kind, model.entry.version) == (kind, version):
                return model
        raise ModelError(f"there is no {kind} model in {self.shipped}: install sadvise again")

    def find(self, kind: str, version: str | None) -> Held:
        """Return a version of a kind, that in use where none is named; the `ModelError` else names those there are."""
        of_kind = [model for model in self.held() if model.entry.kind == kind]
        for model in of_kind:
            if model.in_use if version is None else model.entry.version == version:
                return model
        if not of_kind:
            there = ", ".join(sorted({model.entry.kind for model in self.held()})) or "none"
            raise ModelError(f"there is no model of kind {kind!r}: there are {there}")
        versions = ", ".join(model.entry.version for model in of_kind)
        if version is None:
            raise ModelError(f"no version of {kind} is in use: there are {versions}; sadvise models use {kind} VERSION")
        raise ModelError(f"there is no version {version!r} of {kind}: there are {versions}")

    def use(self, kind: str, version: str) -> None:
        """Put a version in use from the next start on, if it is sound; remembers the one before."""
        held = self.find(kind, version)
        verify(held)
        self._verify_performance(held)
        manifest = read_manifest(self.site)
        before = manifest.in_use.get(kind) or read_manifest(self.shipped).in_use.get(kind)
        if before == version:
            return
        previous = manifest.previous | ({} if before is None else {kind: before})
        changed = {"in_use": manifest.in_use | {kind: version}, "previous": previous}
        write_manifest(self.site, manifest.model_copy(update=changed))

    def rollback(self, kind: str) -> str:
        """Put the version before the present one back in use, and return it; `ModelError` where there is none."""
        before = read_manifest(self.site).previous.get(kind)
        if before is None:
            raise ModelError(f"there is nothing to roll {kind} back to: no other version was in use here before")
        self.use(kind, before)
        return before

    def next_version(self, kind: str) -> str:
        """Return the name for the next version that the site fits, which no model of the kind has yet."""
        taken = {entry.version for entry in read_manifest(self.site).model if entry.kind == kind}
        return next(name for number in range(1, len(taken) + 2) if (name := f"{FITTED_HERE}{number}") not in taken)

    def newest(self, kind: str) -> Held:
        """Return the last version of a kind that the site fitted, that in use where it fitted none."""
        fitted = [(number, held) for held in self.held() if held.entry.kind == kind and (number := _number(held))]
        return max(fitted, key=lambda item: item[0])[1] if fitted else self.find(kind, None)

    def _performance_of(self, policy: Held) -> Held | None:
        """Return the version of the performance model that a policy looks at, None without one; raises `ModelError`."""
        version = performance_version(dict(_checked_files(policy, policy.name))[PARAMETERS], policy)
        return None if version is None else self.find(PERFORMANCE, version)

    def _verify_performance(self, held: Held) -> None:
        """Raise `ModelError` unless the performance model that a policy looks at is there and valid."""
        if not held.entry.is_policy:
            return
        try:
            performance = self._performance_of(held)
        except ModelError as err:
            raise ModelError(f"model {held.name}: {err}") from err
        if performance is not None:
            verify(performance)


def performance_version(parameters: bytes, held: Held) -> str | None:
    """Return the version of the performance model that a policy looks at, None without one; raises `ModelError`."""
    try:
        version = json.loads(parameters).get(PERFORMANCE)
    except (ValueError, AttributeError) as err:
        raise ModelError(f"policy {held.name}: its parameters cannot be read: restore it, or roll back") from err
    return None if version is None else str(version)


def _number(held: Held) -> int:
    """Return the number of a version that the site fitted; 0 for other versions."""
    number = held.entry.version.removeprefix(FITTED_HERE)
    return int(number) if held.entry.version.startswith(FITTED_HERE) and number.isdecimal() else 0


def opened(held: Held) -> Bundle:
    """Check every digest and the fingerprint of a model, and open it; raises `ModelError`."""
    entry, content = held.entry, checked_content(held)
    model = OnnxModel(content[GRAPH], name=held.name, columns=len(entry.columns), outputs=len(entry.outputs))
    check_fingerprint(model.fingerprint, held)
    return Bundle(
        kind=entry.kind,
        version=entry.version,
        columns=entry.columns,
        outputs=entry.outputs,
        model=model,
        parameters=content[PARAMETERS].decode(errors="replace"),
        tested=None if entry.tested is None else entry.tested.proof,
    )


def verify(held: Held) -> None:
    """Check a model or a policy as far as that goes without knowing who asks; raises `ModelError`."""
    if held.entry.is_policy or held.entry.kind == PERFORMANCE:
        check_fingerprint(TensorGraph(checked_content(held)[GRAPH], name=held.name).fingerprint, held)
    else:
        opened(held)


def checked_content(held: Held) -> Mapping[str, bytes]:
    """Return the files of a model by name, their digests and its graph checked; raises `ModelError`.

    The graphs of the package were admitted when they were published into it, by those who write its code too.
    """
    entry = held.entry
    content = dict(_checked_files(held, held.name))
    if entry.fingerprint != fingerprint(entry.kind, entry.columns, entry.outputs):
        raise ModelError(f"model {held.name}: its fingerprint is not that of its columns: fit it again, or roll back")
    if not held.shipped:
        admit(content[GRAPH], name=held.name)
    return content


def check_fingerprint(fingerprint: str, held: Held) -> None:
    """Raise `ModelError` unless a graph was made for the columns that the manifest names."""
    if fingerprint != held.entry.fingerprint:
        raise ModelError(f"model {held.name}: its graph was made for other columns: fit it again, or roll back")


def _checked_files(held: Held, name: str) -> Iterator[tuple[str, bytes]]:
    for file in (GRAPH, PARAMETERS):
        content = read_file(held.files / file, LARGEST_FILE_BYTES)
        if content is None:
            raise ModelError(f"model {name}: {held.files / file} is missing: restore it, or roll back")
        if digest(content) != held.entry.digests.get(file):
            raise ModelError(
                f"model {name}: {held.files / file} is not the file of its digest: restore it, or roll back"
            )
        yield file, content


def read_card(held: Held) -> str:
    """Return the card of a model; raises `ModelError`."""
    content = read_file(held.files / CARD, LARGEST_FILE_BYTES)
    if content is None:
        raise ModelError(f"{held.files / CARD} is missing: the model works without; restore it to read it")
    return content.decode(errors="replace")
