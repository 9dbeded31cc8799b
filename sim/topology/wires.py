"""From links as described to directed edges and their channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations

from sim.laws.links import lane
from sim.records import Channel, LatencyLaw
from sim.topology import parts as p
from sim.topology.description import LinkEntry, Topology
from sim.topology.graph import Edge, Traffic

#: parts at the two ends of a link, the host's side first; None = out of the machine
Ends = tuple[p.Part | None, p.Part | None]


def expand(pattern: str, names: Mapping[str, object]) -> list[str]:
    """Device names that a pattern such as 'gpu*' means, in file order."""
    return [name for name in names if fnmatchcase(name, pattern)]


def connections(entry: LinkEntry, names: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The pairs of devices that a link entry joins, each once."""
    seen: set[frozenset[str]] = set()
    pairs: list[tuple[str, str]] = []
    if entry.between:
        pairs += [(a, b) for a in expand(entry.between[0], names) for b in expand(entry.between[1], names)]
    if entry.matched:
        left, right = (expand(pattern, names) for pattern in entry.matched)
        num = max(len(left), len(right)) if left and right else 0
        pairs += [(left[i * len(left) // num], right[i * len(right) // num]) for i in range(num)]
    pairs += combinations([name for pattern in entry.mesh for name in expand(pattern, names)], 2)
    pairs += entry.pairs
    for a, b in pairs:
        if a != b and frozenset((a, b)) not in seen:
            seen.add(frozenset((a, b)))
            yield a, b


#: of the raw rate that a drive's own DMA reaches: 256 B of payload with 24 B of header, sequence, CRC and framing (PCI
#: Express Base Specification 4.0, 2.2 and 3.4); a drive's datasheet is measured over such a link
_DRIVE_EFFICIENCY = 256 / 280


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """The link by which a device hangs on another: which generation and how many lanes."""

    part: str
    lanes: int


def connection_of(name: str, topology: Topology, parts: Mapping[str, p.Part]) -> Uplink | None:
    """The link by which a device hangs on `to`: as written, else (or what is left out) the part's own port.

    A switch has one x16 uplink of its port's generation. A generation that is not written is the fastest that both
    ends have. CXL runs over PCIe lanes: an expander's link written as PCIe is the CXL link of its own port.
    """
    entry = topology.devices[name]
    part = parts[entry.part]
    port = getattr(part, "link", None) or getattr(part, "pcie", None)
    own = (part.port.part, 16) if isinstance(part, p.Switch) else (port.part, port.lanes) if port else ("", 0)
    written = entry.link.part if entry.link else ""
    if isinstance(part, p.Expander) and _carries(parts.get(written), parts.get(own[0])):
        written = own[0]
    lanes = (entry.link.lanes if entry.link else None) or own[1]
    chosen = written or _slowest(own[0], [parts[topology.devices[up].part] for up in entry.to if up in topology.devices], parts)
    return Uplink(part=chosen, lanes=lanes) if chosen and lanes else None


def _carries(written: p.Part | None, own: p.Part | None) -> bool:
    """Whether `written` is the PCIe generation on whose lanes the CXL link `own` runs."""
    if not isinstance(written, p.Link) or not isinstance(own, p.Link):
        return False
    return (written.type, own.type) == ("pcie", "cxl") and written.transfers == own.transfers


def _slowest(own: str, above: list[p.Part], parts: Mapping[str, p.Part]) -> str:
    """The slowest of a device's link and the links of the same kind of what it hangs on."""
    link = parts.get(own)
    if not isinstance(link, p.Link) or link.type not in ("pcie", "cxl"):
        return own
    chosen = own
    for up in above:
        ports = [up.port] if isinstance(up, p.Switch) else [up.cxl, up.pcie] if isinstance(up, p.Cpu) else []
        for port in ports:
            theirs = parts.get(port.part) if port else None
            if port is not None and isinstance(theirs, p.Link) and theirs.type == link.type:
                chosen = min((chosen, port.part), key=lambda name: raw_rate(parts[name]))  # type: ignore[arg-type]
    return chosen


def raw_rate(link: p.Link) -> float:
    """Raw bytes/s of one lane and direction, after line coding."""
    return link.lane_bandwidth or lane(link.transfers, link.coding)


def join(
    a: str,
    b: str,
    link: p.Link,
    lanes: int,
    *,
    ends: Ends,
    limits: tuple[float, float] = (0.0, 0.0),
) -> tuple[list[Channel], list[Edge]]:
    """Channels and the two edges of one link; `a` is the side of the host, `ends` the parts at both ends.

    `limits` bound the data rate a -> b and b -> a where an end cannot follow the link (bytes/s, 0 = none).
    """
    raw = raw_rate(link) * lanes
    both = _both_ways(a, b, link, raw, ends)
    is_collective_free = link.type == "nvlink"  # collectives push their data and lose nothing
    requested = both[0].name if both and is_collective_free else ""
    shared = tuple(channel.name for channel in both) if not is_collective_free else ()
    channels, edges = list(both), []
    for source, target, limit in ((a, b, limits[0]), (b, a, limits[1])):
        is_downward = source == a
        shares = _limited(link, ends, is_downward=is_downward, most=(limit or raw) / raw)  # the end may be slower than the link
        best = max(shares.values())
        hop_s = _hop(link, _switches(ends), near=_near(ends), is_downward=is_downward)
        name = f"{source}->{target}.{link.type}"
        law = LatencyLaw(idle_latency_s=hop_s) if hop_s > 0 else None
        channels.append(Channel(name=name, bandwidth_per_s=raw * best, latency=law))
        edges.append(
            Edge(
                source=source,
                target=target,
                link=link.type,
                channels=(name, *shared),
                requested=requested,
                bandwidth_bytes_per_s=raw * best,
                raw_bytes_per_s=raw,
                costs=tuple((traffic, best / share) for traffic, share in shares.items()),
                request_cost=link.request_cost,
                message_latency_s=link.message_latency,
                lanes=lanes,
            )
        )
    return channels, edges


def _switches(ends: Ends) -> list[p.Switch]:
    return [part for part in ends if isinstance(part, p.Switch)]


def _kept(ends: Ends) -> float:
    """Share of the link's achieved bandwidth that a switch at one of its ends leaves."""
    return min((switch.efficiency for switch in _switches(ends)), default=1.0)


def _both_ways(a: str, b: str, link: p.Link, raw: float, ends: Ends) -> tuple[Channel, ...]:
    """The channel that both directions share, if they hinder each other (a socket's PCIe port decides where it is one end)."""
    duplex = ends[0].port_duplex if isinstance(ends[0], p.Cpu) and link.type == "pcie" else link.duplex_efficiency
    if duplex >= 1.0:
        return ()
    rate = raw * _kept(ends) * duplex * (link.efficiency + (link.upward_efficiency or link.efficiency))
    return (Channel(name=f"{a}<->{b}.{link.type}", bandwidth_per_s=rate),)


def _limited(link: p.Link, ends: Ends, *, is_downward: bool, most: float) -> dict[Traffic, float]:
    """Achieved / raw of one direction by kind of traffic, at most `most`: behind a switch, and to a drive's own pace."""
    least = _DRIVE_EFFICIENCY if link.type == "pcie" and isinstance(ends[1], p.Storage) else 0.0
    copy = max(link.efficiency if is_downward else link.upward_efficiency or link.efficiency, least)
    kept = _kept(ends)
    return {traffic: min(share * kept, most) for traffic, share in _shares(link, copy).items()}


def _shares(link: p.Link, copy: float) -> dict[Traffic, float]:
    """Achieved share of the raw rate by kind of traffic, in one direction."""
    load = link.load_efficiency or copy
    store = link.store_efficiency or load
    return {
        "copy": copy,
        "load": load,
        "store": store,
        "cpu_load": link.cpu_load_efficiency or load,
        "cpu_store": link.cpu_store_efficiency or store,
        "collective": link.collective_efficiency or copy,
        "partial": link.partial_efficiency or link.collective_efficiency or copy,
        "reduction": link.switch_efficiency or link.collective_efficiency or copy,
    }


def _near(ends: Ends) -> tuple[float, float]:
    """Seconds from a core of each end to its last-level cache; (0, 0) where either end does not say."""
    near = [getattr(part, "near_latency", 0.0) for part in ends]
    return (near[0], near[1]) if all(near) else (0.0, 0.0)


def _hop(link: p.Link, switches: list[p.Switch], *, near: tuple[float, float], is_downward: bool) -> float:
    """Seconds that a load whose data crosses this way adds to the latency of the memory as its owner sees it.

    Data that flows down (a -> b) was asked for by `b`: its core's own part replaces that of `a`. A link's latency is that
    of a way between two devices: half of it is charged at each end that is no switch, and half of a switch to each of its
    links.
    """
    own = near[1] - near[0] if is_downward else near[0] - near[1]
    ends = (2 - len(switches)) / 2
    return max(0.0, link.latency * ends + own + sum(switch.latency for switch in switches) / 2)
