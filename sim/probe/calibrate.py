"""Measure this host: memory bandwidth by kernel, copies by size, load latency, CPU Adam.

Needs numpy only; with PyTorch its fused CPU Adam takes the place of our blocked one. Sizes are chosen so that the largest
arrays are several times the last-level cache.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sim.probe.calibrate_cores import KERNELS, Task, best_rounds, cache_bytes, core_places

#: share of the time that each core must be ours for figures to be the machine's and not its neighbours'
BUSY_BELOW = 0.9
#: kernels that tell what memory gives; bytes and write share of each in `KERNELS`
STREAM = ("read", "copy", "triad")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMeasurement:
    """What one host measured; SI units.

    stream: kernel -> bytes/s of all cores, write allocation counted; core_read: bytes/s of one core; copies: bytes ->
    bytes/s copied by one core; adam: elements -> seconds of one update by `adam_by`.
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
    adam_by: str = "numpy in place, block by block"
    date: str
    notes: tuple[str, ...] = field(default=())


def measure_host(
    *, array_bytes: float = 0.0, repeats: int = 12, say: Callable[[str], None] = lambda _text: None
) -> HostMeasurement:
    """Run the host's microbenchmarks (about a minute with the default sizes).

    `array_bytes` is the size of each STREAM array; default four times the last-level cache, at least 256 MiB, at most a
    sixteenth of memory. `say` is told what is being measured.
    """
    places, memory, cache = core_places(), _memory_bytes(), cache_bytes() or 32.0 * 2**20
    size = array_bytes or min(max(4.0 * cache, 2.0**28), memory / 16.0)
    elements = int(size / 8)
    say(f"STREAM on {len(places)} cores, {size / 2**20:.0f} MiB arrays")
    tasks = [Task(kernel, elements) for kernel in STREAM]
    adams = [Task("adam", count) for count in _adam_counts(size)]
    rounds = best_rounds([*tasks, *adams], places, repeats)
    times = [round_.seconds for round_ in rounds]
    stream = {task.kernel: _rate(task, seconds) for task, seconds in zip(tasks, times, strict=False)}
    adam = {task.elements: seconds for task, seconds in zip(adams, times[len(tasks) :], strict=True)}
    cpu_share = min(round_.cpu_share for round_ in rounds)
    neighbours = f"others ran meanwhile and these figures are low: a core was ours {cpu_share:.0%} of the time"
    say("one core: reads, copies, latency")
    alone = Task("read", elements)
    core = _rate(alone, best_rounds([alone], places[:1], repeats)[0].seconds)
    copies = {bytes_: _copy(bytes_, repeats) for bytes_ in _sizes(int(size))}
    latency = _latency(int(size))
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    has_torch = find_spec("torch") is not None
    if has_torch:
        say("PyTorch's CPU Adam")
        adam = {count: _adam(count, repeats) for count in adam}
    return HostMeasurement(
        name=platform.node() or "host",
        cores=len(places),
        memory_bytes=memory,
        last_level_cache_bytes=cache,
        stream_bytes_per_s=stream,
        core_read_bytes_per_s=core,
        latency_s=latency,
        copies_bytes_per_s=copies,
        adam_s=adam,
        adam_by="PyTorch, fused" if has_torch else "numpy in place, block by block",
        date=time.strftime("%Y-%m-%d"),
        notes=(
            f"{platform.processor() or platform.machine()}, {platform.system()} {platform.release()}",
            "latency by pointer chase less the same chase in cache",
            "bytes of the triad with those that its stores read first (32 per element; STREAM counts 24)",
            *([f"{nodes} NUMA nodes, each core on its own, written as one socket"] if nodes > 1 else []),
            *([neighbours] if cpu_share < BUSY_BELOW else []),
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


def _rate(task: Task, seconds: float) -> float:
    return KERNELS[task.kernel].bytes_per_element * task.elements / seconds


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


def _memory_bytes() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return 8e9
