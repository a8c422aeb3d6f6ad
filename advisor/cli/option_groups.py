"""Lets commands take options that belong together as one parameter."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Options that a command takes as one parameter, which is made of them; they are the parameters of `make`."""

    make: Callable[..., object]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command in which the options of a group stand in place of the parameter that is made of them."""
    groups: dict[str, tuple[OptionGroup, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        taken = [parameter]
        for mark in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(mark, OptionGroup):
                taken = list(inspect.signature(mark.make).parameters.values())
                groups[parameter.name] = mark, [each.name for each in taken]
        parameters += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in taken]

    @wraps(command)
    def run(**values: Any) -> None:
        for parameter, (group, names) in groups.items():
            values[parameter] = group.make(**{name: values.pop(name) for name in names})
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run
