"""What one would assume of a part's constant without having measured anything: protocol overheads and textbook figures.

They stand in for fitted constants while their measurements are held out (`tiersim validate --left-out`), so that the
error of a family can be told without its own rows.
"""

from __future__ import annotations

_FLITS = (0.753, "flits of 68 B carry 64, and each four slots of data one of header (CXL 2.0, 4.2)")
_READ_FLITS = (0.795, "flits of 68 B carry 64, and one slot heads the data of one answer or of two (CXL 2.0, 4.2)")
_ONE_WAY = (0.92, "refresh takes 4 to 5 % (JEDEC tRFC / tREFI), row misses some 3 %; no turnarounds")
#: (kind of part, or type and kind, last key of the number, or the key that holds a table of numbers) -> value and why
PRIORS: dict[tuple[str, str], tuple[object, str]] = {
    # memory buses
    ("memory", "efficiency"): (0.85, "refresh takes 4 to 5 % (JEDEC tRFC / tREFI), row misses and turnarounds about 10 %"),
    ("memory", "turnaround"): (0.05, "one bus turnaround for each few dozen bursts"),
    ("memory", "write_cost"): (0.1, "write recovery (JEDEC tWR, tWTR) once per row"),
    ("memory", "read"): _ONE_WAY,
    ("memory", "init"): _ONE_WAY,
    ("memory", "kernel_bandwidth"): (0.85, "as the bus: kernels stream at what the memory gives"),
    # sockets: DRAM idle latency, and an M/D/1 queue in front of the channel
    ("cpu", "idle"): ("100 ns", "usual local DRAM latency of a server socket"),
    ("cpu", "a"): (0.22, "M/D/1 queue: u / 2 (1 - u) of a service time, that of a bank (JEDEC tRC 45 of some 100 ns)"),
    ("cpu", "c"): (0.2, "M/D/1 queue: writes hold a bank longer (JEDEC tWR and tWTR, 40 of some 100 ns)"),
    ("cpu", "k"): (0.9, "M/D/1 queue, saturating at 111 % of the mean rate"),
    ("cpu", "efficiency"): (0.85, "refresh, row misses and turnarounds, as for every DRAM bus"),
    ("cpu", "dma_share"): (0.11, "two of the usual 16 to 20 ways of a cache for device writes"),
    ("cpu", "kept"): ("0 B", "devices read what a core has just written as they read all memory"),
    ("cpu", "device_bandwidth"): ("40 GB/s", "64 reads of 64 B in flight and a probe of some 100 ns"),
    ("cpu", "owner_bandwidth"): ("64 GB/s", "a line every other cycle of a core at 2 GHz"),
    ("cpu", "cache_bandwidth"): ("1000 GB/s", "32 B per cycle from each cache slice"),
    ("cpu", "lines_per_core"): (24, "outstanding misses of a core: 10 to 16 line fill buffers and a prefetcher"),
    ("cpu", "write_lines_per_core"): (24, "outstanding misses of a core: 10 to 16 line fill buffers and a prefetcher"),
    ("cpu", "near_latency"): ("0 ns", "no step beyond the memory's own latency"),
    ("cpu", "core_bandwidth"): ("0 GB/s", "by Little's law alone"),
    ("cpu", "write_bandwidth"): ("24 GB/s", "half a chiplet's reads: 16 against 32 B per fabric clock"),
    ("cpu", "socket_bandwidth"): ("0 GB/s", "the memory's rate"),
    ("cpu", "staging_bandwidth"): ("0 GB/s", "half of what one core streams"),
    # expanders
    ("cxl", "idle"): ("250 ns", "local DRAM, a port each way and a controller"),
    ("cxl", "media_efficiency"): (1.0, "the controller follows its media"),
    ("cxl", "read_bandwidth"): ("0 GB/s", "link or media, whichever is slower"),
    ("cxl", "write_bandwidth"): ("0 GB/s", "link or media, whichever is slower"),
    # links
    ("link", "efficiency"): (0.865, "packets of 128 B (two cache lines) with 20 B of header and acknowledgement"),
    ("link", "upward_efficiency"): (0.865, "packets of 128 B (two cache lines) with 20 B of header and acknowledgement"),
    ("link", "load_efficiency"): (0.9, "256 B of payload with 20 to 28 B of header and acknowledgements"),
    ("link", "store_efficiency"): (0.9, "256 B of payload with 20 to 28 B of header and acknowledgements"),
    ("link", "cpu_load_efficiency"): (0.9, "256 B of payload with 20 to 28 B of header and acknowledgements"),
    ("link", "cpu_store_efficiency"): (0.9, "256 B of payload with 20 to 28 B of header and acknowledgements"),
    ("cxl link", "efficiency"): _FLITS,
    ("cxl link", "upward_efficiency"): _READ_FLITS,
    ("cxl link", "load_efficiency"): _READ_FLITS,
    ("cxl link", "store_efficiency"): _FLITS,
    ("link", "collective_efficiency"): (0.9, "a collective moves what a copy moves"),
    ("link", "switch_efficiency"): (0.8, "each 128 B carry a header of 16, and requests of the sums coming back as much again"),
    ("link", "message_latency"): ("5 us", "launch of a kernel and one flag through memory"),
    ("link", "latency"): ("200 ns", "two serialisations and a traversal of each end's fabric"),
    ("link", "duplex_efficiency"): (1.0, "the directions of a full-duplex link are independent"),
    ("link", "request_cost"): (0.0, "requests travel in the other direction's idle slots"),
    ("switch", "efficiency"): (1.0, "a switch forwards at line rate"),
    # accelerators
    ("gpu", "gemm_efficiency"): (0.75, "three quarters of the dense peak, the usual figure for a tuned library"),
    ("gpu", "gemm_alone"): (0.8, "four fifths of the dense peak, as CUTLASS reports of its best kernels"),
    ("gpu", "fp8"): (0.6, "twice the operations from the same memories and power: four fifths of the share of 16 bits"),
    ("gpu", "fp4"): (0.45, "twice the operations of 8 bits from the same memories and power: three quarters of their share"),
    ("gpu", "joules_per_flop"): (0.0, "no cap by power"),
    ("gpu", "attention_efficiency"): (0.5, "half of the dense peak, as the first fused kernels aimed at"),
    ("gpu", "copy_latency"): ("5 us", "as the launch of a kernel"),
    ("gpu", "kernel_bandwidth"): (0.85, "kernels stream at what the memory gives"),
    ("gpu", "efficiency"): (0.85, "as every DRAM bus"),
    ("gpu", "idle"): ("400 ns", "usual latency of a GPU's memory"),
    ("gpu", "near_latency"): ("150 ns", "usual latency of a GPU's last cache"),
    ("gpu", "coherent_bandwidth"): ("0 GB/s", "host allocations are cached as the device's own"),
    ("gpu", "copy_bandwidth"): ("0 GB/s", "an engine follows its link"),
    # drives
    ("nvme", "read_latency"): ("80 us", "array read of TLC flash and its controller"),
    ("nvme", "efficiency"): (0.9, "a file system keeps some nine tenths of the datasheet's sequential rate on raw blocks"),
}


def prior_of(kind: str, path: tuple[object, ...]) -> tuple[object, str]:
    """(value as YAML would write it, why) of the number at `path` of a part; KeyError for one that has no prior."""
    for key in reversed(path):
        for name in (kind, kind.rsplit(" ", 1)[-1]):
            if (name, str(key)) in PRIORS:
                return PRIORS[name, str(key)]
    raise KeyError(f"no prior for {kind} {'.'.join(map(str, path))}")
