"""Faults that a programmer makes on one line: a choice of cosmic-ray's operators, and four that it does not have."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any, Final

import parso
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
