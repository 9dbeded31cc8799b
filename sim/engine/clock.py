"""simpy is the clock; the kernel runs between its events.

At equal times foreign processes run first and the kernel last (docs/model.md): the kernel runs every batch before simpy's
next event, so simpy sees one event of the kernel per horizon.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from sim.engine.kernel import Kernel
from sim.errors import DeadlockError

#: simpy runs smaller numbers first: 0 urgent, 1 normal, and the kernel after both
LAST: Any = 2


def _wake(env: simpy.Environment, time_s: float) -> simpy.Event:
    event = simpy.Event(env)
    event._ok, event._value = True, None
    env.schedule(event, LAST, max(time_s - env.now, 0.0))
    return event


def drive(env: simpy.Environment, kernel: Kernel) -> Generator[simpy.Event, Any, None]:
    """The kernel's process: advance to the next foreign event, let it happen, go on."""
    kernel.begin()
    while True:
        horizon = env.peek()
        kernel.advance(horizon)
        if kernel.misfits:
            raise kernel.misfit_error(*kernel.misfits[0])
        if kernel.is_done:
            return
        if horizon == float("inf"):
            raise DeadlockError(explain_waits(kernel))
        yield _wake(env, horizon)


def explain_waits(kernel: Kernel, *, num_shown: int = 8) -> str:
    """Which operations are at the head of their streams, and what each waits for."""
    operations = kernel.arrays.operations
    ended = {operation.id for i, operation in enumerate(operations) if kernel.end[i] >= 0.0}
    lines = []
    heads: set[str] = set()
    for operation in operations:
        if operation.id in ended or operation.stream in heads:
            continue
        heads.add(operation.stream)
        missing = [name for name in operation.after if name not in ended]
        lines.append(f"{operation.id!r} on stream {operation.stream!r} waits for {', '.join(map(repr, missing[:4])) or '?'}")
    more = f" (and {len(lines) - num_shown} more streams)" if len(lines) > num_shown else ""
    return (
        f"nothing can run at {kernel.now!r} s and {len(operations) - len(ended)} operations are pending: "
        + "; ".join(lines[:num_shown])
        + more
    )
