"""Lists the single faults that a programmer makes on one line of a module, and draws a fixed sample of them.

The operators are a choice of cosmic-ray's, and four that it does not have.
"""

import ast
import difflib
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator
from parso.python.tree import ExprStmt, Keyword, Name, Number, PythonNode
from parso.tree import NodeOrLeaf

Position = tuple[tuple[int, int], tuple[int, int]]

# Where cosmic-ray replaces an operator by each other one, these are the replacements that still make sense.
_COMPARISONS: Final = (
    "Lt_LtE",
    "LtE_Lt",
    "Gt_GtE",
    "GtE_Gt",
    "Lt_GtE",
    "LtE_Gt",
    "Gt_LtE",
    "GtE_Lt",
    "Eq_NotEq",
    "NotEq_Eq",
    "Is_IsNot",
    "IsNot_Is",
)
_BINARY: Final = (
    "Add_Sub",
    "Sub_Add",
    "Mul_Div",
    "Div_Mul",
    "FloorDiv_Mul",
    "Mod_FloorDiv",
    "BitAnd_BitOr",
    "BitOr_BitAnd",
)
_OTHERS: Final = (
    "ReplaceUnaryOperator_Delete_USub",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "AddNot",
    "ZeroIterationForLoop",
)
_PAIRS: Final = (("min", "max"), ("any", "all"), ("floor", "ceil"), ("minimum", "maximum"))
# Where the first name is that of a parameter or a module.
_NAMED: Final = ("argument", "param", "import_from", "import_as_names")
# Where two values stand side by side.
_LISTS: Final = ("arglist", "testlist_comp", "testlist")
_OPPOSITES: Final = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}


class ChangeNumber(Operator):  # type: ignore[misc]
    """Add one to a digit, and double any other number."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Position]:
        """Yield the position of a number."""
        if isinstance(node, Number):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002  (the protocol of cosmic-ray)
        """Return another number."""
        number = ast.literal_eval(node.value)
        node.value = repr(number + 1 if number in range(10) else number * 2)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples of code before and after."""
        return (Example("a = 1", "a = 2"), Example("a = 0.5", "a = 1.0"), Example("a = 60", "a = 120"))


class ReplaceNameWithOpposite(Operator):  # type: ignore[misc]
    """Replace min by max, any by all, and the like, and `in` by `not in`."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Position]:
        """Yield the position of a name that has an opposite."""
        if _opposite(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002  (the protocol of cosmic-ray)
        """Return the node with its opposite."""
        node.value = _opposite(node)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples of code before and after."""
        return (Example("min(a, b)", "max(a, b)"), Example("a in b", "a not in b"))


class DropStatement(Operator):  # type: ignore[misc]
    """Replace a call that stands alone, or an assignment such as `a += b`, by `pass`."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Position]:
        """Yield the position of a statement that can be left out."""
        if node.parent is not None and node.parent.type == "simple_stmt" and (_is_call(node) or _is_augmented(node)):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002  (the protocol of cosmic-ray)
        """Return a statement that does nothing."""
        return Keyword("pass", node.start_pos, prefix=node.get_first_leaf().prefix)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples of code before and after."""
        return (Example("a.append(b)\n", "pass\n"), Example("a += b\n", "pass\n"))


class SwapFields(Operator):  # type: ignore[misc]
    """Exchange the first two arguments of a call or elements of a tuple, where both are attributes of one object."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[Position]:
        """Yield the position of two names that can be exchanged."""
        if isinstance(node, PythonNode) and node.type in _LISTS and len(node.children) > 2:
            one, other = node.children[0], node.children[2]
            if _owner(one) is not None and _owner(one) == _owner(other) and not _is_symmetric(node):
                yield one.start_pos, other.end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002  (the protocol of cosmic-ray)
        """Return the node with the two exchanged."""
        one, other = (node.children[place].get_code(include_prefix=False) for place in (0, 2))
        for place, code in ((0, other), (2, one)):
            prefix = node.children[place].get_first_leaf().prefix
            node.children[place] = Name(prefix + code, node.children[place].start_pos)
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples of code before and after."""
        return (Example("f(a.b, a.c)", "f(a.c, a.b)"), Example("(a.b, a.c, 1)", "(a.c, a.b, 1)"))


def _opposite(node: Any) -> str | None:
    """Return what stands against a name or against the `in` of a comparison."""
    if isinstance(node, Keyword):
        return "not in" if node.value == "in" and node.parent.type == "comparison" else None
    return _OPPOSITES.get(node.value) if isinstance(node, Name) and not _is_keyword_argument(node) else None


def _is_keyword_argument(node: Any) -> bool:
    owner = node.parent
    return bool(owner.type in _NAMED and owner.children[0] is node)


def _is_call(node: Any) -> bool:
    last = node.children[-1] if node.type == "atom_expr" else None
    return last is not None and bool(last.type == "trailer" and last.children[0].value == "(")


def _is_augmented(node: Any) -> bool:
    sign = node.children[1] if isinstance(node, ExprStmt) else None
    return sign is not None and bool(sign.type == "operator" and sign.value != "=")


def _is_symmetric(elements: Any) -> bool:
    """Whether elements stand where their order does not matter: in `min`, `max` and membership tests."""
    owner = elements.parent
    before = owner.get_previous_sibling()
    word = "" if before is None else before.get_code(include_prefix=False)
    return word in ("min", "max") or (owner.parent.type == "comparison" and word in ("in", "not in"))


def _owner(node: Any) -> str | None:
    """Return the object of which a node is an attribute, as it is written."""
    if node.type != "atom_expr" or node.children[-1].children[0].value != ".":
        return None
    return "".join(child.get_code(include_prefix=False) for child in node.children[:-1])


def mutated_code(source: str, operator: Operator, occurrence: int) -> str:
    """Return the source with the fault that an operator makes at one of its places."""
    return str(mutate_code(source, operator, occurrence))


def parse(source: str) -> Any:
    """Return the tree of a module."""
    return parso.parse(source)


def _core(name: str) -> Operator:
    return get_operator(f"core/{name}")()


OPERATORS: Final[Mapping[str, Operator]] = {
    name: _core(name)
    for name in (
        *(f"ReplaceComparisonOperator_{pair}" for pair in _COMPARISONS),
        *(f"ReplaceBinaryOperator_{pair}" for pair in _BINARY),
        *_OTHERS,
    )
} | {own.__name__: own() for own in (ChangeNumber, ReplaceNameWithOpposite, DropStatement, SwapFields)}


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
