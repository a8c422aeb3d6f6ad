"""Remembers ended jobs and forecasts the next job of the same user."""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from advisor.domain.units import DAY_S
from advisor.errors import ModelError
from advisor.predict.manifest import CheckedModel, fault_of
from advisor.predict.run_time_features import RUNS_KEPT, TEXT_LIMIT, EndedJobs, Recalled, RunTimeTable, name_family

KEYS_KEPT = 20_000
SERIES, REQUEST, FAMILY, USER, ACCOUNT = range(5)
# The keys, among those of `keys_of`, under which a block looks, most informative first.
_LOOKED_UP = ((SERIES, REQUEST), (FAMILY, USER, ACCOUNT))
# Separates the parts of a key; texts are stripped of it.
_BAR = "\x1f"
_FORMAT: Literal["sadvise.history/1"] = "sadvise.history/1"

Keys = tuple[str | None, ...]
Seconds = Annotated[float, Field(ge=1, le=1e10)]


class _Kept(CheckedModel):
    """The runs of one key, newest first: run time, time limit and end of each, one after the other."""

    key: Annotated[str, Field(max_length=6 * TEXT_LIMIT)]
    count: Annotated[int, Field(ge=1, le=10**12)]
    runs: Annotated[list[Seconds], Field(min_length=3, max_length=3 * RUNS_KEPT)]


class _File(CheckedModel):
    format: Literal["sadvise.history/1"]
    kept: Annotated[list[_Kept], Field(max_length=KEYS_KEPT)]


