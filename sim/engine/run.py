"""One replay: arrays, a kernel, a clock, records."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Sequence
from typing import Any

from sim.engine import outside
from sim.engine.arrays import Arrays
from sim.engine.backend import chosen, machine_code
from sim.engine.build import build
from sim.engine.intervals import busy_s, full_s
from sim.engine.kernel import Kernel
from sim.engine.observe import sample, snapshot
from sim.engine.totals import totals, work_on
from sim.engine.world import World
from sim.errors import TiersimError
from sim.metrics.seen import give_times
from sim.records import Answer, OperationRecord, Overflow, Program, Replay, Sample


def run(
    program: Program,
    *,
    is_full: bool,
    backend: str,
    is_enforced: bool,
    monitor_interval_s: float,
    processes: tuple[Callable[[World], Generator[Any, Any, None]], ...],
    policy: Callable[[Overflow], Answer] | None,
) -> Replay:
    """See `sim.engine.replay`."""
    is_open = bool(processes) or policy is not None
    # the kernels make no cycles, and the collector would walk their arrays again and again
    was_collecting = gc.isenabled()
    if not is_open:
        gc.disable()
    try:
        arrays = build(program, is_open=is_open)
        kernel_name = chosen(backend, arrays, is_open=is_open)
        if kernel_name != "python":
            found = _run_compiled(arrays, kernel_name, is_full=is_full, is_enforced=is_enforced, interval_s=monitor_interval_s)
            if found is not None:
                return found
        kernel = Kernel(arrays, is_full=is_full, is_enforced=is_enforced, is_observed=is_open or monitor_interval_s > 0.0)
        return _run_clocked(kernel, monitor_interval_s, processes, policy)
    finally:
        if was_collecting:
            gc.enable()


def _run_clocked(
    kernel: Kernel,
    interval_s: float,
    processes: tuple[Callable[[World], Generator[Any, Any, None]], ...],
    policy: Callable[[Overflow], Answer] | None,
) -> Replay:
    import simpy

    from sim.engine.clock import Clock

    env = simpy.Environment()
    world = World(env, kernel)
    clock = Clock(env, kernel, world, policy, interval_s)
    try:
        for process in processes:
            env.process(process(world))
        env.run(until=env.process(clock.drive()))
    except TiersimError as error:
        # simpy raises a copy of what a process raised, made from its text alone; the original is the cause
        if type(error.__cause__) is type(error):
            raise error.__cause__ from None
        raise
    arrays = kernel.arrays
    outside.cut(kernel)
    if kernel.observer is not None:
        kernel.observer.close(kernel.now)
    return Replay(
        makespan_s=max(kernel.end, default=0.0),
        operations=_records(arrays, kernel.ready, kernel.start, kernel.end),
        channels=totals(
            arrays,
            work_on(arrays),
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


def _run_compiled(arrays: Arrays, name: str, *, is_full: bool, is_enforced: bool, interval_s: float) -> Replay | None:
    """None: something does not fit or waits for ever, which the plain kernel explains."""
    from sim.engine.fast.kernel import FastKernel

    kernel = FastKernel(arrays, machine_code(name), is_full=is_full, is_enforced=is_enforced, is_observed=interval_s > 0.0)
    samples: list[Sample] = []
    while not kernel.is_done and not kernel.is_stuck:
        next_s = (len(samples) + 1) * interval_s if interval_s > 0.0 else float("inf")
        kernel.advance(next_s)
        if not kernel.is_done and not kernel.is_stuck:
            samples.append(sample(snapshot(arrays, kernel.ledger, kernel.loads(), arrays.bandwidths, next_s)))
    if kernel.is_stuck:
        return None
    times_s = kernel.times_s()
    operations = _records(arrays, *(column.tolist() for column in times_s))
    give_times(operations, times_s)
    return Replay(
        makespan_s=float(times_s[2].max(initial=0.0)),
        operations=operations,
        channels=totals(arrays, kernel.work_on(), kernel.busy_s(), kernel.full_s(), kernel.peak_rate()),
        tiers=kernel.ledger.peaks(),
        segments=tuple(kernel.segments),
        occupancy=tuple(kernel.ledger.history),
        samples=tuple(samples),
        backend=name,
        num_batches=kernel.num_batches,
    )


def _records(
    arrays: Arrays, ready: Sequence[float], start: Sequence[float], end: Sequence[float]
) -> tuple[OperationRecord, ...]:
    names = arrays.order.names if arrays.order is not None else [operation.id for operation in arrays.operations]
    return tuple(map(OperationRecord, names, ready, start, end))
