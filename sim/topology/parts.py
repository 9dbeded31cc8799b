"""What a part is: each input declared once with unit, bound, default and meaning; held in SI.

`config/` turns these dataclasses into strict validators of `topologies/parts/*.yaml`. A part says what one component
is (datasheet) and to which class it belongs (a few measured constants per class); a topology says how many there are
and what they are joined by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from sim.units import Bytes, BytesPerSecond, Doc, FlopPerSecond, Fraction, Hertz, Seconds, TransfersPerSecond, Watts

STRICT: dict[str, Any] = {"extra": "forbid"}
#: pools are shared in slices of 1 GB; a kernel takes 10 to 100 ms per GB offline (here 50), and microseconds online
#: (Pond, ASPLOS 2023, section 4.2)
EXTENT_BYTES, RELEASE_BYTES_PER_S = 2.0**30, 20e9
#: request, command of the fabric manager, event to the host and its response; assumed (0.1 to 10 ms)
GRANT_S = 1e-3
Count = Annotated[int, Gt(0)]
MemoryType = Literal[
    "ddr4", "ddr5", "mrdimm", "lpddr5x", "hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4", "gddr6", "gddr6x", "gddr7"
]  # fmt: skip
Efficiency = Annotated[Fraction, Gt(0), Le(1.2)]  # of a raw rate; in-switch reduction exceeds 1 by construction


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Loaded latency L0 (1 + (a + c w) u / (1 - k u)): u utilisation of the achievable bandwidth, w write share."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    idle: Annotated[Seconds, Gt(0), Doc("latency of a dependent load on an idle system, core to data and back")]
    a: Annotated[float, Ge(0), Doc("rise with utilisation, reads only")] = 0.0
    c: Annotated[float, Ge(0), Doc("additional rise per unit of write share")] = 0.0
    k: Annotated[float, Ge(0), Le(0.999), Doc("sharpness of the knee; below 1, so that latency is finite at saturation")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A memory technology: one DIMM class per channel, one HBM or GDDR generation per stack or device."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    kind: Literal["memory"]
    title: Annotated[str, Doc("name for people")]
    type: Annotated[MemoryType, Doc("technology")]
    transfers: Annotated[TransfersPerSecond, Gt(0), Doc("data rate per pin")]
    width_bits: Annotated[int, Gt(0), Doc("data bits per channel (DDR: 64, ECC not counted) or per stack")]
    efficiency: Annotated[Efficiency, Doc("achieved read bandwidth / peak (refresh, turnarounds, bank conflicts)")]
    efficiency_low: Annotated[Fraction, Doc("least that an unmeasured memory may reach of its peak; 0 = it was measured")] = 0.0
    efficiency_high: Annotated[Fraction, Doc("and most")] = 0.0
    turnaround: Annotated[float, Ge(0), Doc("cost per byte once writes mix with reads (saturates at 5 % writes)")] = 0.0
    write_cost: Annotated[float, Ge(0), Doc("further cost per unit of write share, up to one half")] = 0.0
    kernel_bandwidth: Annotated[
        dict[str, Efficiency], Doc("achieved / peak on a GPU by kind of kernel: triad, copy, read, init")
    ] = field(default_factory=dict)
    ranks: Annotated[int, Ge(1), Doc("ranks per DIMM that a channel interleaves")] = 1
    granularity: Annotated[Bytes, Gt(0), Doc("bytes of one access")] = 64.0
    capacity: Annotated[Bytes, Ge(0), Doc("bytes per stack at most; 0 = given by the topology")] = 0.0
    latency: Annotated[Latency | None, Doc("of the device behind its controller; default: the CPU's or GPU's own")] = None
    hypothetical: Annotated[bool, Doc("does not exist yet: may exceed today's limits, is listed and hatched in plots")] = False
    basis: Annotated[str, Doc("why a hypothetical part is believed possible")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Memory soldered to a processor: which technology, how much, how fast."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    part: Annotated[str, Doc("memory part")]
    capacity: Annotated[Bytes, Gt(0), Doc("as sold; usable may be less")]
    bandwidth: Annotated[BytesPerSecond, Gt(0), Doc("datasheet peak")]
    efficiency: Annotated[Efficiency | None, Doc("achieved read bandwidth / peak; default: the memory part's")] = None
    latency: Annotated[Latency | None, Doc("seen by the processor's own loads")] = None
    ecc: Annotated[bool, Doc("GDDR6: delivered with error correction on, whose bits take a sixteenth of the capacity")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """How many lanes or links of one kind a part has."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    part: Annotated[str, Doc("link part: the fastest generation supported")]
    lanes: Annotated[int, Gt(0), Doc("lanes (PCIe, CXL) or links (NVLink, xGMI, UPI)")]


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
class Bus:
    """Achieved share of the DRAM peak where the CPU's controller, not the DIMM class, decides it."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    efficiency: Annotated[Efficiency, Doc("achieved read bandwidth / peak")]
    turnaround: Annotated[float, Ge(0), Doc("as in the memory part")] = 0.0
    write_cost: Annotated[float, Ge(0), Doc("as in the memory part")] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """One socket."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    kind: Literal["cpu"]
    title: Annotated[str, Doc("name for people")]
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
    hypothetical: Annotated[bool, Doc("does not exist yet")] = False
    basis: Annotated[str, Doc("why a hypothetical part is believed possible")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator as software sees it (an MI250X die is a GPU of its own), or the GPU side of an APU."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    kind: Literal["gpu"]
    title: Annotated[str, Doc("name for people")]
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
    hypothetical: Annotated[bool, Doc("does not exist yet")] = False
    basis: Annotated[str, Doc("why a hypothetical part is believed possible")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link technology, per lane and direction."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    kind: Literal["link"]
    title: Annotated[str, Doc("name for people")]
    type: Annotated[Literal["pcie", "cxl", "nvlink", "c2c", "xgmi", "upi", "network", "sata"], Doc("protocol family")]
    lane_bandwidth: Annotated[
        BytesPerSecond, Ge(0), Doc("raw rate of one lane or link, one direction, after line coding; 0 = transfers x coding / 8")
    ] = 0.0
    transfers: Annotated[TransfersPerSecond, Ge(0), Doc("symbol rate per lane")] = 0.0
    coding: Annotated[Fraction, Gt(0), Le(1), Doc("payload bits / line bits: 8b/10b .8, 128b/130b .985, FLIT .922")] = 1.0
    lanes: Annotated[int, Gt(0), Doc("most lanes or links of one connection")]
    widths: Annotated[tuple[int, ...], Doc("lane counts that exist; empty = any up to the maximum")] = ()
    efficiency: Annotated[Efficiency, Doc("achieved / raw of large copies away from the host (protocol headers, credits)")]
    upward_efficiency: Annotated[Efficiency | None, Doc("copies towards the host; default: as away from it")] = None
    load_efficiency: Annotated[Efficiency | None, Doc("the same for loads by a processor; default: as copies")] = None
    store_efficiency: Annotated[Efficiency | None, Doc("the same for stores; default: as loads")] = None
    cpu_load_efficiency: Annotated[Efficiency | None, Doc("loads by a CPU, whose lines are short; default: as loads")] = None
    cpu_store_efficiency: Annotated[Efficiency | None, Doc("stores by a CPU; default: as stores")] = None
    collective_efficiency: Annotated[Efficiency | None, Doc("rings and meshes; default: as copies")] = None
    partial_efficiency: Annotated[
        Efficiency | None, Doc("network: collectives of part of a node's GPUs, beside those of the others; default: as of all")
    ] = None
    switch_efficiency: Annotated[Efficiency | None, Doc("in-switch reduction; none = the link has none")] = None
    duplex_efficiency: Annotated[Efficiency, Doc("both directions at once / twice one direction")] = 1.0
    request_cost: Annotated[float, Ge(0), Le(1), Doc("bytes of requests and answers the other way per byte of data")] = 0.0
    latency: Annotated[Seconds, Ge(0), Doc("added to a load that crosses it, there and back")] = 0.0
    message_latency: Annotated[Seconds, Ge(0), Doc("one message or collective hop, software included")] = 0.0
    hypothetical: Annotated[bool, Doc("does not exist yet")] = False
    basis: Annotated[str, Doc("why a hypothetical part is believed possible")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A device that joins links: PCIe, CXL or NVLink switch."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    kind: Literal["switch"]
    title: Annotated[str, Doc("name for people")]
    port: Annotated[Port, Doc("link part and lanes (or links) in all")]
    latency: Annotated[Seconds, Ge(0), Doc("added to a load that crosses it, there and back")]
    bandwidth: Annotated[BytesPerSecond, Ge(0), Doc("internal limit of all that crosses it; 0 = non-blocking")] = 0.0
    efficiency: Annotated[Efficiency, Doc("kept of the attached links' achieved bandwidth")] = 1.0
    reduces: Annotated[bool, Doc("adds data in flight (in-switch reduction)")] = False
    power: Annotated[Watts, Ge(0), Doc("0 = not stated")] = 0.0
    hypothetical: Annotated[bool, Doc("does not exist yet")] = False
    basis: Annotated[str, Doc("why a hypothetical part is believed possible")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expander:
    """A CXL Type-3 memory device (one head) or pool device (several heads)."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    kind: Literal["cxl"]
    title: Annotated[str, Doc("name for people")]
    link: Annotated[Port, Doc("CXL port of one head")]
    heads: Annotated[Count, Doc("hosts that can attach at the same time")] = 1
    memory: Annotated[str, Doc("memory part behind the controller")]
    channels: Annotated[Count, Doc("memory channels behind the controller")]
    capacity: Annotated[Bytes, Gt(0), Doc("largest")]
    latency: Annotated[Latency, Doc("as seen by a core of a host that it hangs on directly; switches add theirs")]
    media_efficiency: Annotated[Efficiency, Doc("kept by the controller of the media's achieved bandwidth")] = 1.0
    read_bandwidth: Annotated[BytesPerSecond, Ge(0), Doc("controller limit, reads; 0 = none")] = 0.0
    write_bandwidth: Annotated[BytesPerSecond, Ge(0), Doc("controller limit, writes; 0 = none")] = 0.0
    dynamic_capacity: Annotated[bool, Doc("grants and releases capacity at run time (CXL 3)")] = False
    extent: Annotated[Bytes, Gt(0), Doc("capacity is granted and released in whole extents of this size")] = EXTENT_BYTES
    grant_latency: Annotated[Seconds, Gt(0), Doc("from a host's request for capacity to the first access")] = GRANT_S
    release_bandwidth: Annotated[
        BytesPerSecond, Gt(0), Doc("capacity that a host gives back per second (its kernel takes the pages offline)")
    ] = RELEASE_BYTES_PER_S
    back_invalidate: Annotated[bool, Doc("hardware coherence among hosts (CXL 3)")] = False
    snoop_filter: Annotated[
        Bytes, Ge(0), Doc("cached lines of shared regions that it tracks, in bytes of lines; 0 = all that the caches hold")
    ] = 0.0
    power: Annotated[Watts, Ge(0), Doc("0 = not stated")] = 0.0
    hypothetical: Annotated[bool, Doc("does not exist yet")] = False
    basis: Annotated[str, Doc("why a hypothetical part is believed possible")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """An SSD, or a persistent-memory module."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    kind: Literal["nvme", "pmem"]
    title: Annotated[str, Doc("name for people")]
    link: Annotated[Port | None, Doc("host link; none for memory-bus modules")] = None
    capacity: Annotated[Bytes, Gt(0), Doc("as sold")]
    read_bandwidth: Annotated[BytesPerSecond, Gt(0), Doc("sequential, datasheet")]
    write_bandwidth: Annotated[BytesPerSecond, Gt(0), Doc("sequential, datasheet")]
    efficiency: Annotated[Efficiency, Doc("achieved / datasheet through a file system")] = 1.0
    read_latency: Annotated[Seconds, Gt(0), Doc("one small random read")]
    write_latency: Annotated[Seconds, Gt(0), Doc("one small write, as acknowledged")]
    read_operations: Annotated[Hertz, Ge(0), Doc("most random reads per second; 0 = not stated")] = 0.0
    queue_depth: Annotated[Count, Doc("commands in flight that software keeps")] = 32
    granularity: Annotated[Bytes, Gt(0), Doc("bytes of one access")] = 4096.0
    power: Annotated[Watts, Ge(0), Doc("0 = not stated")] = 0.0
    hypothetical: Annotated[bool, Doc("does not exist yet")] = False
    basis: Annotated[str, Doc("why a hypothetical part is believed possible")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A network adapter."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    kind: Literal["nic"]
    title: Annotated[str, Doc("name for people")]
    port: Annotated[Port, Doc("network link part and ports")]
    link: Annotated[Port | None, Doc("host link; none = on the module")] = None
    power: Annotated[Watts, Ge(0), Doc("0 = not stated")] = 0.0
    hypothetical: Annotated[bool, Doc("does not exist yet")] = False
    basis: Annotated[str, Doc("why a hypothetical part is believed possible")] = ""


Part = Memory | Cpu | Gpu | Link | Switch | Expander | Storage | Nic
KINDS: dict[str, type[Part]] = {
    "memory": Memory, "cpu": Cpu, "gpu": Gpu, "link": Link, "switch": Switch, "cxl": Expander, "nvme": Storage, "pmem": Storage,
    "nic": Nic,
}  # fmt: skip
