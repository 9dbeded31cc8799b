"""Sockets and accelerators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from sim.topology.parts.described import STRICT, Count, Described, Efficiency, Latency, Port
from sim.topology.parts.memory import Attached, Bus
from sim.units import Bytes, BytesPerSecond, Doc, FlopPerSecond, Fraction, Hertz, Seconds, TransfersPerSecond, Watts


@dataclass(frozen=True, slots=True, kw_only=True)
class Chiplet:
    """A group of cores behind one port into the memory fabric (CCD, tile)."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    cores: Annotated[Count, Doc("cores in it")]
    read_bandwidth: Annotated[BytesPerSecond, Gt(0), Doc("port limit, reads")]
    write_bandwidth: Annotated[BytesPerSecond, Gt(0), Doc("port limit, writes")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLines:
    """Lines that a core wrote last, which a device then reads out of that core's private cache."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    kept: Annotated[Bytes, Ge(0), Doc("of a buffer that a core just wrote, what its cache still holds")]
    device_bandwidth: Annotated[BytesPerSecond, Gt(0), Doc("what one device reads of them")]
    owner_bandwidth: Annotated[BytesPerSecond, Gt(0), Doc("what all devices read of one core's")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu(Described):
    """One socket."""

    kind: Literal["cpu"]
    family: Annotated[str, Doc("microarchitecture: class of the constants")]
    cores: Annotated[Count, Doc("physical cores")]
    memory_channels: Annotated[int, Ge(0), Doc("DRAM channels of the socket; 0 = soldered memory only")] = 0
    memory_types: Annotated[tuple[str, ...], Doc("memory types its controller drives")] = ()
    memory_transfers: Annotated[TransfersPerSecond, Ge(0), Doc("fastest DIMM speed, one DIMM per channel")] = 0.0
    memory_transfers_2dpc: Annotated[
        TransfersPerSecond, Ge(0), Doc("fastest DIMM speed, two DIMMs per channel; 0 = as with one")
    ] = 0.0
    memory_transfers_mrdimm: Annotated[TransfersPerSecond, Ge(0), Doc("fastest MRDIMM speed; 0 = none")] = 0.0
    max_dimms_per_channel: Annotated[int, Ge(1), Le(2), Doc("DIMM slots that a channel drives")] = 2
    memory_capacity: Annotated[Bytes, Ge(0), Doc("most DRAM per socket; 0 = not stated")] = 0.0
    persistent_memory: Annotated[bool, Doc("drives persistent memory modules in its DIMM slots")] = False
    memory: Annotated[Attached | None, Doc("memory soldered to the package (HBM, LPDDR)")] = None
    bus: Annotated[Bus | None, Doc("replaces the DIMM class's efficiency")] = None
    latency: Annotated[Latency, Doc("local DRAM, seen by a core")]
    near_latency: Annotated[Seconds, Ge(0), Doc("core to last-level cache: the core's own part of every load")] = 0.0
    lines_per_core: Annotated[float, Gt(0), Doc("cache lines that one core keeps in flight (reads)")]
    write_lines_per_core: Annotated[float, Ge(0), Doc("the same for streams of writes; 0 = as reads")] = 0.0
    line: Annotated[Bytes, Gt(0), Doc("cache line")] = 64.0
    core_bandwidth: Annotated[BytesPerSecond, Ge(0), Doc("most that one core moves; 0 = by Little's law only")] = 0.0
    chiplet: Annotated[Chiplet | None, Doc("limit of a group of cores")] = None
    socket_bandwidth: Annotated[
        BytesPerSecond, Ge(0), Doc("limit of all cores together where it is below the memory's; 0 = none")
    ] = 0.0
    last_level_cache: Annotated[Bytes, Ge(0), Doc("L3")] = 0.0
    cache_bandwidth: Annotated[BytesPerSecond, Ge(0), Doc("last-level cache, all cores, streaming")] = 0.0
    staging_bandwidth: Annotated[
        BytesPerSecond, Ge(0), Doc("copy rate of the one core that stages pageable memory; 0 = core_bandwidth / 2")
    ] = 0.0
    port_duplex: Annotated[Efficiency, Doc("both directions of a PCIe port at once / twice one direction")] = 0.82
    has_avx: Annotated[bool, Doc("x86 vector units; without them kernels written for AVX run their scalar code")] = True
    page: Annotated[Bytes, Gt(0), Doc("base page of the Linux that usually runs on it")] = 4096.0
    dma_share: Annotated[Fraction, Doc("of the last-level cache, what absorbs device writes; 0 = they go to memory")] = 0.0
    written: Annotated[WrittenLines | None, Doc("how devices read what a core has just written; none = as all else")] = None
    io_bandwidth: Annotated[
        BytesPerSecond, Ge(0), Doc("all PCIe and CXL devices of the socket together, per direction; 0 = the sum of the lanes")
    ] = 0.0
    pcie: Annotated[Port | None, Doc("PCIe lanes")] = None
    cxl: Annotated[Port | None, Doc("how many of the PCIe lanes can speak CXL, and which version")] = None
    sockets: Annotated[Port | None, Doc("links to other sockets")] = None
    c2c: Annotated[Port | None, Doc("coherent link to a GPU on the same module")] = None
    max_sockets: Annotated[Count, Doc("sockets in one coherent system")] = 1
    compute: Annotated[dict[str, FlopPerSecond], Doc("dense peak by number format")] = field(default_factory=dict)
    power: Annotated[Watts, Ge(0), Doc("thermal design power; 0 = not stated")] = 0.0
    clock: Annotated[Hertz, Ge(0), Doc("all-core clock; 0 = not stated")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(Described):
    """One accelerator as software sees it (an MI250X die is a GPU of its own), or the GPU side of an APU."""

    kind: Literal["gpu"]
    vendor: Annotated[Literal["nvidia", "amd", "apple", "intel", "other"], Doc("class of the software stack")]
    family: Annotated[str, Doc("architecture: class of the constants")]
    compute: Annotated[dict[str, FlopPerSecond], Doc("dense peak by number format (fp32 accumulate)")]
    memory: Annotated[Attached, Doc("own memory")]
    cpu: Annotated[str, Doc("APU: the CPU part that shares the memory")] = ""
    gpu_share: Annotated[
        Fraction, Gt(0), Le(1), Doc("APU: of the shared memory, what the system lets the GPU allocate unless told otherwise")
    ] = 1.0
    pcie: Annotated[Port | None, Doc("host link")] = None
    fabric: Annotated[Port | None, Doc("links to other GPUs or switches (NVLink, xGMI)")] = None
    c2c: Annotated[Port | None, Doc("coherent link to a CPU on the same module")] = None
    peer_over_pcie: Annotated[bool, Doc("GPU-to-GPU copies over PCIe are allowed by the stock driver")] = True
    copy_bandwidth: Annotated[BytesPerSecond, Ge(0), Doc("limit of one copy engine; 0 = the link's")] = 0.0
    copy_latency: Annotated[Seconds, Ge(0), Doc("start of a copy: t0 of T = t0 + S/B")] = 5e-6
    coherent_bandwidth: Annotated[
        BytesPerSecond,
        Ge(0),
        Doc("copies by kernels between host allocations of an APU, which skip its caches; 0 = as its own"),
    ] = 0.0
    host_allocation_share: Annotated[
        Efficiency, Doc("APU: of a kernel's memory rate, kept on memory from malloc, hipHostMalloc or hipMallocManaged")
    ] = 1.0
    pins_on_demand: Annotated[bool, Doc("copies of pageable memory run as pinned ones (the driver pins)")] = False
    near_latency: Annotated[Seconds, Ge(0), Doc("core to last-level cache: the core's own part of every load")] = 0.0
    kernel_bandwidth: Annotated[
        dict[str, Efficiency], Doc("achieved / peak memory bandwidth by kind of kernel: triad, copy, read, init")
    ] = field(default_factory=dict)
    gemm_efficiency: Annotated[dict[str, Efficiency], Doc("achieved / peak on large GEMMs by number format")] = field(
        default_factory=dict
    )
    gemm_alone: Annotated[
        dict[str, Efficiency], Doc("the same for one GEMM repeated by itself (boosted clocks); absent = as gemm_efficiency")
    ] = field(default_factory=dict)
    joules_per_flop: Annotated[
        float, Ge(0), Doc("board energy of a 16-bit matrix operation; caps the rate; 0 = it does not")
    ] = 0.0
    attention_efficiency: Annotated[dict[str, Efficiency], Doc("achieved / bf16 peak of fused attention, by software")] = field(
        default_factory=dict
    )
    launch_latency: Annotated[Seconds, Ge(0), Doc("time between dependent kernels")] = 5e-6
    last_level_cache: Annotated[Bytes, Ge(0), Doc("L2 or memory-side cache")] = 0.0
    cache_bandwidth: Annotated[BytesPerSecond, Ge(0), Doc("last-level cache")] = 0.0
    cores: Annotated[int, Ge(0), Doc("SMs or compute units")] = 0
    clock: Annotated[Hertz, Ge(0), Doc("boost clock; 0 = not stated")] = 0.0
    power: Annotated[Watts, Ge(0), Doc("board power; 0 = not stated")] = 0.0
