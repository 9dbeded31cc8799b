"""Time: replays a Program and returns what happened. The only room that knows a clock (simpy) or a compiler (numba)."""

from __future__ import annotations

from typing import Any, Literal

from sim.errors import InputError, InvariantError
from sim.records import OperationRecord, Program, Replay


def replay(
    program: Program,
    *,
    level: Literal["summary", "full"] | str = "summary",
    backend: Literal["auto", "python", "numba"] | str = "auto",
    capacity: Literal["enforce", "observe"] | str = "enforce",
) -> Replay:
    """Replay `program` and return its records; operations are in canonical order (stream name, sequence).

    level "full" adds channel segments, occupancy rows and peak rates. capacity "observe" lets tiers exceed their
    capacity, so that a planner sees the peak; "enforce" raises MisfitError (tier, phase, largest tensors, shortfall).
    Raises InputError for references and numbers that cannot be, DeadlockError when nothing can run.
    """
    import simpy

    from sim.engine.arrays import build
    from sim.engine.clock import drive
    from sim.engine.kernel import Kernel

    for name, value, known in (
        ("level", level, ("summary", "full")),
        ("capacity", capacity, ("enforce", "observe")),
        ("backend", backend, ("auto", "python", "numba")),
    ):
        if value not in known:
            raise InputError(f"unknown {name} {value!r}; choose one of {', '.join(known)}")
    arrays = build(program)
    kernel = Kernel(arrays, is_full=level == "full", is_enforced=capacity == "enforce")
    env = simpy.Environment()
    env.run(until=env.process(drive(env, kernel)))
    records = tuple(
        OperationRecord(id=operation.id, ready_s=ready, start_s=start, end_s=end)
        for operation, ready, start, end in zip(arrays.operations, kernel.ready, kernel.start, kernel.end, strict=True)
    )
    return Replay(
        makespan_s=max(kernel.end, default=0.0),
        operations=records,
        channels=kernel.totals(),
        tiers=kernel.ledger.peaks(),
        segments=tuple(kernel.observer.segments if kernel.observer else ()),
        occupancy=tuple(kernel.ledger.history),
        backend="python",
        num_batches=kernel.num_batches,
    )


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
