"""Drives: rate by queue depth and block size."""

from __future__ import annotations

INFINITY = float("inf")


def rate(
    block_bytes: float,
    queue_depth: float,
    latency_s: float,
    drive_bytes_per_s: float,
    operations_per_s: float = 0.0,
    num_drives: int = 1,
) -> float:
    """Bytes/s of a stripe over equal drives with `queue_depth` blocks in flight: Little's law, operations/s, bandwidth.

    A block takes the latency and its own transfer by one drive. `operations_per_s` of one drive; 0 = not stated. One block
    of 4 KiB at depth 1 and 70 us: 14 kIOPS, 58 MB/s; of 512 KiB on a drive of 2.6 GB/s: 1.9 GB/s.
    """
    by_latency = queue_depth * block_bytes / (latency_s + block_bytes / drive_bytes_per_s)
    by_operations = operations_per_s * block_bytes or INFINITY
    return min(by_latency, num_drives * by_operations, num_drives * drive_bytes_per_s)
