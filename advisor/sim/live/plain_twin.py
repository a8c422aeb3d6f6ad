"""Runs plain Slurm beside an advised cluster: the same submissions on the model of slurmctld, without advice.

The model begins at an anchor, a snapshot from before the first advice. Jobs that were submitted since arrive when they
did. Run times are those that were seen; for jobs that still run or pend they are drawn from forecasts, or are the time
limits. What snapshots do not show is drawn: the instants of slurmctld's passes, ends between two snapshots, and the
fractions of seconds of submissions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import SetNice
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import NO_FORECASTS, Forecasts
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.planning.rollout import TimedAction
from advisor.sim.cluster import SlurmParameters
from advisor.sim.live.carried_jobs import (
    PlainStay,
    TwinRow,
    as_pending,
    carried_snapshot,
    carried_stays,
    settled_rows,
    still_settled,
)
from advisor.sim.live.continuation import Arrivals, Continuation
from advisor.sim.live.draws import draw_run_times, drawn_periods, spread_draws, with_fractions
from advisor.sim.live.resumed_arrays import Periods, Sightings
from advisor.sim.live.snapshot_jobs import jobs_with_rows, trace_of
from advisor.sim.live.snapshot_model import NodeTurn, SnapshotModel, model_of
from advisor.sim.live.split_allocations import Omissions
from advisor.sim.live.submitted_jobs import Submission, SubmittedJobs, Undo, eligible_time
from advisor.sim.live.wait_sums import PlainStarts
from advisor.sim.slurm.site_cluster import parameters_of
from advisor.sim.traces.trace import Trace

Floats = NDArray[np.float64]

# A job that left the queue without a start holds nothing for long, and stands behind all others from then on.
_CANCELLED_RUN_S: Final = 1.0
# Without a forecast a job runs as long, in parts of its limit, as jobs that have ended, if there are that many.
_LEAST_ENDED: Final = 20
# Many jobs are shorter than such a time between two snapshots.
_LONG_GAP_S: Final = 60.0
_LAST_NICE: Final = 2**31 - 1


def as_seen(job: Job) -> Job:
    """Return a job unchanged: for clusters without advice."""
    return job


class PlainTwin:
    """Plain Slurm beside an advised cluster, from an anchor on."""

    def __init__(
        self,
        anchor: Snapshot,
        undo: Undo = as_seen,
        *,
        parameters: SlurmParameters | None = None,
        most_jobs: int = 50_000,
    ) -> None:
        """Begin at a snapshot from before the first advice.

        `undo` returns a job as submitted, without what advice changed. `parameters` take the place of those in the
        snapshot's configuration. With more than `most_jobs` jobs the anchor moves to the snapshot at hand.
        """
        self._undo, self._parameters, self._most_jobs = undo, parameters, most_jobs
        self._begin(anchor, {})

    def move_anchor(self, snapshot: Snapshot) -> None:
        """Begin at another snapshot and forget what was before it; do so while no advice is out."""
        self._begin(snapshot, self._jobs.by_id)

    def _begin(self, snapshot: Snapshot, earlier: Mapping[int, Submission]) -> None:
        self.anchor = self._last = snapshot
        # How jobs stand on plain Slurm at the anchor, in one queue or in several that are as likely.
        self._queues: list[dict[int, PlainStay]] = [{}]
        self._plain = self._queues[0]
        self._carried_ids: set[int] = set()
        self._jobs = SubmittedJobs(snapshot, self._undo, earlier)
        self._hides_bars = snapshot.hides_bars
        self._unread_jobs: set[int] = set(snapshot.unread_jobs)
        self._unread = dict.fromkeys(snapshot.unread)
        self._usable = {node.name: node.is_usable for node in snapshot.nodes}
        self._node_changes: dict[str, list[NodeTurn]] = {}
        # Nodes that are not in all snapshots.
        self._passing_nodes: set[str] = set()

    @property
    def submitted(self) -> SubmittedJobs:
        """The jobs seen since the anchor."""
        return self._jobs

    @property
    def queues(self) -> int:
        """The number of queues of plain Slurm at the anchor, one of which each call of `starts` begins with."""
        return len(self._queues)

    def carry_over(self, queues: Sequence[Sequence[PlainStay]], submitted: SubmittedJobs) -> None:
        """Begin with queues of plain Slurm, by a run from an earlier anchor up to this one, and with its jobs."""
        self._queues = [{stay.job_id: stay for stay in queue} for queue in queues]
        self._carried_ids = set().union(*self._queues)
        for job_id in self._carried_ids:
            earlier = submitted.by_id[job_id]
            record = self._jobs.by_id.setdefault(job_id, earlier)
            record.job, record.seen_time, record.seen_pending = earlier.job, earlier.seen_time, True
            record.after_anchor = False

    @property
    def job_count(self) -> int:
        """The number of jobs seen since the anchor."""
        return len(self._jobs.by_id)

    def observe(self, snapshot: Snapshot) -> None:
        """Note the submissions, starts and ends since the last snapshot."""
        self._jobs.observe(snapshot)
        self._note_nodes(snapshot)
        self._last = max(self._last, snapshot, key=lambda seen: seen.taken_at)
        self._hides_bars |= snapshot.hides_bars
        self._unread_jobs.update(snapshot.unread_jobs)
        self._unread.update(dict.fromkeys(snapshot.unread))
        if len(self._jobs.by_id) > self._most_jobs:
            self.move_anchor(snapshot)

    def _note_nodes(self, snapshot: Snapshot) -> None:
        """Note which nodes stopped taking jobs since the last snapshot, and which take them again.

        Of the time between two snapshots plain Slurm has the better: a node stops at the end of it and returns at its
        beginning. One that stands aside in a single snapshot, as while a job of the advised cluster completes, does not
        stop at all.
        """
        usable = {node.name: node.is_usable for node in snapshot.nodes}
        self._passing_nodes |= usable.keys() ^ self._usable.keys()
        for name, is_usable in usable.items():
            if self._usable.get(name, is_usable) is is_usable:
                continue
            turn = NodeTurn(time=self._last.taken_at if is_usable else snapshot.taken_at, is_usable=is_usable)
            turns = self._node_changes.setdefault(name, [])
            if turns and turns[-1].time == turn.time:
                turns.pop()
            else:
                turns.append(turn)
        self._usable |= usable

    def starts(
        self,
        forecasts: Forecasts = NO_FORECASTS,
        *,
        draws: int = 32,
        seed: int = 0,
        horizon_s: float = 0.0,
        periods: Periods | None = None,
        run_s_by_job: Mapping[int, float] | None = None,
        queue: int = 0,
    ) -> PlainStarts:
        """Return when each job would have started without advice, up to `horizon_s` after the last snapshot.

        `run_s_by_job` are run times known otherwise, as from accounting. With `periods` the instants of slurmctld's
        passes are known, and with them the submissions to the fraction of a second. `queue` selects one of `queues`.

        Raises `SimulationError` for an anchor without GPUs.
        """
        notes = Omissions()
        self._plain = self._queues[queue]
        model = self._model(notes)
        later = self._later(model, notes)
        rows = [*self._anchor_rows(model), *later.rows]
        until = self._last.taken_at
        rng_by_draw = [np.random.default_rng([seed, draw, 2]) for draw in range(draws)]
        run_time_s = self._run_times(rows, forecasts, rng_by_draw)
        for place, row in enumerate(rows):
            run_s = (run_s_by_job or {}).get(row.stay.job_id if row.stay else row.job.job_id)
            if run_s is not None:
                run_time_s[:, place] = run_s
        in_whole_seconds = periods is None and self._jobs.in_whole_seconds
        run_time_s = self._shifted(run_time_s, rows)
        scenario = tuple(self._withdrawals())
        starts, ends = np.empty((2, draws, len(rows)))
        for draw, rng in enumerate(rng_by_draw if rows else ()):
            continuation = Continuation(
                model,
                periods=periods or drawn_periods(model, rng),
                templates=later.trace,
                sightings=later.sightings,
                most_arrivals=len(later.rows),
            )
            submit_time = with_fractions(later.submit_time, rng) if in_whole_seconds else later.submit_time
            own, arriving = run_time_s[draw, : continuation.n_jobs], run_time_s[draw, continuation.n_jobs :]
            arrivals = Arrivals(template=later.template, submit_time=submit_time, run_time_s=arriving)
            course = continuation.run(
                continuation.workspace(),
                own,
                scenario,
                horizon_s=until + horizon_s - model.taken_at,
                arrivals=arrivals if len(later.rows) else None,
            )
            starts[draw], ends[draw] = course.start_time, course.end_time
        # Slurm shows the second in which a job started.
        starts = np.floor(starts) if in_whole_seconds else starts
        starts[:, [row.is_carried_running for row in rows]] = model.taken_at
        settled = list(settled_rows(self.anchor, self._plain, self._jobs.by_id))
        over = tuple(still_settled(self._plain, self._jobs.by_id))
        carried = tuple((*carried_stays(rows, starts[draw], ends[draw]), *over) for draw in spread_draws(starts, until))
        starts = np.hstack([starts, np.full((draws, len(settled)), model.taken_at)])
        return self._result(model, [*rows, *settled], starts, forecasts, notes)._replace(carried=carried)

    def _shifted(self, run_time_s: Floats, rows: Sequence[TwinRow]) -> Floats:
        """Return run times with those of the jobs that run on plain Slurm from another instant on."""
        changes_s = np.array([row.change_s(self.anchor.taken_at) for row in rows])
        shifted_s = np.where(changes_s == 0.0, run_time_s, np.maximum(_CANCELLED_RUN_S, run_time_s + changes_s))
        # What gives way has run long enough at the anchor.
        return np.where([row.gives_way for row in rows], 0.0, shifted_s)

    def _model(self, notes: Omissions) -> SnapshotModel:
        """Return the model of the anchor with the jobs as submitted."""
        submitted = {job.job_id: record.job for job, record in self._jobs.pending_at_anchor(self.anchor)}

        def at_anchor(job: Job) -> Job:
            known = submitted.get(job.job_id)
            if known is None:
                return job
            return replace(
                known,
                reason=job.reason,
                eligible_time=job.eligible_time,
                start_time=job.start_time,
                dependency=job.dependency,
                held=job.held,
                priority=job.priority if known.nice == job.nice else known.priority,
            )

        anchor = replace(self.anchor, jobs=tuple(map(at_anchor, self.anchor.jobs)))
        if self._plain:
            parameters = self._parameters or parameters_of(anchor.config)
            anchor = carried_snapshot(anchor, self._plain, self._jobs.by_id, parameters)
        model = replace(model_of(anchor, self._parameters, with_jobs=False), turns_by_node=self._node_changes)
        for sentence in model.left_out:
            notes.add(sentence)
        return model

    def _anchor_rows(self, model: SnapshotModel) -> Iterator[TwinRow]:
        """Yield the rows of the jobs of the anchor, in the order of the model."""
        places: dict[int, int] = {}
        for job_id, was_running in zip(model.trace.jobs["job_id"].tolist(), np.isfinite(model.start_time), strict=True):
            record, plain = self._jobs.by_id[job_id], self._plain.get(job_id)
            if was_running and plain is not None and not plain.is_running:
                yield TwinRow(job=record.job, record=record, stay=None, compared=False, plain=plain, gives_way=True)
                continue
            stays, place = record.starts(), places.get(job_id, 0)
            places[job_id] = place + 1
            yield TwinRow(
                job=record.job,
                record=record,
                stay=stays[place] if place < len(stays) else None,
                compared=not was_running and record.is_compared,
                plain=plain,
                runs_at_anchor=was_running,
            )

    def _later(self, model: SnapshotModel, notes: Omissions) -> "_Later":
        """Return the jobs that were submitted after the anchor, those that the model knows."""
        records = self._jobs.after_anchor()
        pending = [as_pending(record) for record in records]
        row_by_node = {name: row for row, name in enumerate(model.node_names)}
        seen = replace(self.anchor, taken_at=self._last.taken_at, jobs=tuple(job for job in pending if job is not None))
        omitted = Omissions()
        known = jobs_with_rows(seen, row_by_node, omitted)
        for sentence in omitted.sentences():
            notes.add(f"of the jobs submitted since, {sentence}")
        notes.add(
            "{} jobs submitted since wait for other jobs or for a time, and do not start",
            sum(job is None for job in pending),
        )
        record_by_id = {record.job.job_id: record for record in records}
        most_gpus = max(group.gpus for group in model.cluster.nodes)
        rows, template = [], []
        for place, job in enumerate(known):
            record = record_by_id[job.job_id]
            stays = record.starts()
            for task in range(record.tasks):
                stay = stays[task] if task < len(stays) else None
                rows.append(TwinRow(job=job, record=record, stay=stay, compared=record.is_compared))
                template.append(place)
        return _Later(
            rows=rows,
            trace=trace_of(seen, known, most_gpus) if known else None,
            template=np.array(template, dtype=np.intp),
            sightings=Sightings(
                priority=np.array([float(job.priority or np.nan) for job in known]),
                time=np.array([record_by_id[job.job_id].seen_time for job in known]),
            ),
        )

    def _run_times(self, rows: Sequence[TwinRow], forecasts: Forecasts, rngs: Sequence[np.random.Generator]) -> Floats:
        """Return the run times of all rows, `(draws, n_rows)`."""
        now = self._last.taken_at
        elapsed_s = np.array([now - row.stay.start_time if row.stay else 0.0 for row in rows])
        elapsed_s = np.where([row.record.left_time is not None for row in rows], 0.0, np.maximum(0.0, elapsed_s))
        limits_s = np.array([np.inf if row.job.time_limit_s is None else row.job.time_limit_s for row in rows])
        uniform = np.array([rng.random(len(rows)) for rng in rngs]).reshape(len(rngs), len(rows))
        runs = [forecasts.of(row.job.job_id).run_time for row in rows]
        run_time_s = draw_run_times(runs, np.maximum(limits_s, elapsed_s), elapsed_s, uniform)
        ratios = self._run_ratios()
        if len(ratios) >= _LEAST_ENDED:
            for place in [place for place, run in enumerate(runs) if run is None and np.isfinite(limits_s[place])]:
                longer = ratios[ratios * limits_s[place] > elapsed_s[place]]
                if len(longer):
                    drawn = longer[(uniform[:, place] * len(longer)).astype(np.intp)]
                    run_time_s[:, place] = drawn * limits_s[place]
        for place, row in enumerate(rows):
            if row.record.left_time is not None:
                run_time_s[:, place] = _CANCELLED_RUN_S
            elif row.stay is not None and row.stay.has_ended:
                stay = row.stay
                ends = stay.end_low + uniform[:, place] * (stay.end_high - stay.end_low)
                # An end between two snapshots is one to the fraction of a second, unlike the start.
                is_drawn = self._jobs.in_whole_seconds and stay.end_low < stay.end_high
                fractions = np.array([rng.random() for rng in rngs]) if is_drawn else 0.0
                run_time_s[:, place] = np.maximum(0.0, ends - stay.start_time - fractions)
        return run_time_s

    def _run_ratios(self) -> Floats:
        """Return the run times of the jobs that have ended as parts of their limits, sorted."""
        ratios = [
            min(1.0, (0.5 * (stay.end_low + stay.end_high) - stay.start_time) / record.job.time_limit_s)
            for record in self._jobs.by_id.values()
            for stay in record.stays.values()
            if stay.has_ended and record.job.time_limit_s
        ]
        return np.sort(np.array(ratios, dtype=np.float64))

    def _withdrawals(self) -> Iterator[TimedAction]:
        """Yield what takes the jobs of the anchor to the end of the line that left the queue without a start."""
        for job, record in self._jobs.pending_at_anchor(self.anchor):
            if record.left_time is not None:
                action = SetNice(job_id=job.job_id, before=job.nice, after=_LAST_NICE)
                yield TimedAction(action=action, after_s=record.left_time - self.anchor.taken_at)

    def _guessed(self, rows: Sequence[TwinRow], starts: Floats, forecasts: Forecasts) -> int:
        """Return how many jobs without a forecast have run for longer in the model, in most draws, than in reality."""
        now = self._last.taken_at
        earlier = (starts < [row.stay.start_time if row.stay else now for row in rows]).mean(axis=0) > 0.5
        return sum(
            is_earlier
            and not (row.stay and row.stay.has_ended)
            and row.record.left_time is None
            and forecasts.of(row.job.job_id).run_time is None
            for row, is_earlier in zip(rows, earlier.tolist(), strict=True)
        )

    def _result(
        self, model: SnapshotModel, rows: Sequence[TwinRow], starts: Floats, forecasts: Forecasts, notes: Omissions
    ) -> PlainStarts:
        """Return the starts of the jobs that are compared, with what is not known of them."""
        unknown_ratio = self._unknown_ratio(model, rows, starts, forecasts, notes)
        sentences = [*notes.sentences(), *self._unread]
        if self.anchor.config.hides_jobs:
            sentences.append("the jobs of other users can be hidden from the reader (PrivateData)")
        compared = [row for row in rows if row.compared]
        return PlainStarts(
            anchor_time=self.anchor.taken_at,
            until=self._last.taken_at,
            job_ids=np.array([row.job.job_id for row in compared], dtype=np.int64),
            users=tuple(row.job.user for row in compared),
            accounts=tuple(row.job.account for row in compared),
            was_submitted_later=np.array([row.record.after_anchor for row in compared], dtype=np.bool_),
            wait_begin_time=np.array([eligible_time(row.job) for row in compared]),
            plain_start_time=starts[:, [row.compared for row in rows]],
            real_start_time=np.array([row.stay.start_time if row.stay else np.nan for row in compared]),
            in_doubt=np.array([self._hides_bars or row.record.in_doubt for row in compared], dtype=np.bool_),
            unknown_ratio=unknown_ratio,
            left_out=tuple(dict.fromkeys(sentences)),
            disputed=tuple(job_id for job_id, record in self._jobs.by_id.items() if record.disputed),
        )

    def _unknown_ratio(
        self, model: SnapshotModel, rows: Sequence[TwinRow], starts: Floats, forecasts: Forecasts, notes: Omissions
    ) -> float:
        """Return the share of the jobs or of the GPUs, the larger, that the model does not know, and note why."""
        modelled = {row.job.job_id for row in rows}
        elsewhere = self._carried_ids - self._plain.keys() - modelled
        waiting = [
            record
            for job_id, record in self._jobs.by_id.items()
            if (record.seen_pending or record.after_anchor) and job_id not in elsewhere
        ]
        missing = sum(record.job.job_id not in modelled for record in waiting)
        cancelled = sum(record.left_time is not None for record in waiting)
        held_back = sum(record.was_held_back and bool(record.stays) for record in waiting)
        disputed = sum(record.disputed for record in waiting)
        guessed = 0 if len(self._run_ratios()) >= _LEAST_ENDED else self._guessed(rows, starts, forecasts)
        unread = len(self._unread_jobs)
        notes.add("{} jobs left the queue without being seen to run, and are not compared", cancelled)
        notes.add("{} jobs changed while they waited, or waited where they fit, and are not compared", disputed)
        notes.add("{} jobs were held back for a while for another reason than contention", held_back)
        notes.add("{} jobs without a forecast run up to their limits, though they could have ended by now", guessed)
        notes.add("{} jobs could not be read", unread)
        unseen = sum(not record.seen_pending and bool(record.stays) for record in waiting)
        notes.add("{} jobs were first seen running: what they asked for beyond that is not known", unseen)
        notes.add("{} jobs were requeued: only their last run counts", self._jobs.restarts)
        stopped = {name for name, turns in self._node_changes.items() if not all(turn.is_usable for turn in turns)}
        stopped |= self._passing_nodes
        notes.add(
            "{} nodes stopped taking jobs, came or went: jobs that ran there may have ended by that", len(stopped)
        )
        gap_s = self._jobs.longest_gap_s
        if gap_s > _LONG_GAP_S:
            notes.add(f"snapshots are up to {gap_s:.0f} s apart: jobs that came and went in between are not known")
        of_jobs = (missing + cancelled + held_back + guessed + unread) / max(1, len(waiting) + unread)
        gpus_by_node = {node.name: sum(pool.total for pool in node.gpus) for node in self.anchor.nodes}
        lost = sum(gpus_by_node.get(name, 0) for name in stopped)
        of_gpus = (lost + int(model.gpus_taken.sum())) / max(1, sum(gpus_by_node.values()))
        return float(min(1.0, max(of_jobs, of_gpus)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Later:
    """The jobs that were submitted after the anchor: one row for each task, one template for each record."""

    rows: list[TwinRow]
    trace: Trace | None
    template: NDArray[np.intp]
    sightings: Sightings

    @property
    def submit_time(self) -> Floats:
        """When each row arrives, `(n_rows,)`."""
        return np.array([eligible_time(row.job) for row in self.rows], dtype=np.float64)
