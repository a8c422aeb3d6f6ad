"""A gambit on a live cluster beside its twin: its acts as they come due, and what squeue shows of both."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from tools.live_adversary.gambits import Act, Gambit, When
from tools.live_adversary.verdict import GambitOutcome, PlayerSide, judged
from tools.stage import LiveCluster

ADVERSARY, TWIN = "games", "mail"
# An act that waits for a lift comes after this time without one.
PATIENCE_S: Final = 20.0
HOUR_MIN: Final = 60.0
_WORD: Final = re.compile(r"(?:^| )(JobId|ArrayJobId|ArrayTaskId|JobState|StartTime|Nice|Restarts|NodeList)=(\S*)")
_GPUS: Final = re.compile(r" (?:Alloc)?TRES=\S*?gres/gpu=(\d+)")
_STARTED: Final = frozenset({"RUNNING", "COMPLETING", "COMPLETED", "TIMEOUT", "FAILED", "CANCELLED", "NODE_FAIL"})


class Player(StrEnum):
    """One of both sides of a trial."""

    ADVERSARY = "adversary"
    TWIN = "twin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJob:
    """A job or a task of an array as `scontrol show job` shows it; `task` 0 is none, and all waiting ones of an array.

    `start_time` is None where it has not started, `gpus` where Slurm does not show them.
    """

    job_id: int
    task: int
    own_id: int
    state: str
    nice: int
    restarts: int
    start_time: float | None
    gpus: int | None

    @property
    def is_pending(self) -> bool:
        """Whether it waits."""
        return self.state == "PENDING"


def records_of(text: str) -> Iterator[ShownJob]:
    """Read what `scontrol -o show job` prints with times in seconds."""
    for line in text.splitlines():
        words = dict(_WORD.findall(line))
        if "JobState" not in words:
            continue
        own_id = int(words["JobId"])
        task = words.get("ArrayTaskId", "0")
        has_run = words["JobState"] in _STARTED and words.get("NodeList", "(null)") not in ("", "(null)")
        gpus = _GPUS.search(line)
        yield ShownJob(
            job_id=int(words.get("ArrayJobId", own_id)),
            task=int(task) if task.isdigit() else 0,
            own_id=own_id,
            state=words["JobState"],
            nice=int(words.get("Nice", 0)),
            restarts=int(words.get("Restarts", 0)),
            start_time=_seconds(words["StartTime"]) if has_run else None,
            gpus=int(gpus.group(1)) if gpus else None,
        )


def _seconds(text: str) -> float | None:
    return float(text) if text.isdigit() else None


@dataclass(slots=True, kw_only=True)
class _Part:
    """A job or task of one side: its first and last start, the work done before the last, and its GPUs."""

    first_start: float
    last_start: float
    restarts: int
    worked_s: float = 0.0
    gpus: int | None = None


@dataclass(slots=True, kw_only=True)
class GambitTrial:
    """A gambit and its twin, from their submission on; `refused` are the acts that Slurm refused to a waiting job."""

    gambit: Gambit
    submit_time: float
    jobs: Mapping[Player, Sequence[int]]
    acts: list[Act]
    acted_time: float
    shaped_time: float
    grown_time: float | None = None
    was_lifted: bool = False
    refused: list[str] = field(default_factory=list)
    refused_shape: bool = False
    parts: dict[Player, dict[tuple[int, int], _Part]] = field(default_factory=lambda: {side: {} for side in Player})
    requeued: int = 0

    @classmethod
    def begun(cls, live: LiveCluster, gambit: Gambit, earlier: int, chance: random.Random, now: float) -> "GambitTrial":
        """Submit both, in either order."""
        jobs: dict[Player, list[int]] = {}
        for player in chance.sample(list(Player), 2):
            if player is Player.TWIN:
                script = f"sleep {gambit.final.run_s}"
                jobs[player] = [live.submit(*gambit.final.options(), script=script, user=TWIN)]
            else:
                submissions = [[word.format(earlier=earlier) for word in options] for options in gambit.submissions]
                jobs[player] = [live.submit(*words, script=gambit.script(), user=ADVERSARY) for words in submissions]
        return cls(gambit=gambit, submit_time=now, jobs=jobs, acts=list(gambit.acts), acted_time=now, shaped_time=now)

    @property
    def is_over(self) -> bool:
        """Whether the last runs of both have started."""
        return not self._acts_left() and all(self._began(player) is not None for player in Player)

    def _acts_left(self) -> bool:
        return any(act.shapes for act in self.acts)

    def look(self, shown: Sequence[ShownJob]) -> None:
        """Note starts and lifts."""
        for player, job_ids in self.jobs.items():
            for record in shown:
                if record.job_id not in job_ids:
                    continue
                if player is Player.ADVERSARY and record.is_pending and record.nice < 0:
                    self.was_lifted = True
                if record.start_time is not None:
                    self._started(player, record, record.start_time)

    def _started(self, player: Player, record: ShownJob, start_time: float) -> None:
        key = (record.job_id, record.task)
        part = self.parts[player].get(key)
        if part is None:
            part = _Part(first_start=start_time, last_start=start_time, restarts=record.restarts)
            self.parts[player][key] = part
        elif record.restarts > part.restarts:
            part.last_start, part.restarts = start_time, record.restarts
        part.gpus = record.gpus

    def act(self, live: LiveCluster, shown: Sequence[ShownJob], now: float) -> int:
        """Do what is due, and return the number of commands."""
        done = 0
        while self.acts and self._is_due(self.acts[0], now):
            act = self.acts.pop(0)
            done += self._do(act, live, shown, now)
        if self.gambit.pieces > 1:
            done += self._requeue(live, shown, now)
        return done

    def _is_due(self, act: Act, now: float) -> bool:
        passed_s = now - self.acted_time
        if act.when is When.LIFTED and not self.was_lifted and passed_s < PATIENCE_S:
            return False
        return passed_s >= act.after_s

    def _do(self, act: Act, live: LiveCluster, shown: Sequence[ShownJob], now: float) -> int:
        self.acted_time = now
        waiting = {record.job_id for record in shown if record.is_pending}
        for job_id in self.jobs[Player.ADVERSARY]:
            argv = [word.replace("{job}", str(job_id)) for word in act.argv]
            answer = live.ask(*argv, user=ADVERSARY)
            if answer.returncode != 0 and job_id in waiting:
                self.refused.append(f"{' '.join(argv)}: {' '.join(answer.stderr.split())}")
                self.refused_shape |= act.shapes
        if act.shapes:
            self.shaped_time = now
        if act.grows:
            self.grown_time = now
        return len(self.jobs[Player.ADVERSARY])

    def _requeue(self, live: LiveCluster, shown: Sequence[ShownJob], now: float) -> int:
        """Requeue the job once it has worked for a piece."""
        (job_id,) = self.jobs[Player.ADVERSARY]
        part = self.parts[Player.ADVERSARY].get((job_id, 0))
        runs = any(record.job_id == job_id and record.state == "RUNNING" for record in shown)
        if part is None or not runs or self.requeued >= self.gambit.pieces - 1 or part.restarts < self.requeued:
            return 0
        if now - part.last_start < self.gambit.piece_s:
            return 0
        if live.ask("scontrol", "requeue", str(job_id), user=ADVERSARY).returncode == 0:
            part.worked_s += now - part.last_start
            self.requeued += 1
        return 1

    def _began(self, player: Player) -> float | None:
        """Return the mean instant at which the work of a side began, without the time between its runs."""
        parts = self.parts[player].values()
        runs = self.gambit.pieces if player is Player.ADVERSARY else 1
        wanted = self.gambit.final.tasks
        if len(parts) < wanted or any(part.restarts < runs - 1 for part in parts):
            return None
        return float(np.mean([part.last_start - part.worked_s for part in parts]))

    def side(self, player: Player) -> PlayerSide:
        """Return what is known of a side."""
        parts = self.parts[player].values()
        gpus = [part.gpus for part in parts if part.gpus is not None]
        return PlayerSide(
            first_start=min((part.first_start for part in parts), default=None),
            began=self._began(player),
            least_gpus=min(gpus, default=None),
        )

    def outcome(self, window_s: float, until: float) -> GambitOutcome:
        """Return what the trial shows."""
        final = self.gambit.final
        return judged(
            self.gambit.tricks,
            self.side(Player.ADVERSARY),
            self.side(Player.TWIN),
            shaped_time=until if self._acts_left() else self.shaped_time,
            grown_time=self.grown_time,
            window_s=window_s,
            refused=self.refused_shape,
            gpus=self.gambit.least_gpus,
            gpu_hours=final.gpus * final.tasks * final.limit_min / HOUR_MIN,
            until=until,
        )
