"""Draws what the adversary does with a job, and what its twin asks for openly: from a seed, and without a cluster."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

NODES: Final = 8
GPUS_PER_NODE: Final = 8
CPUS_PER_NODE: Final = 16
NODE_MIB: Final = 64000
# The longest that a job of anybody runs.
MOST_RUN_S: Final = 24
# The share of gambits without any trick, which show the noise of a pair.
HONEST_RATIO: Final = 0.2
HONEST: Final = "none (both honest)"
NICE: Final = 40
HINTS: Final = ("sadvise: gpus=1-8", "sadvise: gpus=1-8 ckpt=60", "sadvise: model=bert sensitivity=low", "sadvise: off")


class When(StrEnum):
    """Names what an act waits for beside its time."""

    LATER = "later"
    LIFTED = "lifted"  # the job is lifted, or has not been for a while


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One command of the adversary on its pending job, `{job}` in its words being the id.

    `after_s` counts from the act before. An act that `shapes` is one without which the job is not what its twin is.
    """

    argv: tuple[str, ...]
    after_s: float
    when: When = When.LATER
    shapes: bool = False
    grows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForm:
    """Says what a job asks for and does: GPUs in all, nodes, a limit, a run time, and the tasks of its array."""

    gpus: int
    nodes: int = 1
    limit_min: int
    run_s: int
    tasks: int = 1

    def options(self) -> tuple[str, ...]:
        """Spell it for sbatch."""
        array = (f"--array=1-{self.tasks}",) if self.tasks > 1 else ()
        return (f"--time={self.limit_min}", f"-N{self.nodes}", f"-n{self.nodes}", f"--gpus={self.gpus}", *array)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gambit:
    """A job of the adversary: each submission's options, what follows, and the form that the twin submits at once.

    `pieces` are the runs that its work takes, with a requeue between two. `least_gpus` is what it holds as it runs.
    """

    tricks: tuple[str, ...]
    submissions: tuple[tuple[str, ...], ...]
    acts: tuple[Act, ...]
    final: JobForm
    least_gpus: int
    pieces: int = 1

    @property
    def piece_s(self) -> float:
        """The work of each run."""
        return self.final.run_s / self.pieces

    def script(self) -> str:
        """Return the script: the last run ends by itself, those before wait to be requeued."""
        last = f"sleep {self.piece_s:g}"
        if self.pieces == 1:
            return last
        return f'[ "${{SLURM_RESTART_COUNT:-0}}" -lt {self.pieces - 1} ] && sleep {self.piece_s + 30:g}\n{last}'


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A gambit in the making."""

    first: JobForm
    final: JobForm
    options: list[str] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    copies: int = 1
    pieces: int = 1
    least_gpus: int = 0


def draw_form(chance: random.Random) -> JobForm:
    """Draw the job of an honest user."""
    gpus, nodes = chance.choice(((1, 1), (1, 1), (2, 1), (2, 1), (4, 1), (4, 1), (8, 1), (16, 2)))
    return JobForm(
        gpus=gpus, nodes=nodes, limit_min=chance.choice((2, 5, 10, 60, 240, 1440)), run_s=chance.randint(6, MOST_RUN_S)
    )


def draw_gambit(chance: random.Random) -> Gambit:
    """Draw what the adversary does with its next job."""
    form = draw_form(chance)
    draft = _Draft(first=form, final=form)
    tricks: list[str] = []
    if chance.random() >= HONEST_RATIO:
        shape = chance.choice((*SHAPES, *GROWING, *GROWING, ""))
        # Most of these only make a job wait, and would hide what growing gains.
        counts = (0, 0, 0, 1) if shape in GROWING else (0, 1, 2) if shape else (1, 2)
        sides = chance.sample(sorted(SIDES), chance.choice(counts))
        tricks = [shape, *sides] if shape else sides
        for trick in tricks:
            {**SHAPES, **SIDES}[trick](draft, chance)
        if {"-w", "-x"} <= set(sides):
            # Slurm refuses a node that is both asked for and left out.
            draft.options = [option for option in draft.options if not option.startswith("--nodelist")]
    return Gambit(
        tricks=tuple(tricks) or (HONEST,),
        submissions=((*draft.first.options(), *draft.options),) * draft.copies,
        # A shape is complete before anything else is done, or other acts would only delay it.
        acts=tuple(sorted(draft.acts, key=lambda act: not act.shapes)),
        final=draft.final,
        least_gpus=draft.least_gpus or draft.final.gpus,
        pieces=draft.pieces,
    )


def _update(*words: str, after_s: float, when: When = When.LATER, shapes: bool = False, grows: bool = False) -> Act:
    argv = ("scontrol", "update", "JobId={job}", *words)
    return Act(argv=argv, after_s=after_s, when=when, shapes=shapes, grows=grows)


def _soon(chance: random.Random) -> tuple[float, When]:
    """Draw when an act comes: once the job is lifted, or some time after its submission."""
    if chance.random() < 0.6:
        return 0.0, When.LIFTED
    return chance.uniform(1.0, 15.0), When.LATER


def _grow(draft: _Draft, chance: random.Random) -> None:
    """Ask for half a node, which does not start at once, and for all of it once lifted; both for hours."""
    draft.final = replace(draft.final, gpus=GPUS_PER_NODE, nodes=1, limit_min=chance.choice((240, 1440)))
    draft.first = replace(draft.final, gpus=chance.choice((2, 4)))
    after_s, when = _soon(chance)
    words = f"TresPerJob=gres:gpu:{draft.final.gpus}"
    draft.acts.append(_update(words, after_s=after_s, when=when, shapes=True, grows=True))


def _lengthen(draft: _Draft, chance: random.Random) -> None:
    """Ask for a minute, and for hours once lifted."""
    gpus, limit_min = chance.choice((4, 8, 8)), chance.choice((240, 1440))
    draft.final = replace(draft.final, gpus=gpus, nodes=1, limit_min=limit_min)
    draft.first = replace(draft.final, limit_min=1)
    after_s, when = _soon(chance)
    draft.acts.append(
        _update(f"TimeLimit={draft.final.limit_min}", after_s=after_s, when=when, shapes=True, grows=True)
    )


def _grow_all(draft: _Draft, chance: random.Random) -> None:
    """Ask for a node or a half for a minute, and for two nodes for hours once lifted."""
    draft.final = JobForm(gpus=16, nodes=2, limit_min=chance.choice((60, 1440)), run_s=16)
    draft.first = JobForm(gpus=chance.choice((4, 8)), limit_min=1, run_s=16)
    after_s, when = _soon(chance)
    words = (
        f"TresPerJob=gres:gpu:{draft.final.gpus}",
        f"TimeLimit={draft.final.limit_min}",
        "NumTasks=2",
        "NumNodes=2-2",
    )
    for number, word in enumerate(words):
        first = number == 0
        draft.acts.append(
            _update(
                word, after_s=after_s if first else 0.0, when=when if first else When.LATER, shapes=True, grows=True
            )
        )


def _shrink(draft: _Draft, chance: random.Random) -> None:
    """Ask for a node for a day, and for less after a while, so that the advice seems to have cost the wait."""
    draft.final = replace(draft.final, gpus=chance.choice((1, 2, 4)), nodes=1, limit_min=chance.choice((2, 10)))
    draft.first = replace(draft.final, gpus=8, limit_min=1440)
    draft.acts += [
        _update(f"TresPerJob=gres:gpu:{draft.final.gpus}", after_s=chance.uniform(2.0, 20.0), shapes=True),
        _update(f"TimeLimit={draft.final.limit_min}", after_s=0.0, shapes=True),
    ]


def _whole_node(*words: str) -> Callable[[_Draft, random.Random], None]:
    """Ask for one GPU and for something that keeps the whole node; the twin asks for all of its GPUs."""

    def play(draft: _Draft, _chance: random.Random) -> None:
        draft.final = replace(draft.final, gpus=GPUS_PER_NODE, nodes=1)
        draft.first = replace(draft.final, gpus=1)
        draft.options += words
        draft.least_gpus = 1

    return play


def _range(draft: _Draft, _chance: random.Random) -> None:
    """Declare a range and ask for its largest size."""
    draft.final = draft.first = replace(draft.final, gpus=8, nodes=1)
    draft.options.append("--comment=sadvise: gpus=1-8")


def _split(draft: _Draft, chance: random.Random) -> None:
    """Submit as single jobs what the twin submits as an array."""
    draft.copies = chance.randint(2, 4)
    draft.first = replace(draft.final, gpus=chance.choice((1, 2)), nodes=1)
    draft.final = replace(draft.first, tasks=draft.copies)


def _parts(draft: _Draft, chance: random.Random) -> None:
    """Change an array part by part: nice of some tasks, then the limit of the others and of these."""
    draft.final = replace(draft.final, gpus=4, nodes=1, tasks=4, limit_min=60, run_s=15)
    draft.first = replace(draft.final, limit_min=1)
    after_s, when = _soon(chance)
    for number, tasks in enumerate(("[1,3]", "[2,4]")):
        argv = ("scontrol", "update", f"JobId={{job}}_{tasks}", "TimeLimit=60")
        first = number == 0
        draft.acts.append(
            Act(argv=argv, after_s=after_s if first else chance.uniform(0.0, 5.0), when=when if first else When.LATER,
                shapes=True, grows=True)
        )  # fmt: skip
    if chance.random() < 0.5:
        for nice in (NICE, 0):
            argv = ("scontrol", "update", "JobId={job}_[2]", f"Nice={nice}")
            draft.acts.append(Act(argv=argv, after_s=chance.uniform(2.0, 10.0)))


def _requeue(draft: _Draft, chance: random.Random) -> None:
    """Run with the limit of one piece, and requeue before it is over."""
    draft.pieces = chance.choice((2, 3))
    run_s = draft.pieces * chance.randint(4, MOST_RUN_S // 3)
    draft.final = replace(draft.final, gpus=chance.choice((1, 2, 4)), nodes=1, limit_min=draft.pieces, run_s=run_s)
    draft.first = replace(draft.final, limit_min=1)
    draft.options.append("--requeue")


def _comment(draft: _Draft, chance: random.Random) -> None:
    draft.acts.append(_update(f"Comment={chance.choice(HINTS)}", after_s=chance.uniform(0.0, 15.0)))


def _hold(draft: _Draft, chance: random.Random) -> None:
    draft.acts += [
        Act(argv=("scontrol", "hold", "{job}"), after_s=chance.uniform(0.0, 10.0)),
        Act(argv=("scontrol", "release", "{job}"), after_s=chance.uniform(2.0, 20.0)),
    ]


def _exclude(draft: _Draft, chance: random.Random) -> None:
    draft.options.append("--exclude=" + ",".join(f"n{number:02d}" for number in chance.sample(range(1, NODES + 1), 2)))
    draft.acts.append(_update("ExcNodeList=", after_s=chance.uniform(2.0, 20.0)))


def _nodelist(draft: _Draft, chance: random.Random) -> None:
    draft.options.append(f"--nodelist=n{chance.randint(1, NODES):02d}")
    if chance.random() < 0.5:
        draft.acts.append(_update("ReqNodeList=", after_s=chance.uniform(2.0, 20.0)))


def _dependency(draft: _Draft, chance: random.Random) -> None:
    """Wait for an earlier job, and drop that after a while."""
    draft.options.append("--dependency=afterany:{earlier}")
    draft.acts.append(_update("Dependency=", after_s=chance.uniform(2.0, 20.0)))


def _nice(draft: _Draft, chance: random.Random) -> None:
    draft.acts += [_update(f"Nice={nice}", after_s=chance.uniform(1.0, 10.0)) for nice in (NICE, 0)]


# What changes the request or the runs: one of them at most.
SHAPES: Final[Mapping[str, Callable[[_Draft, random.Random], None]]] = {
    "grows in GPUs": _grow,
    "grows in time": _lengthen,
    "grows in nodes, GPUs and time": _grow_all,
    "shrinks": _shrink,
    "--exclusive": _whole_node("--exclusive", "--mem=1000"),
    "-c": _whole_node(f"-c{CPUS_PER_NODE}", "--mem=1000"),
    "--mem": _whole_node(f"--mem={NODE_MIB}"),
    "range of GPUs": _range,
    "single jobs for an array": _split,
    "array in parts": _parts,
    "requeues": _requeue,
}
# Drawn more often: only by these does the adversary's job have a lift that it should have lost.
GROWING: Final = ("grows in GPUs", "grows in time", "grows in nodes, GPUs and time")
# What goes with any of these.
SIDES: Final[Mapping[str, Callable[[_Draft, random.Random], None]]] = {
    "comment": _comment,
    "hold": _hold,
    "-x": _exclude,
    "-w": _nodelist,
    "dependency": _dependency,
    "nice": _nice,
}
