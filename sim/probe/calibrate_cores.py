"""Kernels that all cores of this host run at once, each in a process of its own on its own core and memory.

Processes, because the interpreter lock would hold back threads on many cores. Every process makes its own arrays, so
that their pages lie on its own NUMA node, and all start each repetition at a barrier.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.errors import Fault, InputError

#: doubles of a block that stays in the private cache of a core between two passes over it
_TRIAD_BLOCK = 1 << 14
#: seconds that a process waits for the others before it gives up
_PATIENCE_S = 120.0


class Kernel(NamedTuple):
    """A kernel: the arrays that it works on, one run over them, and the bytes that memory moves per element.

    `write_share` of these bytes are written. What a store that misses reads first (write allocation) is counted.
    """

    arrays: Callable[[int], Any]
    run: Callable[..., Any]
    bytes_per_element: float
    write_share: float


class Task(NamedTuple):
    """A kernel by name on so many elements, divided over the processes."""

    kernel: str
    elements: int


class _Span(NamedTuple):
    """One repetition in one process: start, end, and seconds that it had the core."""

    start: float
    end: float
    cpu: float


class Round(NamedTuple):
    """The best repetition of a task: seconds from the first start to the last end, and the CPU's share of them at least."""

    seconds: float
    cpu_share: float


def best_rounds(tasks: Sequence[Task], places: Sequence[int], repeats: int) -> list[Round]:
    """The best of `repeats` repetitions of each task on one process per CPU number in `places`, which start together.

    Raises InputError when a process dies, as one that runs out of memory does.
    """
    context, count = get_context("spawn"), len(places)
    barrier = context.Barrier(count)
    shares = [[Task(task.kernel, _share(task.elements, index, count)) for task in tasks] for index in range(count)]
    try:
        with ProcessPoolExecutor(count, mp_context=context, initializer=_start, initargs=(barrier,)) as pool:
            spans = list(pool.map(_spans, shares, places, [repeats] * count))
    except (BrokenProcessPool, threading.BrokenBarrierError, MemoryError) as error:
        what = f"this host could not be measured: one of {count} processes ran out of memory, died or kept the others waiting"
        raise InputError(Fault(what=what, remedy="see that memory is free and that no limit on processes binds")) from error
    return [_best([mine[task] for mine in spans], repeats) for task in range(len(tasks))]


def _best(spans: Sequence[Sequence[_Span]], repeats: int) -> Round:
    """`spans`: of each process, each repetition."""
    rounds = [[mine[repeat] for mine in spans] for repeat in range(repeats)]
    lasted, best = min((max(span.end for span in spans) - min(span.start for span in spans), spans) for spans in rounds)
    return Round(lasted, min(1.0, min(span.cpu / lasted for span in best)))


def core_places() -> list[int]:
    """One CPU number per physical core that this process may use (all of them where Linux does not say)."""
    places: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        core = siblings.read_text(encoding="ascii").strip() if siblings.exists() else str(cpu)
        places.setdefault(core, cpu)
    return list(places.values())


def cache_bytes(level: int = 0) -> float:
    """Bytes of the first core's cache of this level, or of its largest; 0 where Linux lists none."""
    found = [0.0]
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        text, its_level = ((folder / name).read_text(encoding="ascii").strip() for name in ("size", "level"))
        if level in (0, int(its_level)):
            found.append(float(text[:-1]) * {"K": 2**10, "M": 2**20}.get(text[-1:], 0))
    return max(found)


# ------------------------------------------------------------------------------------------------- in the processes

_barrier: Any = None


def _start(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _spans(tasks: Sequence[Task], place: int, repeats: int) -> list[list[_Span]]:
    """Each repetition of each task."""
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {place})
    try:
        return [_spans_of(KERNELS[task.kernel], task.elements, repeats) for task in tasks]
    except BaseException:
        _barrier.abort()  # the others need not wait
        raise


def _spans_of(kernel: Kernel, elements: int, repeats: int) -> list[_Span]:
    """The repetitions of one task, after one to warm up and to touch the pages."""
    arrays = kernel.arrays(elements)
    kernel.run(*arrays)
    spans = []
    for _ in range(repeats):
        _barrier.wait(_PATIENCE_S)
        start, cpu = time.perf_counter(), time.process_time()  # one clock for all processes of a host
        kernel.run(*arrays)
        spans.append(_Span(start, time.perf_counter(), time.process_time() - cpu))
    return spans


def _share(elements: int, index: int, count: int) -> int:
    return elements * (index + 1) // count - elements * index // count


def _three_arrays(elements: int) -> tuple[Any, Any, Any]:
    return np.zeros(elements), np.ones(elements), np.ones(elements)


def _adam_states(elements: int) -> tuple[Any, Any, Any, Any]:
    weights, gradients = np.ones(elements, np.float32), np.full(elements, 0.1, np.float32)
    return weights, gradients, np.zeros(elements, np.float32), np.zeros(elements, np.float32)


def triad(target: Any, first: Any, second: Any, block: int = _TRIAD_BLOCK) -> None:
    """target = first + 3 second, block by block in the cache: memory sees each array once."""
    product = np.empty(min(block, target.size))
    for begin in range(0, target.size, block):
        part = slice(begin, begin + block)
        scaled = product[: target[part].size]
        np.multiply(second[part], 3.0, out=scaled)
        np.add(first[part], scaled, out=target[part])


def adam(weights: Any, gradients: Any, mean: Any, square: Any) -> None:
    """One step of Adam in place (bias corrections left out), block by block in the cache, as fused kernels do."""
    rate, beta1, beta2, tiny = (np.float32(value) for value in (1e-3, 0.9, 0.999, 1e-8))
    block = 1 << max(11, min(16, int(cache_bytes(2) / 20).bit_length() - 1))  # five arrays of fp32 in the second cache
    room = np.empty(min(block, weights.size), np.float32)
    for begin in range(0, weights.size, block):
        part = slice(begin, begin + block)
        w, g, m, v = weights[part], gradients[part], mean[part], square[part]
        change = room[: w.size]
        m *= beta1
        np.multiply(g, np.float32(1.0) - beta1, out=change)
        m += change
        v *= beta2
        np.multiply(g, g, out=change)
        change *= np.float32(1.0) - beta2
        v += change
        np.sqrt(v, out=change)
        change += tiny
        np.divide(m, change, out=change)
        change *= rate
        w -= change


#: STREAM's kernels on doubles and Adam on fp32. numpy's arithmetic stores through the cache, so a line of the triad's
#: target is read before it is written (32 B, not 24); copies are the C library's, which writes large blocks past the cache
KERNELS = {
    "read": Kernel(_three_arrays, lambda _target, first, _second: np.add.reduce(first), 8.0, 0.0),
    "copy": Kernel(_three_arrays, lambda target, first, _second: np.copyto(target, first), 16.0, 0.5),
    "triad": Kernel(_three_arrays, triad, 32.0, 0.25),
    "adam": Kernel(_adam_states, adam, 28.0, 12.0 / 28.0),
}
