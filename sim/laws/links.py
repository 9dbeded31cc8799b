"""Links and copies: raw rates from signalling, copies in stages and by page, caches that answer for memory.

T = t0 + S / (efficiency x raw). Efficiencies are class constants of the link part (protocol headers, credits);
t0 is what starting a copy engine costs. 2.7 % median on the plateau (docs/model.md, Copies).
"""

from __future__ import annotations

from sim.held_out import Fitted

#: seconds that a benchmark's way of timing adds to each copy: copies queued in a stream follow each other with the engine's
#: start alone; an event before and after each; a call that returns when its copy is done; a copy and a wait for the device
#: after the program has swept its caches, so that driver and interrupt find theirs empty. Fit over npho/cse554 (blocking),
#: numa-gpu-xfer-bench (events), vLLM's KV connector (queued) and gpu-benches (cold); without them: 5 us for a
#: call, nothing for an event, twice a call where all is cold
TIMING_S = {
    "queued": Fitted(0.0, 0.0, ("vllm-kv-offload/dma",)),
    "events": Fitted(1.3e-6, 0.0, ("liaw-chen-2025/memcpy",)),
    "blocking": Fitted(3.0e-6, 5e-6, ("npho-cse554/by-size",)),
    "cold": Fitted(26e-6, 10e-6, ("rrze-gpu-benches/cuda-memcpy",)),
}
#: seconds of the round trip of a read over PCIe that a copy waits for unless others are queued behind it: an engine that
#: fetches pinned host memory, a core that fetches what the device left in a bounce buffer (assumed, 0.7 to 1.5 us measured)
READ_TRIP_S = 1e-6


def timing(way: str, *, is_fetched: bool) -> float:
    """Seconds per copy that a benchmark's `way` of timing adds (a key of `TIMING_S`); KeyError for another."""
    return TIMING_S[way].get() + (READ_TRIP_S if is_fetched and way != "queued" else 0.0)


#: bytes of one piece of a copy between GPUs that passes host memory: two bounce buffers, one filled while the other empties
#: (fit over copies without P2P: 37 GB/s between H100 and 22 over PCIe 4, nccl issues 1264 and 814; +-25 %); without them: the
#: megabyte from which a copy is near its plateau
STAGED_PIECE_BYTES = Fitted(524288.0, 1048576.0, ("nccl-issue-1264/h100-staged", "nccl-issue-814/rtx-4090"))


def staged_rate(bandwidth_bytes_per_s: float, start_s: float) -> float:
    """Bytes/s of a copy in pieces through host memory over links of that rate, each of whose pieces starts anew."""
    piece = STAGED_PIECE_BYTES.get()
    return piece / (piece / bandwidth_bytes_per_s + start_s)


def written_time(size_bytes: float, capacity_bytes: float, device_rate: float, core_rate: float, num_devices: int) -> float:
    """Seconds in which a device reads what a core's private cache still holds of a buffer of `size_bytes` that it just wrote.

    Each such line is fetched out of that cache: one device keeps so many reads in flight (`device_rate`, bytes/s), and all
    `num_devices` that read what one core wrote share what its cache gives (`core_rate`).
    """
    return min(size_bytes, capacity_bytes) / min(device_rate, core_rate / num_devices)


def lane(transfers_per_s: float, coding: float) -> float:
    """Raw bytes/s of one lane and direction: symbols/s x payload bits per line bit / 8."""
    return transfers_per_s * coding / 8


def serial(*bandwidths: float) -> float:
    """Bytes/s through stages that do not overlap (read into a bounce buffer, then copy it): 1 / sum of 1/B."""
    return 1.0 / sum(1.0 / bandwidth for bandwidth in bandwidths)