class History:
    """The last runs of every user, request and account; grows with every ended job and forgets the oldest keys."""

    def __init__(self, keys_kept: int = KEYS_KEPT) -> None:
        """Start empty."""
        self._keys_kept = keys_kept
        self._slots: dict[str, int] = {}
        # `(slots, RUNS_KEPT, 3)`: run time, time limit, end; NaN where there is no run. The last slot stays empty.
        self._runs = np.full((64, RUNS_KEPT, 3), np.nan)
        self._counts = np.zeros(64, dtype=np.int64)
        # The value of `version` when a slot was last written to; 0 for an empty slot.
        self._written = np.zeros(64, dtype=np.int64)
        self.version = 0

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, ended: EndedJobs) -> None:
        """Add ended jobs, in the order of their ends; unusable ones are left out."""
        good, _ = ended.usable()
        rows = np.flatnonzero(good)
        rows = rows[np.argsort(ended.end_time[rows], kind="stable")]
        if len(rows) < len(ended) or (np.diff(rows) < 0).any():
            ended = ended.take(rows)
        self.add_rows(keys_of(ended.jobs), runs_of(ended))

    def add_rows(self, keys: Sequence[Keys], runs: NDArray[np.float64]) -> None:
        """Add `runs` `(n_rows, 3)` under their keys, in this order."""
        for of_job, run in zip(keys, runs, strict=True):
            for key in of_job:
                if key is not None:
                    slot = self._slots.get(key)
                    if slot is None:
                        slot = self._new_slot(key)
                    kept = self._runs[slot]
                    kept[1:] = kept[:-1]
                    kept[0] = run
                    self._counts[slot] += 1
                    self._written[slot] = self.version = self.version + 1

    def recall(self, keys: Sequence[Keys]) -> Recalled:
        """Return the remembered runs for the keys of jobs."""
        return self.recall_stamped(keys)[0]

    def recall_stamped(self, keys: Sequence[Keys]) -> tuple[Recalled, NDArray[np.int64]]:
        """Return the remembered runs for the keys of jobs, and their `stamps`, by one look-up."""
        slots = self._slots_of(keys)
        return Recalled(runs=self._runs[slots], counts=self._counts[slots]), self._written[slots]

    def stamps(self, keys: Sequence[Keys]) -> NDArray[np.int64]:
        """Return numbers, `(n_rows, 2)`, that stay the same for the keys of a job as long as `recall` does."""
        stamps: NDArray[np.int64] = self._written[self._slots_of(keys)]
        return stamps

    def _slots_of(self, keys: Sequence[Keys]) -> NDArray[np.int64]:
        """Return the slots of each job's blocks, `(n_rows, 2)`; the last one where nothing is remembered."""
        nothing, slot_of = len(self._counts) - 1, self._slots.get
        slots = np.full((len(keys), len(_LOOKED_UP)), nothing, dtype=np.int64)
        # A history without a run, as after a start, answers without a look.
        if self._slots:
            for block, kinds in enumerate(_LOOKED_UP):
                # The most informative kind comes last and overwrites the others.
                for kind in reversed(kinds):
                    found = np.array([slot_of(of_job[kind] or "", nothing) for of_job in keys], dtype=np.int64)
                    slots[:, block] = np.where(found != nothing, found, slots[:, block])
        return slots

    def to_json(self) -> str:
        """Return all of it as text."""
        kept = []
        for key, slot in self._slots.items():
            runs = self._runs[slot]
            known = runs[~np.isnan(runs[:, 0])]
            kept.append({"key": key, "count": int(self._counts[slot]), "runs": known.round(0).ravel().tolist()})
        return json.dumps({"format": _FORMAT, "kept": kept}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "History":
        """Parse the text of `to_json`; raises `ModelError` if it is invalid."""
        try:
            file = _File.model_validate_json(text)
        except ValidationError as err:
            raise ModelError(f"history of run times: {fault_of(err)}; fit the model again") from err
        history = cls()
        for kept in file.kept:
            if len(kept.runs) % 3 or kept.key in history._slots:
                raise ModelError(
                    "history of run times: a key is there twice, or a run is not whole; fit the model again"
                )
            slot = history._new_slot(kept.key)
            runs = np.array(kept.runs).reshape(-1, 3)
            history._runs[slot, : len(runs)] = runs
            history._counts[slot] = max(kept.count, len(runs))
            history._written[slot] = history.version = history.version + 1
        return history

    def _new_slot(self, key: str) -> int:
        if len(self._slots) >= self._keys_kept:
            self._forget()
        if len(self._slots) + 1 == len(self._counts):
            self._resize(2 * len(self._counts))
        slot = len(self._slots)
        self._slots[key] = slot
        return slot

    def _forget(self) -> None:
        """Drop the quarter of the keys whose last job ended longest ago."""
        last_end = self._runs[: len(self._slots), 0, 2]
        order = np.argsort(last_end, kind="stable")
        stay = np.sort(order[-(3 * self._keys_kept // 4) :])
        names = list(self._slots)
        runs, counts, written = self._runs[stay], self._counts[stay], self._written[stay]
        self._slots = {names[slot]: number for number, slot in enumerate(stay.tolist())}
        self._runs[:], self._counts[:], self._written[:] = np.nan, 0, 0
        self._runs[: len(stay)], self._counts[: len(stay)], self._written[: len(stay)] = runs, counts, written

    def _resize(self, size: int) -> None:
        used = len(self._slots)
        runs, counts, written = self._runs, self._counts, self._written
        self._runs = np.full((size, RUNS_KEPT, 3), np.nan)
        self._counts, self._written = (np.zeros(size, dtype=np.int64) for _ in range(2))
        self._runs[:used], self._counts[:used], self._written[:used] = runs[:used], counts[:used], written[:used]


def runs_of(ended: EndedJobs) -> NDArray[np.float64]:
    """Return the history row of each job, `(n_rows, 3)`: run time (capped at the limit), time limit and end."""
    limit_s = np.maximum(ended.jobs.limit_s, 1.0)
    return np.column_stack([np.clip(ended.run_s, 1.0, limit_s), limit_s, ended.end_time])


def keys_of(jobs: RunTimeTable) -> list[Keys]:
    """Return the keys of each job's runs, one for each kind; None where the job lacks the attribute."""
    cleaned: dict[str, str] = {}
    families: dict[str, str] = {}
    texts: dict[tuple[float, ...], str] = {}
    requests = np.column_stack([jobs.gpus, jobs.cpus, jobs.nodes, jobs.memory_mib, jobs.limit_s])
    keys: list[Keys] = []
    for user, account, name, request in zip(jobs.user, jobs.account, jobs.name, requests.tolist(), strict=True):
        who = cleaned.get(user) or cleaned.setdefault(user, _part(user))
        paid_by = cleaned.get(account) or cleaned.setdefault(account, _part(account))
        who = who or paid_by
        family = families.get(name)
        if family is None:
            family = families.setdefault(name, _part(name_family(name)))
        asked = texts.get(request_key := tuple(request))
        if asked is None:
            asked = texts.setdefault(request_key, "/".join(f"{amount:.7g}" for amount in request))
        keys.append(
            (
                f"s{who}{_BAR}{family}{_BAR}{asked}" if who and family else None,
                f"r{who}{_BAR}{asked}" if who else None,
                f"f{who}{_BAR}{family}" if who and family else None,
                f"u{who}" if who else None,
                f"a{paid_by}" if paid_by else None,
            )
        )
    return keys


def bursts_of(keys: Sequence[Keys], submit_time: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of each job's burst, `(n_rows,)`: jobs of one user and request that were submitted on a day."""
    names = [burst_of(of_job, time) for of_job, time in zip(keys, submit_time.tolist(), strict=True)]
    return np.unique(names, return_inverse=True)[1].reshape(-1).astype(np.int64)


def burst_of(keys: Keys, submit_time: float) -> str:
    """Return the name of the burst of a job."""
    return f"{submit_time // DAY_S:.0f} {keys[REQUEST]}"


def _part(text: str) -> str:
    return text[:TEXT_LIMIT].replace(_BAR, " ").strip()
