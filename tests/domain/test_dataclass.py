"""The dataclass that costs little to define, against that of the standard library."""

import copy
import dataclasses
import pickle
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, field
from functools import partial
from typing import Any, Final, Generic, TypeVar

import pytest
from pydantic import TypeAdapter, ValidationError

import advisor.domain.dataclass
from advisor.domain.dataclass import dataclass

T = TypeVar("T")
# A decorator is given to those functions, so that the type checker does not know what it makes.
Decorator = Callable[..., Any]
OURS: Final[Decorator] = advisor.domain.dataclass.dataclass
BOTH: Final[Sequence[Decorator]] = (dataclasses.dataclass, OURS)


def plain(make: Decorator) -> Any:
    @make(frozen=True, slots=True, kw_only=True)
    class Plain:
        """No fields."""

    return Plain


def single(make: Decorator) -> Any:
    @make(frozen=True, slots=True)
    class Single:
        """One field, by position."""

        gpus: float

    return Single


def shapes(make: Decorator) -> Any:
    @make(frozen=True, slots=True, kw_only=True)
    class Shapes:
        """Fields of every kind."""

        name: str
        gpus: int = 8
        nodes: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False)
        secret: str = field(default="x", repr=False)

        def __post_init__(self) -> None:
            if self.gpus < 0:
                raise ValueError("negative GPUs")

    return Shapes


def mixed(make: Decorator) -> Any:
    @make(frozen=True, slots=True)
    class Mixed:
        """Some fields by keyword alone."""

        low: int
        note: str = field(default="none", kw_only=True)
        high: int = 3

    return Mixed


def inherited(make: Decorator) -> Any:
    @make(frozen=True, slots=True, kw_only=True)
    class Base:
        """What the other inherits from."""

        low: int
        high: int = 3

    @make(frozen=True, slots=True, kw_only=True)
    class Inherited(Base):
        """One field more, and another default."""

        high: int = 5
        step: int

    return Inherited


def generic(make: Decorator) -> Any:
    @make(frozen=True, slots=True, kw_only=True)
    class Held(Generic[T]):
        """Of any type."""

        value: T

    return Held


def own(make: Decorator) -> Any:
    @make(frozen=True, slots=True, kw_only=True)
    class Own:
        """Has methods that a decorator would give it."""

        gpus: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    return Own


CASES: Final[Sequence[tuple[Callable[[Decorator], Any], tuple[Any, ...], dict[str, Any]]]] = (
    (plain, (), {}),
    (single, (4.0,), {}),
    (shapes, (), {"name": "n", "nodes": ["a"], "note": "seen"}),
    (shapes, (), {"name": "n", "gpus": 2, "secret": "s"}),
    (mixed, (1,), {"note": "some"}),
    (mixed, (1, 2), {}),
    (inherited, (), {"low": 1, "step": 2}),
    (generic, (), {"value": (1, 2)}),
    (own, (), {"gpus": 1}),
)
WRONG: Final[Sequence[tuple[Callable[[Decorator], Any], tuple[Any, ...], dict[str, Any]]]] = (
    (plain, (1,), {}),
    (single, (), {}),
    (single, (1, 2), {}),
    (shapes, (), {"gpus": 1}),
    (shapes, (), {"name": "n", "gpu": 1}),
    (shapes, (), {"name": "n", "gpus": -1}),
    (mixed, (1, 2, "none"), {}),
    (inherited, (1,), {"step": 2}),
)


