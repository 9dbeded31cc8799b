"""Drives: rate by queue depth and block size, arrays, reads that bounce through host memory."""

from __future__ import annotations

INFINITY = float("inf")


def rate(
    block_bytes: float, queue_depth: float, latency_s: float, bandwidth_bytes_per_s: float, operations_per_s: float = 0.0
) -> float:
    """Bytes/s of a drive with `queue_depth` blocks in flight: Little's law, the drive's operations/s, its bandwidth.

    `operations_per_s` 0 = not stated. One block of 4 KiB at depth 1 and 70 us: 14 kIOPS, 58 MB/s.
    """
    by_latency = queue_depth * block_bytes / latency_s
    by_operations = operations_per_s * block_bytes or INFINITY
    return min(by_latency, by_operations, bandwidth_bytes_per_s)


def array(drive_bytes_per_s: float, num_drives: int, slot_bytes_per_s: float = INFINITY) -> float:
    """Bytes/s of a stripe over equal drives, limited by what they hang on."""
    return min(drive_bytes_per_s * num_drives, slot_bytes_per_s)
