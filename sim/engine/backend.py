"""Which kernel replays a program: plain Python, or the compiled one (extra `fast`)."""

from __future__ import annotations

from importlib.util import find_spec

from sim.engine.arrays import Arrays
from sim.errors import InputError

#: operations from which loading the machine code pays: it takes 0.6 s of CPU and saves 7 us or more per operation
BREAK_EVEN = 80_000
#: the same where it has to be compiled first, for 20 to 30 s of CPU
BREAK_EVEN_COLD = 3_000_000
#: and the same in a process that is to replay many programs and has loaded the machine code
BREAK_EVEN_LOADED = 200

_is_loaded = False


def load() -> bool:
    """Load the machine code if it is on disk, so that "auto" takes it for small programs from now on; whether it is loaded.

    Both kernels take equal times, bit for bit, so this decides nothing but the speed.
    """
    global _is_loaded
    if not _is_loaded and find_spec("numba") is not None:
        from sim.engine.fast.compiled import is_kept

        _is_loaded = is_kept()
    return _is_loaded


def compile_beside() -> None:
    """Compile the kernel in a process of its own where it is not on disk yet; that process ends with this one."""
    if find_spec("numba") is not None and not load():
        from multiprocessing import get_context

        get_context("spawn").Process(target=_compile, daemon=True).start()


def _compile() -> None:
    from sim.engine import replay
    from sim.records import Program

    replay(Program(name="none", channels=(), tiers=(), streams=(), operations=()), backend="numba")


def is_compiled(backend: str, arrays: Arrays, *, is_open: bool) -> bool:
    """Whether the compiled kernel replays `arrays`. "numba" raises InputError where it cannot; "auto" asks what is faster.

    `is_open`: processes or a policy may look in and change things.
    """
    if backend == "python":
        return False
    cannot = _why_not(arrays, is_open=is_open)
    if backend == "numba":
        if cannot:
            raise InputError(f"the compiled kernel 'numba' does not replay {cannot}; choose backend auto or python")
        if find_spec("numba") is None:
            raise InputError("backend 'numba' needs the extra 'fast': pip install 'tiersim[fast]', or choose auto or python")
        return True
    if _is_loaded and not cannot and len(arrays.work) >= BREAK_EVEN_LOADED:
        return True
    if cannot or len(arrays.work) < BREAK_EVEN or find_spec("numba") is None:
        return False
    if len(arrays.work) >= BREAK_EVEN_COLD:
        return True
    from sim.engine.fast.compiled import is_kept

    return is_kept()


def _why_not(arrays: Arrays, *, is_open: bool) -> str:
    if is_open:
        return "programs beside which processes or a capacity policy run"
    if arrays.servers:
        return f"operations that queue at an exclusive server such as {arrays.operations[min(arrays.servers)].id!r}"
    return ""
