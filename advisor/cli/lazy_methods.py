"""The methods of dataclasses, compiled when they are first called: a command calls those of few of its classes."""

import dataclasses
from collections.abc import Callable
from typing import Any


def compile_when_called() -> None:
    """Let dataclasses of sadvise that are made from here on compile their methods when one is called.

    `dataclasses` makes them with an `exec` of their text. A release of Python that does it otherwise is left as it is.
    """
    dataclasses.exec = _exec  # type: ignore[attr-defined]


def _exec(text: str, scope: dict[str, Any], made: dict[str, Any]) -> None:
    """Put a function into `made` that makes the methods of a text, which ends with what that function returns."""
    if not scope.get("__name__", "").startswith("advisor."):
        exec(text, scope, made)  # noqa: S102  (as dataclasses does)
        return

    def create(**closure: Any) -> Any:
        compiled: dict[str, Callable[..., Any]] = {}

        def method_of(name: str) -> Callable[..., Any]:
            def method(self: Any, /, *args: Any, **values: Any) -> Any:
                if not compiled:
                    exec(text, scope, made)  # noqa: S102  (as dataclasses does)
                    answer = made["__create_fn__"](**closure)
                    compiled.update({each.__name__: each for each in (answer if several else (answer,))})
                made_now = compiled[name]
                made_now.__qualname__ = method.__qualname__
                for owner in type(self).__mro__:
                    if owner.__dict__.get(name) is method:
                        setattr(owner, name, made_now)
                return made_now(self, *args, **values)

            method.__name__ = name
            return method

        answer = text.rpartition(" return ")[2]
        # Until Python 3.12 a text has one method.
        several = answer.startswith("(")
        return tuple(map(method_of, answer[1:-2].split(","))) if several else method_of(answer)

    made["__create_fn__"] = create
