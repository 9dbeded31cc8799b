"""Compiling the kernel while this process goes on."""

from __future__ import annotations

from importlib.util import find_spec
from threading import Thread

from sim.engine.backend import load
from sim.records import Program


def compile_beside() -> None:
    """Compile the kernel beside this thread: by the C compiler, else by numba in a process that ends with this one."""
    from sim.engine.fast.c_code import compiled, compiler

    if compiler() is not None:
        Thread(target=compiled, daemon=True, name="compiler").start()
    elif find_spec("numba") is not None and not load():
        from multiprocessing import get_context

        get_context("spawn").Process(target=_compile_by_numba, daemon=True).start()


def _compile_by_numba() -> None:
    """Replay nothing, by the kernel that numba compiles for it."""
    from sim.engine.run import run

    nothing = Program(name="none", channels=(), tiers=(), streams=(), operations=())
    run(nothing, is_full=False, backend="numba", is_enforced=True, monitor_interval_s=0.0, processes=(), policy=None)
