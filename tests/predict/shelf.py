"""Small models for tests: fitted in a moment, published as real ones are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from advisor.fit.fitted import Fitted, Source
from advisor.fit.publish import publish
from advisor.predict.library import Library
from advisor.predict.manifest import digest, read_manifest, write_manifest

TODAY = "2026-11-21"


class Wrong(LinearRegression):  # type: ignore[misc]
    """A regressor that says something else than what is exported of it."""

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Answer a little off."""
        answers: NDArray[np.float64] = super().predict(rows) * 1.001
        return answers


def make_fitted(kind: str = "run_time", *, slope: float = 2.0, regressor: LinearRegression | None = None) -> Fitted:
    """Return a line through 50 points, fitted on float32."""
    rows = np.linspace(0.0, 1.0, 100, dtype=np.float32).reshape(50, 2)
    chosen = (LinearRegression() if regressor is None else regressor).fit(rows, slope * rows[:, 0])
    return Fitted(
        kind=kind,
        columns=("first", "second"),
        outputs=("line",),
        regressors=(chosen,),
        parameters="{}",
        probe=rows,
        sources=(Source(name="points.csv", sha256="0" * 64, rows=50),),
        metrics={"mean error": 0.25},
        seed=7,
        text="A line.",
    )


def make_library(tmp_path: Path) -> Library:
    """Return a library with one shipped run-time model, default-1."""
    shipped = Library(tmp_path / "shipped", tmp_path / "none")
    add(shipped, "default-1")
    return Library(tmp_path / "site", tmp_path / "shipped")


def add(library: Library, version: str, *, slope: float = 2.0, kind: str = "run_time") -> None:
    """Publish a model into the library's own folder and put it in use."""
    publish(make_fitted(kind, slope=slope), library.site, version, today=TODAY)
    library.use(kind, version)


def plant(folder: Path, kind: str, version: str, file: str, content: bytes) -> None:
    """Replace a file of a published model, and its digest in the manifest."""
    (folder / kind / version / file).write_bytes(content)
    manifest = read_manifest(folder)
    entries = tuple(
        each.model_copy(update={"digests": {**each.digests, file: digest(content)}})
        if (each.kind, each.version) == (kind, version)
        else each
        for each in manifest.model
    )
    write_manifest(folder, manifest.model_copy(update={"model": entries}))


def renamed(fitted: Fitted, *columns: str) -> Fitted:
    """Return the same fit with other names for its columns."""
    return replace(fitted, columns=columns)
