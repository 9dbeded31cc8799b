"""The two things that tools tell: a layout of devices, and figures measured on them. SI units throughout."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

At = Mapping[str, float | str]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number.

    quantity           at                                  value
    memory_latency     from_node, to_node                  s, dependent load on an idle system
    memory_bandwidth   from_node, to_node                  bytes/s, reads
    system_bandwidth   write_share                         bytes/s, all sockets on their own memory
    loaded_latency     bandwidth_bytes_per_s, write_share  s
    stream             kernel (copy scale add triad), threads  bytes/s as STREAM counts them
    device_stream      kernel, device                      bytes/s
    copy               direction (h2d d2h d2d p2p), device, is_pinned, is_duplex, size_bytes  bytes/s
    collective         kind, ranks, nodes (0 = not told), size_bytes  s
    storage_bandwidth  direction (read write), block_bytes, depth, pattern, is_mixed  bytes/s
    storage_latency    direction, block_bytes, depth, is_mixed  s
    gpu_name           device                              0; `text` has the name
    """

    quantity: str
    value: float
    source: str  # file and, where one number stands for many, how it was taken
    at: At = {}
    text: str = ""


class Socket(msgspec.Struct, frozen=True, kw_only=True):
    """One CPU package."""

    model: str = ""
    cores: int = 0
    last_level_cache_bytes: float = 0.0
    #: what the number of cores rests on, where the tool does not list them; a catalogue part's number is better then
    note: str = ""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One NUMA node; `kind` dram hbm cxl pmem spm gpu. `socket` is its nearest; rates are 0 where the file has none."""

    number: int
    kind: str = "dram"
    capacity_bytes: float = 0.0
    socket: int = 0
    bandwidth_bytes_per_s: float = 0.0
    latency_s: float = 0.0


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """A device on a bus. `switch` names the PCIe switch that it shares with others ("" = none known)."""

    kind: str  # gpu nic nvme cxl
    name: str = ""
    model: str = ""
    socket: int = 0
    switch: str = ""
    link_bytes_per_s: float = 0.0
    capacity_bytes: float = 0.0


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Sockets, memory nodes and devices of one host, as one file describes them."""

    source: str
    name: str = ""
    sockets: tuple[Socket, ...] = ()
    nodes: tuple[Node, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    #: (gpu, gpu) -> links between them, where the file counts links
    gpu_links: dict[tuple[int, int], int] = {}
    #: (gpu, gpu) -> bytes/s one way, where the file has rates
    gpu_rates: dict[tuple[int, int], float] = {}
    #: bytes/s one way from a GPU into a switch of GPU links; 0 = there is none
    gpu_switch_bytes_per_s: float = 0.0
    #: maker of the GPUs where the tool is its maker's own: "nvidia", "amd"
    gpu_vendor: str = ""
    #: GPUs whose memory is a NUMA node of the host's (Grace superchips)
    has_gpu_nodes: bool = False
    notes: tuple[str, ...] = ()

    def of_kind(self, kind: str) -> list[Adapter]:
        """Devices of a kind in the order of the file."""
        return [adapter for adapter in self.adapters if adapter.kind == kind]
