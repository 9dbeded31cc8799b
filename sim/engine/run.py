"""One replay: arrays, kernel, clock, records."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from typing import Any

import simpy

from sim.engine import outside
from sim.engine.build import build
from sim.engine.clock import Clock
from sim.engine.intervals import busy_s, full_s
from sim.engine.kernel import Kernel
from sim.engine.totals import totals
from sim.engine.world import World
from sim.errors import TiersimError
from sim.records import Answer, OperationRecord, Overflow, Program, Replay


def run(
    program: Program,
    *,
    is_full: bool,
    backend: str,  # noqa: ARG001 - one backend yet
    is_enforced: bool,
    monitor_interval_s: float,
    processes: tuple[Callable[[World], Generator[Any, Any, None]], ...],
    policy: Callable[[Overflow], Answer] | None,
) -> Replay:
    """See `sim.engine.replay`."""
    is_open = bool(processes) or policy is not None
    # the kernel makes no cycles, and the collector would walk its arrays again and again
    was_collecting = gc.isenabled()
    if not is_open:
        gc.disable()
    try:
        kernel = Kernel(
            build(program, is_open=is_open),
            is_full=is_full,
            is_enforced=is_enforced,
            is_observed=is_open or monitor_interval_s > 0.0,
        )
        env = simpy.Environment()
        world = World(env, kernel)
        clock = Clock(env, kernel, world, policy, monitor_interval_s)
        for process in processes:
            env.process(process(world))
        env.run(until=env.process(clock.drive()))
        return _records(kernel, clock, world)
    except TiersimError as error:
        # simpy raises a copy of what a process raised, made from its text alone; the original is the cause
        if type(error.__cause__) is type(error):
            raise error.__cause__ from None
        raise
    finally:
        if was_collecting:
            gc.enable()


def _records(kernel: Kernel, clock: Clock, world: World) -> Replay:
    arrays = kernel.arrays
    outside.cut(kernel)
    if kernel.observer is not None:
        kernel.observer.close(kernel.now)
    return Replay(
        makespan_s=max(kernel.end, default=0.0),
        operations=tuple(
            [
                OperationRecord(id=operation.id, ready_s=ready, start_s=start, end_s=end)
                for operation, ready, start, end in zip(arrays.operations, kernel.ready, kernel.start, kernel.end, strict=True)
            ]
        ),
        channels=totals(
            arrays,
            busy_s(arrays, kernel.start, kernel.end),
            full_s(arrays, kernel.start, kernel.end, kernel.fluid.limited_from, kernel.fluid.limited_to),
            kernel.observer.peak_rate if kernel.observer is not None else [0.0] * len(arrays.channels),
        ),
        tiers=kernel.ledger.peaks(),
        segments=tuple(kernel.observer.segments) if kernel.observer is not None else (),
        occupancy=tuple(kernel.ledger.history),
        samples=tuple(clock.samples),
        backend="python",
        num_batches=kernel.num_batches,
        events=tuple(world.events),
    )
