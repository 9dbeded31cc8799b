"""Devices that are memory or storage: CXL expanders and pools, drives, persistent-memory modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from sim.topology.parts.described import Count, Described, Efficiency, Latency, Port
from sim.units import Bytes, BytesPerSecond, Doc, Hertz, Seconds, Watts

#: pools are shared in slices of 1 GB; a kernel takes 10 to 100 ms per GB offline (here 50), and microseconds online
#: (Pond, ASPLOS 2023, section 4.2)
EXTENT_BYTES, RELEASE_BYTES_PER_S = 2.0**30, 20e9
#: request, command of the fabric manager, event to the host and its response; assumed (0.1 to 10 ms)
GRANT_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Expander(Described):
    """A CXL Type-3 memory device (one head) or pool device (several heads)."""

    kind: Literal["cxl"]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage(Described):
    """An SSD, or a persistent-memory module."""

    kind: Literal["nvme", "pmem"]
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
