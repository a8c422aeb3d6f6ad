"""Dataclasses whose methods are compiled when they are first called: they are as those of the standard library."""

import copy
import dataclasses
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from advisor.cli.lazy_methods import compile_when_called

_CLASSES = '''
from dataclasses import dataclass, field

@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Base:
    """A value."""

    name: str = "a"
    sizes: tuple[int, ...] = field(default_factory=tuple)
    count: int

    def __post_init__(self):
        if self.count < 0:
            raise ValueError("below 0")

@dataclass(frozen=True, slots=True, kw_only=True)
class Value(Base):
    """A value that holds itself."""

    other: "Value | None" = field(default=None, compare=False)

@dataclass
class Loose:
    """A value that can change."""

    names: list[str] = field(default_factory=list, repr=False)
'''


def _answer(work: Callable[[], Any]) -> str:
    try:
        return repr(work())
    except Exception as err:
        return repr(err)


def _seen_of(module: ModuleType) -> list[str]:
    """Return what each method of the classes answers, twice: when it is first called, and after that."""
    made, value, loose = module.Base, module.Value, module.Loose
    work: list[Callable[[], Any]] = [
        lambda: made(count=1),
        lambda: made(count=-1),
        made,
        lambda: made("a", count=1),
        lambda: made(count=1) < made(count=2),
        lambda: made(count=1) == made(count=1, sizes=(1,)),
        lambda: value(count=1) == value(count=1, other=value(count=2)),
        lambda: value(count=1) == made(count=1),
        lambda: hash(value(count=1)) == hash(value(count=1, name="a")),
        lambda: setattr(value(count=1), "count", 2),
        lambda: delattr(value(count=1), "name"),
        lambda: dataclasses.replace(value(count=1, name="b"), count=3),
        lambda: dataclasses.asdict(value(count=1, other=value(count=2))),
        lambda: copy.deepcopy(value(count=1)),
        lambda: hash(loose()),
        lambda: setattr(loose(), "names", ["a"]),
        lambda: loose(["a"]) == loose(["a"]),
    ]
    return [_answer(each) for each in (*work, *work)]


def _module(name: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_values_with_methods_compiled_when_called_are_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "values.py"
    file.write_text(_CLASSES)
    monkeypatch.setattr(dataclasses, "exec", exec, raising=False)
    compile_when_called()

    ours, theirs = (_module(name, file, monkeypatch) for name in ("advisor.values", "values_elsewhere"))
    before = ours.Base.__init__.__code__.co_filename
    seen = _seen_of(ours)

    assert seen == _seen_of(theirs)
    assert (before == "<string>", ours.Base.__init__.__code__.co_filename) == (False, "<string>")
