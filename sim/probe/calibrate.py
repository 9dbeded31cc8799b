"""Measure this host: memory bandwidth by kernel and threads, copies by size, load latency, CPU Adam.

Needs numpy only; with numba the latency is a true pointer chase and Adam one fused kernel. Sizes are chosen so that the
largest arrays are several times the last-level cache.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np

#: bytes per element and kernel as STREAM counts them: read + written
STREAM_BYTES = {"read": 8, "copy": 16, "triad": 24}
#: bytes that Adam in fp32 moves per element: reads p, g, m, v; writes p, m, v
ADAM_BYTES = 28
_BETA1, _BETA2, _EPSILON, _RATE = 0.9, 0.999, 1e-8, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMeasurement:
    """What one host measured; SI units.

    stream: kernel -> bytes/s of all threads; core_read: bytes/s of one thread; copies: bytes -> bytes/s copied by one
    thread; adam: elements -> seconds.
    """

    name: str
    cores: int
    memory_bytes: float
    last_level_cache_bytes: float
    stream_bytes_per_s: dict[str, float]
    core_read_bytes_per_s: float
    latency_s: float
    copies_bytes_per_s: dict[int, float]
    adam_s: dict[int, float]
    implementation: str
    date: str
    notes: tuple[str, ...] = field(default=())


def measure_host(
    *, array_bytes: float = 0.0, repeats: int = 5, say: Callable[[str], None] = lambda _text: None
) -> HostMeasurement:
    """Run the host's microbenchmarks (about a minute with the default sizes).

    `array_bytes` is the size of each STREAM array; default four times the last-level cache, at least 256 MiB, at most a
    sixteenth of memory. `say` is told what is being measured.
    """
    cores, memory, cache = _usable_cores(), _memory_bytes(), _cache_bytes()
    size = array_bytes or min(max(4.0 * cache, 2.0**28), memory / 16.0)
    elements = int(size / 8)
    has_numba = find_spec("numba") is not None
    say(f"STREAM on {cores} cores, {size / 2**20:.0f} MiB arrays")
    stream = {kernel: _stream(kernel, elements, cores, repeats) for kernel in STREAM_BYTES}
    say("one core: reads, copies, latency")
    core = _stream("read", elements, 1, repeats)
    copies = {bytes_: _copy(bytes_, repeats) for bytes_ in _sizes(int(size))}
    latency = _latency(int(size), has_numba)
    say("CPU Adam")
    adam = {count: _adam(count, cores, repeats, has_numba) for count in _adam_counts(size)}
    return HostMeasurement(
        name=platform.node() or "host",
        cores=cores,
        memory_bytes=memory,
        last_level_cache_bytes=cache,
        stream_bytes_per_s=stream,
        core_read_bytes_per_s=core,
        latency_s=latency,
        copies_bytes_per_s=copies,
        adam_s=adam,
        implementation="numba" if has_numba else "numpy",
        date=time.strftime("%Y-%m-%d"),
        notes=(
            f"{platform.processor() or platform.machine()}, {platform.system()} {platform.release()}",
            "latency by pointer chase" if has_numba else "latency by random gather: an upper bound (install numba)",
        ),
    )


def best_of(run: Callable[[], Any], repeats: int) -> float:
    """Shortest of `repeats` runs after one to warm up, seconds."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def start_and_rate(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Fit T = t0 + S / B by least squares of relative errors; returns (t0 seconds >= 0, B bytes/s)."""
    weights = 1.0 / np.asarray(seconds)
    matrix = np.stack([weights, np.asarray(sizes) * weights], axis=1)
    (start, per_byte), *_ = np.linalg.lstsq(matrix, np.ones(len(weights)), rcond=None)
    if start <= 0.0:
        start, per_byte = 0.0, float(np.mean(np.asarray(seconds) / np.asarray(sizes)))
    return float(start), 1.0 / float(per_byte)


def _stream(kernel: str, elements: int, threads: int, repeats: int) -> float:
    target, first, second = np.zeros(elements), np.ones(elements), np.ones(elements)
    run = kernels()[kernel]
    with ThreadPoolExecutor(threads) as pool:
        work = [(target[part], first[part], second[part]) for part in _slices(elements, threads)]
        seconds = best_of(lambda: list(pool.map(lambda arrays: run(*arrays), work)), repeats)
    return STREAM_BYTES[kernel] * elements / seconds


