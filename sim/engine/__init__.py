"""Time: replays a Program and returns what happened. The only room that knows a clock (simpy) or a compiler (cc, numba)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from sim.errors import InputError, InvariantError
from sim.records import Answer, Overflow, Program, Replay

if TYPE_CHECKING:
    from sim.engine.world import World

Process = Callable[["World"], Generator[Any, Any, None]]
Policy = Callable[[Overflow], Answer]


def replay(
    program: Program,
    *,
    level: Literal["summary", "full"] | str = "summary",
    backend: Literal["auto", "python", "numba", "c"] | str = "auto",
    capacity: Literal["enforce", "observe"] | str = "enforce",
    monitor_interval_s: float = 0.0,
    processes: Sequence[Process] = (),
    policy: Policy | None = None,
) -> Replay:
    """Replay `program` and return its records; operations are in canonical order (stream name, sequence).

    level "full" adds channel segments, occupancy rows and peak rates. capacity "observe" lets tiers exceed their
    capacity, so that a planner sees the peak; "enforce" asks `policy` about what does not fit and without one raises
    MisfitError (tier, phase, largest tensors, shortfall). `monitor_interval_s` > 0 samples utilisation and occupancy.
    `processes` (see `engine.world`) live beside the kernel; what they move follows the program's operations in the records.
    `backend` "c" and "numba" (extra `fast`) are the compiled kernel, by the machine's C compiler or by numba: times as
    "python", bit for bit; "auto" takes what is faster.
    Raises InputError for references and numbers that cannot be, DeadlockError when nothing can run.
    """
    for name, value, known in (
        ("level", level, ("summary", "full")),
        ("capacity", capacity, ("enforce", "observe")),
        ("backend", backend, ("auto", "python", "numba", "c")),
    ):
        if value not in known:
            raise InputError(f"unknown {name} {value!r}; choose one of {', '.join(known)}")
    from sim.engine.run import run

    return run(
        program,
        is_full=level == "full",
        backend=backend,
        is_enforced=capacity == "enforce",
        monitor_interval_s=monitor_interval_s,
        processes=tuple(processes),
        policy=policy,
    )


def load_compiled() -> bool:
    """Let replays of this process take the compiled kernel, compiled now if there is a C compiler; whether they do.

    For processes that replay many programs. Times do not depend on it, to the last bit.
    """
    from sim.engine.backend import load

    return load()


def compile_beside() -> None:
    """Compile the kernel in another process unless its machine code is on disk; without a C compiler numba's 30 s of CPU."""
    from sim.engine.compiling import compile_beside

    compile_beside()


def needs_long_compilation() -> bool:
    """Whether :func:`compile_beside` would take numba's half a minute of CPU."""
    from sim.engine.backend import needs_long_compilation

    return needs_long_compilation()


def run_checked(program: Program, *, capacity: str = "enforce", backend: str = "auto", **options: Any) -> Replay:
    """`replay` at level full, with every invariant checked: order, durations, conservation, bandwidth, capacity.

    Raises InvariantError listing what is broken. Options are those of `replay`.
    """
    from sim.metrics.invariants import broken

    options.pop("level", None)
    result = replay(program, level="full", capacity=capacity, backend=backend, **options)
    if found := broken(program, result, is_enforced=capacity == "enforce"):
        more = f" (and {len(found) - 5} more)" if len(found) > 5 else ""
        raise InvariantError(f"replay of {program.name!r} is impossible: " + "; ".join(found[:5]) + more)
    return result
