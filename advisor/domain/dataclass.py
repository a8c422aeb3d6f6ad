"""The `dataclass` of the standard library, made so that defining a class costs little: a command defines 340 of them.

The standard decorator compiles six functions for each frozen class, a third of the CPU of a short command. Here
`__init__` is compiled when the first instance is made, and the other methods are closures over the names of fields.
"""

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, **options):
        """Return a decorator that does what that of the standard library does with these options."""
        if cls is None and options in _OURS:
            return lambda cls: _frozen(cls, kw_only="kw_only" in options)
        return dataclasses.dataclass(cls, **options)


_OURS: Final = ({"frozen": True, "slots": True}, {"frozen": True, "slots": True, "kw_only": True})
_set: Final = object.__setattr__


def _frozen(cls: type, *, kw_only: bool) -> type:
    """Make a frozen class with slots of `cls`; methods that it has of its own stay."""
    # What inherits from a frozen class has to be one.
    inherits = any(map(dataclasses.is_dataclass, cls.__mro__))
    cls = dataclasses.dataclass(kw_only=kw_only, slots=True, frozen=inherits, init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(cls)
    if not all(each.init for each in fields):
        raise TypeError(f"{cls.__name__}: a field with init=False needs the standard library's dataclass")
    # As of a class that is frozen and compared by value: subclasses and pydantic ask.
    params = cls.__dataclass_params__  # type: ignore[attr-defined]
    params.init = params.repr = params.eq = params.frozen = True
    key = _values([each.name for each in fields if each.compare])
    state = _values([each.name for each in fields])
    made: dict[str, Callable[..., Any]] = {
        "__init__": _first_init(cls),
        "__repr__": _repr([each.name for each in fields if each.repr]),
        "__eq__": lambda self, other: key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented,
        "__hash__": lambda self: hash(key(self)),
        "__setattr__": _refuse("assign to"),
        "__delattr__": _refuse("delete"),
        # An instance is copied and pickled without its `__setattr__`.
        "__getstate__": lambda self: state(self),  # noqa: PLW0108 - an attrgetter does not become a method
        "__setstate__": _set_state,
    }
    own = vars(cls)
    for name, function in made.items():
        # Python sets `__hash__` of a class with `__eq__` to None.
        if own.get(name) is None:
            setattr(cls, name, function)
    return cls


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that reads these attributes of an instance."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda self: (getattr(self, names[0]),)) if names else (lambda _self: ())


def _repr(names: Sequence[str]) -> Callable[[Any], str]:
    # An instance is never inside itself: its fields are set once.
    return lambda self: (
        f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
    )


def _refuse(what: str) -> Callable[..., None]:
    def refuse(_self: object, name: str, *_value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")

    return refuse


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        _set(self, each.name, value)


def _first_init(cls: type) -> Callable[..., None]:
    """Return the `__init__` that puts the compiled one in its place and calls it."""

    def __init__(self: Any, /, *args: Any, **values: Any) -> None:  # noqa: N807 - a traceback shows this name
        init = _init(cls)
        cls.__init__ = init  # type: ignore[misc]
        init(self, *args, **values)

    return __init__


def _init(cls: type) -> Callable[..., None]:
    """Compile `__init__`: parameters in the order of the fields, those that are keywords last."""
    # Setting a slot by its descriptor needs no search for the attribute, as the standard one does.
    scope: dict[str, Any] = {f"set_{each.name}": getattr(cls, each.name).__set__ for each in dataclasses.fields(cls)}
    plain: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    for each in dataclasses.fields(cls):
        parameter, value = each.name, each.name
        if each.default is not dataclasses.MISSING:
            scope[f"default_{each.name}"] = each.default
            parameter = f"{each.name}=default_{each.name}"
        elif each.default_factory is not dataclasses.MISSING:
            scope[f"make_{each.name}"] = each.default_factory
            parameter = f"{each.name}=MISSING"
            value = f"make_{each.name}() if {each.name} is MISSING else {each.name}"
        (keywords if each.kw_only else plain).append(parameter)
        body.append(f"    set_{each.name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("    self.__post_init__()")
    parameters = ["self", *plain, *(["*", *keywords] if keywords else [])]
    lines = [f"def __init__({', '.join(parameters)}):", *body]
    scope["MISSING"] = dataclasses.MISSING
    exec("\n".join(lines) if body else f"{lines[0]} pass", scope)  # noqa: S102 - as dataclasses does, from names of fields
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init