def seen(made: Any, values: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Return what can be seen of an instance, and of what is made of it."""
    first, second = made(*values, **named), made(*values, **named)
    names = [each.name for each in dataclasses.fields(first)]
    return {
        "fields": [(each.name, each.kw_only) for each in dataclasses.fields(first)],
        "values": [getattr(first, name) for name in names],
        "match": type(first).__match_args__,
        "slots": type(first).__slots__,
        "repr": repr(first),
        "equal": first == second,
        "unlike": first == object(),
        "copies": [repr(copied(first)) for copied in (copy.copy, copy.deepcopy, dataclasses.replace)],
        "dict": dataclasses.asdict(first),
        "doc": type(first).__doc__,
        "apart": not names or getattr(first, "nodes", None) is not getattr(made(*values, **named), "nodes", ()),
    }


def refused(call: Callable[[], object]) -> str:
    """Return what a call that fails says."""
    with pytest.raises((TypeError, ValueError, FrozenInstanceError, ValidationError)) as failed:
        call()
    return f"{failed.type.__name__}: {failed.value}"


@pytest.mark.parametrize(("body", "values", "named"), CASES)
def test_an_instance_is_as_that_of_the_standard_class(
    body: Callable[[Decorator], Any], values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    standard, ours = (repr(seen(body(make), values, named)) for make in BOTH)

    assert ours == standard


@pytest.mark.parametrize(("body", "values", "named"), WRONG)
def test_wrong_arguments_are_refused_in_the_same_words(
    body: Callable[[Decorator], Any], values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    standard, ours = (refused(partial(body(make), *values, **named)) for make in BOTH)

    assert ours == standard


@pytest.mark.parametrize("name", ["gpus", "other"])
def test_no_attribute_is_set_or_deleted(name: str) -> None:
    instance = single(OURS)(4)

    assert refused(lambda: setattr(instance, name, 1)) == f"FrozenInstanceError: cannot assign to field '{name}'"
    assert refused(lambda: delattr(instance, name)) == f"FrozenInstanceError: cannot delete field '{name}'"
    assert instance.gpus == 4


def test_only_compared_fields_make_instances_differ() -> None:
    made = shapes(OURS)

    assert made(name="n", nodes=()) == made(name="n", nodes=(), note="other")
    assert hash(made(name="n", nodes=())) == hash(made(name="n", nodes=(), note="other"))
    assert made(name="n", nodes=()) != made(name="m", nodes=())
    assert made(name="n") != shapes(OURS)(name="n")


def test_a_class_with_its_own_methods_keeps_them() -> None:
    instance = own(OURS)(gpus=1)

    assert (repr(instance), hash(instance), instance == own(OURS)(gpus=1)) == (
        "own",
        7,
        False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pickled:
    """A class that pickle finds by its name."""

    gpus: int
    nodes: tuple[str, ...] = ()


def test_an_instance_survives_pickle() -> None:
    instance = Pickled(gpus=2, nodes=("n01",))

    assert pickle.loads(pickle.dumps(instance)) == instance  # noqa: S301 - of this very test


def test_pydantic_reads_it_as_a_dataclass() -> None:
    adapter = TypeAdapter(Pickled)

    assert adapter.validate_python({"gpus": 2, "nodes": ["n01"]}) == Pickled(gpus=2, nodes=("n01",))
    assert "gpus" in refused(lambda: adapter.validate_python({"nodes": []}))


def test_a_standard_class_inherits_from_it_where_it_is_frozen_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Child(Pickled):
        """Frozen, without slots."""

    assert Child(gpus=1).gpus == 1
    assert "non-frozen" in refused(lambda: dataclasses.dataclass(type("Open", (Pickled,), {})))


def test_a_generic_class_is_called_with_its_type() -> None:
    # The standard one raises TypeError where it has slots: typing sets an attribute that no field is.
    assert generic(OURS)[int](value=1).value == 1


def test_a_field_that_init_does_not_set_is_refused() -> None:
    def define() -> None:
        @dataclass(frozen=True, slots=True, kw_only=True)
        class Late:
            gpus: int = field(init=False)

    assert refused(define) == "TypeError: Late: a field with init=False needs the standard library's dataclass"


def test_other_options_are_those_of_the_standard_library() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True, order=True)
    class Ordered:
        gpus: int

    @dataclass
    class Open:
        gpus: int

    opened = Open(gpus=1)
    opened.gpus = 2

    assert Ordered(gpus=1) < Ordered(gpus=2)
    assert opened.gpus == 2


def test_init_is_compiled_when_the_first_instance_is_made() -> None:
    made = single(OURS)
    before = made.__init__
    made(1)
    after = made.__init__
    made(2)

    assert after is not before
    assert made.__init__ is after
    assert after.__qualname__.endswith("Single.__init__")
