"""Drives: rate by queue depth and block size."""

from __future__ import annotations

from math import hypot

#: blocks in flight for which data sheets state random reads: 32 by 16 workers (footnotes of Samsung, Micron and Kioxia)
RATED_DEPTH = 512.0
#: random reads that a file costs which no cache knows: its inode and its data; assumed (1 where metadata is cached, 4 with
#: directories): a hard disk of 170 reads/s gave 43 images/s (pytorch issue 680)
FILE_READS = 2.0


def rate(
    block_bytes: float,
    queue_depth: float,
    latency_s: float,
    drive_bytes_per_s: float,
    operations_per_s: float = 0.0,
    num_drives: int = 1,
) -> float:
    """Bytes/s of a stripe over equal drives with `queue_depth` blocks in flight: Little's law, operations/s, bandwidth.

    A block takes the latency and its own transfer by one drive. `operations_per_s` of one drive; 0 = not stated. Blocks
    that meet at one die wait for each other. One block of 4 KiB at depth 1 and 70 us: 14 kIOPS, 58 MB/s; of
    512 KiB on a drive of 2.6 GB/s: 1.9 GB/s.
    """
    seconds = latency_s + block_bytes / drive_bytes_per_s
    operations = queue_depth / seconds
    if operations_per_s:
        operations = num_drives * min(operations_per_s, _by_dies(queue_depth / num_drives, operations_per_s, seconds))
    return min(operations * block_bytes, num_drives * drive_bytes_per_s)


def _by_dies(queue_depth: float, operations_per_s: float, seconds: float) -> float:
    """Operations/s of one drive with blocks in flight that wait for each other where they meet at one die.

    Each of d dies serves one block at a time, busy for a share u; a block waits u / 2 (1 - u) of a service (M/D/1), so
    that depth / d = u (1 + u / 2 (1 - u)), which is u d = d + depth - sqrt(d^2 + depth^2). d is what gives the data
    sheet's rate at the data sheet's depth.
    """
    at_rating = operations_per_s * seconds
    depth = max(RATED_DEPTH, 2.0 * at_rating)
    num_dies = at_rating * (depth - 0.5 * at_rating) / (depth - at_rating)
    return (num_dies + queue_depth - hypot(num_dies, queue_depth)) / seconds
