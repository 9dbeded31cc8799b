"""Which kernel replays a program: plain Python, or the compiled one, by the machine's C compiler or by numba (extra `fast`)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from sim.engine.arrays import Arrays
from sim.errors import InputError

#: operations from which loading the C library pays where it is on disk: it takes 10 ms, numpy 90 ms more
BREAK_EVEN_C = 10_000
#: the same where it has to be compiled first, for 0.6 s
BREAK_EVEN_C_COLD = 80_000
#: operations from which loading numba's machine code pays: it takes 0.6 s of CPU and saves 7 us or more per operation
BREAK_EVEN = 80_000
#: the same where it has to be compiled first, for 20 to 30 s of CPU
BREAK_EVEN_COLD = 3_000_000
#: and the same in a process that is to replay many programs and has loaded the machine code
BREAK_EVEN_LOADED = 200

_loaded = ""


def load() -> bool:
    """Load the machine code, so that "auto" takes it for small programs from now on; whether it is loaded.

    C is compiled if need be; what numba compiles is only taken from disk. All kernels take equal times, bit for bit, so
    this decides nothing but the speed.
    """
    global _loaded
    if not _loaded:
        if _has_c():
            _loaded = "c"
        elif find_spec("numba") is not None and _is_kept_by_numba():
            _loaded = "numba"
    return bool(_loaded)


def needs_long_compilation() -> bool:
    """Whether compiling takes numba's half a minute: without a C compiler, and not done before."""
    from sim.engine.fast.c_code import compiler, kept

    return compiler() is None and kept() is None and find_spec("numba") is not None and not _is_kept_by_numba()


def chosen(backend: str, arrays: Arrays, *, is_open: bool) -> str:
    """The kernel that replays `arrays`: "python", "numba" or "c". Raises InputError where the one asked for cannot; "auto"
    asks what is faster.

    `is_open`: processes or a policy may look in and change things.
    """
    if backend == "python":
        return backend
    cannot = _why_not(arrays, is_open=is_open)
    if backend in ("c", "numba"):
        if cannot:
            raise InputError(f"the compiled kernel {backend!r} does not replay {cannot}; choose backend auto or python")
        if backend == "numba" and find_spec("numba") is None:
            raise InputError("backend 'numba' needs the extra 'fast': pip install 'tiersim[fast]', or choose auto or python")
        if backend == "c" and not _has_c():
            raise InputError("backend 'c' needs a C compiler (cc, gcc or clang) that works; choose auto or python")
        return backend
    return "python" if cannot else _faster(len(arrays.work))


def _faster(num_operations: int) -> str:
    if _loaded:
        return _loaded if num_operations >= BREAK_EVEN_LOADED else "python"
    if num_operations < min(BREAK_EVEN_C, BREAK_EVEN):
        return "python"
    from sim.engine.fast.c_code import kept

    if num_operations >= (BREAK_EVEN_C_COLD if kept() is None else BREAK_EVEN_C) and _has_c():
        return "c"
    if num_operations < BREAK_EVEN or find_spec("numba") is None:
        return "python"
    return "numba" if num_operations >= BREAK_EVEN_COLD or _is_kept_by_numba() else "python"


def machine_code(name: str) -> Any:
    """The compiled functions (`start_all`, `advance`, `loads`, `keep`) of the kernel "c" or "numba"."""
    if name == "c":
        from sim.engine.fast.c_code import c_code

        return c_code()
    from sim.engine.fast import compiled

    return compiled


def _has_c() -> bool:
    from sim.engine.fast.c_code import c_code

    return c_code() is not None


def _is_kept_by_numba() -> bool:
    from sim.engine.fast.compiled import is_kept

    return is_kept()


def _why_not(arrays: Arrays, *, is_open: bool) -> str:
    if is_open:
        return "programs beside which processes or a capacity policy run"
    if arrays.servers:
        return f"operations that queue at an exclusive server such as {arrays.operations[min(arrays.servers)].id!r}"
    return ""
