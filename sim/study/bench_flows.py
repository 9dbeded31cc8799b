"""Flows of one microbenchmark replayed side by side on a machine, by the same engine as any scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from sim.engine import replay
from sim.errors import InternalError
from sim.program.collectives import CollectiveFlow
from sim.records import INFINITY, Channel, Kind, Operation, Program, Stream, Uses
from sim.topology.machine import Machine
from sim.topology.route import Route, merged

#: how much longer than the measured stream its neighbours run
_ENDLESS = 1e4


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One stream of a microbenchmark: bytes of work, channel costs per byte, what bounds it."""

    work: float
    uses: Uses
    rate_cap: float = INFINITY
    latency_s: float = 0.0
    window_bytes: float = 0.0
    write_share: float = 0.0
    weight: float = 1.0


def of_route(route: Route, work: float, *, write_share: float = 0.0) -> Load:
    """A load that moves `work` bytes over a route."""
    return Load(
        work=work,
        uses=route.uses,
        rate_cap=route.rate_cap_bytes_per_s,
        latency_s=route.latency_s,
        window_bytes=route.window_bytes,
        write_share=write_share,
        weight=route.weight,
    )


def of_collective(flow: CollectiveFlow) -> Load:
    """A load that is one rank's part of a collective."""
    return Load(work=flow.work_bytes, uses=flow.uses, rate_cap=flow.rate_cap, latency_s=flow.latency_s)


def spread(parts: Sequence[tuple[Route, float]], work: float, *, write_share: float = 0.0) -> Load:
    """One load whose bytes go over several routes at once, in fixed shares (page interleave)."""
    listed = [(route, share) for route, share in parts if share > 0]
    uses = merged(*(tuple((channel, cost * share) for channel, cost in route.uses) for route, share in listed))
    # In flight the requests divide as the latencies do: the window of the mix is that of any of its routes.
    window = max(route.window_bytes for route, _share in listed) if len(listed) == 1 else 0.0
    return Load(
        work=work,
        uses=uses,
        rate_cap=min(route.rate_cap_bytes_per_s for route, _share in listed),
        latency_s=max(route.latency_s for route, _share in listed),
        window_bytes=window,
        write_share=write_share,
        weight=max(route.weight for route, _share in listed),
    )


def times(machine: Machine, loads: Sequence[Load], *, scaled: Mapping[str, float] | None = None) -> tuple[float, ...]:
    """Seconds from the common start to the end of each load. `scaled` multiplies bandwidths of channels."""
    scaled = scaled or {}
    names = {channel for load in loads for channel, _cost in load.uses}
    channels = tuple(_scaled(machine.channels[name], scaled.get(name, 1.0)) for name in sorted(names))
    operations = tuple(
        Operation(
            id=f"load{i}",
            kind=Kind.TRANSFER,
            stream=f"stream{i}",
            sequence=0,
            work=load.work,
            uses=load.uses,
            rate_cap=load.rate_cap,
            latency_s=load.latency_s,
            window_bytes=load.window_bytes,
            write_share=load.write_share,
            weight=load.weight,
        )
        for i, load in enumerate(loads)
    )
    program = Program(
        name=f"bench of {machine.name}",
        channels=channels,
        tiers=(),
        streams=tuple(Stream(name=f"stream{i}") for i in range(len(loads))),
        operations=operations,
    )
    ends = {record.id: record.end_s for record in replay(program).operations}
    found = tuple(ends[f"load{i}"] for i in range(len(loads)))
    if min(found) <= 0.0:
        raise InternalError(f"a benchmark of {machine.name} took no time")
    return found


def beside(machine: Machine, load: Load, others: Sequence[Load], *, scaled: Mapping[str, float] | None = None) -> float:
    """Seconds that `load` takes while `others` run all the time: their work is stretched so that they end later."""
    endless = [replace(other, work=_ENDLESS * max(load.work, other.work), latency_s=0.0) for other in others]
    return times(machine, [load, *endless], scaled=scaled)[0]


def _scaled(channel: Channel, factor: float) -> Channel:
    if factor == 1.0:
        return channel
    return msgspec.structs.replace(channel, bandwidth_per_s=channel.bandwidth_per_s * factor)
