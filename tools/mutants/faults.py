"""List the single faults that the operators make in a module, and draw a fixed sample of them."""

import difflib
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from cosmic_ray.ast import ast_nodes

from tools.mutants.operators import OPERATORS, mutated_code, parse

# Code that runs when a module is imported and decides nothing, or that no program runs at all.
_SKIPPED: Final = frozenset(
    ["annassign", "decorator", "tfpdef", "parameters", "import_from", "import_name", "fstring", "assert_stmt"]
)
# Arguments that check or save work, and change no result.
_FORMAL: Final = frozenset(["strict", "copy", "dtype", "maxsize"])
_COMPOUND: Final = frozenset(["funcdef", "classdef", "if_stmt", "for_stmt", "while_stmt", "try_stmt", "with_stmt"])


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleFault:
    """One operator at one place of a module, as a path from the root of the checkout."""

    path: str
    operator: str
    occurrence: int
    statement_line: int
    line: int
    text: str
    twin: int

    def rank(self, seed: int) -> str:
        """Return the place of this fault in a shuffled order, which changes of other lines leave alone."""
        name = f"{seed} {self.path} {self.operator} {self.text} {self.twin}"
        return hashlib.sha256(name.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A module with one fault: the lines before and after, and the text of the whole module."""

    fault: SingleFault
    before: str
    after: str
    source: str


def sampled(root: Path, paths: Iterable[str], *, most: int, seed: int) -> list[Mutant]:
    """Return up to `most` mutants of these modules: one of each line in shuffled order, then a second of each line."""
    by_line: dict[tuple[str, int], list[SingleFault]] = defaultdict(list)
    for path in paths:
        for fault in faults(root, path):
            by_line[path, fault.line].append(fault)
    lines = [sorted(on_line, key=lambda fault: fault.rank(seed)) for on_line in by_line.values()]
    lines.sort(key=lambda on_line: on_line[0].rank(seed))
    mutants: list[Mutant] = []
    for fault in (fault for layer in zip_longest(*lines) for fault in layer if fault is not None):
        if len(mutants) == most:
            break
        if (mutant := mutated(root, fault)) is not None:
            mutants.append(mutant)
    return mutants


def faults(root: Path, path: str) -> Iterator[SingleFault]:
    """Yield each fault of a module."""
    source = (root / path).read_text(encoding="utf-8")
    lines = source.splitlines()
    nodes = list(ast_nodes(parse(source)))
    twins = Counter[tuple[str, str]]()
    for name, operator in OPERATORS.items():
        occurrence = -1
        for node in nodes:
            for (line, _), _ in operator.mutation_positions(node):
                occurrence += 1
                if _decides(node):
                    text = lines[line - 1].strip()
                    twins[name, text] += 1
                    yield SingleFault(
                        path=path,
                        operator=name,
                        occurrence=occurrence,
                        statement_line=_statement_line(node),
                        line=line,
                        text=text,
                        twin=twins[name, text],
                    )


def mutated(root: Path, fault: SingleFault) -> Mutant | None:
    """Return the module with the fault, or None where that is no Python."""
    before = (root / fault.path).read_text(encoding="utf-8")
    after = mutated_code(before, OPERATORS[fault.operator], fault.occurrence)
    try:
        compile(after, fault.path, "exec")
    except SyntaxError:
        return None
    removed, added = changed_lines(before.splitlines(), after.splitlines())
    return Mutant(fault=fault, before=removed, after=added, source=after)


def changed_lines(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """Return the lines that only one of two texts has, joined by blanks."""
    compared = [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ")]
    removed, added = (" ".join(line[2:].strip() for line in compared if line[0] == sign) for sign in "-+")
    return removed, added


def _decides(node: Any) -> bool:
    """Whether a fault here can change what the program does: not in types, decorators, signatures and imports."""
    child, parent = node, node.parent
    while parent is not None:
        if parent.type in _SKIPPED and not (parent.type == "annassign" and _is_value(parent, child)):
            return False
        if parent.type == "argument" and parent.children[0].get_code().strip() in _FORMAL:
            return False
        if parent.type == "funcdef" and child is parent.annotation:
            return False
        child, parent = parent, parent.parent
    return not (node.type == "operator" and node.value in "|&" and _is_at_top(node))


def _is_value(annotated: Any, child: Any) -> bool:
    return child is annotated.children[-1] and len(annotated.children) == 4


def _is_at_top(node: Any) -> bool:
    """Whether a node stands outside of functions, where `|` joins types."""
    while node is not None and node.type != "funcdef":
        node = node.parent
    return node is None


def _statement_line(node: Any) -> int:
    """Return the line where the statement begins that a node is part of."""
    while node.parent is not None and node.type != "simple_stmt" and node.type not in _COMPOUND:
        node = node.parent
    return int(node.start_pos[0]) if node.parent is not None else 0
