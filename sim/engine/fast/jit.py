"""How numba compiles functions of this package, and keeps what it compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])
_njit: Any = numba.njit


def inner(function: F) -> F:
    """Compile a function that only compiled ones call, and that makes no arrays.

    So it need not count references, which would cost several times what it does. No fast-math: results must agree with
    the plain kernel.
    """
    compiled: F = _njit(error_model="numpy", _nrt=False)(function)
    return compiled


def outer(function: F) -> F:
    """Compile a function that Python calls, and keep the machine code, with all that it calls, on disk.

    numba looks only at the file of the function itself to see whether its code is out of date; a function that
    closes over `stamp` is compiled anew when any of the sources has changed.
    """
    compiled: Any = _njit(error_model="numpy")(function)
    with suppress(RuntimeError):  # no folder to write to: each process compiles for itself
        compiled.enable_caching()
    kept: F = compiled
    return kept
