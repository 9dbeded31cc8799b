"""Memory buses: what a byte costs, what a bus achieves, what a bounded window of requests can draw.

A half-duplex bus carries reads and writes in turn. Per byte of traffic with write share w it spends
cost(w) = 1 + t min(1, w / 0.05) + k min(w, 0.5) read-byte times: t is paid once the bus must turn around at all,
k by how much. Achieved bandwidth = P e / cost(w), P = channels x transfers x width. Fitted on loaded-latency curves of
Sapphire Rapids, Grace and Zen 2 (docs/model.md, Memory buses): 0.9 % median, 2 % at the 90th percentile.
"""

from __future__ import annotations

from collections.abc import Iterable

from sim.held_out import Fitted

#: write share from which every batch of reads is followed by writes; curves bend here on every system measured
TURNAROUND_SHARE = 0.05
#: beyond half writes the curves were not measured except on Zen 2, where they stay flat
LARGEST_WRITE_SHARE = 0.5
#: how sharply the slower tier of an interleaved pair takes over; fit over the gains of four and eight expanders beside
#: twelve channels (Micron CZ120, 2023; arXiv 2412.12491); without it: the slower tier alone
INTERLEAVE_SHARPNESS = Fitted(5.0, 1e6, ("micron-cz120/interleave", "xeon6-interleave/gain"))


#: share of GDDR6 that holds check bits where ECC is on; HBM and GDDR7 keep theirs beside the data. T4 15 of 16 GiB, A10 and L4
#: 22.5 of 24, A40, L40 and L40S 45 of 48 (nvidia-smi: 15360, 23028, 46068 MiB)
INBAND_ECC_SHARE = 1.0 / 16.0
#: what NVIDIA's driver and firmware keep of a GPU's memory before any process asks: nominal less the "total capacity" in
#: PyTorch's out-of-memory messages: V100 16 GB 0.25, RTX 3090 0.3, T4 0.2 to 0.4, L4 0.5, L40 0.6, A100 80 GB 0.8, H100 0.9,
#: H200 1.2, B200 1.6 GiB (GPT2-Chinese 215, CatVTON 133, evo2 190, Eagle 68, VAREdit 6); newer drivers keep more. +-0.2 GiB
DRIVER_BYTES, DRIVER_SHARE = 0.25 * 2.0**30, 0.007


def programmable(capacity_bytes: float, *, has_inband_ecc: bool = False) -> float:
    """Bytes of an NVIDIA GPU's memory that programs can get of those it is sold with, their CUDA contexts not yet taken."""
    left = capacity_bytes * (1.0 - INBAND_ECC_SHARE if has_inband_ecc else 1.0)
    return max(0.0, left - DRIVER_BYTES - DRIVER_SHARE * capacity_bytes)


def peak(num_channels: int, transfers_per_s: float, width_bits: int) -> float:
    """Raw bytes/s of a memory: channels x transfers/s x bytes per transfer."""
    return num_channels * transfers_per_s * width_bits / 8


def bus_cost(write_share: float, turnaround: float, write_cost: float) -> float:
    """Bus time of one byte of mixed traffic, in read-byte times (>= 1 for non-negative constants)."""
    w = min(max(write_share, 0.0), 1.0)
    return 1.0 + turnaround * min(1.0, w / TURNAROUND_SHARE) + write_cost * min(w, LARGEST_WRITE_SHARE)


def achieved(peak_bytes_per_s: float, efficiency: float, write_share: float, turnaround: float, write_cost: float) -> float:
    """Bytes/s of traffic (read + written) that the bus carries when saturated."""
    return peak_bytes_per_s * efficiency / bus_cost(write_share, turnaround, write_cost)


def window(num_cores: int, lines: float, write_lines: float, line_bytes: float, write_share: float) -> float:
    """Bytes that cores keep in flight; reads and writes hold different numbers of lines, and each byte its own time."""
    per_core = line_bytes / ((1.0 - write_share) / lines + write_share / write_lines)
    return num_cores * per_core


def interleaved(parts: Iterable[tuple[float, float]], *, sharpness: float = 0.0) -> float:
    """Bytes/s of traffic spread page by page: (share, bandwidth) of each tier; the slowest share decides.

    Time = (sum of (share / bandwidth)^p)^(1/p): far from balance the slower tier alone counts (1:1 over a 4:1 pair halves the
    fast tier's rate); at the best shares, in proportion to the bandwidths, neither is ever quite busy and 13 % are lost.
    `sharpness` is p; 0 = as fitted.
    """
    times = [share / bandwidth for share, bandwidth in parts if share > 0]
    longest, power = max(times), sharpness or INTERLEAVE_SHARPNESS.get()
    total: float = sum((time / longest) ** power for time in times)
    spread: float = total ** (1.0 / power)
    return 1.0 / (longest * spread)


def absorbed_write_time(size_bytes: float, *, start_s: float, link: float, media: float, cache_bytes: float) -> float:
    """Seconds of a device's DMA write that the last-level cache absorbs: max(t0 + S / link, (S - C) / media).

    `cache_bytes` is what device writes may occupy (about 2 of 16 ways). Small writes never see slow media.
    """
    return max(start_s + size_bytes / link, (size_bytes - cache_bytes) / media)
