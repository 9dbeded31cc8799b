"""The compiled functions by the machine's C compiler: half a second where numba takes half a minute.

The shared library is kept beside the sources (or, where nobody may write there, in the user's cache) under a name that
changes with them; processes that compile at once do the same work and the last file stays.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from sim.engine.fast.stamp import stamp

#: no contraction into fused multiply-adds: results must agree with the plain kernel
_OPTIONS = ("-O2", "-ffp-contract=off", "-fno-fast-math", "-shared", "-fPIC")
_LONGEST_S = 120.0


@cache
def compiler() -> str | None:
    """Path of a C compiler; None without one."""
    if sys.platform == "win32":
        return None
    if sys.platform == "darwin" and not any(
        Path(place).exists() for place in ("/Library/Developer/CommandLineTools", "/Applications/Xcode.app")
    ):
        return None  # there `cc` only offers to install one
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def kept() -> Path | None:
    """The library of today's sources, if it is on disk."""
    return next((path for folder in _folders() if (path := folder / _file_name()).is_file()), None)


def compiled() -> Path | None:
    """The library, compiled now if need be; None where that does not work."""
    if (path := kept()) is not None:
        return path
    return next((path for folder in _folders() if (path := _compiled_in(folder)) is not None), None)


def _file_name() -> str:
    machine = os.uname().machine if hasattr(os, "uname") else "unknown"
    return f"tiersim-{stamp():08x}-{sys.platform}-{machine}.so"


def _folders() -> tuple[Path, ...]:
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tiersim"
    return (Path(__file__).parent / "__pycache__", cache_folder)


def _compiled_in(folder: Path) -> Path | None:
    from sim.engine.fast.c_source import c_source

    if (program := compiler()) is None:
        return None
    with suppress(OSError, subprocess.SubprocessError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="tiersim-") as scratch:
            source, library = Path(scratch) / "kernel.c", Path(scratch) / "kernel.so"
            source.write_text(c_source(), encoding="utf-8")
            words = [program, *_OPTIONS, "-o", str(library), str(source), "-lm"]
            subprocess.run(words, check=True, capture_output=True, timeout=_LONGEST_S)
            return library.replace(folder / _file_name())
    return None


class _Code:
    """The functions of the library, called with a State as those that numba compiles."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._start_all, self._advance, self._loads = library.start_all, library.advance, library.loads
        self._advance.argtypes = (ctypes.c_void_p, ctypes.c_double, ctypes.c_int64)
        self._advance.restype = ctypes.c_int64
        self._start_all.argtypes = self._loads.argtypes = (ctypes.c_void_p,)
        self._start_all.restype = self._loads.restype = None
        self._last: tuple[Any, Any] = (None, None)

    def start_all(self, state: Any) -> None:
        """See `loop.start_all`."""
        self._start_all(self._pointers(state))

    def advance(self, state: Any, horizon_s: float, is_observed: bool) -> int:
        """See `loop.advance`."""
        return int(self._advance(self._pointers(state), horizon_s, is_observed))

    def loads(self, state: Any) -> None:
        """See `fluid.loads`."""
        self._loads(self._pointers(state))

    def _pointers(self, state: Any) -> Any:
        """The State as the library knows it: where each part begins, and how many rows it has. That of the last is kept."""
        known, words = self._last
        if known is not state:
            parts = [(rows.ctypes.data, len(rows)) for rows in state]
            words = (ctypes.c_int64 * (2 * len(parts) + 1))(*(word for part in parts for word in part), state.lists.shape[1])
            self._last = state, words
        return words

    def keep(self) -> None:
        """Nothing to note: the library is on disk before it is loaded."""


@cache
def c_code() -> _Code | None:
    """The library's functions, compiled now if need be; None where that does not work."""
    path = compiled()
    with suppress(OSError):
        return _Code(path) if path is not None else None
    return None
