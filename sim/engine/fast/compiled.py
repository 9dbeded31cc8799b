"""The functions that Python calls: machine code of today's sources, from disk where it was compiled before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba

from sim.engine.fast import fluid, loop
from sim.engine.fast.jit import outer
from sim.engine.fast.stamp import stamp


def _functions(stamp: int) -> tuple[Any, Any, Any]:
    @outer
    def start_all(s: Any) -> int:
        loop.start_all(s)
        return stamp

    @outer
    def advance(s: Any, horizon_s: float, is_observed: bool) -> int:
        return loop.advance(s, horizon_s, is_observed) if stamp >= 0 else -1

    @outer
    def loads(s: Any) -> int:
        fluid.loads(s)
        return stamp

    return start_all, advance, loads


start_all, advance, loads = _functions(stamp())


def _note() -> Path | None:
    """The file that says that today's machine code is on disk; None: it cannot be."""
    folder = advance.stats.cache_path
    return Path(folder) / f"tiersim-{stamp():08x}-{numba.__version__}" if folder else None


def is_kept() -> bool:
    """Whether the machine code is on disk: else the first use compiles for many seconds."""
    note = _note()
    return note is not None and note.is_file()


def keep() -> None:
    """Note that the machine code is on disk."""
    note = _note()
    if note is not None and not note.is_file():
        try:
            note.touch()
        except OSError:
            return