def kernels() -> dict[str, Callable[[Any, Any, Any], Any]]:
    """STREAM kernels on (target, first, second) that release the interpreter lock; compiled where numba is there."""
    if find_spec("numba") is None:
        return {"read": lambda _t, a, _b: np.add.reduce(a), "copy": lambda t, a, _b: np.copyto(t, a), "triad": _blocked_triad}
    import numba

    @numba.njit(nogil=True, fastmath=True)
    def read(_target: Any, first: Any, _second: Any) -> float:
        total = 0.0
        for i in range(first.size):
            total += first[i]
        return total

    @numba.njit(nogil=True, fastmath=True)
    def triad(target: Any, first: Any, second: Any) -> None:
        for i in range(target.size):
            target[i] = first[i] + 3.0 * second[i]

    return {"read": read, "copy": lambda t, a, _b: np.copyto(t, a), "triad": triad}


def _blocked_triad(target: Any, first: Any, second: Any, block: int = 1 << 14) -> None:
    for begin in range(0, target.size, block):  # a block stays in the cache between the two passes
        part = slice(begin, begin + block)
        target[part] = first[part] + 3.0 * second[part]


def _slices(elements: int, threads: int) -> list[slice]:
    edges = np.linspace(0, elements, threads + 1).astype(int).tolist()
    return [slice(first, last) for first, last in pairwise(edges)]


def _copy(size: int, repeats: int) -> float:
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    rounds = max(1, int(2e8 // size))

    def run() -> None:
        for _ in range(rounds):
            np.copyto(target, source)

    return size * rounds / best_of(run, min(repeats, 3))


def _latency(size: int, has_numba: bool) -> float:
    lines = max(2, size // 64)
    order = np.random.default_rng(0).permutation(lines)
    following = np.empty(lines * 8, np.int64)  # one pointer per 64 B line
    following[order * 8] = np.roll(order, -1) * 8
    hops = min(lines, 2_000_000)
    if not has_numba:
        index = order[:hops] * 8
        return best_of(lambda: following[index].sum(), 3) / hops
    import numba

    @numba.njit
    def chase(pointers: Any, count: int) -> int:
        position = 0
        for _ in range(count):
            position = pointers[position]
        return position

    return best_of(lambda: chase(following, hops), 3) / hops


def _adam(elements: int, threads: int, repeats: int, has_numba: bool) -> float:
    arrays = [np.full(elements, value, np.float32) for value in (1.0, 0.1, 0.0, 0.0)]
    step = _fused_adam() if has_numba else _blocked_adam
    work = [[array[part] for array in arrays] for part in _slices(elements, threads)]
    with ThreadPoolExecutor(threads) as pool:
        return best_of(lambda: list(pool.map(lambda parts: step(*parts), work)), repeats)


def _fused_adam() -> Callable[..., None]:
    import numba

    @numba.njit(nogil=True, fastmath=True)
    def step(p: Any, g: Any, m: Any, v: Any) -> None:
        for i in range(p.size):
            m[i] = np.float32(_BETA1) * m[i] + np.float32(1 - _BETA1) * g[i]
            v[i] = np.float32(_BETA2) * v[i] + np.float32(1 - _BETA2) * g[i] * g[i]
            p[i] -= np.float32(_RATE) * m[i] / (np.sqrt(v[i]) + np.float32(_EPSILON))

    return step


def _blocked_adam(p: Any, g: Any, m: Any, v: Any, block: int = 1 << 14) -> None:
    for begin in range(0, p.size, block):
        part = slice(begin, begin + block)
        m[part] = _BETA1 * m[part] + (1 - _BETA1) * g[part]
        v[part] = _BETA2 * v[part] + (1 - _BETA2) * g[part] ** 2
        p[part] -= _RATE * m[part] / (np.sqrt(v[part]) + _EPSILON)


def _sizes(largest: int) -> list[int]:
    return [size for size in (2**12, 2**16, 2**20, 2**24, 2**28) if size <= largest]


def _adam_counts(array_bytes: float) -> list[int]:
    top = int(array_bytes / 4)
    return sorted({max(1, top // 16), max(1, top // 4), top})


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_bytes() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return 8e9


def _cache_bytes() -> float:
    """Largest cache that Linux lists for the first core; 32 MiB where it lists none."""
    from pathlib import Path

    found = [0.0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        found.append(float(text[:-1]) * {"K": 2**10, "M": 2**20}.get(text[-1:], 0))
    return max(found) or 32.0 * 2**20
