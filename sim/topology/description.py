"""What a topology file says: devices that name parts, how they are populated, and what joins them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from sim.topology.parts import STRICT, Count, Part
from sim.units import GIB, Bytes, Doc, Fraction, TransfersPerSecond, Watts

#: of an idle Linux server with its services; assumed
RESERVED_BYTES = 3.0 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Populated:
    """DIMMs in a socket's channels."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    part: Annotated[str, Doc("memory part of every DIMM")]
    channels: Annotated[Count, Doc("channels that hold DIMMs")]
    capacity: Annotated[Bytes, Gt(0), Doc("all DIMMs of the socket together")]
    dimms_per_channel: Annotated[int, Ge(1), Le(2), Doc("1 or 2; two lower the speed on most sockets")] = 1
    overclocked: Annotated[bool, Doc("may run above the socket's rated speed (XMP, EXPO profiles)")] = False
    transfers: Annotated[
        TransfersPerSecond | None, Gt(0), Doc("speed it runs at; default the fastest that part and socket allow")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A link as built: which generation and how many lanes."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    part: Annotated[str, Doc("link part; default the port of the device's own part")] = ""
    lanes: Annotated[Count | None, Doc("lanes or links in use; default all of that port")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEntry:
    """One device of the machine."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    part: Annotated[str, Doc("part name from topologies/parts or from `parts` of this file")]
    memory: Annotated[Populated | None, Doc("DIMMs (CPU sockets)")] = None
    link: Annotated[Connection | None, Doc("link to `to`: {part, lanes} or short 'pcie5-x8'; default the part's own")] = None
    to: Annotated[tuple[str, ...], Doc("device that it hangs on; a list for a device with several heads")] = ()
    capacity: Annotated[
        Bytes | None,
        Gt(0),
        Doc("what programs can use of its memory; default the part's, of an NVIDIA board less what driver and ECC keep"),
    ] = None
    ecc: Annotated[
        bool | None, Doc("error correction of a GPU's GDDR6, which takes a sixteenth of it; default as the part is delivered")
    ] = None
    peer_over_pcie: Annotated[
        bool | None,
        Doc("copies to other GPUs over PCIe: a patched driver allows them, a virtual machine may not; default the part's"),
    ] = None
    count: Annotated[Count, Doc("identical devices used as one (RAID0 of drives, interleave set of modules)")] = 1
    host: Annotated[str, Doc("host that the socket belongs to; devices below it inherit it")] = ""
    cores: Annotated[
        Count | None,
        Doc("cores that the jobs may use (a container, a virtual machine, a batch job); default all"),
    ] = None
    speed: Annotated[Fraction, Gt(0), Le(1), Doc("share of its compute and memory rate that it reaches (a straggler)")] = 1.0
    power_cap: Annotated[Watts, Ge(0), Doc("power limit of a GPU's board; its compute falls with the cube root; 0 = none")] = (
        0.0
    )
    taken: Annotated[Fraction, Ge(0), Le(0.99), Doc("share of its memory bandwidth that a neighbour takes")] = 0.0
    gpu_share: Annotated[
        Fraction | None,
        Gt(0),
        Le(1),
        Doc("share of one memory for CPU and GPU that the GPU may allocate; default what the system gives unless told"),
    ] = None
    gpu_limit: Annotated[
        Bytes | None, Gt(0), Doc("the same in bytes (ttm.pages_limit x 4 KiB on Linux, iogpu.wired_limit_mb on a Mac)")
    ] = None
    snoop_filter: Annotated[
        Bytes | None,
        Gt(0),
        Doc("pool device: cached lines of shared regions that it tracks, in bytes of lines; default the part's"),
    ] = None
    mode: Annotated[
        Literal["app_direct", "memory"],
        Doc("persistent memory: a tier of its own, or the socket's memory with its DRAM as a direct-mapped cache"),
    ] = "app_direct"
    page_layout: Annotated[
        Literal["scattered", "contiguous"],
        Doc("memory mode: pages as a long-running Linux deals them out, or those of a fresh start and of huge pages"),
    ] = "scattered"
    zone: Annotated[
        Literal["normal", "movable"],
        Doc(
            "how Linux onlines the memory of an expander or of persistent memory: movable holds no page-locked buffers and "
            "nothing of the kernel's"
        ),
    ] = "normal"
    grants: Annotated[dict[str, Bytes], Doc("pool device: bytes granted to each host at the start")] = field(
        default_factory=dict
    )

    def joined_capacity(self, each: float) -> float:
        """Bytes of all `count` devices together: as written, or that many of a part that holds `each`."""
        return self.capacity or each * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEntry:
    """Links between devices that already exist: NVLink, xGMI, UPI, chip-to-chip."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    part: Annotated[str, Doc("link part")]
    lanes: Annotated[Count, Doc("links (or lanes) of each connection")]
    between: Annotated[tuple[str, str] | None, Doc("two ends; 'gpu*' means each device of that name")] = None
    mesh: Annotated[tuple[str, ...], Doc("devices joined each with each; 'gpu*' allowed")] = ()
    matched: Annotated[tuple[str, str] | None, Doc("in file order: each of the longer list with its part of the other")] = None
    pairs: Annotated[tuple[tuple[str, str], ...], Doc("listed connections")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What a topology file says about the whole machine."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Annotated[str, Doc("name; default the file's")] = ""
    title: Annotated[str, Doc("name for people")] = ""
    source: Annotated[str, Doc("where the arrangement is documented")] = ""
    nodes: Annotated[Count, Doc("identical nodes, joined by their network adapters")] = 1
    assumptions: Annotated[tuple[str, ...], Doc("what was assumed about the machine")] = ()
    reserved: Annotated[
        Bytes, Ge(0), Doc("host memory that system, services and other jobs hold on each host; default assumed")
    ] = RESERVED_BYTES
    memory_limit: Annotated[
        Bytes | None,
        Gt(0),
        Doc("host memory that the jobs of a host may use (a container, a batch job, WSL 2: half of the RAM); default all"),
    ] = None
    pinned_limit: Annotated[
        Bytes | None,
        Gt(0),
        Doc("page-locked memory that the system allows on each host (Windows and WSL 2: half of the RAM); default all"),
    ] = None
    shared_limit: Annotated[
        Bytes | None, Gt(0), Doc("shared memory (/dev/shm) that loader workers may fill; a container of Docker has 64 MiB")
    ] = None

    shared_gpu_memory: Annotated[
        Bytes | None,
        Gt(0),
        Doc("host memory that the driver lends to full GPUs of a host (Windows: half of the RAM); default none: they fail"),
    ] = None

    @property
    def limits(self) -> dict[str, float]:
        """What the system limits on each host, in bytes, by the name of its key."""
        given = {"memory_limit": self.memory_limit, "pinned_limit": self.pinned_limit, "shared_limit": self.shared_limit}
        return {name: size for name, size in given.items() if size is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology(Heading):
    """One machine, or a cluster of identical nodes of which one is described."""

    devices: Annotated[dict[str, DeviceEntry], Doc("devices by name")]
    links: Annotated[dict[str, LinkEntry], Doc("further links by name")] = field(default_factory=dict)
    parts: Annotated[dict[str, Part], Doc("parts defined here (inline, or hypothetical)")] = field(default_factory=dict)
