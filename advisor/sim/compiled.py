"""Compile the loops of the simulator with numba if it is installed; without it they run as plain Python, slowly."""

import hashlib
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])
Arrays = TypeVar("Arrays")

# NUMBA_DISABLE_JIT=1 runs the loops as plain Python, which is how the tests see into them; numba is not even imported.
IS_COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" and find_spec("numba") is not None
if IS_COMPILED:
    import numba


def _prepare_cache() -> bool:
    """Set up a cache of compiled code for the present sources; return whether its folder is writable.

    numba itself checks only the file of a function, not the files of the functions that it calls.
    """
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), here.parent / "planning" / "tuning.py"]):
        digest.update(path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "sadvise" / f"compiled-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    numba.config.CACHE_DIR = str(folder)
    return os.access(folder, os.W_OK)


_CAN_KEEP = IS_COMPILED and _prepare_cache()


def compiled(function: Function) -> Function:
    """Compile a function of arrays and numbers at its first call; the result is cached on disk for the next start."""
    return _compile(function) if IS_COMPILED else function


def inlined(function: Function) -> Function:
    """Compile a small function inline into its callers: a call would cost more than its body."""
    return _compile(function, forceinline=True) if IS_COMPILED else function


def _compile(function: Function, **options: bool) -> Function:
    """Compile a function; a private one gets no Python wrapper, which would take a fourth of the compile time."""
    is_private = function.__name__.startswith("_")
    jit = numba.njit(
        cache=_CAN_KEEP, error_model="numpy", no_cfunc_wrapper=True, no_cpython_wrapper=is_private, **options
    )
    return jit(function)  # type: ignore[no-any-return]


def callable_by_compiled(function: Function) -> Function:
    """Let compiled functions call a plain function that stands outside the simulator."""
    if IS_COMPILED:
        numba.extending.register_jitable(error_model="numpy")(function)
    return function


if TYPE_CHECKING or not IS_COMPILED:

    def lent(arrays: Arrays) -> Arrays:
        """Return the same tuple of arrays: nothing is compiled, so nothing is gained."""
        return arrays

else:
    from numba.core import cgutils
    from numba.extending import intrinsic

    @intrinsic
    def lent(typing_context, arrays):  # type: ignore[no-untyped-def]  # noqa: ARG001
        """Return the same tuple of arrays without ownership, so that a loop counts no references, its largest cost.

        The caller keeps the arrays alive while the compiled function runs.
        """

        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            (lent_arrays,) = arguments
            for place, kind in enumerate(signature.return_type.types):
                value = builder.extract_value(lent_arrays, place)
                array = context.make_array(kind)(context, builder, value=value)
                array.meminfo = cgutils.get_null_value(array.meminfo.type)
                lent_arrays = builder.insert_value(lent_arrays, array._getvalue(), place)  # noqa: SLF001
            return lent_arrays

        return arrays(arrays), generate
