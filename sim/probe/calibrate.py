"""Measure this host: memory bandwidth by kernel and threads, copies by size, load latency, CPU Adam.

Needs numpy only; with PyTorch its fused CPU Adam is measured too. Sizes are chosen so that the largest arrays are several
times the last-level cache.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMeasurement:
    """What one host measured; SI units.

    stream: kernel -> bytes/s of all threads; core_read: bytes/s of one thread; copies: bytes -> bytes/s copied by one
    thread; adam: elements -> seconds of PyTorch's fused update (empty without it).
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
    say(f"STREAM on {cores} cores, {size / 2**20:.0f} MiB arrays")
    stream = {kernel: _stream(kernel, elements, cores, repeats) for kernel in STREAM_BYTES}
    say("one core: reads, copies, latency")
    core = _stream("read", elements, 1, repeats)
    copies = {bytes_: _copy(bytes_, repeats) for bytes_ in _sizes(int(size))}
    latency = _latency(int(size))
    adam = {}
    if find_spec("torch") is not None:
        say("CPU Adam")
        adam = {count: _adam(count, repeats) for count in _adam_counts(size)}
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
        date=time.strftime("%Y-%m-%d"),
        notes=(
            f"{platform.processor() or platform.machine()}, {platform.system()} {platform.release()}",
            "latency by pointer chase less the same chase in cache",
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
    run = KERNELS[kernel]
    with ThreadPoolExecutor(threads) as pool:
        work = [(target[part], first[part], second[part]) for part in _slices(elements, threads)]
        seconds = best_of(lambda: list(pool.map(lambda arrays: run(*arrays), work)), repeats)
    return STREAM_BYTES[kernel] * elements / seconds


def _blocked_triad(target: Any, first: Any, second: Any, block: int = 1 << 14) -> None:
    for begin in range(0, target.size, block):  # a block stays in the cache between the two passes
        part = slice(begin, begin + block)
        target[part] = first[part] + 3.0 * second[part]


#: STREAM kernels on (target, first, second); all release the interpreter lock
KERNELS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "read": lambda _target, first, _second: np.add.reduce(first),
    "copy": lambda target, first, _second: np.copyto(target, first),
    "triad": _blocked_triad,
}


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


def _latency(size: int) -> float:
    """Seconds of a dependent load from memory: hops through `size` bytes less hops through 16 KiB, which stay in cache.

    Within 6 % of a compiled pointer chase where both were run; what the interpreter does per hop cancels.
    """
    hops = min(max(2, size // 64), 1_000_000)
    far, near = (_seconds_per_hop(_cycle(extent), hops) for extent in (size, 2**14))
    return max(far - near, 1e-9)


def _cycle(size: int) -> Any:
    """One pointer per 64 B line of `size` bytes; following them visits all lines in random order."""
    lines = max(2, size // 64)
    order = np.random.default_rng(0).permutation(lines)
    following = np.zeros(lines * 8, np.int64)
    following[order * 8] = np.roll(order, -1) * 8
    return following.data


def _seconds_per_hop(pointers: Any, hops: int) -> float:
    def chase() -> int:
        position = 0
        for _ in range(hops):
            position = pointers[position]
        return position

    return best_of(chase, 3) / hops


def _adam(elements: int, repeats: int) -> float:
    import torch

    weights = torch.ones(elements, requires_grad=True)
    weights.grad = torch.full((elements,), 0.1)
    update = torch.optim.AdamW([weights], lr=1e-3, fused=True)
    return best_of(update.step, repeats)


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
