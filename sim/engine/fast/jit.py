"""How functions of this package are compiled, and when the kept machine code is out of date."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
_njit: Any = numba.njit

#: makes a number whose value numba does not take for part of its type, for which it would compile a callee apart
integer: Any = np.int64

#: sources whose text or constants end up in the machine code
_SOURCES = (
    "fast/jit.py",
    "fast/heaps.py",
    "fast/flows.py",
    "fast/linking.py",
    "fast/fluid.py",
    "fast/bound.py",
    "fast/loop.py",
    "fast/layout.py",
    "flows.py",
    "fluid.py",
)


def inner(function: F) -> F:
    """Compile a function that only compiled ones call, and that makes no arrays.

    So it need not count references, which would cost several times what it does. No fast-math: results must agree with
    the plain kernel.
    """
    compiled: F = _njit(error_model="numpy", _nrt=False)(function)
    return compiled


def counted(function: F) -> F:
    """Compile a function that only compiled ones call, and that makes arrays."""
    compiled: F = _njit(error_model="numpy")(function)
    return compiled


def outer(function: F) -> F:
    """Compile a function that Python calls, and keep the machine code, with all that it calls, on disk.

    numba looks only at the file of the function itself to see whether its code is out of date; a function that
    closes over :func:`stamp` is compiled anew when any of the sources has changed.
    """
    compiled: Any = _njit(error_model="numpy")(function)
    with suppress(RuntimeError):  # no folder to write to: each process compiles for itself
        compiled.enable_caching()
    kept: F = compiled
    return kept


def stamp() -> int:
    """Checksum of the sources."""
    value = 0
    for name in _SOURCES:
        value = crc32((Path(__file__).parents[1] / name).read_bytes(), value)
    return value
